//! Topology of callboard as a gateway, for each contestant.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Contestant;
use crate::echo::Era;
use crate::issuer::{SigningKey, now_s};

/// Access of clients without a credential. Rules bind guests, but not the operator.
const GUEST_ACCESS: &str = "anonymous = \"guest\"\n";

/// Access of clients with a token of [`access_token`].
const TOKEN_ACCESS: &str = r#"
[listener.auth]

[[listener.auth.issuer]]
name = "bench"
issuer = "https://issuer.example"
jwks = "jwks.json"
audiences = ["bench"]
"#;

/// Audit with one entry for each call, in a SQLite file beside the topology. The default is such a file
/// too, with rejections and consents only.
const AUDIT: &str = r#"
[store]
audit = "calls"
"#;

/// Console of which nobody has a page open.
const CONSOLE: &str = "\n[console]\nbind = \"127.0.0.1:0\"\n";

/// Limits that are never reached, and ten rules of which the last is the first that applies.
const POLICIES: &str = r#"
[policy]
per_client_per_second = 1_000_000
per_tool_per_second = { "echo" = 1_000_000, "read_*" = 1_000_000 }

[[policy.rules]]
id = "never"
effect = "deny"
tools = ["drop_*", "delete_*", "admin_*"]

[[policy.rules]]
id = "blocked"
effect = "deny"
principals = ["token:corp.mallory", "api_key:old-*"]

[[policy.rules]]
id = "platform"
effect = "allow"
scopes = ["role:platform"]

[[policy.rules]]
id = "payments"
effect = "allow"
scopes = ["role:payments"]
agents = ["payments-*"]

[[policy.rules]]
id = "everybody-reads"
effect = "allow"
tools = ["get_*", "list_*", "read_*", "search_*"]

[[policy.rules]]
id = "treatment"
effect = "allow"
classes = ["clinical"]
purposes = ["treatment"]

[[policy.rules]]
id = "no-clinical-data"
effect = "deny"
classes = ["clinical"]

[[policy.rules]]
id = "no-writes"
effect = "deny"
tools = ["upstream.write_*"]

[[policy.rules]]
id = "no-secrets"
effect = "deny"
tools = ["echo"]
when = [{ argument = "text", matches = "secret*" }]

[[policy.rules]]
id = "guests"
effect = "allow"
principals = ["anonymous:*"]
"#;

/// Topology file of a gateway.
pub struct WrittenTopology {
    /// Path of the file.
    pub file: PathBuf,
    /// Access token that the clients send; `None` without one.
    pub token: Option<String>,
}

impl WrittenTopology {
    /// Writes the topology of `contestant`, in front of the server at `url`, into a folder.
    pub fn write(
        contestant: Contestant,
        upstream: Era,
        url: &str,
        folder: &Path,
    ) -> Result<Self, String> {
        let (token, access) = match contestant {
            Contestant::CallboardTokens => (Some(access_token(folder)?), TOKEN_ACCESS),
            _ => (None, GUEST_ACCESS),
        };
        let (audit, policies, pin) = match contestant {
            Contestant::CallboardAudit => (AUDIT, "", "off"),
            Contestant::CallboardPolicies => (AUDIT, POLICIES, "trust-first"),
            Contestant::CallboardConsole => ("", CONSOLE, "off"),
            _ => ("", "", "off"),
        };
        let era = match upstream {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let text = format!(
            "[node]\nname = \"gateway\"\n{audit}{policies}\n\
             [[upstream]]\nid = \"upstream\"\nurl = \"{url}\"\nera = \"{era}\"\npin = \"{pin}\"\n\n\
             [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n\
             address_connections_max = 1024\n{access}"
        );
        let file = folder.join("gateway.toml");
        fs::write(&file, text).map_err(|e| e.to_string())?;
        Ok(Self { file, token })
    }
}

/// Makes a key, writes its public part to `jwks.json` in a folder, and returns an access token that is valid
/// for a day.
fn access_token(folder: &Path) -> Result<String, String> {
    let key = SigningKey::new("k", "EdDSA");
    let jwks = json!({ "keys": [key.jwk()] }).to_string();
    fs::write(folder.join("jwks.json"), jwks).map_err(|e| e.to_string())?;
    let now = now_s();
    Ok(key.token(&json!({
        "iss": "https://issuer.example", "aud": "bench", "sub": "client", "iat": now, "exp": now + 86_400,
    })))
}
