//! Checks of MCP clients' configurations: whether their entries for callboard start a program that exists, and name a listener
//! of the topology.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use callboard_rpc::is_loopback_host;
use serde_json::{Map, Value};
use url::{Host, Url};

use super::programs::{ProgramSearch, is_path};
use super::report::DoctorCheck;
use super::upstreams::origin_of;
use crate::cli::connect::error::CLIENT_FILE_BYTES_MAX;
use crate::cli::connect::file::read_text;
use crate::cli::connect::location::{own_program, user_file};
use crate::client_config::{ClientApp, MENTION};
use crate::config::{ListenerDeclaration, Topology};

/// Options of `callboard stdio` with a value that is the next word.
const VALUE_OPTIONS: [&str; 3] = ["--agent", "--log", "--state"];
/// Files in the folder of a project.
const PROJECT_FILES: [(ClientApp, &str); 3] = [
    (ClientApp::ClaudeCode, ".mcp.json"),
    (ClientApp::VsCode, ".vscode/mcp.json"),
    (ClientApp::Cursor, ".cursor/mcp.json"),
];
/// Member of Claude Code's file with a table of projects, each with servers of its own.
const PROJECTS_TABLE: &str = "projects";

/// Checks the entries for callboard in the configurations of the user, and of the project in this folder.
pub(super) fn check_clients(topology: Option<&Topology>) -> Vec<DoctorCheck> {
    let checks: Vec<_> = client_files()
        .iter()
        .flat_map(|(app, file)| check_file(*app, file, topology))
        .collect();
    if checks.is_empty() {
        let found = "no configuration of Claude Code, Claude Desktop, Codex, VS Code or Cursor names callboard";
        return vec![DoctorCheck::ok("clients", found)];
    }
    checks
}

/// Returns the places of configurations, whether they exist or not.
fn client_files() -> Vec<(ClientApp, PathBuf)> {
    let of_user = |app| Some((app, user_file(app).ok()?));
    let mut files: Vec<_> = ClientApp::ALL.into_iter().filter_map(of_user).collect();
    let Ok(project) = std::env::current_dir() else {
        return files;
    };
    for (app, file) in PROJECT_FILES {
        let found = (app, project.join(file));
        // The project may be the home folder.
        if !files.contains(&found) {
            files.push(found);
        }
    }
    files
}

fn check_file(app: ClientApp, file: &Path, topology: Option<&Topology>) -> Vec<DoctorCheck> {
    let subject = format!("client {}", app.label());
    let unread = |why: &str| {
        let found = format!(
            "{}: {why}, so that its entries aren't checked",
            file.display()
        );
        let remedy = "look yourself whether the command of its entry for callboard exists";
        vec![DoctorCheck::warning(&*subject, found, remedy)]
    };
    let text = match read_text(file, CLIENT_FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Vec::new(),
                ErrorKind::FileTooLarge => unread("it is too large"),
                ErrorKind::InvalidInput => unread("it isn't a file"),
                kind => unread(&kind.to_string()),
            };
        }
    };
    let parsed: Option<Value> = match app {
        ClientApp::Codex => toml::from_str(&text).ok(),
        _ => serde_json::from_str(&text).ok(),
    };
    let Some(config) = parsed else {
        return match text.contains(MENTION) {
            true => unread("it has comments, or a mistake"),
            false => Vec::new(),
        };
    };
    let entries = server_tables(app, &config).into_iter().flatten();
    let entries = entries.map(|(name, entry)| ClientEntry { name, entry, file });
    entries
        .filter(|entry| entry.is_for_callboard(topology))
        .map(|entry| entry.check(&subject, topology))
        .collect()
}

/// Returns the table of servers in a configuration, and that in each of its projects.
fn server_tables(app: ClientApp, config: &Value) -> Vec<&Map<String, Value>> {
    let projects = config.get(PROJECTS_TABLE).and_then(Value::as_object);
    let projects = projects.into_iter().flat_map(Map::values);
    let places = std::iter::once(config).chain(projects);
    places
        .filter_map(|place| place.get(app.section())?.as_object())
        .collect()
}

/// Server in a client's configuration.
struct ClientEntry<'a> {
    name: &'a str,
    entry: &'a Value,
    file: &'a Path,
}

impl<'a> ClientEntry<'a> {
    fn command(&self) -> Option<&'a str> {
        self.entry.get("command")?.as_str()
    }

    fn arguments(&self) -> Vec<&'a str> {
        let arguments = self.entry.get("args").and_then(Value::as_array);
        let arguments = arguments.into_iter().flatten();
        arguments.filter_map(Value::as_str).collect()
    }

    fn url_text(&self) -> Option<&'a str> {
        self.entry.get("url")?.as_str()
    }

    fn url(&self) -> Option<Url> {
        Url::parse(self.url_text()?).ok()
    }

    /// Returns whether the entry mentions callboard, or connects to a listener of the topology.
    fn is_for_callboard(&self, topology: Option<&Topology>) -> bool {
        let words = self.command().into_iter().chain(self.arguments());
        let mut words = words.chain([self.name]);
        let is_mentioned = words.any(|word| word.contains(MENTION));
        let listened = self.url().zip(topology);
        is_mentioned || listened.is_some_and(|(url, topology)| has_listener(topology, &url))
    }

    fn check(&self, subject: &str, topology: Option<&Topology>) -> DoctorCheck {
        let place = format!("{:?} in {}", self.name, self.file.display());
        match (self.command(), self.url()) {
            (Some(command), _) => self.check_command(subject, &place, command),
            // The client replaces such variables.
            (None, _) if self.url_text().is_some_and(|url| url.contains("${")) => {
                let found = format!("{place} has a URL with a variable, which isn't checked");
                DoctorCheck::ok(subject, found)
            }
            (None, Some(url)) => check_url(subject, &place, &url, topology),
            (None, None) => DoctorCheck::error(
                subject,
                format!("{place} has neither `command` nor a valid `url`"),
                "write the entry anew",
            ),
        }
    }

    fn check_command(&self, subject: &str, place: &str, command: &str) -> DoctorCheck {
        // The client replaces such variables.
        if command.contains('$') {
            let found = format!("{place} starts {command}, whose variable isn't checked");
            return DoctorCheck::ok(subject, found);
        }
        let program = match ProgramSearch::of(Path::new(command)) {
            ProgramSearch::Found(program) => program,
            ProgramSearch::NotExecutable(program) => {
                let program = program.display();
                let found = format!("{place} starts {program}, which this user can't execute");
                return DoctorCheck::error(subject, found, format!("run `chmod +x {program}`"));
            }
            ProgramSearch::Missing => {
                let path = match is_path(Path::new(command)) {
                    true => "doesn't exist",
                    false => "isn't in PATH",
                };
                let found = format!("{place} starts {command}, which {path}");
                return DoctorCheck::error(subject, found, command_remedy());
            }
        };
        match self.missing_topology() {
            Some(file) => DoctorCheck::error(
                subject,
                format!("{place} serves {file}, which doesn't exist"),
                "correct the file in `args` there",
            ),
            None => DoctorCheck::ok(subject, format!("{place} starts {}", program.display())),
        }
    }

    /// Returns the topology file after `stdio`, if its path is absolute and it doesn't exist. A relative one is looked up in a
    /// folder that the client chooses.
    fn missing_topology(&self) -> Option<&'a str> {
        let file = topology_word(&self.arguments())?;
        let path = Path::new(file);
        (path.is_absolute() && !path.is_file()).then_some(file)
    }
}

/// Returns the topology file among the arguments of callboard: the first word after `stdio` that is no option and no option's value.
fn topology_word<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let words = arguments.iter().copied();
    let mut words = words.skip_while(|word| *word != "stdio").skip(1);
    loop {
        let word = words.next()?;
        if VALUE_OPTIONS.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
}

/// Returns the remedy for a command that isn't there, with the path of this program.
fn command_remedy() -> String {
    match own_program() {
        Ok(program) => format!(
            "correct `command` there; this callboard is {}",
            program.display()
        ),
        Err(_) => "correct `command` there".to_owned(),
    }
}

fn check_url(subject: &str, place: &str, url: &Url, topology: Option<&Topology>) -> DoctorCheck {
    let found = format!("{place} connects to {}", origin_of(url));
    match topology {
        Some(topology) if has_listener(topology, url) => {
            DoctorCheck::ok(subject, format!("{found}, a listener of this file"))
        }
        Some(_) if is_loopback_host(url) => DoctorCheck::warning(
            subject,
            format!("{found}, where this file has no listener"),
            "correct `url` there, unless another node listens at it",
        ),
        _ => DoctorCheck::ok(subject, found),
    }
}

/// Returns whether a listener of the topology has the address of a URL.
fn has_listener(topology: &Topology, url: &Url) -> bool {
    let is_same = |listener: &ListenerDeclaration| {
        let ip = listener.bind.ip();
        let is_host = match url.host() {
            Some(Host::Ipv4(host)) => ip == host,
            Some(Host::Ipv6(host)) => ip == host,
            Some(Host::Domain(_)) | None => ip.is_loopback(),
        };
        let is_port = url.port_or_known_default() == Some(listener.bind.port());
        let is_here = is_loopback_host(url);
        is_port && is_here && (is_host || ip.is_unspecified())
    };
    topology.listeners.iter().any(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOPOLOGY: &str = "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"echo\"\n\
        [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:3001\"\n";

    fn topology() -> Topology {
        Topology::parse(TOPOLOGY, false, Path::new("/")).unwrap()
    }

    /// Goal: the servers of a client are found, those of its projects too, and no others. Method: a table of each client, and one
    /// in a project.
    #[test]
    fn tables_of_clients() {
        let entry = json!({ "command": "callboard" });
        let config = json!({
            "mcpServers": { "a": entry }, "servers": { "b": entry }, "mcp_servers": { "c": entry },
            "projects": { "/p": { "mcpServers": { "d": entry } }, "/q": 7 }, "other": { "e": entry },
        });
        for (app, expected) in [
            (ClientApp::ClaudeCode, &["a", "d"][..]),
            (ClientApp::VsCode, &["b"]),
            (ClientApp::Codex, &["c"]),
        ] {
            let tables = server_tables(app, &config);
            let names: Vec<_> = tables.iter().flat_map(|table| table.keys()).collect();
            assert_eq!(names, expected, "{app:?}");
        }
        assert!(server_tables(ClientApp::Cursor, &json!([])).is_empty());
    }

    /// Goal: an entry counts if it mentions callboard or connects to a listener, whatever else is beside it. Method: entries of
    /// both kinds, with and without a topology, and foreign ones.
    #[test]
    fn entries_for_callboard() {
        let topology = topology();
        for (name, entry, with_topology, without) in [
            ("callboard", json!({ "command": "x" }), true, true),
            ("x", json!({ "command": "/opt/callboard" }), true, true),
            (
                "x",
                json!({ "command": "sh", "args": ["-c", "callboard stdio f"] }),
                true,
                true,
            ),
            (
                "x",
                json!({ "url": "http://127.0.0.1:3001/mcp" }),
                true,
                false,
            ),
            (
                "x",
                json!({ "url": "http://localhost:3001/mcp" }),
                true,
                false,
            ),
            (
                "x",
                json!({ "url": "http://127.0.0.1:3002/mcp" }),
                false,
                false,
            ),
            (
                "x",
                json!({ "url": "https://host.example:3001/" }),
                false,
                false,
            ),
            ("x", json!({ "command": "npx" }), false, false),
            ("x", json!(7), false, false),
        ] {
            let file = Path::new("/f");
            let entry = ClientEntry {
                name,
                entry: &entry,
                file,
            };
            let found = [Some(&topology), None].map(|topology| entry.is_for_callboard(topology));
            assert_eq!(found, [with_topology, without], "{name} {}", entry.entry);
        }
    }

    /// Goal: the topology file is found among options, and no option's value is taken for it. Method: rows of arguments.
    #[test]
    fn topology_words() {
        for (arguments, expected) in [
            ("stdio /f", Some("/f")),
            ("--log info stdio --state /s --agent a /f", Some("/f")),
            ("stdio /f --state /s", Some("/f")),
            ("stdio --state=/s --log-json /f", Some("/f")),
            ("stdio --log info", None),
            ("stdio --agent", None),
            ("serve /f", None),
        ] {
            let words: Vec<_> = arguments.split(' ').collect();
            assert_eq!(topology_word(&words), expected, "{arguments}");
        }
    }

    /// Goal: a URL with a variable is no mistake. Method: variables in places where a URL can and can't be parsed, and a text that is no
    /// URL.
    #[test]
    fn urls_with_variables() {
        let variable = "\"callboard\" in /f has a URL with a variable, which isn't checked";
        for (url, expected) in [
            (
                "http://127.0.0.1:${PORT}/mcp",
                DoctorCheck::ok("s", variable),
            ),
            (
                "https://host.example/${PATH}",
                DoctorCheck::ok("s", variable),
            ),
            (
                "127.0.0.1",
                DoctorCheck::error(
                    "s",
                    "\"callboard\" in /f has neither `command` nor a valid `url`",
                    "write the entry anew",
                ),
            ),
        ] {
            let entry = json!({ "url": url });
            let entry = ClientEntry {
                name: "callboard",
                entry: &entry,
                file: Path::new("/f"),
            };
            assert_eq!(entry.check("s", None), expected, "{url}");
        }
    }

    /// Goal: of a URL only the origin is shown. Method: one with a secret in its query.
    #[test]
    fn urls_hold_no_secret() {
        let url = "http://127.0.0.1:3002/mcp?key=s3cret".parse().unwrap();
        let check = check_url("s", "p", &url, Some(&topology()));
        let expected = DoctorCheck::warning(
            "s",
            "p connects to http://127.0.0.1:3002, where this file has no listener",
            "correct `url` there, unless another node listens at it",
        );
        assert_eq!(check, expected);
    }
}
