//! Mistakes of a new user on the command line: a file, a name, a key; and what the help shows.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::kit::{Home, ended};

const GOOD: &str =
    "[node]\nname = \"n\"\n[store]\n[[upstream]]\nid = \"files\"\ncommand = [\"sh\"]\n";

/// Goal: with `--strict` a warning is an error, such as a program that isn't there; a good file stays good.
/// Method: both files, with and without it, as text and as JSON.
#[tokio::test]
async fn strict_accepts_no_warning() {
    let home = Home::new();
    let good = home.write("good.toml", GOOD);
    let strict = home.run(&["check", &good, "--strict"]).await;
    strict.quiet(0).has(&["can be used: 0 agents, 1 upstream"]);
    let warned = home.write(
        "warned.toml",
        &GOOD.replace("\"sh\"", "\"no-such-program\""),
    );
    let lenient = home.run(&["check", &warned]).await;
    lenient.quiet(0).has(&[
        "warning: there is no program no-such-program in PATH",
        "; 1 warning",
    ]);
    let strict = home.run(&["check", &warned, "--strict"]).await;
    strict.quiet(2).has(&[
        "error: there is no program no-such-program in PATH",
        "warned.toml can be used, but not with --strict: 1 warning\n",
    ]);
    let json = home.run(&["check", &warned, "--strict", "--json"]).await;
    let found = json.quiet(2).json();
    assert_eq!(found["ok"], false, "{found}");
    assert_eq!(found["problems"][0]["level"], "error", "{found}");
}

/// Goal: a JSON file is named as what it is, and becomes a topology by its name. Method: the same text under
/// both names.
#[tokio::test]
async fn json_is_no_toml() {
    let home = Home::new();
    let text = r#"{"node": {"name": "n"}, "upstream": [{"id": "a", "command": ["sh"]}]}"#;
    let json = home.write("n.json", text);
    home.run(&["check", &json]).await.quiet(2).has(&[
        "error: this is JSON, and a topology is TOML or YAML",
        "help: YAML includes JSON: give the file a name that ends in .yaml",
    ]);
    let yaml = home.write("n.yaml", text);
    home.run(&["check", &yaml]).await.quiet(0);
}

/// Goal: a name that is nearly right is answered with the right one. Method: commands, an option, an agent
/// of a file, and an upstream.
#[tokio::test]
async fn names_that_were_meant() {
    let home = Home::new();
    let file = home.write("n.toml", GOOD);
    for (arguments, meant) in [
        (&["chek", &file][..], "'check'"),
        (&["mail", "sned"], "'send'"),
        (&["check", &file, "--strct"], "'--strict'"),
        (
            &["stdio", &file, "--agent", "fils"],
            "there is no agent fils in the topology: did you mean files?",
        ),
        (
            &["tools", "list", "fils", "--topology", &file],
            "it declares no upstream fils: did you mean files?",
        ),
    ] {
        home.run(arguments).await.with(2, meant).printing(2, "");
    }
}

/// Goal: each command that sends a key takes the name of its variable by the same option, and refuses one
/// without a key before it sends anything. A key in the name's place isn't repeated. Method: a variable that
/// isn't there, an empty one, one that isn't UTF-8, and a key; the old name of the option.
#[tokio::test]
async fn keys_are_named_alike() {
    let home = Home::new();
    // Nobody listens at this port.
    let url = "http://127.0.0.1:1";
    let commands = [
        &["mcp", "list", url][..],
        &["a2a", "card", url],
        &["agents", url],
        &["ask", "hello", "--to", url],
        &["top", url, "--once"],
        &["mail", "members", "--url", url, "--as", "a"],
    ];
    for command in commands {
        let unset = [command, &["--key-env", "NO_SUCH_KEY"]].concat();
        let said = "there is no environment variable NO_SUCH_KEY";
        home.run(&unset).await.with(2, said).printing(2, "");
        for (value, said) in [(&b""[..], "is empty"), (b"\xff", "isn't UTF-8")] {
            let named = [command, &["--key-env", "OTHER_KEY"]].concat();
            let mut named = home.callboard(&named);
            let finished = ended(named.env("OTHER_KEY", OsStr::from_bytes(value)), None).await;
            finished.with(2, &format!("the environment variable OTHER_KEY {said}"));
        }
        for key in ["sk-1234", "cbk_aB1234"] {
            let key_itself = [command, &["--key-env", key]].concat();
            let refused = home.run(&key_itself).await;
            let refused = refused.with(2, "write the name of one, not what it holds");
            assert!(!refused.err.contains("1234"), "{refused:?}");
        }
    }
    for &command in &commands[..4] {
        let old = [command, &["--bearer-env", "NO_SUCH_KEY"]].concat();
        home.run(&old).await.with(2, "NO_SUCH_KEY");
    }
}

/// Goal: a credential for nobody is a mistake. Method: each option of one with a question to the clinics, and to an agent of a file.
#[tokio::test]
async fn credentials_need_an_address() {
    let home = Home::new();
    for option in [
        ["--key-env", "PATH"],
        ["--header", "X-Trace: 1"],
        ["--ca", "system"],
    ] {
        for question in [&["ask", "hello"][..], &["ask", "hello", "--to", "n.toml"]] {
            let asked = home.run(&[question, &option].concat()).await;
            asked.with(2, "add --to URL").printing(2, "");
        }
    }
}

/// Goal: the help of a command is about the command; how logs are filtered is told once. Method: the help of
/// two commands, and of callboard.
#[tokio::test]
async fn help_is_short() {
    let home = Home::new();
    let about_logs = "never contain messages";
    for arguments in [
        &["check", "-h"][..],
        &["check", "--help"],
        &["mail", "send", "--help"],
    ] {
        let shown = home.run(arguments).await.quiet(0);
        shown.has(&["--log <FILTER>", "-h, --help"]);
        assert!(!shown.out.contains(about_logs), "{shown:?}");
    }
    home.run(&["--help"]).await.quiet(0).has(&[about_logs]);
    for (command, about_file) in [
        (&["backup", "--help"][..], "File to create"),
        (&["directory", "export", "--help"], "JSON file"),
    ] {
        home.run(command).await.quiet(0).has(&[about_file]);
    }
}
