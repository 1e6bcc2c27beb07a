//! `callboard mail`: what is printed where, and the exit codes; and another file under a mailroom.

use callboard::message::mail::SendMessage;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::kit::gateway::serve;
use crate::kit::mail::Office;
use crate::kit::{Home, found, soon, until};

const MAILROOM: &str = "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n";
const ALL: [(&str, &[&str]); 3] = [
    ("ann", &["mail.role:lead"]),
    ("bob", &[]),
    ("boss", &["mail.admin"]),
];

async fn office() -> Office {
    let office = Office::open(MAILROOM, &ALL).await;
    for (id, _) in ALL {
        soon("its first word", office.client(id).agents(None))
            .await
            .unwrap();
    }
    office
}

/// Goal: a person sends, lists, reads and looks back; texts stay on their lines; ids stand apart. Method: two people, one of whose
/// texts would move a terminal.
#[tokio::test]
async fn people_write_to_each_other() {
    let office = office().await;
    let sent = office
        .run(
            "ann",
            "",
            &[
                "mail",
                "send",
                "bob",
                "Is it\u{1b}[31m green?\nReally?",
                "--topic",
                "ci",
            ],
        )
        .await;
    assert_eq!(
        (sent.code, &*sent.out),
        (Some(0), "Message sent to agent bob\n"),
        "{sent:?}"
    );
    let id = sent.err.trim_end();

    let inbox = office.run("bob", "", &["mail", "inbox", "--unread"]).await;
    let cells: Vec<_> = inbox.out.trim_end().split('\t').collect();
    assert_eq!(
        (cells[0], cells[1], cells[4]),
        (id, "ann", "Is it␛[31m green? Really?"),
        "{inbox:?}"
    );
    assert_eq!(
        (inbox.out.lines().count(), cells.len(), &*inbox.err),
        (1, 5, "")
    );

    office
        .run(
            "bob",
            "It is.\n",
            &["mail", "send", "ann", "-", "--reply-to", id, "--urgent"],
        )
        .await
        .with(0, "");
    let read = office
        .run("bob", "", &["mail", "inbox", "--read", "--json"])
        .await;
    let read = read.json();
    assert_eq!(
        (&read["message_id"], &read["topic"]),
        (&Value::from(id), &Value::from("ci"))
    );
    assert_eq!(
        office
            .run("bob", "", &["mail", "inbox", "--unread"])
            .await
            .out,
        ""
    );
    for (state, count) in [("read", 1), ("accepted", 0)] {
        let sent = office
            .run(
                "ann",
                "",
                &["mail", "history", "--box", "out", "--state", state],
            )
            .await;
        assert_eq!(
            (sent.code, sent.out.lines().count()),
            (Some(0), count),
            "{state}: {sent:?}"
        );
    }

    let shown = office
        .run("ann", "", &["mail", "show", id, "--receipts"])
        .await;
    assert!(
        shown.out.contains("\nreceipt: bob read ") && shown.out.ends_with("green?\nReally?\n"),
        "{shown:?}"
    );
    let both = office
        .run(
            "boss",
            "",
            &["mail", "send", "ann,bob", "to both", "--json"],
        )
        .await;
    assert_eq!(both.json()["recipient_count"], 2, "{both:?}");
    let history = office
        .run(
            "ann",
            "",
            &["mail", "history", "--with", "bob", "--since", "1h"],
        )
        .await;
    let lines: Vec<_> = history.out.lines().collect();
    assert_eq!(lines.len(), 2, "{history:?}");
    assert!(
        lines[0].contains("\tbob\t")
            && lines[0].ends_with("It is.")
            && lines[0].contains(" urgent\t")
    );
    let log = office
        .run("bob", "", &["mail", "history", "--agent-log"])
        .await;
    assert!(log.out.contains("\tann\tbob\tdirect\t"), "{log:?}");
    // More than one page has is listed by pages.
    let log = office
        .run(
            "bob",
            "",
            &["mail", "history", "--agent-log", "--limit", "5000"],
        )
        .await;
    assert!(
        log.code == Some(0) && log.out.contains("\tann\tbob\tdirect\t"),
        "{log:?}"
    );
    office.close().await;
}

/// Goal: each end has its code, and says what is wrong. Method: rows of mistakes, refusals and absences.
#[tokio::test]
async fn ends_of_commands() {
    let office = office().await;
    let long = "x".repeat(64 * 1024 + 1);
    for (who, input, arguments, code, said) in [
        (
            "ann",
            "",
            &["mail", "send", "nobody", "x"][..],
            3,
            "Failed to send message - recipient agent nobody",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bobb,ann", "x"],
            3,
            "\nbobb: did you mean bob?\n",
        ),
        (
            "ann",
            "",
            &["mail", "send", "zyx", "x"],
            3,
            "`callboard mail members` lists the members\n",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--key-env", "NO_SUCH"],
            2,
            "there is no environment variable NO_SUCH",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--as", "bob"],
            3,
            "X-Agent-ID",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--guidance", "STUCK"],
            3,
            "",
        ),
        (
            "ann",
            "",
            &["mail", "broadcast", "x", "--group", "role:nobody"],
            3,
            "group role:nobody is not there",
        ),
        (
            "ann",
            "",
            &["mail", "history", "--state", "gone"],
            2,
            "possible values: accepted, delivered, read",
        ),
        (
            "ann",
            "",
            &["mail", "members", "end", "bob"],
            3,
            "mail.admin",
        ),
        ("ann", "", &["mail", "show", "no-such-id"], 4, "not found"),
        (
            "ann",
            &long,
            &["mail", "send", "bob", "-"],
            2,
            "65536 bytes",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--url", "http://127.0.0.1:1"],
            4,
            "can't connect to the mail listener at http://127.0.0.1:1: connection refused",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--url", "ftp://x"],
            2,
            "http://HOST:PORT",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "x", "--as", "a b"],
            2,
            "an agent's id",
        ),
        (
            "ann",
            "",
            &["mail", "send", "bob", "two", "words"],
            2,
            "unexpected argument 'words'",
        ),
        (
            "ann",
            "",
            &["mail", "members", "--topology", "no/such/file"],
            2,
            "no/such/file",
        ),
        (
            "ann",
            "",
            &["mail", "members", "--state", "asleep"],
            2,
            "possible values: active, away, terminated",
        ),
    ] {
        let ended = office.run(who, input, arguments).await.printing(code, "");
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    office.close().await;
}

/// Goal: who is here is a list; an agent is ended and brought back. Method: the three commands.
#[tokio::test]
async fn agents_are_shown() {
    let office = office().await;
    let shown = office.run("ann", "", &["mail", "members"]).await;
    let rows: Vec<Vec<&str>> = shown
        .out
        .lines()
        .map(|line| line.split('\t').take(6).collect())
        .collect();
    let row = |id, unread, role| vec![id, id, "active", "none", unread, role];
    // Whoever only administers is no agent.
    assert_eq!(
        rows,
        [row("ann", "0", "lead"), row("bob", "-", "-")],
        "{shown:?}"
    );
    assert_eq!(
        office
            .run("boss", "", &["mail", "members", "end", "bob"])
            .await
            .out,
        "bob is terminated\n"
    );
    let ended = office
        .run(
            "ann",
            "",
            &["mail", "members", "--state", "terminated", "--json"],
        )
        .await;
    assert_eq!(ended.json()["agent_id"], "bob");
    assert_eq!(
        office
            .run("bob", "", &["mail", "send", "ann", "x"])
            .await
            .code,
        Some(3)
    );
    assert_eq!(
        office
            .run("boss", "", &["mail", "members", "back", "bob"])
            .await
            .out,
        "bob is back\n"
    );
    assert_eq!(
        office
            .run("bob", "", &["mail", "send", "ann", "x"])
            .await
            .code,
        Some(0)
    );
    office.close().await;
}

/// Goal: what happens is a line each, over an end of the node's own too; an interrupt is a good end. Method: watch from the start, at a
/// node that is told to end.
#[tokio::test]
async fn events_are_watched() {
    let office = office().await;
    let watch = [
        "mail",
        "watch",
        "--after",
        "0",
        "--types",
        "agent_direct_message",
    ];
    let mut child = office.command("bob", &watch).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(
        office
            .run("ann", "", &["mail", "send", "bob", "one\ntwo"])
            .await
            .code,
        Some(0)
    );
    let line = soon("an event", lines.next_line()).await.unwrap().unwrap();
    assert!(
        line.ends_with("\tagent_direct_message\tann to bob\tone two"),
        "{line}"
    );
    let pid = child.id().unwrap().to_string();
    assert!(
        tokio::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
    assert_eq!(soon("its end", child.wait()).await.unwrap().code(), Some(0));
    office.close().await;
}

/// Goal: members come and go with the file; mail and connections stay. Method: a member more, in the file of a node that runs, which
/// gets a message from before its time in no way, and one after it; a mistake, which changes nothing.
#[tokio::test]
async fn members_change_under_a_mailroom() {
    let mut office = office().await;
    let file = office.home.path("office.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let ann = office.client("ann");
    let say = |to: &str| {
        let recipient_agent_id = Some(to.to_owned());
        SendMessage {
            message: "x".to_owned(),
            recipient_agent_id,
            ..SendMessage::default()
        }
    };
    assert!(
        soon("an answer", ann.send(&say("bob")))
            .await
            .unwrap()
            .success
    );
    assert!(
        !soon("an answer", ann.send(&say("helper")))
            .await
            .unwrap()
            .success
    );
    let helper = "[[agent]]\nkind = \"orchestrator\"\nid = \"helper\"\n";
    let members = text.replace(
        MAILROOM,
        &format!("{MAILROOM}member = [{{ id = \"helper\", role = \"aide\" }}]\n{helper}"),
    );
    let late = callboard::rpc::KeyStore::load(office.home.path("keys.toml"))
        .unwrap()
        .add("late", Vec::new())
        .unwrap();
    std::fs::write(&file, &members).unwrap();
    let written = async || {
        ann.send(&say("helper"))
            .await
            .unwrap()
            .success
            .then_some(())
    };
    found("the new member", written).await;
    // Whose key came with it is one as well.
    assert!(
        soon("an answer", ann.send(&say("late")))
            .await
            .unwrap()
            .success
            && !late.expose_secret().is_empty()
    );
    let shown = soon("who is here", ann.agents(None)).await.unwrap().agents;
    let aide = shown
        .iter()
        .find(|agent| agent.agent_id == "helper")
        .unwrap();
    assert_eq!(aide.role.as_deref(), Some("aide"));
    let kept = soon(
        "an inbox",
        office.client("bob").messages(&Default::default()),
    )
    .await
    .unwrap()
    .messages;
    assert_eq!(kept.len(), 1);
    std::fs::write(
        &file,
        members.replace("\"helper\", role", "\"mailroom\", role"),
    )
    .unwrap();
    let said = || std::fs::read_to_string(office.home.path("stderr")).unwrap();
    until("a complaint", || {
        said().contains("mailroom can't be a member")
    })
    .await;
    assert!(
        soon("an answer", ann.send(&say("helper")))
            .await
            .unwrap()
            .success
    );
    // It has complained: its end isn't silent.
    office.kill().await;
}

/// Goal: whoever sits at the machine needs no key where the file says so, and is nobody but the operator. Method: a listener that
/// trusts them.
#[tokio::test]
async fn the_operator_needs_no_key() {
    let home = Home::new();
    let listener = "[[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\nagent = \"mailroom\"\nanonymous = \"operator\"\n";
    let file = home.write(
        "own.toml",
        &format!("[node]\nname = \"own\"\n{listener}{MAILROOM}"),
    );
    let (_node, listening) = serve(&home, &[&file]).await;
    let url = &*listening[0].1;
    let shown = home.run(&["mail", "members", "--url", url]).await;
    // The operator is no agent.
    assert_eq!((shown.code, &*shown.out), (Some(0), ""), "{shown:?}");
    home.run(&["mail", "broadcast", "anybody?", "--url", url])
        .await
        .printing(0, "Message broadcast to 0 agent(s)\n");
    home.run(&["mail", "broadcast", "x", "--url", url, "--as", "ann"])
        .await
        .with(3, "");
}
