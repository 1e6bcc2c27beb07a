//! Tests of mailrooms, members and mail listeners in topologies.

use std::path::Path;

use callboard_message::DataClass;

use super::{NODE, told};
use crate::config::{MailroomDeclaration, ServedProtocol, TmuxDeclaration, Topology};

/// Returns a topology with a mailroom that has the keys `more`, and agents for it.
fn with(more: &str) -> String {
    format!(
        "{NODE}agent = [\n  {{ kind = \"tmux\", id = \"builder\", target = \"work:0.1\" }},\n  {{ kind = \"tmux\", id = \"tester\", target = \"work:0.2\" }},\n  {{ kind = \"webhook\", id = \"pager\", url = \"https://p.example/in\" }},\n  {{ kind = \"patient_data\", id = \"patients\", patients = [] }},\n  {{ kind = \"mailroom\", id = \"mailroom\", {more} }},\n]\n"
    )
}

const ALL: &str = "member = [{ id = \"builder\" }, { id = \"tester\" }, { id = \"pager\" }]";

/// Goal: a mailroom, its members and its listener are read. Method: a file in the notation of the documentation.
#[test]
fn a_mailroom_is_read() {
    let text = "[node]\nname = \"n\"\n[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\nmessages_a_second = 9\nexpires_days = 30\nshort_ids = true\n[[agent.member]]\nid = \"builder\"\nrole = \"builder\"\nphase = \"one\"\ngroups = [\"night\"]\nexclude_from_broadcast = true\n[[agent]]\nkind = \"tmux\"\nid = \"builder\"\ntarget = \"work:main.0\"\nsubmit = false\ncommand = [\"claude\"]\n[[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\nagent = \"mailroom\"\nkeys = \"keys.toml\"\n";
    let topology = Topology::parse(text, false, Path::new("/f")).unwrap();
    assert_eq!(topology.agents.len(), 2, "{:?}", topology.agents);
    let mailroom: &MailroomDeclaration = topology.agent_of_kind("mailroom").unwrap();
    let tmux: &TmuxDeclaration = topology.agent_of_kind("builder").unwrap();
    assert_eq!(mailroom.class, DataClass::Personal);
    assert!(mailroom.short_ids && mailroom.broadcasts_a_minute.is_none());
    let member = &mailroom.members[0];
    assert_eq!(
        (
            member.role.as_deref(),
            member.phase.as_deref(),
            member.exclude_from_broadcast
        ),
        (Some("builder"), Some("one"), true)
    );
    assert_eq!(
        (&*tmux.target.target().to_string(), tmux.submit),
        ("work:main.0", false)
    );
    let listener = &topology.listeners[0];
    assert_eq!(
        (listener.served_protocol(), listener.keys.as_deref()),
        (ServedProtocol::Mail, Some(Path::new("/f/keys.toml")))
    );
    // A listener that names no agent doesn't include tmux panes.
    assert_eq!(topology.servable_ids(), ["mailroom"]);
}

/// Goal: every mistake is told where it stands. Method: one file a mistake; what is told, and that there is no other.
#[test]
fn every_mistake_of_a_mailroom() {
    for (more, expect) in [
        (
            "class = \"clinical\"",
            "7:48 agent mailroom: `class`: mail is stored and passed on, so it can't be clinical",
        ),
        (
            "expires_days = 31",
            "7:55 agent mailroom: `expires_days`: it must be 30 at most",
        ),
        (
            "messages_a_second = 0",
            "7:60 `messages_a_second`: it must be a whole number, 1 at least, not 0",
        ),
        ("members = []", "7:40 a mailroom has no key `members`"),
    ] {
        let told = told(&with(&format!("{ALL}, {more}")), false);
        let told: Vec<_> = told
            .iter()
            .map(|told| told.split_once(' ').unwrap().1)
            .collect();
        assert_eq!(told, [expect.split_once(' ').unwrap().1], "{more}");
    }
    for (id, expect) in [
        (
            "mailroom",
            "mailroom can't be a member of mailroom: it is a mailroom",
        ),
        (
            "patients",
            "patients can't be a member of mailroom: its class is clinical, and mail is stored and passed on",
        ),
        ("pager", "pager is a member of mailroom twice"),
    ] {
        let more = format!("{}, {{ id = \"{id}\" }}]", ALL.trim_end_matches(']'));
        assert_eq!(
            told(&with(&more), false),
            [format!("7:115 {expect}")],
            "{id}"
        );
    }
    // A member outside the file fetches its mail. It is reported only if its id resembles another.
    let stranger = |all: &str, id: &str| {
        told(
            &with(&format!(
                "{}, {{ id = \"{id}\" }}]",
                all.trim_end_matches(']')
            )),
            false,
        )
    };
    assert!(stranger(ALL, "agent-456").is_empty() && stranger(ALL, "bilder").is_empty());
    let meant = stranger(
        "member = [{ id = \"tester\" }, { id = \"pager\" }]",
        "bilder",
    );
    let expect = "the member bilder of mailroom isn't in this file: it has to ask for its mail";
    assert!(meant.iter().any(|told| told.contains(expect)), "{meant:?}");
    let more = format!("{}, {{ id = \"operator\" }}]", ALL.trim_end_matches(']'));
    assert_eq!(told(&with(&more), false).len(), 1);
    for (key, expect) in [
        (
            "role = \"a:b\"",
            "the member builder of mailroom: `role`: use 1 to 64 characters of A-Z a-z 0-9 . _ -",
        ),
        (
            "groups = [\"\"]",
            "the member builder of mailroom: `groups`: use 1 to 64 characters of A-Z a-z 0-9 . _ -",
        ),
    ] {
        let told = told(
            &with(&ALL.replacen("\"builder\"", &format!("\"builder\", {key}"), 1)),
            false,
        );
        assert!(
            matches!(told.as_slice(), [told] if told.ends_with(expect)),
            "{told:?}"
        );
    }
}

const PANE: &str = "`target`: a pane is named as session:window.pane, for example builder:0.0; names have letters, digits, `_` and `-`";

/// Goal: invalid panes and webhooks are rejected, and two members can't share a pane. Method: rows.
#[test]
fn ways_out_that_cannot_be() {
    for (was, is, expect) in [
        (
            "work:0.2",
            "work:0.1",
            "tester and builder are the same pane: work:0.1",
        ),
        ("work:0.2", "work", PANE),
        ("work:0.2", "=work:0.1", PANE),
        ("work:0.2", "work:0.x", PANE),
        (
            "https://p",
            "http://p",
            "agent pager: `url`: write https, or its network in `allow`: plain http stays on networks of your own",
        ),
        (
            "https://p.example",
            "https://127.0.0.1",
            "agent pager: `url`: connections to this machine are not allowed: name another host",
        ),
        (
            "https://p.example",
            "https://[::ffff:127.0.0.1]",
            "connections to this machine are not allowed: name another host",
        ),
    ] {
        let told = told(&with(ALL).replace(was, is), false);
        assert!(
            matches!(told.as_slice(), [told] if told.ends_with(expect)),
            "{told:?}"
        );
    }
    let nobody = told(
        &with("member = [{ id = \"builder\" }, { id = \"pager\" }]"),
        false,
    );
    assert!(
        matches!(nobody.as_slice(), [told] if told.ends_with("tester has no mail: no mailroom has it as a member"))
    );
}

/// Goal: a mail listener serves one mailroom, and anonymous clients of other machines are rejected.
/// Method: rows.
#[test]
fn listeners_of_mail() {
    for (more, expect) in [
        (
            "agent = \"pager\"",
            "the listener on 127.0.0.1:1: pager is no mailroom",
        ),
        (
            "",
            "the listener on 127.0.0.1:1: `agent`: the protocol \"mail\" needs `agent`: a mailroom",
        ),
        (
            "agent = \"mailroom\"\ndialect = \"mcp\"\nkeys = \"k\"",
            "the listener on 127.0.0.1:1: `dialect`: the protocol \"mail\" has no dialects: leave it out",
        ),
        (
            "agent = \"mailroom\"",
            "the listener on 127.0.0.1:1: members of a mailroom need a key, and it has no `keys`",
        ),
    ] {
        let text = with(ALL).replace(
            "patient_data\", id = \"patients\", patients = []",
            "webhook\", id = \"other\", url = \"https://o\"",
        );
        let text = text.replace(
            "{ id = \"pager\" }]",
            "{ id = \"pager\" }, { id = \"other\" }]",
        );
        let told = super::parse_topology(
            &format!("{text}[[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:1\"\n{more}\n"),
            false,
            Path::new(""),
            false,
        )
        .1;
        assert!(told.iter().any(|told| told.message == expect), "{told:?}");
    }
    let beyond = format!(
        "{}[[listener]]\nprotocol = \"mail\"\nbind = \"0.0.0.0:1\"\nagent = \"mailroom\"\n",
        with(ALL)
    );
    assert!(
        told(&beyond, false)
            .iter()
            .any(|told| told.contains("keys are needed to listen there"))
    );
}

/// Goal: the example is valid. Method: its parsed topology.
#[test]
fn the_fleet_is_sound() {
    let text = include_str!("../../../examples/mail/fleet.toml");
    let topology = Topology::parse(text, false, Path::new("")).unwrap();
    assert_eq!((topology.agents.len(), topology.listeners.len()), (4, 2));
}
