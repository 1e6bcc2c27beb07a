//! Page with the settings that connect clients to the node.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::elements::empty;
use super::frame::{PageFrame, page};

/// Environment variable that holds the key in the snippets.
const KEY_VARIABLE: &str = "CALLBOARD_KEY";

/// MCP endpoint that clients can connect to.
pub(crate) struct ConnectTarget {
    /// Name for the client's settings.
    pub name: String,
    /// Address.
    pub url: String,
    /// Whether it asks for a key.
    pub needs_key: bool,
}

/// Settings of a client, as text to copy.
struct Snippet {
    client: &'static str,
    /// File or place where the text belongs.
    place: &'static str,
    text: String,
}

/// Renders the page. Snippets name an environment variable for the key and never hold one.
pub(crate) fn connect(frame: &PageFrame<'_>, targets: &[ConnectTarget]) -> Markup {
    let content = html! {
        @if targets.is_empty() { (empty("No listener of this node serves MCP over HTTP.")) }
        @if targets.iter().any(|target| target.needs_key) {
            p { "Put the key into the environment variable " code { (KEY_VARIABLE) } " of the client. Never write it into a "
                "file that others read. Make one with " code { "callboard keys add" } "." }
        }
        @for (nth, target) in targets.iter().enumerate() {
            section aria-labelledby={ "target-" (nth) } data-testid="connect-target" {
                h2 id={ "target-" (nth) } { (target.name) " " code { (target.url) } }
                div.cards {
                    @for (which, snippet) in snippets(target).iter().enumerate() {
                        (card(snippet, &format!("snippet-{nth}-{which}"), &format!("{} at {}", target.name, target.url)))
                    }
                }
            }
        }
    };
    page(frame, "Connect a client", content)
}

fn card(snippet: &Snippet, id: &str, target: &str) -> Markup {
    html! {
        article.card {
            h3 { (snippet.client) }
            p.meta { (snippet.place) }
            pre #(id) tabindex="0" role="region" aria-label={ "Settings of " (snippet.client) " for " (target) } {
                (snippet.text)
            }
            button type="button" data-copy=(id) aria-label={ "Copy the settings of " (snippet.client) " for " (target) } {
                "Copy"
            }
        }
    }
}

fn snippets(target: &ConnectTarget) -> [Snippet; 5] {
    let ConnectTarget {
        name,
        url,
        needs_key,
    } = target;
    // Each client has a notation of its own for variables of the environment.
    let server = |kind: Option<&str>, key: &str| {
        let mut server = json!({ "url": url });
        if let Some(kind) = kind {
            server["type"] = kind.into();
        }
        if *needs_key {
            server["headers"] = json!({ "Authorization": format!("Bearer {key}") });
        }
        server
    };
    let servers = |server: Value| json!({ "mcpServers": { name: server } });
    let claude = servers(server(Some("http"), &format!("${{{KEY_VARIABLE}}}")));
    let cursor = servers(server(None, &format!("${{env:{KEY_VARIABLE}}}")));
    [
        Snippet {
            client: "Claude Code",
            place: ".mcp.json in the project",
            text: format!("{claude:#}"),
        },
        Snippet {
            client: "Claude Desktop",
            place: "claude_desktop_config.json (Settings, Developer, Edit Config); needs Node.js; write the key in place of …",
            text: format!("{:#}", servers(claude_desktop(target))),
        },
        Snippet {
            client: "Codex",
            place: "~/.codex/config.toml",
            text: codex(target),
        },
        Snippet {
            client: "VS Code",
            place: ".vscode/mcp.json in the project; it asks for the key once",
            text: format!(
                "{:#}",
                vs_code(target, server(Some("http"), "${input:callboard-key}"))
            ),
        },
        Snippet {
            client: "Cursor",
            place: ".cursor/mcp.json in the project",
            text: format!("{cursor:#}"),
        },
    ]
}

/// Returns a server that Claude Desktop starts, because its file takes no addresses. The program mcp-remote puts the
/// value of the variable into the header.
fn claude_desktop(target: &ConnectTarget) -> Value {
    let mut arguments = vec!["-y".to_owned(), "mcp-remote".to_owned(), target.url.clone()];
    if target.url.starts_with("http://") {
        arguments.push("--allow-http".to_owned());
    }
    if !target.needs_key {
        return json!({ "command": "npx", "args": arguments });
    }
    arguments.push("--header".to_owned());
    arguments.push(format!("Authorization: Bearer ${{{KEY_VARIABLE}}}"));
    // The client passes on no other variables than those in its file.
    json!({ "command": "npx", "args": arguments, "env": { KEY_VARIABLE: "…" } })
}

fn codex(target: &ConnectTarget) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut text = format!(
        "[mcp_servers.{}]\nurl = {}\n",
        quoted(&target.name),
        quoted(&target.url)
    );
    if target.needs_key {
        text += &format!("bearer_token_env_var = \"{KEY_VARIABLE}\"\n");
    }
    text
}

fn vs_code(target: &ConnectTarget, server: Value) -> Value {
    let name = &target.name;
    let mut settings = json!({ "servers": { name: server } });
    if target.needs_key {
        settings["inputs"] = json!([{
            "type": "promptString", "id": "callboard-key", "description": "Key for callboard", "password": true,
        }]);
    }
    settings
}
