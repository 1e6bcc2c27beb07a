//! Problems of TLS, trusted proxies and credentials in topologies.

use super::{NODE, told};

const UPSTREAM: &str = "[[upstream]]\nid = \"a\"\nurl = \"https://x/\"";
const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:7000\"\nprotocol = ";

/// Goal: keys of TLS that contradict each other, or name unusable files, are reported. Method: rows
/// with an upstream, a listener, a clinic and an agent.
#[test]
fn tls_keys() {
    let mcp = format!("{UPSTREAM}\n{LISTENER}\"mcp\"\ndialect = \"mcp\"");
    let tls = "tls = { certificate = \"no.pem\", key = \"no-key.pem\" }";
    for (lines, wanted) in [
        (
            "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\nca = \"no.pem\"".to_owned(),
            &["`ca` is for an https or wss URL", "failed to read /nowhere/no.pem"][..],
        ),
        (
            "[[upstream]]\nid = \"a\"\ncommand = [\"sh\"]\nca = \"no.pem\"".to_owned(),
            &["`ca` is for upstreams with a `url`", "`ca`: failed to read"],
        ),
        (
            format!("{UPSTREAM}\nclient_certificate = \"no.pem\""),
            &["`client_certificate`: write `client_certificate` and `client_key`"],
        ),
        (
            format!("{UPSTREAM}\nclient_key = \"no.pem\""),
            &["`client_key`: write `client_certificate` and `client_key`"],
        ),
        (
            format!("{UPSTREAM}\nclient_certificate = \"no.pem\"\nclient_key = \"no.pem\""),
            &["`client_certificate`: failed to read /nowhere/no.pem"],
        ),
        (
            format!("{mcp}\n{tls}"),
            &["`tls`: failed to read /nowhere/no.pem"],
        ),
        (
            format!("{mcp}\ntls = {{ certificate = \"no.pem\" }}"),
            &["lacks `key`"],
        ),
        (
            format!("{mcp}\nanonymous = \"operator\"\ntrusted_proxies = [\"10.0.0.0/8\"]"),
            &["`trusted_proxies`: requests to this address or name come through a proxy"],
        ),
        (
            format!("{mcp}\ntrusted_proxies = [\"10.0.0.0/8\"]"),
            &["`trusted_proxies`: everybody beyond the proxy could use this listener"],
        ),
        (
            format!("{mcp}\ntrusted_proxies = [\"10.0.0.1/8\"]"),
            &["with all other bits zero"],
        ),
        (
            format!(
                "{UPSTREAM}\n{LISTENER}\"mcp\"\nagent = \"a\"\ncompat = [\"bare\"]\ntrusted_proxies = [\"10.0.0.0/8\"]"
            ),
            &["`trusted_proxies`, `hosts`"],
        ),
        (
            "[[clinic]]\nid = \"c\"\nspecialty = \"s\"\nbearer_env = \"NO_SUCH_VARIABLE\"\nca = \"no.pem\"".to_owned(),
            &["there is no environment variable NO_SUCH_VARIABLE", "`ca`: failed to read /nowhere/no.pem"],
        ),
        (
            "[[agent]]\nkind = \"a2a\"\nid = \"b\"\nurl = \"https://x/\"\nca = \"no.pem\"".to_owned(),
            &["`ca`: failed to read /nowhere/no.pem"],
        ),
        (
            "[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"ollama\"\nmodel = \"m\"\nca = \"no.pem\"".to_owned(),
            &["`ca`: failed to read /nowhere/no.pem"],
        ),
    ] {
        let told = told(&format!("{NODE}{lines}\n"), false);
        for wanted in wanted {
            let is_told = told.iter().any(|line| line.contains(wanted));
            assert!(is_told, "{lines}: {wanted}: {told:?}");
        }
        assert_eq!(told.len(), wanted.len(), "{lines}: {told:?}");
    }
}
