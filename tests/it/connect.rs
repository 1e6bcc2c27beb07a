//! `callboard connect`: entries in the configuration files of five applications, and everything else in those files as it was.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kit::{Finished, Home, ended};

/// Topology that a client can be served.
const TOPOLOGY: &str =
    "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n";
/// Topology with a mailroom behind an MCP listener, to be completed by the listener's address and keys.
const OFFICE: &str = "[node]\nname = \"office\"\n[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n\
    [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\n";
/// Value of a key, which must be nowhere.
const SECRET: &str = "cbk_this-is-secret";

/// An application: its name, its file in the home, its section, and a file with a server of another program.
struct Client {
    name: &'static str,
    file: &'static str,
    section: &'static str,
    others: &'static str,
}

const CLIENTS: [Client; 5] = [
    Client {
        name: "claude-code",
        file: ".claude.json",
        section: "mcpServers",
        others: "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"other\": { \"type\": \"stdio\", \"command\": \"z\", \"args\": [] }\n  },\n  \"cost\": 1.50\n}",
    },
    Client {
        name: "claude-desktop",
        file: ".config/Claude/claude_desktop_config.json",
        section: "mcpServers",
        others: "{\"mcpServers\":{\"other\":{\"command\":\"z\"}},\"globalShortcut\":\"\"}\n",
    },
    Client {
        name: "codex",
        file: ".codex/config.toml",
        section: "mcp_servers",
        others: "# Mine\nmodel = 'm' # kept\n\n[mcp_servers.other]\ncommand = \"z\"\n\n# The end\n",
    },
    Client {
        name: "vscode",
        file: ".config/Code/User/mcp.json",
        section: "servers",
        others: "{\r\n\t\"servers\": {\r\n\t\t\"other\": { \"command\": \"z\" }\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n",
    },
    Client {
        name: "cursor",
        file: ".cursor/mcp.json",
        section: "mcpServers",
        others: "{\n    \"z\": null,\n    \"mcpServers\": {\n        \"other\": {\n            \"command\": \"z\"\n        }\n    }\n}\n",
    },
];

impl Client {
    fn path(&self, home: &Home) -> PathBuf {
        home.path(self.file)
    }

    /// Writes the file of the application.
    fn write(&self, home: &Home, text: &str) {
        let path = self.path(home);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, home: &Home) -> String {
        fs::read_to_string(self.path(home)).unwrap()
    }

    /// The file as a value, whatever its format.
    fn settings(&self, home: &Home) -> Value {
        let text = self.text(home);
        if self.name == "codex" {
            return serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        }
        serde_json::from_str(&text).unwrap()
    }

    fn entry(&self, home: &Home, name: &str) -> Value {
        self.settings(home)[self.section][name].clone()
    }

    /// Runs `callboard connect` with a key in the environment.
    async fn connect(&self, home: &Home, arguments: &[&str]) -> Finished {
        let arguments = [&["connect", self.name][..], arguments].concat();
        let mut command = home.callboard(&arguments);
        let finished = ended(command.env("CALLBOARD_KEY", SECRET), None).await;
        for shown in [&finished.out, &finished.err] {
            assert!(!shown.contains(SECRET), "{finished:?}");
        }
        finished
    }
}

fn backup(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap().to_owned();
    name.push(".bak");
    path.with_file_name(name)
}

fn second_backup(path: &Path) -> PathBuf {
    let mut name = backup(path).into_os_string();
    name.push(".1");
    name.into()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Goal: a client starts this program with the file, and nothing else in its settings changes. Method: for each client, a file with
/// another server: connected, again, removed, again; text, backup and permissions.
#[tokio::test]
async fn connects_and_removes() {
    for client in &CLIENTS {
        let home = Home::new();
        let topology = home.write("office.toml", TOPOLOGY);
        client.write(&home, client.others);
        let path = client.path(&home);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();

        let connected = client
            .connect(&home, &["office.toml"])
            .await
            .with(0, ".bak");
        connected.has(&[": connected as callboard (", client.file]);
        let text = client.text(&home);
        let entry = client.entry(&home, "callboard");
        let program = entry["command"].as_str().unwrap();
        assert!(Path::new(program).is_absolute());
        assert_eq!(
            fs::canonicalize(program).unwrap(),
            fs::canonicalize(env!("CARGO_BIN_EXE_callboard")).unwrap()
        );
        assert_eq!(entry["args"][0], "stdio");
        let served = Path::new(entry["args"][1].as_str().unwrap());
        assert!(served.is_absolute());
        assert_eq!(
            fs::canonicalize(served).unwrap(),
            fs::canonicalize(&topology).unwrap()
        );
        assert_eq!(client.entry(&home, "other")["command"], "z");
        assert_eq!((mode(&path), mode(&backup(&path))), (0o640, 0o640));

        client
            .connect(&home, &["office.toml"])
            .await
            .quiet(0)
            .has(&[": already connected as callboard ("]);
        assert_eq!(client.text(&home), text);

        client
            .connect(&home, &["--remove", "--dry-run"])
            .await
            .quiet(0)
            .has(&[": would be disconnected as callboard ("]);
        assert_eq!(client.text(&home), text);
        client
            .connect(&home, &["office.toml", "--remove"])
            .await
            .with(0, ".bak.1")
            .has(&[": disconnected as callboard ("]);
        assert_eq!(client.text(&home), client.others, "{}", client.name);
        assert_eq!(fs::read_to_string(second_backup(&path)).unwrap(), text);
        client
            .connect(&home, &["--remove"])
            .await
            .quiet(0)
            .has(&[": not connected as callboard ("]);
        assert_eq!(client.text(&home), client.others);
        let first = fs::read_to_string(backup(&path)).unwrap();
        assert_eq!(first, client.others, "{}", client.name);
    }
}

/// Goal: the first server of a client gets a new file, for its user alone; a dry run writes nothing and shows the settings. Method: for
/// each client, an empty home.
#[tokio::test]
async fn new_files() {
    for client in &CLIENTS {
        let home = Home::new();
        let path = client.path(&home);
        client
            .connect(&home, &["--remove"])
            .await
            .quiet(0)
            .has(&["not connected"]);
        let shown = client
            .connect(&home, &["example:hmcp-emr", "--dry-run", "--name", "board"])
            .await
            .quiet(0);
        shown.has(&["would be connected as board (", "\"example:hmcp-emr\""]);
        assert!(!path.exists(), "{}", client.name);

        let connected = ["example:hmcp-emr", "--name", "board"];
        client.connect(&home, &connected).await.quiet(0);
        assert_eq!(mode(&path), 0o600);
        assert!(!backup(&path).exists(), "{}", client.name);
        let entry = client.entry(&home, "board");
        assert_eq!(entry["args"], json!(["stdio", "example:hmcp-emr"]));
        let pasted = shown.out.split_once('\n').unwrap().1;
        assert_eq!(pasted.trim_end(), client.text(&home).trim_end());
    }
}

/// Goal: a client of a listener gets its URL, and the key by reference. Method: for each client, the entry without and with a key, and
/// with a variable of its own.
#[tokio::test]
async fn addresses() {
    let url = "http://127.0.0.1:8091/mcp";
    let bearer = |key: &str| json!({ "Authorization": format!("Bearer {key}") });
    let codex = |variable: &str| json!({ "url": url, "bearer_token_env_var": variable });
    let http = |key: &str| json!({ "type": "http", "url": url, "headers": bearer(key) });
    let cursor = |key: &str| json!({ "url": url, "headers": bearer(key) });
    let plain = json!({ "type": "http", "url": url });
    let rows = [
        (
            plain.clone(),
            Some((http("${CALLBOARD_KEY}"), http("${MY_KEY}"))),
        ),
        (
            json!({ "command": "npx", "args": ["-y", "mcp-remote", url, "--allow-http"] }),
            None,
        ),
        (
            json!({ "url": url }),
            Some((codex("CALLBOARD_KEY"), codex("MY_KEY"))),
        ),
        (
            plain,
            Some((http("${input:callboard-mail-key}"), http("${env:MY_KEY}"))),
        ),
        (
            json!({ "url": url }),
            Some((cursor("${env:CALLBOARD_KEY}"), cursor("${env:MY_KEY}"))),
        ),
    ];
    for (client, (without_key, with_key)) in CLIENTS.iter().zip(rows) {
        let home = Home::new();
        client.write(&home, client.others);
        client.connect(&home, &["127.0.0.1:8091"]).await.with(0, "");
        assert_eq!(client.entry(&home, "callboard"), without_key);
        let mail = [url, "--mail"];
        let own_key = [url, "--mail", "--key-env", "MY_KEY"];
        let Some((default, own)) = with_key else {
            let before = client.text(&home);
            for arguments in [&mail[..], &own_key] {
                let refused = client.connect(&home, arguments).await;
                refused.with(2, "bearer_env");
            }
            assert_eq!(client.text(&home), before);
            continue;
        };
        let hint = if client.name == "vscode" {
            "asks for the key"
        } else {
            "CALLBOARD_KEY"
        };
        client.connect(&home, &mail).await.with(0, hint);
        assert_eq!(client.entry(&home, "callboard-mail"), default);
        client.connect(&home, &own_key).await.with(0, "MY_KEY");
        assert_eq!(client.entry(&home, "callboard-mail"), own);
        assert_eq!(client.entry(&home, "other")["command"], "z");
        for name in ["callboard", "callboard-mail"] {
            let remove = ["--remove", "--name", name];
            client.connect(&home, &remove).await.with(0, ".bak.");
        }
        assert_eq!(client.text(&home), client.others, "{}", client.name);
    }
}

/// Goal: `--mail` finds the mailroom's listener in a topology file. Method: listeners with a key, without, in front of several agents,
/// and such that have no address for clients.
#[tokio::test]
async fn mailroom_of_a_file() {
    let codex = &CLIENTS[2];
    let several = "agents = [\"mailroom\", \"echo\"]\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n";
    for (listener, expected) in [
        (
            "bind = \"127.0.0.1:8091\"\nagent = \"mailroom\"\nkeys = \"keys.toml\"\n",
            Ok(
                json!({ "url": "http://127.0.0.1:8091/mcp", "bearer_token_env_var": "CALLBOARD_KEY" }),
            ),
        ),
        (
            "bind = \"[::1]:8091\"\nagent = \"mailroom\"\n",
            Ok(json!({ "url": "http://[::1]:8091/mcp" })),
        ),
        (
            &*format!("bind = \"127.0.0.1:8091\"\n{several}"),
            Ok(json!({ "url": "http://127.0.0.1:8091/agents/mailroom/mcp" })),
        ),
        (
            "bind = \"127.0.0.1:0\"\nagent = \"mailroom\"\n",
            Err("give that address"),
        ),
        (
            "bind = \"127.0.0.1:8091\"\nagent = \"echo\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n",
            Err("no listener of the file serves a mailroom"),
        ),
    ] {
        let home = Home::new();
        let file = home.write("office.toml", &format!("{OFFICE}{listener}"));
        let finished = codex.connect(&home, &[&file, "--mail"]).await;
        match expected {
            Ok(entry) => {
                finished.with(0, "");
                assert_eq!(codex.entry(&home, "callboard-mail"), entry, "{listener}");
            }
            Err(said) => {
                finished.with(2, said);
                assert!(!codex.path(&home).exists(), "{listener}");
            }
        }
    }
}

/// Goal: a file that can't be edited is left as it is, and the user gets the settings to paste. Method: for each client, texts of wrong
/// syntax and wrong types.
#[tokio::test]
async fn broken_files_stay() {
    for client in &CLIENTS {
        let section = client.section;
        let broken = if client.name == "codex" {
            vec!["[broken".to_owned(), format!("{section} = 3\n")]
        } else {
            vec![
                format!("{{\n  // a comment\n  \"{section}\": {{}}\n}}\n"),
                format!("{{ \"{section}\": {{}}, }}"),
                format!("{{ \"{section}\": [] }}"),
                "[]".to_owned(),
            ]
        };
        for text in broken {
            let home = Home::new();
            client.write(&home, &text);
            let refused = client.connect(&home, &["example:hmcp-emr"]).await;
            let refused = refused.with(2, "The file is unchanged");
            refused.has(&[section, "\"callboard\"", "\"example:hmcp-emr\""]);
            assert_eq!(client.text(&home), text);
            let path = client.path(&home);
            let folder = fs::read_dir(path.parent().unwrap()).unwrap();
            let own = |name: &str| name.starts_with(path.file_name().unwrap().to_str().unwrap());
            let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert_eq!(names.filter(|name| own(name)).count(), 1, "{text}");
        }
    }
}

/// Goal: a server of another program is left, and one for callboard is updated. Method: for each client, a name that another program has; then
/// a name of our own with one target and with another.
#[tokio::test]
async fn servers_of_others_stay() {
    for client in &CLIENTS {
        let home = Home::new();
        client.write(&home, client.others);
        for target in ["example:hmcp-emr", "http://127.0.0.1:8091/mcp"] {
            for option in [&[][..], &["--dry-run"]] {
                let arguments = [&[target, "--name", "other"][..], option].concat();
                let refused = client.connect(&home, &arguments).await;
                let refused =
                    refused.with(2, "the server other is another program's: choose --name");
                assert_eq!(refused.out, "");
            }
            assert_eq!(client.text(&home), client.others, "{}", client.name);
            assert!(!backup(&client.path(&home)).exists());
        }
        let board = |target: &'static str| [target, "--name", "board"];
        let first = client.connect(&home, &board("example:hmcp-emr")).await;
        first.with(0, ".bak").has(&[": connected as board ("]);
        let second = client
            .connect(&home, &board("http://127.0.0.1:8091/mcp"))
            .await;
        second.with(0, ".bak.1").has(&[": updated as board ("]);
        let other = client
            .connect(&home, &board("http://127.0.0.1:8092/mcp"))
            .await;
        other.with(2, "the server board is another program's");
    }
}

/// Goal: the entry names the program as the user starts it, and a store that only one process can open is told. Method: a link to the program
/// in `PATH`; stores in a file and in memory.
#[tokio::test]
async fn programs_and_stores() {
    let client = &CLIENTS[0];
    let note = "its store can be open once";
    for (store, is_noted) in [
        ("", false),
        ("[store]\n", true),
        ("[store]\nurl = \"sqlite:n.sqlite\"\n", true),
        ("[store]\nurl = \"memory\"\n", false),
    ] {
        let home = Home::new();
        home.write("n.toml", &format!("{TOPOLOGY}{store}"));
        let link = home.path("callboard");
        symlink(env!("CARGO_BIN_EXE_callboard"), &link).unwrap();
        let mut command = home.callboard(&["connect", client.name, "n.toml"]);
        let connected = ended(command.env("PATH", home.path("")), None)
            .await
            .with(0, "");
        assert_eq!(connected.err.contains(note), is_noted, "{connected:?}");
        let entry = client.entry(&home, "callboard");
        assert_eq!(Path::new(entry["command"].as_str().unwrap()), link);
    }
}

/// Goal: a symbolic link to the file stays one, and the variables and the option by which a client's file is moved are followed. Method:
/// a link, `CODEX_HOME`, `--config` with a relative path.
#[tokio::test]
async fn moved_files() {
    let [claude, _, codex, ..] = &CLIENTS;
    let home = Home::new();
    let target = home.write("dotfile.json", claude.others);
    symlink(&target, claude.path(&home)).unwrap();
    claude
        .connect(&home, &["example:hmcp-emr"])
        .await
        .with(0, "dotfile.json.bak");
    assert!(claude.path(&home).is_symlink());
    assert_eq!(claude.entry(&home, "callboard")["type"], "stdio");

    let mut command = home.callboard(&["connect", codex.name, "example:hmcp-emr"]);
    let moved = ended(command.env("CODEX_HOME", home.path("elsewhere")), None).await;
    moved.quiet(0).has(&["elsewhere/config.toml"]);
    assert!(home.path("elsewhere/config.toml").exists());

    let config = ["example:hmcp-emr", "--config", "project.json"];
    claude.connect(&home, &config).await.quiet(0);
    let project = fs::read_to_string(home.path("project.json")).unwrap();
    assert!(project.contains("\"example:hmcp-emr\""), "{project}");
}

/// Goal: mistakes are the user's, say what to do, show no key and write nothing. Method: rows.
#[tokio::test]
async fn mistakes() {
    let home = Home::new();
    home.write("good.toml", TOPOLOGY);
    home.write("empty.toml", "[node]\nname = \"n\"\n");
    let client = &CLIENTS[4];
    for (arguments, said) in [
        (&[][..], "FILE|ADDRESS"),
        (&["missing.toml"], "missing.toml"),
        (&["empty.toml"], "declares no agent"),
        (&["good.toml", "--key-env", "MY_KEY"], "--mail"),
        (&["good.toml", "--name", "a b"], "--name"),
        (&["good.toml", "--name", ""], "--name"),
        (&["http://b", "--key-env", SECRET], "never the key itself"),
        (
            &["http://b", "--key-env", "cbk_secret"],
            "never the key itself",
        ),
        (&["http://b", "--key-env", "1KEY"], "never the key itself"),
        (&["http://user:word@b/mcp"], "no user or password"),
        (&["ftp://b/mcp"], "not ftp://"),
    ] {
        let refused = client.connect(&home, arguments).await.with(2, said);
        assert!(!refused.err.contains("cbk_"), "{refused:?}");
        assert!(!client.path(&home).exists(), "{arguments:?}");
    }
    let mut command = home.callboard(&["connect", client.name, "good.toml"]);
    let homeless = ended(command.env_remove("HOME"), None).await;
    homeless.with(2, "--config");
}
