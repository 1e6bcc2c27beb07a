//! Page with the settings that connect clients to the node.

use maud::{Markup, html};

use super::elements::empty;
use super::frame::{PageFrame, page};
use crate::client_config::{ClientApp, KEY_VARIABLE, KeySource, ServerSettings, key_input};

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
    let input = key_input(&target.name);
    let key = target.needs_key.then_some(KeySource {
        variable: KEY_VARIABLE,
        input: Some(&input),
    });
    ClientApp::ALL.map(|app| Snippet {
        client: app.label(),
        place: place(app),
        text: ServerSettings::remote(app, &target.name, &target.url, key).to_string(),
    })
}

/// Returns the file or place where the settings of an application belong.
fn place(app: ClientApp) -> &'static str {
    match app {
        ClientApp::ClaudeCode => ".mcp.json in the project",
        ClientApp::ClaudeDesktop => {
            "claude_desktop_config.json (Settings, Developer, Edit Config); needs Node.js; write the key in place of …"
        }
        ClientApp::Codex => "~/.codex/config.toml",
        ClientApp::VsCode => ".vscode/mcp.json in the project; it asks for the key once",
        ClientApp::Cursor => ".cursor/mcp.json in the project",
    }
}
