//! Roots through the bridge: a server has them before its first call, and each client's are its
//! own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use callboard_mcp::outbound::Era;
use callboard_message::{
    Answer, CallerCapabilities, Failure, Principal, Question, Root, RootsAnswer,
};
use callboard_runtime::testkit::eventually;
use callboard_runtime::{AgentRef, CallContext, Caller, PeerSession};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bridge_kit::{Site, ask_as, child, of, send_as, text};
use crate::kit::{SOON, soon};

/// Server like server-filesystem: it requests roots once it is initialized and when they have
/// changed, allows only paths in them, and all paths while it has none. `overlap`: it requests
/// roots and ends the call at once. `after`: it ends the call, then requests roots.
const FILES: &str = r#"
    initialize; asked=0; root=none
    question() { asked=$((asked+1)); printf '{"jsonrpc":"2.0","id":"r%s","method":"roots/list"}\n' "$asked"; }
    question
    while hear; do
        case "$line" in
            *'"id":"r'*) root=$(part uri);;
            *roots/list_changed*) question;;
            *'"overlap"'*) question; text "$id" "$asked";;
            *'"after"'*) text "$id" "$asked"; question;;
            *'"read"'*) path=$(part read); case "$root:$path" in
                none:*) text "$id" content;;
                *) case "$path" in "$root"/*) text "$id" content;; *) text "$id" denied;; esac;;
            esac;;
            *tools/list*) say "$id" "{\"tools\":[],\"root\":\"$root\"}";;
        esac
    done
"#;

/// Client with one root folder.
struct Lender {
    root: Mutex<&'static str>,
    asked: AtomicUsize,
    /// True if questions during a call stay unanswered.
    call_hangs: AtomicBool,
}

impl Lender {
    fn new(root: &'static str) -> Arc<Self> {
        Arc::new(Self {
            root: Mutex::new(root),
            asked: AtomicUsize::new(0),
            call_hangs: AtomicBool::new(false),
        })
    }

    fn lends(&self, root: &'static str) {
        *self.root.lock().unwrap() = root;
    }

    fn session(self: &Arc<Self>) -> Arc<PeerSession> {
        Arc::new(PeerSession::new(
            CancellationToken::new(),
            Arc::new(Side {
                lender: self.clone(),
                in_call: false,
            }),
        ))
    }

    fn call(self: &Arc<Self>) -> CallContext {
        let caller = Side {
            lender: self.clone(),
            in_call: true,
        };
        CallContext::new(Arc::new(Principal::local_operator())).with_caller(Arc::new(caller))
    }

    fn call_in(self: &Arc<Self>, session: &Arc<PeerSession>) -> CallContext {
        CallContext {
            session: Some(session.clone()),
            ..self.call()
        }
    }
}

/// The client as the caller of a call, or of a session outside calls.
struct Side {
    lender: Arc<Lender>,
    in_call: bool,
}

impl Caller for Side {
    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities(
            serde_json::from_value(json!({ "roots": { "listChanged": true } })).unwrap(),
        )
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            assert!(matches!(question, Question::Roots(_)));
            self.lender.asked.fetch_add(1, SeqCst);
            if self.in_call && self.lender.call_hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            let root = Root {
                uri: (*self.lender.root.lock().unwrap()).to_owned(),
                name: None,
            };
            Ok(Answer::Roots(RootsAnswer::from_roots(vec![root])))
        })
    }
}

async fn read(bridge: &AgentRef, call: CallContext, path: &str) -> String {
    text(&ask_as(bridge, call, json!({ "read": path })).await.unwrap()).to_owned()
}

/// Reads until the result is `expected`.
async fn reads_soon(bridge: &AgentRef, call: impl Fn() -> CallContext, path: &str, expected: &str) {
    soon(async { while read(bridge, call(), path).await != expected {} }).await;
}

/// Goal: the roots are in force at the first call. Method: a first call that reads outside them, in
/// new sessions and in calls without one; a server that never requests roots delays a first call
/// little.
#[tokio::test]
async fn roots_are_there_before_the_first_call() {
    for _ in 0..3 {
        let site = Site::new();
        let bridge = site.bridge(child(FILES), of(Era::Legacy));
        let lender = Lender::new("/a");
        let session = lender.session();
        assert_eq!(
            read(&bridge, lender.call_in(&session), "/b/secret").await,
            "denied"
        );
        assert_eq!(
            read(&bridge, lender.call_in(&session), "/a/file").await,
            "content"
        );
        assert_eq!(lender.asked.load(SeqCst), 1);
        // Calls without a session may come from any client of their principal: each uses its own
        // roots.
        assert_eq!(read(&bridge, lender.call(), "/b/secret").await, "denied");
        let other = Lender::new("/b");
        assert_eq!(read(&bridge, other.call(), "/b/file").await, "content");
        assert_eq!(read(&bridge, other.call(), "/a/file").await, "denied");
        assert_eq!(read(&bridge, lender.call(), "/b/secret").await, "denied");
        site.end().await;
    }
    let site = Site::new();
    let silent = site.bridge(
        child(r#"initialize; while hear; do text "$id" here; done"#),
        of(Era::Legacy),
    );
    let said = ask_as(&silent, Lender::new("/a").call(), json!({}))
        .await
        .unwrap();
    assert_eq!(text(&said), "here");
    site.end().await;
}

/// Beginning of servers that request roots only once, and report those they have.
const ONCE: &str = r#"
    initialize; root=none
    question() { printf '{"jsonrpc":"2.0","id":"r","method":"roots/list"}\n'; }
"#;
/// Server that requests roots at the start.
const AT_START: &str = r#"
    question
    while hear; do case "$line" in
        *'"id":"r"'*) root=$(part uri);;
        *tools/list*) tools;;
        *tools/call*) text "$id" "$root";;
    esac; done
"#;
/// Server that requests roots in its first call, without waiting for them.
const IN_CALL: &str = r#"
    while hear; do case "$line" in
        *'"id":"r"'*) root=$(part uri); text "$call" "$root";;
        *tools/list*) tools;;
        *tools/call*) call=$id; case "$root" in none) question;; *) text "$id" "$root";; esac;;
    esac; done
"#;

/// Goal: a server that doesn't request the next client's roots never executes its call with those
/// of another. Method: servers that ignore changes of roots, and two clients without a session in
/// turn.
#[tokio::test]
async fn roots_of_another_client_are_never_used() {
    for server in [AT_START, IN_CALL] {
        let site = Site::new();
        let bridge = site.bridge(child(&format!("{ONCE}{server}")), of(Era::Legacy));
        let (one, other) = (Lender::new("/a"), Lender::new("/b"));
        for (lender, own, foreign) in [(&one, "/a", "/b"), (&other, "/b", "/a"), (&one, "/a", "/b")]
        {
            // A slow server has none yet.
            soon(async {
                loop {
                    let root = read(&bridge, lender.call(), "").await;
                    assert_ne!(root, foreign, "{server}");
                    if root == own {
                        break;
                    }
                }
            })
            .await;
        }
        site.end().await;
    }
}

/// Goal: questions that outlive their call, or belong to none, are answered by the client of the
/// session. Method: a server that asks at the moment its call ends, while the client answers
/// nothing during the call, and right after it.
#[tokio::test]
async fn questions_outside_calls_are_answered() {
    for when in ["overlap", "after"] {
        let site = Site::new();
        let bridge = site.bridge(child(FILES), of(Era::Legacy));
        let lender = Lender::new("/a");
        let session = lender.session();
        assert_eq!(
            read(&bridge, lender.call_in(&session), "/b/file").await,
            "denied"
        );
        lender.lends("/b");
        lender.call_hangs.store(true, SeqCst);
        ask_as(&bridge, lender.call_in(&session), json!({ when: 1 }))
            .await
            .unwrap();
        reads_soon(&bridge, || lender.call_in(&session), "/b/file", "content").await;
        site.end().await;
    }
}

/// Goal: a change of roots reaches the servers of that session only. Method: two sessions, one of
/// which changes its roots.
#[tokio::test]
async fn changes_of_roots_are_passed_on() {
    let site = Site::new();
    let bridge = site.bridge(child(FILES), of(Era::Legacy));
    let (one, other) = (Lender::new("/a"), Lender::new("/a"));
    let sessions = (one.session(), other.session());
    assert_eq!(
        read(&bridge, one.call_in(&sessions.0), "/b/file").await,
        "denied"
    );
    assert_eq!(
        read(&bridge, other.call_in(&sessions.1), "/b/file").await,
        "denied"
    );
    one.lends("/b");
    sessions.0.roots_changed.send_modify(|count| *count += 1);
    reads_soon(&bridge, || one.call_in(&sessions.0), "/b/file", "content").await;
    assert_eq!(
        read(&bridge, one.call_in(&sessions.0), "/a/file").await,
        "denied"
    );
    assert_eq!(
        read(&bridge, other.call_in(&sessions.1), "/b/file").await,
        "denied"
    );
    assert_eq!(other.asked.load(SeqCst), 1);
    site.end().await;
}

/// Goal: a connection with declared roots belongs to one client, also for lists; a shared one
/// declares none. Method: lists of two clients with roots, and of one without; a description.
#[tokio::test]
async fn roots_are_never_shared() {
    let site = Site::new();
    let bridge = site.bridge(child(FILES), of(Era::Legacy));
    let (one, other) = (Lender::new("/a"), Lender::new("/b"));
    let sessions = (one.session(), other.session());
    send_as(
        &bridge,
        one.call_in(&sessions.0),
        "callboard.describe",
        json!({}),
    )
    .await
    .unwrap();
    assert_eq!(
        one.asked.load(SeqCst),
        0,
        "the connection of all declares no roots"
    );
    for (lender, session, own, foreign) in [
        (&one, &sessions.0, "/a", "/b"),
        (&other, &sessions.1, "/b", "/a"),
        (&one, &sessions.0, "/a", "/b"),
    ] {
        // A slow server has none yet.
        soon(async {
            loop {
                let list = json!({});
                let call = lender.call_in(session);
                let listed: Value = send_as(&bridge, call, "callboard.tools.list", list)
                    .await
                    .unwrap();
                assert_ne!(listed["root"], foreign);
                if listed["root"] == own {
                    break;
                }
            }
        })
        .await;
    }
    eventually("each was asked once", SOON, || {
        one.asked.load(SeqCst) == 1 && other.asked.load(SeqCst) == 1
    })
    .await;
    site.end().await;
}
