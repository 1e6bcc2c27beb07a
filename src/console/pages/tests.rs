use callboard_message::PrincipalKind;
use callboard_runtime::{Approval, ApprovalState};
use maud::Markup;
use serde_json::json;

use super::*;
use crate::monitor::view::{
    AgentView, CallLine, CallStep, Overview, QuestionView, TaskView, Timeline, ToolView,
    UpstreamView,
};

const EVIL: &str = "\"><script>alert(1)</script>";

/// Rights of a reader, beside the one to read.
#[derive(Clone, Copy)]
struct Rights {
    content: bool,
    act: bool,
}

const ALL: Rights = Rights {
    content: true,
    act: true,
};

/// Returns readers with each combination of rights.
fn readers() -> impl Iterator<Item = Rights> {
    let pairs = [(false, false), (false, true), (true, false), (true, true)];
    pairs
        .into_iter()
        .map(|(content, act)| Rights { content, act })
}

fn viewer(may: Rights) -> Viewer {
    Viewer {
        name: EVIL.to_owned(),
        can_see_content: may.content,
        can_act: may.act,
        is_signed_in: true,
    }
}

/// Renders a page for a reader.
fn rendered(may: Rights, page: impl Fn(&PageFrame<'_>) -> Markup) -> String {
    let overview = Overview {
        node: EVIL.to_owned(),
        questions: 1,
        ..Overview::default()
    };
    let frame = PageFrame {
        overview: &overview,
        viewer: &viewer(may),
        csrf: "csrf-token",
        path: "/",
    };
    page(&frame).into_string()
}

fn agent() -> AgentView {
    AgentView {
        id: EVIL.to_owned(),
        name: None,
        kind: EVIL.to_owned(),
        state: EVIL.to_owned(),
        mailbox: 3,
        mailbox_max: 64,
        in_flight: 1,
        handled: 5,
        restarts: 1,
        last_error: Some(EVIL.to_owned()),
        calls: 5,
        failures: 1,
        parent: None,
    }
}

fn call() -> CallLine {
    CallLine {
        call: "call-1".to_owned(),
        kind: "inbound".to_owned(),
        at_ms: 1_000,
        principal: EVIL.to_owned(),
        agent: EVIL.to_owned(),
        target: EVIL.to_owned(),
        protocol: "mcp".to_owned(),
        ms: None,
        outcome: "asks".to_owned(),
        trace: "0".repeat(32),
    }
}

fn timeline_of_call() -> Timeline {
    let step = CallStep {
        kind: "inbound".to_owned(),
        depth: 0,
        start_ms: 0.0,
        ms: Some(2.0),
        agent: EVIL.to_owned(),
        target: EVIL.to_owned(),
        protocol: EVIL.to_owned(),
        outcome: EVIL.to_owned(),
        detail: EVIL.to_owned(),
        request_bytes: 10,
        reply_bytes: 2_000,
        span: "0".repeat(16),
        parent: String::new(),
        request: Some(EVIL.to_owned()),
        reply: Some(EVIL.to_owned()),
    };
    Timeline {
        line: call(),
        steps: vec![step],
        more: 1,
    }
}

/// A question of a call, as the server gives it to a reader.
fn question(may: Rights) -> QuestionView {
    QuestionView {
        id: "question-1".to_owned(),
        call: "call-1".to_owned(),
        at_ms: 1_000,
        agent: EVIL.to_owned(),
        principal: EVIL.to_owned(),
        message: EVIL.to_owned(),
        schema: json!({ "type": "object", "properties": { EVIL: { "type": "string" } } }),
        can_answer: may.act,
    }
}

fn task_with_id(id: &str, parent: &str) -> TaskView {
    TaskView {
        id: id.to_owned(),
        parent: parent.to_owned(),
        agent: EVIL.to_owned(),
        owner: EVIL.to_owned(),
        state: "working".to_owned(),
        created_ms: 1,
        changed_ms: 2,
    }
}

fn changed_tool() -> ToolView {
    ToolView {
        upstream: EVIL.to_owned(),
        tool: EVIL.to_owned(),
        state: "changed".to_owned(),
        approved: EVIL.to_owned(),
        offered: format!("{EVIL}!"),
        offered_hash: "abc".to_owned(),
    }
}

fn approval() -> Approval {
    Approval {
        id: "approval-1".to_owned(),
        requester_kind: PrincipalKind::ApiKey,
        requester: EVIL.to_owned(),
        agent: EVIL.to_owned(),
        tool: EVIL.to_owned(),
        arguments: format!("secret arguments {EVIL}"),
        purpose: EVIL.to_owned(),
        rule: EVIL.to_owned(),
        approvers: vec![EVIL.to_owned()],
        requested_s: 1,
        expires_s: 2,
        state: ApprovalState::Pending,
        decided_by: None,
        reason: None,
    }
}

fn mail_page(may: Rights) -> MailPage {
    MailPage {
        rooms: vec![EVIL.to_owned()],
        room: EVIL.to_owned(),
        query: String::new(),
        threads: vec![MailThreadLine {
            id: "mail-1".to_owned(),
            subject: EVIL.to_owned(),
            from: EVIL.to_owned(),
            at_ms: 1,
            messages: 1,
            unread: true,
        }],
        messages: vec![MailLine {
            id: "mail-1".to_owned(),
            from: EVIL.to_owned(),
            to: vec![EVIL.to_owned()],
            at_ms: 1,
            subject: EVIL.to_owned(),
            body: EVIL.to_owned(),
            receipts: vec![(EVIL.to_owned(), EVIL.to_owned())],
        }],
        can_write: may.act,
    }
}

fn play_page(is_running: bool) -> PlayPage {
    PlayPage {
        agents: vec![EVIL.to_owned()],
        agent: EVIL.to_owned(),
        tools: vec![PlayTool {
            name: EVIL.to_owned(),
            description: EVIL.to_owned(),
            schema: json!({ "type": "object", "properties": { "a": { "description": EVIL } } }),
        }],
        tool: EVIL.to_owned(),
        run: Some(PlayRun {
            id: "run-1".to_owned(),
            agent: EVIL.to_owned(),
            tool: EVIL.to_owned(),
            is_running,
            ms: None,
            outcome: EVIL.to_owned(),
            text: EVIL.to_owned(),
            raw: EVIL.to_owned(),
        }),
    }
}

fn picture() -> TopologyPicture {
    TopologyPicture {
        node: EVIL.to_owned(),
        listeners: vec![(
            EVIL.to_owned(),
            EVIL.to_owned(),
            vec!["a".to_owned(), "up".to_owned()],
        )],
        agents: vec![("a".to_owned(), EVIL.to_owned())],
        upstreams: vec![("up".to_owned(), EVIL.to_owned())],
    }
}

/// Each page, with texts that try to be markup.
fn pages(may: Rights) -> Vec<(&'static str, String)> {
    let upstream = UpstreamView {
        name: EVIL.to_owned(),
        state: "away".to_owned(),
        retry_ms: Some(1_500),
        failures: 2,
        detail: json!({ "error": EVIL }),
    };
    let target = ConnectTarget {
        name: EVIL.to_owned(),
        url: "http://127.0.0.1:8080/mcp".to_owned(),
        needs_key: true,
    };
    let parts = [task_with_id("b", "a"), task_with_id("c", "b")];
    vec![
        (
            "dashboard",
            rendered(may, |frame| dashboard(frame, &[agent()], &[call()], EVIL)),
        ),
        (
            "timeline",
            rendered(may, |frame| timeline(frame, &timeline_of_call())),
        ),
        (
            "questions",
            rendered(may, |frame| questions(frame, &[question(may)])),
        ),
        (
            "approvals",
            rendered(may, |frame| approvals(frame, &[approval()])),
        ),
        (
            "tools",
            rendered(may, |frame| tools(frame, &[changed_tool()])),
        ),
        (
            "tasks",
            rendered(may, |frame| tasks(frame, &[task_with_id("a", "")])),
        ),
        (
            "task",
            rendered(may, |frame| task(frame, &task_with_id("a", ""), &parts)),
        ),
        (
            "upstreams",
            rendered(may, |frame| {
                upstreams(frame, std::slice::from_ref(&upstream))
            }),
        ),
        ("mail", rendered(may, |frame| mail(frame, &mail_page(may)))),
        ("play", rendered(may, |frame| play(frame, &play_page(true)))),
        (
            "result",
            rendered(may, |frame| play(frame, &play_page(false))),
        ),
        (
            "connect",
            rendered(may, |frame| connect(frame, std::slice::from_ref(&target))),
        ),
        (
            "topology",
            rendered(may, |frame| topology(frame, &picture())),
        ),
        ("message", rendered(may, |frame| message(frame, EVIL, EVIL))),
        ("login", login(Some(EVIL)).into_string()),
    ]
}

/// Goal: texts from outside are texts in each page. Method: markup as the text of each member.
#[test]
fn texts_are_escaped() {
    for (name, page) in pages(ALL) {
        assert!(!page.contains("<script>"), "{name}: {page}");
        assert!(!page.contains(EVIL), "{name}: {page}");
        assert!(page.contains("&lt;script&gt;"), "{name}: {page}");
    }
}

/// Goal: pages obey a strict content security policy. Method: look for scripts, styles and handlers in the page, and for
/// addresses elsewhere.
#[test]
fn pages_hold_no_code() {
    for (name, page) in pages(ALL) {
        for forbidden in [
            " style=",
            "<style",
            " onclick=",
            " hx-on",
            "src=\"http",
            "javascript:",
        ] {
            assert!(!page.contains(forbidden), "{name} has {forbidden}: {page}");
        }
        assert!(page.contains("&quot;allowEval&quot;:false"), "{name}");
    }
}

/// Goal: every form that is posted is safe from forged requests, but for the one that asks for a credential. Method: count
/// forms and tokens.
#[test]
fn forms_have_the_token() {
    for (name, page) in pages(ALL) {
        let forms = page.matches("<form").count();
        let posted = page.matches("method=\"post\"").count();
        let tokens = page.matches("name=\"csrf\" value=\"csrf-token\"").count();
        let expected = if name == "login" { 0 } else { posted };
        assert!(forms >= posted && posted > 0, "{name}");
        assert_eq!(tokens, expected, "{name}: {page}");
    }
}

/// Goal: whoever may not act is offered no action. Method: each page for each reader.
#[test]
fn actions_need_their_right() {
    for may in readers() {
        for (name, page) in pages(may) {
            let offered = page.matches("action=\"/do/").count();
            let expected = match (name, may.act) {
                // A run belongs to its principal, who may end it.
                ("play", true) => 2,
                ("play", false) => 1,
                ("questions" | "approvals" | "tools" | "task" | "upstreams", true) => 1,
                ("mail" | "result", true) => 1,
                _ => 0,
            };
            assert_eq!(offered, expected, "{name}: {page}");
        }
    }
}

/// Goal: texts need the right for them, and nobody accepts or approves what isn't shown; no is said without it. Method: a question
/// and an approval for each reader.
#[test]
fn texts_need_their_right() {
    for may in readers() {
        let page = rendered(may, |frame| {
            let question = QuestionView {
                message: "secret text".to_owned(),
                ..question(may)
            };
            questions(frame, &[question])
        });
        assert_eq!(page.contains("secret text"), may.content);
        assert_eq!(page.contains("data-testid=\"decline\""), may.act);
        let accepts = may.content && may.act;
        assert_eq!(page.contains("data-testid=\"answer\""), accepts);
        assert_eq!(page.contains("name=\"v."), accepts);
        let page = rendered(may, |frame| approvals(frame, &[approval()]));
        assert_eq!(page.contains("secret arguments"), may.content);
        assert_eq!(page.contains("data-testid=\"deny\""), may.act);
        assert_eq!(page.contains("data-testid=\"approve\""), accepts);
    }
}

/// Goal: a question in an inbox is read and answered by whoever may answer for its person, whatever the other rights. Method: each
/// reader, with and without that right.
#[test]
fn inboxes_are_for_their_person() {
    for (may, can_answer) in readers().flat_map(|may| [(may, false), (may, true)]) {
        let page = rendered(may, |frame| {
            let question = QuestionView {
                call: String::new(),
                principal: "alice".to_owned(),
                message: "secret text".to_owned(),
                can_answer,
                ..question(may)
            };
            questions(frame, &[question])
        });
        assert_eq!(page.contains("secret text"), can_answer);
        assert_eq!(page.contains("data-testid=\"answer\""), can_answer);
        assert_eq!(page.contains("person:alice"), !can_answer);
    }
}

/// Goal: a reply has no fields that are passed over. Method: a
/// thread that is open, and none.
#[test]
fn mail_of_a_room() {
    let show = |page: MailPage| rendered(ALL, |frame| mail(frame, &page));
    let reply = show(mail_page(ALL));
    assert!(reply.contains("Reply to all") && !reply.contains("name=\"to\""));
    let new = show(MailPage {
        messages: Vec::new(),
        ..mail_page(ALL)
    });
    assert!(new.contains("name=\"to\"") && new.contains("name=\"subject\""));
}

/// Goal: states of upstreams have the colour of their meaning, and lines lead to upstreams too. Method: each state as a badge
/// and in the picture; a topology without agents.
#[test]
fn states_of_upstreams() {
    for (state, tone, class) in [
        ("connected", "good", "upstream"),
        ("connecting", "plain", "upstream"),
        ("apart", "plain", "upstream"),
        ("unknown", "plain", "upstream"),
        ("away", "bad", "away"),
        ("disabled", "bad", "away"),
    ] {
        let picture = TopologyPicture {
            agents: Vec::new(),
            upstreams: vec![("up".to_owned(), state.to_owned())],
            ..picture()
        };
        let page = rendered(ALL, |frame| topology(frame, &picture));
        assert!(page.contains(&format!("badge {tone}")), "{state}: {page}");
        assert!(page.contains(&format!("node-{class}")), "{state}: {page}");
        assert_eq!(page.matches("class=\"edge\"").count(), 1, "{state}");
    }
    let page = rendered(ALL, |frame| topology(frame, &picture()));
    assert_eq!(page.matches("class=\"edge\"").count(), 2);
}

/// Goal: tests find what they click. Method: the stable attributes of each page.
#[test]
fn test_ids_are_there() {
    let pages = pages(ALL);
    for (name, id) in [
        ("dashboard", "call"),
        ("questions", "question-form"),
        ("questions", "answer"),
        ("approvals", "approve"),
        ("tools", "approve-tool"),
        ("task", "cancel-task"),
        ("play", "play-form"),
        ("play", "play-submit"),
        ("upstreams", "retry-upstream"),
        ("mail", "mail-form"),
        ("login", "login-form"),
    ] {
        let (_, page) = pages.iter().find(|(other, _)| *other == name).unwrap();
        assert!(
            page.contains(&format!("data-testid=\"{id}\"")),
            "{name} {id}"
        );
    }
}

/// Goal: no page is larger than its bound. Method: more agents and calls than are shown.
#[test]
fn tables_are_bounded() {
    let agents: Vec<_> = (0..elements::ROWS_MAX + 1).map(|_| agent()).collect();
    let table = agents_table(&agents).into_string();
    assert_eq!(table.matches("<meter").count(), elements::ROWS_MAX);
    assert!(table.contains("1 more aren't shown"), "{table}");
    let calls: Vec<_> = (0..elements::ROWS_MAX + 1).map(|_| call()).collect();
    let table = calls_table(&calls).into_string();
    assert_eq!(
        table.matches("data-testid=\"call\"").count(),
        elements::ROWS_MAX
    );
}

/// Goal: parts of a task stand below the one that they are a part of. Method: a plan of two levels, and a circle.
#[test]
fn parts_form_a_tree() {
    let parts = [
        task_with_id("c", "b"),
        task_with_id("b", "a"),
        task_with_id("a", "c"),
    ];
    let page = rendered(ALL, |frame| task(frame, &task_with_id("a", ""), &parts));
    let at = |text: &str| page.find(text).unwrap();
    assert!(at("id=\"task-b\"") < at("id=\"task-c\""), "{page}");
    assert!(
        page.contains("<span class=\"d1\"><a id=\"task-c\""),
        "{page}"
    );
}

/// Goal: no snippet holds a key. Method: each names the variable.
#[test]
fn snippets_name_a_variable() {
    let target = ConnectTarget {
        name: "desk".to_owned(),
        url: "https://node.example/mcp".to_owned(),
        needs_key: true,
    };
    let page = rendered(ALL, |frame| connect(frame, std::slice::from_ref(&target)));
    for text in [
        "Bearer ${CALLBOARD_KEY}",
        "Bearer ${env:CALLBOARD_KEY}",
        "Bearer ${input:desk-key}",
        "bearer_token_env_var = &quot;CALLBOARD_KEY&quot;",
        "[mcp_servers.&quot;desk&quot;]",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}
