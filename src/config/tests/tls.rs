//! Problems of TLS, trusted proxies and credentials in topologies.

use std::path::Path;

use super::{NODE, told};
use crate::config::Topology;
use crate::config::tls::CERTIFICATE_CLIENTS_MAX;

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
            &["write `certificate` and `key`"],
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
            &["`trusted_proxies`, `proxy_protocol`, `hosts`"],
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

/// Returns the problems of an MCP listener with these lines, and with these entries in the list of
/// clients that are known by their certificates.
fn problems_of_clients(lines: &str, clients: &str) -> Vec<String> {
    told(
        &format!(
            "{NODE}{UPSTREAM}\n[[listener]]\nprotocol = \"mcp\"\n{lines}\n\
             tls = {{ certificate = \"no.pem\", key = \"no-key.pem\", client_ca = \"ca.pem\", client = [{clients}] }}\n"
        ),
        false,
    )
}

/// Goal: clients that can't be known by a certificate are reported, and others aren't. Method: rows of
/// clients, the maximum of them and one more; files that aren't there are reported besides.
#[test]
fn certificate_clients() {
    let numbered = |count: usize| {
        let all = (0..count).map(|at| format!("{{ name = \"c{at}.example\" }}"));
        all.collect::<Vec<_>>().join(", ")
    };
    let robot = "{ name = \"robot.example\", principal = \"robot\", scopes = [\"mail.watch\", \"tenant:a\"] }";
    let local = "dialect = \"mcp\"\nbind = \"127.0.0.1:7000\"";
    let remote = "dialect = \"mcp\"\nbind = \"0.0.0.0:7000\"";
    for (lines, clients, wanted) in [
        (local, robot.to_owned(), &[][..]),
        (remote, robot.to_owned(), &[]),
        (
            remote,
            String::new(),
            &["client certificates (`[[listener.tls.client]]`)"],
        ),
        (local, numbered(CERTIFICATE_CLIENTS_MAX), &[]),
        (
            local,
            numbered(CERTIFICATE_CLIENTS_MAX + 1),
            &["`client` has 257 entries, and 256 are allowed"],
        ),
        (
            local,
            format!("{robot}, {robot}"),
            &["the client \"robot.example\" is there twice"],
        ),
        (
            local,
            "{ name = \"*.example\", principal = \"robot\" }".to_owned(),
            &["the client \"*.example\": `name` must be a DNS name"],
        ),
        (
            local,
            "{ name = \"a.example\", principal = \"a b\" }".to_owned(),
            &["the client \"a.example\": `principal`, by default the name, must have 1 to 64"],
        ),
        (
            local,
            "{ name = \"a.example\", scopes = [\"patient:PT1\"] }".to_owned(),
            &["the client \"a.example\": `scopes` can't have `patient:…`"],
        ),
        (
            "dialect = \"mcp\"\nbind = \"127.0.0.1:7000\"\nanonymous = \"guest\"",
            robot.to_owned(),
            &["`anonymous`: with `keys`, `auth` or `tls.client`"],
        ),
        (
            "compat = [\"bare\"]\nagent = \"a\"\nbind = \"127.0.0.1:7000\"",
            robot.to_owned(),
            &["`tls`: the dialect \"bare\" has no credentials"],
        ),
    ] {
        let told = problems_of_clients(lines, &clients);
        let missing = "`tls`: failed to read /nowhere/";
        for wanted in wanted.iter().chain([&missing]) {
            let is_told = told.iter().any(|line| line.contains(wanted));
            assert!(is_told, "{lines} {clients}: {wanted}: {told:?}");
        }
        assert_eq!(told.len(), wanted.len() + 1, "{lines} {clients}: {told:?}");
    }
    let without_ca = format!(
        "{NODE}{UPSTREAM}\n{LISTENER}\"mcp\"\ndialect = \"mcp\"\n\
         tls = {{ certificate = \"no.pem\", key = \"no-key.pem\", client = [{robot}] }}\n"
    );
    let told = told(&without_ca, false);
    let is_told = |line: &String| line.contains("`client` needs `client_ca`");
    assert!(told.iter().any(is_told), "{told:?}");
}

/// Goal: a client's principal is its name unless the file says otherwise, and a changed list is a
/// changed listener. Method: the listener of two files that differ in a scope.
#[test]
fn clients_of_a_listener() {
    let parse = |scope: &str| {
        let text = format!(
            "{NODE}{UPSTREAM}\n{LISTENER}\"mcp\"\ndialect = \"mcp\"\n\
             [listener.tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"ca\"\n\
             [[listener.tls.client]]\nname = \"robot.example\"\nscopes = [\"{scope}\"]\n"
        );
        Topology::parse(&text, false, Path::new("/nowhere")).unwrap()
    };
    let (one, other) = (parse("a"), parse("b"));
    let listener = &one.listeners[0];
    assert!(listener.requires_credential());
    let client = listener.certificate_clients()[0].to_client();
    assert_eq!(
        (&*client.name, &*client.principal, &*client.scopes),
        ("robot.example", "robot.example", &["a".to_owned()][..])
    );
    assert_ne!(one.fingerprints.listeners, other.fingerprints.listeners);
}
