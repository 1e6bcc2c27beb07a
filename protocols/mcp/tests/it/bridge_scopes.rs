//! Owners of a call's connection, capabilities offered on it, and addressees of questions.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use callboard_mcp::bridge::BridgeOptions;
use callboard_mcp::outbound::{Era, EraChoice, McpClientOptions};
use callboard_message::{Answer, Failure, FailureKind, Question};
use callboard_runtime::testkit::{Probe, eventually};
use callboard_runtime::{
    AgentChanged, AuditLog, CallContext, Caller, Direction, ExchangePart, MemoryAuditStore, Policy,
    PolicyRequest, QuestionRouter,
};
use futures::future::BoxFuture;
use serde_json::json;

use crate::bridge_kit::{Person, Site, ask_as, child, of, send_as, text};
use crate::kit::{SOON, soon};

/// Server that reports the capabilities it was offered in each result, and in its tool list.
const TELLS_OFFERS: &str = r#"
    hear; offers=$(printf '%s' "$line" | sed 's/.*"capabilities":\(.*\),"clientInfo".*/\1/')
    say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear
    while hear; do say "$id" "{\"content\":[],\"tools\":[],\"offers\":$offers}"; done
"#;

/// Goal: a legacy server is offered exactly the capabilities of the caller, or of the configured
/// answerer; lists use a connection with the same offer. Method: callers with several capabilities
/// on a server that reports its offer.
#[tokio::test]
async fn offers_are_true() {
    let site = Site::new();
    let bridge = site.bridge(child(TELLS_OFFERS), of(Era::Legacy));
    for (name, can, offered) in [
        ("a", r#"{"sampling":{}}"#, json!({ "sampling": {} })),
        ("b", "{}", json!({})),
        (
            "c",
            r#"{"elicitation":{},"experimental":{}}"#,
            json!({ "elicitation": { "form": {} } }),
        ),
    ] {
        let person = Person::new(name, can);
        let session = person.session();
        for (call, in_session) in [(person.call(), false), (person.call_in(&session), true)] {
            let mut offered = offered.clone();
            // What only the client itself can answer is offered in its session alone.
            if in_session && can.contains("experimental") {
                offered["experimental"] = json!({});
            }
            assert_eq!(
                ask_as(&bridge, call.clone(), json!({})).await.unwrap()["offers"],
                offered
            );
            let listed = send_as(&bridge, call, "callboard.tools.list", json!({}))
                .await
                .unwrap();
            assert_eq!(listed["offers"], offered);
        }
    }
    site.end().await;
}

/// Goal: a server's era is detected, and calls use the right connection. Method: a legacy child
/// that rejects the probe, and a server of both eras.
#[tokio::test]
async fn eras_are_found() {
    let script = r#"
        refuse_first() { hear; case "$line" in *discover*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"; hear;; esac; }
        refuse_first; say "$id" '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"p","version":"1"}}'; hear
        while hear; do call=$id; ask who; hear; text "$call" "$(part answer)"; done
    "#;
    let mut site = Site::new();
    let (both, _) = site.asker();
    let auto = || BridgeOptions {
        client: McpClientOptions {
            era: EraChoice::Auto,
            ..of(Era::Legacy).client
        },
        ..of(Era::Legacy)
    };
    for (endpoint, said, own, shared) in [(child(script), "a", 1, 0), (both, "s:a", 0, 1)] {
        let bridge = site.bridge(endpoint, auto());
        let person = Person::new("a", r#"{"elicitation":{}}"#);
        let session = person.session();
        for _ in 0..2 {
            let told = ask_as(&bridge, person.call_in(&session), json!({ "secret": "s" }))
                .await
                .unwrap();
            assert_eq!(text(&told), said);
        }
        let seen = soon(bridge.observe()).await;
        assert_eq!(
            (&seen["connections"]["own"], &seen["connections"]["shared"]),
            (&json!(own), &json!(shared))
        );
    }
    site.end().await;
}

/// Answerer instead of the caller.
struct InStead(Arc<Person>);

impl QuestionRouter for InStead {
    fn caller(&self, source: &str, call: &CallContext) -> Option<Arc<dyn Caller>> {
        assert_eq!(source, "far");
        (call.principal.id != "nobody").then(|| self.0.clone() as Arc<dyn Caller>)
    }
}

/// Goal: configured answerers are asked instead of the caller, and their capabilities are offered.
/// Method: a caller who could answer everything, answerers for forms only, and none for one caller.
/// Rows: M-19.
#[tokio::test]
async fn answerers_are_asked() {
    let deputy = Person::new("deputy", r#"{"elicitation":{}}"#);
    let options = BridgeOptions {
        question_router: Some(Arc::new(InStead(deputy.clone()))),
        ..of(Era::Legacy)
    };
    let mut site = Site::new();
    let teller = site.bridge(child(TELLS_OFFERS), options.clone());
    let everything = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;
    let (person, nobody) = (
        Person::new("a", everything),
        Person::new("nobody", everything),
    );
    let told = ask_as(&teller, person.call(), json!({})).await.unwrap();
    assert_eq!(told["offers"], json!({ "elicitation": { "form": {} } }));
    assert_eq!(
        ask_as(&teller, nobody.call(), json!({})).await.unwrap()["offers"],
        json!({})
    );
    let (far, _) = site.asker();
    for era in [Era::Legacy, Era::Modern] {
        let asker = site.bridge(
            far.clone(),
            BridgeOptions {
                client: of(era).client,
                ..options.clone()
            },
        );
        let said = ask_as(&asker, person.call(), json!({ "secret": "s" }))
            .await
            .unwrap();
        assert_eq!(text(&said), "s:deputy", "{era:?}");
        let said = ask_as(&asker, nobody.call(), json!({ "secret": "s" })).await;
        // The server was offered nothing, so its own tool fails.
        match said {
            Ok(said) => assert_eq!(said["isError"], true, "{era:?}"),
            Err(failed) => assert_eq!(failed.kind, FailureKind::NoResponder, "{era:?}"),
        }
    }
    assert!(person.asked.lock().unwrap().is_empty() && nobody.asked.lock().unwrap().is_empty());
    site.end().await;
}

/// Goal: requests of extensions don't bypass a question router: the server is told of the client's
/// extensions, and the router's caller gets its requests of them, during a call and outside calls.
/// Method: a client with extensions, a router, and a child that asks with one call and with two.
#[tokio::test]
async fn extensions_pass_the_question_router() {
    let script = r#"
        hear; offers=$(printf '%s' "$line" | sed 's/.*"capabilities":\(.*\),"clientInfo".*/\1/')
        say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear
        open() { printf '{"jsonrpc":"2.0","id":"x","method":"ui/open","params":{}}\n'; hear; }
        hear; one=$id; open; first=$line; say "$one" "{\"content\":[],\"said\":[$offers,$first]}"
        hear; one=$id; hear; two=$id; open
        say "$one" "{\"content\":[],\"said\":[$offers,$line]}"; say "$two" "{\"content\":[],\"said\":[$offers,$line]}"; hear
    "#;
    let extensions = r#"{"elicitation":{},"extensions":{"example/ui":{}},"experimental":{"e":{}}}"#;
    let (deputy, person) = (
        Person::new("deputy", extensions),
        Person::new("a", extensions),
    );
    let options = BridgeOptions {
        question_router: Some(Arc::new(InStead(deputy.clone()))),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let bridge = site.bridge(child(script), options);
    let session = person.session();
    let call = || ask_as(&bridge, person.call_in(&session), json!({}));
    let first = call().await;
    let further = futures::future::join_all([call(), call()]).await;
    for told in std::iter::once(first).chain(further) {
        let said = &told.unwrap()["said"];
        let declared = json!({
            "elicitation": { "form": {} }, "extensions": { "example/ui": {} }, "experimental": { "e": {} }
        });
        assert_eq!(said[0], declared);
        assert_eq!(said[1]["result"], json!({ "answer": "deputy" }), "{said}");
    }
    site.end().await;
}

/// Policy that records the questions and answers of servers, and rejects one.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<(ExchangePart, String)>>>);

impl Policy for Watch {
    fn check<'a>(&'a self, _: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        request: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if request.direction == Direction::Outbound && part != ExchangePart::Reply {
            let seen = (part, request.message.to_owned());
            self.0.lock().unwrap().push(seen);
        }
        let rejected = request.message == "ui/close";
        Box::pin(async move {
            match rejected {
                true => Err(Failure::rejected("not that")),
                false => Ok(()),
            }
        })
    }
}

/// Goal: the policies see questions and requests of extensions that name none of the calls, and can
/// reject them. Method: a child that sends a question and two requests during two calls of a session.
#[tokio::test]
async fn policies_see_questions_outside_calls() {
    let script = r#"
        open() { printf '{"jsonrpc":"2.0","id":"x","method":"ui/%s","params":{}}\n' "$1"; hear; }
        initialize; hear; one=$id; hear; two=$id; ask who; hear; answer=$(part answer)
        open open; opened=$(part answer); open close
        text "$one" "$answer,$opened"; say "$two" "{\"content\":[],\"said\":$line}"; hear
    "#;
    let site = Site::new();
    let watch = Watch::default();
    site.system.policy().push(watch.clone());
    let bridge = site.bridge(child(script), of(Era::Legacy));
    let person = Person::new("a", r#"{"elicitation":{},"extensions":{"example/ui":{}}}"#);
    let session = person.session();
    let calls = [(); 2].map(|()| ask_as(&bridge, person.call_in(&session), json!({})));
    let told = futures::future::join_all(calls).await;
    let told: Vec<_> = told.into_iter().map(Result::unwrap).collect();
    let (texts, errors): (Vec<_>, Vec<_>) = told.iter().partition(|told| told["said"].is_null());
    assert_eq!(text(texts[0]), "a,a");
    assert!(errors[0]["said"]["error"].is_object(), "{errors:?}");
    let seen = watch.0.lock().unwrap().clone();
    let seen: Vec<_> = seen.iter().map(|(part, name)| (*part, &**name)).collect();
    let (question, answer) = (ExchangePart::Question, ExchangePart::Answer);
    let wanted = [
        (question, "elicit"),
        (answer, "elicit"),
        (question, "ui/open"),
        (answer, "ui/open"),
        (question, "ui/close"),
    ];
    assert_eq!(seen, wanted);
    site.end().await;
}

/// Answerer of one question in each call.
struct OnePerCall(Arc<Person>);

struct Once {
    person: Arc<Person>,
    has_asked: AtomicBool,
}

impl QuestionRouter for OnePerCall {
    fn caller(&self, _: &str, _: &CallContext) -> Option<Arc<dyn Caller>> {
        Some(Arc::new(Once {
            person: self.0.clone(),
            has_asked: AtomicBool::new(false),
        }))
    }
}

impl Caller for Once {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.person)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        match self.has_asked.swap(true, SeqCst) {
            true => Box::pin(async { Err(Failure::overloaded("asked twice in one call")) }),
            false => self.person.ask(question),
        }
    }
}

/// Goal: limits per call don't add up over a session's questions that name no call. Method: a child
/// that asks twice during two calls of a session, and an answerer of one question per call.
#[tokio::test]
async fn questions_without_a_call_count_alone() {
    let script = r#"
        initialize; hear; one=$id; hear; two=$id
        ask who; hear; first=$(part answer); ask again; hear; second=$(part answer)
        text "$one" "$first,$second"; text "$two" "$first,$second"; hear
    "#;
    let deputy = Person::new("deputy", r#"{"elicitation":{}}"#);
    let options = BridgeOptions {
        question_router: Some(Arc::new(OnePerCall(deputy))),
        ..of(Era::Legacy)
    };
    let site = Site::new();
    let bridge = site.bridge(child(script), options);
    let person = Person::new("a", r#"{"elicitation":{}}"#);
    let session = person.session();
    let calls = [(); 2].map(|()| ask_as(&bridge, person.call_in(&session), json!({})));
    for said in futures::future::join_all(calls).await {
        assert_eq!(text(&said.unwrap()), "deputy,deputy");
    }
    site.end().await;
}

/// Goal: with several calls of one session, a question that names none goes to the session's
/// answerer. Method: a child that asks during two calls of the session.
#[tokio::test]
async fn ambiguous_questions_are_the_sessions() {
    let script = r#"
        initialize; hear; one=$id; hear; two=$id; ask who; hear; answer=$(part answer)
        text "$one" "$answer"; text "$two" "$answer"; hear
    "#;
    for answering in [None, Some(Person::new("deputy", r#"{"elicitation":{}}"#))] {
        let expected = if answering.is_some() { "deputy" } else { "a" };
        let question_router =
            answering.map(|deputy| Arc::new(InStead(deputy)) as Arc<dyn QuestionRouter>);
        let site = Site::new();
        let bridge = site.bridge(
            child(script),
            BridgeOptions {
                question_router,
                ..of(Era::Legacy)
            },
        );
        let person = Person::new("a", r#"{"elicitation":{}}"#);
        let session = person.session();
        let calls = [(); 2].map(|()| ask_as(&bridge, person.call_in(&session), json!({})));
        for said in futures::future::join_all(calls).await {
            assert_eq!(text(&said.unwrap()), expected);
        }
        site.end().await;
    }
}

/// Goal: tools that a server shows only to clients that can answer are visible to them. Method: a
/// child that lists a tool if sampling was offered.
#[tokio::test]
async fn conditional_tools_are_shown() {
    let script = r#"
        hear; case "$line" in *sampling*) t='{"name":"t","inputSchema":{"type":"object"}}';; *) t='';; esac
        say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear
        while hear; do say "$id" "{\"tools\":[$t]}"; done
    "#;
    let site = Site::new();
    let bridge = site.bridge(child(script), of(Era::Legacy));
    for (can, tools) in [("{}", 0), (r#"{"sampling":{}}"#, 1), (r#"{"roots":{}}"#, 0)] {
        let person = Person::new("a", can);
        let listed = send_as(&bridge, person.call(), "callboard.tools.list", json!({}))
            .await
            .unwrap();
        assert_eq!(listed["tools"].as_array().unwrap().len(), tools, "{can}");
    }
    site.end().await;
}

/// Number of reported changes.
const ROUNDS: usize = 20;

/// Reports changes until the first one arrives.
async fn eventually_told<T: Future<Output = Result<serde_json::Value, Failure>>>(
    changes: &mut tokio::sync::mpsc::Receiver<AgentChanged>,
    tell: impl Fn() -> T,
) {
    loop {
        soon(tell()).await.unwrap();
        if soon(async { tokio::time::timeout(SOON / 100, changes.recv()).await })
            .await
            .is_ok()
        {
            return;
        }
    }
}

/// Goal: followers receive a change once, however many connections there are. Method: three
/// sessions and the shared connection on a server that notifies all of them; a second change shows
/// that nothing came between.
#[tokio::test]
async fn changes_are_told_once() {
    let mut site = Site::new();
    let (far, _) = site.asker();
    let bridge = site.bridge(far, of(Era::Legacy));
    let (follower, mut changes) = Probe::<AgentChanged>::spawn(&site.system, |_| ());
    bridge.follow(follower.recipient().unwrap());
    let people = ["a", "b", "c"].map(|name| Person::new(name, r#"{"elicitation":{}}"#));
    send_as(&bridge, people[0].call(), "callboard.describe", json!({}))
        .await
        .unwrap();
    let sessions: Vec<_> = people
        .iter()
        .map(|person| (person, person.session()))
        .collect();
    for (person, session) in &sessions {
        ask_as(&bridge, person.call_in(session), json!({ "quick": 1 }))
            .await
            .unwrap();
    }
    // Until the stream for unsolicited messages is open, the server notifies no client.
    let tell = || ask_as(&bridge, people[0].call(), json!({ "changed": 1 }));
    eventually_told(&mut changes, tell).await;
    for _ in 0..ROUNDS {
        tell().await.unwrap();
        soon(changes.recv()).await.unwrap();
    }
    // A duplicate would have been taken for the next round's, and one would be left.
    assert!(changes.try_recv().is_err());
    site.end().await;
}

/// Goal: a claimed other origin doesn't change who is asked, isn't forwarded, and is recorded
/// without its value. Method: a server that names client B in a question of A's call; one that
/// names A gains nothing.
/// Rows: M-12, X-8.
#[tokio::test]
async fn forged_origins_are_ignored() {
    let script = r#"
        initialize
        while hear; do
            call=$id; claimed=$(part claimed)
            printf '{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"metadata":{"original_client_id":"%s","kept":1}}}\n' "$claimed"
            hear; text "$call" done
        done
    "#;
    let kept = Arc::new(MemoryAuditStore::default());
    let audit = AuditLog::new(kept.clone());
    let site = Site::new();
    let bridge = site.bridge(
        child(script),
        BridgeOptions {
            audit: Some(audit.clone()),
            ..of(Era::Legacy)
        },
    );
    let [a, b] = ["client-a", "client-b"].map(|name| Person::new(name, r#"{"sampling":{}}"#));
    let sessions = (a.session(), b.session());
    ask_as(
        &bridge,
        b.call_in(&sessions.1),
        json!({ "claimed": "client-b" }),
    )
    .await
    .unwrap();
    ask_as(
        &bridge,
        a.call_in(&sessions.0),
        json!({ "claimed": "client-b" }),
    )
    .await
    .unwrap();
    let metadata = |person: &Person| {
        person.asked.lock().unwrap()[0]
            .object("metadata")
            .unwrap()
            .to_raw()
            .get()
            .to_owned()
    };
    assert_eq!(a.asked.lock().unwrap().len(), 1);
    assert_eq!(b.asked.lock().unwrap().len(), 1);
    assert_eq!(metadata(&a), r#"{"kept":1}"#);
    assert_eq!(
        metadata(&b),
        r#"{"original_client_id":"client-b","kept":1}"#
    );
    soon(audit.flush()).await;
    let entries = kept.entries();
    assert_eq!(entries.len(), 1);
    let behind = entries[0].principal.as_ref().map(|(_, id)| id.as_str());
    assert_eq!(
        (&*entries[0].event, behind),
        ("origin_mismatch", Some("client-a"))
    );
    assert!(!format!("{:?}", entries[0]).contains("client-b"));
    site.end().await;
}

/// Goal: a session's connection ends with the session. Method: end it; the child's process goes.
#[tokio::test]
async fn connections_end_with_their_session() {
    let site = Site::new();
    let bridge = site.bridge(
        child(r#"initialize; while hear; do text "$id" $$; done"#),
        of(Era::Legacy),
    );
    let person = Person::new("a", r#"{"roots":{}}"#);
    let session = person.session();
    let said = ask_as(&bridge, person.call_in(&session), json!({}))
        .await
        .unwrap();
    let stat = std::path::Path::new("/proc").join(text(&said)).join("stat");
    assert!(stat.exists());
    session.closed.cancel();
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    eventually("the child has ended", SOON, is_gone).await;
    assert_eq!(soon(bridge.observe()).await["connections"]["own"], 0);

    site.end().await;
}
