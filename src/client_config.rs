//! Settings by which applications with an MCP client connect to callboard. The console shows them, and `callboard
//! connect` writes them.

use std::fmt;

use serde_json::{Map, Value, json};

/// Environment variable that holds the key, unless another one is named.
pub(crate) const KEY_VARIABLE: &str = "CALLBOARD_KEY";

/// Names of the settings of a server that the application starts.
#[cfg(feature = "cli")]
const PROGRAM_SETTINGS: [&str; 6] = ["args", "command", "cwd", "env", "envFile", "env_vars"];
/// Names of the settings of a server at an address.
#[cfg(feature = "cli")]
const REMOTE_SETTINGS: [&str; 8] = [
    "bearer_token",
    "bearer_token_env_var",
    "env_http_headers",
    "headers",
    "http_headers",
    "oauth",
    "oauth_resource",
    "url",
];
/// Names of the settings that are written anew for a server at an address, or dropped if it needs none.
#[cfg(feature = "cli")]
const RENEWED_SETTINGS: [&str; 3] = ["bearer_token", "bearer_token_env_var", HEADERS];
/// Name of the setting with the headers that are sent to an address.
const HEADERS: &str = "headers";
/// Name of the header with the credential.
pub(crate) const AUTHORIZATION: &str = "Authorization";
/// Word by which an entry for callboard is recognised in its name, command, arguments or address.
#[cfg(feature = "cli")]
pub(crate) const MENTION: &str = "callboard";

/// Application with an MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientApp {
    ClaudeCode,
    ClaudeDesktop,
    Codex,
    VsCode,
    Cursor,
}

impl ClientApp {
    pub(crate) const ALL: [Self; 5] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Codex,
        Self::VsCode,
        Self::Cursor,
    ];

    /// Returns the name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Codex => "Codex",
            Self::VsCode => "VS Code",
            Self::Cursor => "Cursor",
        }
    }

    /// Returns the name on the command line.
    #[cfg(feature = "cli")]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Codex => "codex",
            Self::VsCode => "vscode",
            Self::Cursor => "cursor",
        }
    }

    /// Returns the name of the table of servers in the configuration file.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::VsCode => "servers",
        }
    }
}

/// Returns the id of the input by which VS Code asks for the key of a server.
pub(crate) fn key_input(name: &str) -> String {
    format!("{name}-key")
}

/// Place from which an application takes the key for a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySource<'a> {
    /// Environment variable of the application.
    pub(crate) variable: &'a str,
    /// Id of the input by which VS Code asks for the key; `None` if it reads the variable.
    pub(crate) input: Option<&'a str>,
}

impl KeySource<'_> {
    /// Returns the key as settings of `app` refer to it. Each application has a notation of its own.
    fn reference(&self, app: ClientApp) -> String {
        let variable = self.variable;
        match (app, self.input) {
            (ClientApp::VsCode, Some(input)) => format!("${{input:{input}}}"),
            (ClientApp::VsCode | ClientApp::Cursor, _) => format!("${{env:{variable}}}"),
            _ => format!("${{{variable}}}"),
        }
    }

    /// Returns the value of the header `Authorization`.
    fn authorization(&self, app: ClientApp) -> String {
        format!("Bearer {}", self.reference(app))
    }
}

/// Settings of one server in one application. They name the place of a key and never hold one.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// Application.
    pub(crate) app: ClientApp,
    /// Name of the server in the application.
    pub(crate) name: String,
    /// Settings of the server.
    pub(crate) entry: Map<String, Value>,
    /// Declaration of the input by which VS Code asks for the key; `None` if there is none.
    pub(crate) input: Option<Value>,
}

impl ServerSettings {
    /// Returns the settings of an MCP server at `url`. Without `key`, no credential is sent.
    pub(crate) fn remote(
        app: ClientApp,
        name: &str,
        url: &str,
        key: Option<KeySource<'_>>,
    ) -> Self {
        let entry = match app {
            ClientApp::Codex => codex_entry(url, key),
            ClientApp::ClaudeDesktop => started_bridge(url, key),
            ClientApp::ClaudeCode | ClientApp::VsCode | ClientApp::Cursor => {
                http_entry(app, url, key)
            }
        };
        let input = key
            .and_then(|key| key.input)
            .filter(|_| app == ClientApp::VsCode);
        let input = input.map(|id| {
            json!({ "type": "promptString", "id": id, "description": "Key for callboard", "password": true })
        });
        Self {
            app,
            name: name.to_owned(),
            entry,
            input,
        }
    }

    /// Returns the settings of an MCP server that the application starts and talks to over its standard streams.
    #[cfg(feature = "cli")]
    pub(crate) fn program(app: ClientApp, name: &str, command: &str, arguments: &[&str]) -> Self {
        let mut entry = Map::new();
        if matches!(app, ClientApp::ClaudeCode | ClientApp::VsCode) {
            entry.insert("type".to_owned(), "stdio".into());
        }
        entry.insert("command".to_owned(), command.into());
        entry.insert("args".to_owned(), json!(arguments));
        Self {
            app,
            name: name.to_owned(),
            entry,
            input: None,
        }
    }

    /// Returns whether an earlier entry of that name is for callboard: it mentions callboard, or has the address of these settings.
    #[cfg(feature = "cli")]
    pub(crate) fn may_replace(&self, earlier: &Value) -> bool {
        let own = entry_words(&self.entry).into_iter();
        let urls: Vec<_> = own.filter(|word| word.contains("://")).collect();
        let words = earlier.as_object().map(entry_words).unwrap_or_default();
        let mut words = words.into_iter().chain([&*self.name]);
        words.any(|word| word.contains(MENTION) || urls.contains(&word))
    }

    /// Changes an earlier entry of the server to these settings. Settings and headers with other names are the user's: they stay.
    #[cfg(feature = "cli")]
    pub(crate) fn merge_into(&self, entry: &mut Map<String, Value>) {
        let headers = entry.get(HEADERS).and_then(Value::as_object);
        let mut headers = headers.cloned().unwrap_or_default();
        headers.retain(|name, _| !name.eq_ignore_ascii_case(AUTHORIZATION));
        for name in self.replaced_settings() {
            entry.remove(name);
        }
        entry.extend(self.entry.clone());
        if headers.is_empty() || self.is_program() {
            return;
        }
        if let Some(own) = self.entry.get(HEADERS).and_then(Value::as_object) {
            headers.extend(own.clone());
        }
        entry.insert(HEADERS.to_owned(), headers.into());
    }

    /// Returns whether the application starts the server.
    #[cfg(feature = "cli")]
    fn is_program(&self) -> bool {
        self.entry.contains_key("command")
    }

    /// Returns the names of the settings that an earlier entry of the server must not keep beside these. Settings with other
    /// names are the user's.
    #[cfg(feature = "cli")]
    pub(crate) fn replaced_settings(&self) -> impl Iterator<Item = &'static str> {
        let others: &[&str] = match self.is_program() {
            true => &REMOTE_SETTINGS,
            false => &PROGRAM_SETTINGS,
        };
        let replaced = others.iter().chain(&RENEWED_SETTINGS).chain(&["type"]);
        replaced.copied()
    }

    /// Returns a configuration file with nothing but these settings, as JSON.
    fn document(&self) -> Value {
        let (section, name) = (self.app.section(), &*self.name);
        let mut document = json!({ section: { name: self.entry } });
        if let Some(input) = &self.input {
            document["inputs"] = json!([input]);
        }
        document
    }
}

/// The text to paste into the application's configuration file.
impl fmt::Display for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.app != ClientApp::Codex {
            return write!(f, "{:#}", self.document());
        }
        // Strings, and lists of them, are the same in JSON and TOML.
        let name = Value::from(&*self.name);
        write!(f, "[{}.{name}]", self.app.section())?;
        for (setting, value) in &self.entry {
            write!(f, "\n{setting} = {value}")?;
        }
        Ok(())
    }
}

/// Returns the command, the address and the arguments of an entry.
#[cfg(feature = "cli")]
fn entry_words(entry: &Map<String, Value>) -> Vec<&str> {
    let single = ["command", "url"].into_iter();
    let single = single.filter_map(|name| entry.get(name));
    let arguments = entry.get("args").and_then(Value::as_array);
    let words = single.chain(arguments.into_iter().flatten());
    words.filter_map(Value::as_str).collect()
}

fn http_entry(app: ClientApp, url: &str, key: Option<KeySource<'_>>) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("url".to_owned(), url.into());
    if app != ClientApp::Cursor {
        entry.insert("type".to_owned(), "http".into());
    }
    if let Some(key) = key {
        let headers = json!({ AUTHORIZATION: key.authorization(app) });
        entry.insert(HEADERS.to_owned(), headers);
    }
    entry
}

fn codex_entry(url: &str, key: Option<KeySource<'_>>) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("url".to_owned(), url.into());
    if let Some(key) = key {
        entry.insert("bearer_token_env_var".to_owned(), key.variable.into());
    }
    entry
}

/// Returns a server that Claude Desktop starts, because its file takes no addresses. The program mcp-remote puts the
/// value of the variable into the header. The argument has no space, at which Claude Desktop on Windows would split it.
fn started_bridge(url: &str, key: Option<KeySource<'_>>) -> Map<String, Value> {
    let mut arguments = vec!["-y".to_owned(), "mcp-remote".to_owned(), url.to_owned()];
    if url.starts_with("http://") {
        arguments.push("--allow-http".to_owned());
    }
    let mut entry = Map::new();
    if let Some(key) = key {
        arguments.push("--header".to_owned());
        let value = key.reference(ClientApp::ClaudeDesktop);
        arguments.push(format!("{AUTHORIZATION}:{value}"));
        // The application passes on no other variables than those in its file.
        let variable = key.variable;
        entry.insert("env".to_owned(), json!({ variable: "Bearer …" }));
    }
    entry.insert("command".to_owned(), "npx".into());
    entry.insert("args".to_owned(), arguments.into());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each application gets the settings that it reads, with the key by reference. Method: the text of each, with
    /// a key and without.
    #[test]
    fn settings_of_a_url() {
        let key = KeySource {
            variable: "OFFICE_KEY",
            input: None,
        };
        let url = "https://node.example/mcp";
        for (app, with_key, without_key) in [
            (
                ClientApp::ClaudeCode,
                json!({ "mcpServers": { "office": {
                    "type": "http", "url": url, "headers": { "Authorization": "Bearer ${OFFICE_KEY}" } } } }),
                json!({ "mcpServers": { "office": { "type": "http", "url": url } } }),
            ),
            (
                ClientApp::ClaudeDesktop,
                json!({ "mcpServers": { "office": {
                    "command": "npx",
                    "args": ["-y", "mcp-remote", url, "--header", "Authorization:${OFFICE_KEY}"],
                    "env": { "OFFICE_KEY": "Bearer …" } } } }),
                json!({ "mcpServers": { "office": { "command": "npx", "args": ["-y", "mcp-remote", url] } } }),
            ),
            (
                ClientApp::VsCode,
                json!({ "servers": { "office": {
                    "type": "http", "url": url, "headers": { "Authorization": "Bearer ${env:OFFICE_KEY}" } } } }),
                json!({ "servers": { "office": { "type": "http", "url": url } } }),
            ),
            (
                ClientApp::Cursor,
                json!({ "mcpServers": { "office": {
                    "url": url, "headers": { "Authorization": "Bearer ${env:OFFICE_KEY}" } } } }),
                json!({ "mcpServers": { "office": { "url": url } } }),
            ),
        ] {
            for (key, expected) in [(Some(key), with_key), (None, without_key)] {
                let text = ServerSettings::remote(app, "office", url, key).to_string();
                let settings: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(settings, expected, "{app:?}");
            }
        }
        let text = ServerSettings::remote(ClientApp::Codex, "office", url, Some(key)).to_string();
        assert_eq!(
            text,
            "[mcp_servers.\"office\"]\nbearer_token_env_var = \"OFFICE_KEY\"\nurl = \"https://node.example/mcp\""
        );
    }

    /// Goal: VS Code asks for a key by an input that is declared. Method: the settings with one.
    #[test]
    fn settings_with_an_input() {
        let key = KeySource {
            variable: KEY_VARIABLE,
            input: Some("office-key"),
        };
        let url = "http://127.0.0.1:8080/mcp";
        let settings = ServerSettings::remote(ClientApp::VsCode, "office", url, Some(key));
        let document = settings.document();
        let header = &document["servers"]["office"]["headers"]["Authorization"];
        assert_eq!(header, "Bearer ${input:office-key}");
        assert_eq!(document["inputs"][0]["id"], "office-key");
        assert_eq!(document["inputs"][0]["password"], true);
        let other = ServerSettings::remote(ClientApp::Cursor, "office", url, Some(key));
        assert_eq!(other.document().get("inputs"), None);
    }

    /// Goal: only an entry for callboard is replaced. Method: entries of other programs and other addresses, and such that mention
    /// callboard, have the same address, or have a name that says it.
    #[test]
    #[cfg(feature = "cli")]
    fn replaceable_entries() {
        let url = "https://node.example/mcp";
        let settings = |app, name| ServerSettings::remote(app, name, url, None);
        for (earlier, expected) in [
            (json!({ "command": "/opt/callboard" }), true),
            (
                json!({ "command": "sh", "args": ["-c", "callboard stdio f"] }),
                true,
            ),
            (json!({ "url": url }), true),
            (
                json!({ "command": "npx", "args": ["-y", "mcp-remote", url] }),
                true,
            ),
            (json!({ "url": "https://callboard.example/mcp" }), true),
            (json!({ "url": "https://node.example/other" }), false),
            (
                json!({ "command": "npx", "args": ["-y", "mcp-remote"] }),
                false,
            ),
            (json!({}), false),
            (json!(7), false),
        ] {
            for app in ClientApp::ALL {
                let found = settings(app, "office").may_replace(&earlier);
                assert_eq!(found, expected, "{app:?} {earlier}");
                assert!(settings(app, "callboard-2").may_replace(&earlier));
            }
        }
    }

    /// Goal: an update renews the credential and keeps the user's other headers. Method: an entry with headers of both kinds,
    /// changed to a URL with a key, to one without, and to a program.
    #[test]
    #[cfg(feature = "cli")]
    fn headers_are_kept() {
        let url = "https://node.example/mcp";
        let key = KeySource {
            variable: "KEY",
            input: None,
        };
        let remote = |key| ServerSettings::remote(ClientApp::Cursor, "board", url, key);
        let earlier =
            json!({ "url": url, "headers": { "authorization": "Bearer old", "X-Team": "a" } });
        let merged = |settings: &ServerSettings, earlier: &Value| {
            let mut entry = earlier.as_object().unwrap().clone();
            settings.merge_into(&mut entry);
            Value::from(entry)
        };
        assert_eq!(
            merged(&remote(Some(key)), &earlier),
            json!({ "url": url, "headers": { "X-Team": "a", "Authorization": "Bearer ${env:KEY}" } })
        );
        assert_eq!(
            merged(&remote(None), &earlier),
            json!({ "url": url, "headers": { "X-Team": "a" } })
        );
        let credential = json!({ "url": url, "headers": { "AUTHORIZATION": "Bearer old" } });
        assert_eq!(merged(&remote(None), &credential), json!({ "url": url }));
        let program = ServerSettings::program(ClientApp::Cursor, "board", "/callboard", &["stdio"]);
        assert_eq!(
            merged(&program, &earlier),
            json!({ "command": "/callboard", "args": ["stdio"] })
        );
    }
}
