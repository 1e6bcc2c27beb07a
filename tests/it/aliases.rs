use crate::kit::gateway::serve;
use crate::kit::mail::Office;
use crate::kit::{Finished, Home};

const ECHO: &str = "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n\
    [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"echo\"\n";
const MAILROOM: &str = "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n";

/// Checks that the old name has the effect of the new one, and a warning before all that this writes to standard error.
#[track_caller]
fn same_with_warning(old: Finished, new: Finished, warning: &str) {
    assert_eq!(
        (old.code, &old.out),
        (new.code, &new.out),
        "{old:?} {new:?}"
    );
    let (first, rest) = old.err.split_once('\n').unwrap_or_default();
    assert!(
        first.starts_with("callboard: warning: ") && first.contains(warning),
        "{first}"
    );
    assert_eq!(rest, new.err);
}

/// Goal: `send` is `ask --to`. Method: an answer, as text; an address that is wrong; an agent that is away.
#[tokio::test]
async fn send_is_ask_to() {
    let home = Home::new();
    let (_node, listening) = serve(&home, &[&home.write("echo.toml", ECHO)]).await;
    for (address, more) in [
        (&*listening[0].1, &[][..]),
        ("missing.toml", &[]),
        ("nowhere", &[]),
        ("http://127.0.0.1:9", &["--json"]),
    ] {
        let old = home
            .run(&[&["send", address, "hello"], more].concat())
            .await;
        let new = home
            .run(&[&["ask", "--to", address, "hello"], more].concat())
            .await;
        same_with_warning(old, new, "`callboard ask --to ADDRESS`");
    }
    // Clinics have no use for options of an agent.
    for arguments in [
        &["ask", "x", "--timeout", "9"][..],
        &["ask", "x", "--ask"],
        &["ask", "x", "--to", "localhost:9", "--purpose", "p"],
    ] {
        home.run(arguments).await.printing(2, "");
    }
}

/// Goal: `msg` is `mail`. Method: commands that change nothing, and mistakes, by both names; a message that is sent by the old one.
#[tokio::test]
async fn msg_is_mail() {
    let office = Office::open(MAILROOM, &[("ann", &[]), ("bob", &[])]).await;
    let sent = office
        .run("ann", "", &["msg", "send", "bob", "hello"])
        .await
        .with(0, "`callboard mail`");
    assert_eq!(sent.out, "Message sent to agent bob\n");
    for arguments in [
        &["inbox", "--json"][..],
        &["history"],
        &["show", "no-such-id"],
        &["send", "bob", "x", "--url", "ftp://x"],
    ] {
        let old = office.run("bob", "", &[&["msg"], arguments].concat()).await;
        let new = office
            .run("bob", "", &[&["mail"], arguments].concat())
            .await;
        same_with_warning(old, new, "`callboard mail`");
    }
    office.close().await;
}

/// Goal: help names the new commands only. Method: the list of commands.
#[tokio::test]
async fn help_hides_the_old_names() {
    let help = Home::new().run(&["--help"]).await.quiet(0).out;
    let commands: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    for (name, is_shown) in [
        ("ask", true),
        ("agents", true),
        ("mail", true),
        ("send", false),
        ("msg", false),
    ] {
        assert_eq!(commands.contains(&name), is_shown, "{name}: {help}");
    }
}
