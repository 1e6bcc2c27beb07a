mod limits;

use std::sync::Arc;

use callboard_message::{FailureKind, OnRestart, Principal, PrincipalKind};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{
    AgentRef, AuditStore, CallContext, MemoryAuditStore, MemoryKvStore, Store, System,
};
use serde_json::Value;

use super::*;
use crate::inbox::SPACE;

/// Maximum number of looks at the inbox in a test.
const LOOKS_MAX: usize = 1_000;

fn principal(id: &str, scopes: &[&str]) -> Arc<Principal> {
    Arc::new(Principal {
        id: id.to_owned(),
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        purpose: None,
    })
}

fn dora() -> Arc<Principal> {
    principal("dora", &["person:dora-inbox"])
}

fn object(value: Value) -> RawObject {
    serde_json::from_value(value).unwrap()
}

fn accept(value: Value) -> InboxAnswer {
    InboxAnswer::Accept(object(value))
}

fn question(text: &str, reference: Option<&str>) -> AskPerson {
    AskPerson {
        question: text.to_owned(),
        schema: None,
        reference: reference.map(str::to_owned),
    }
}

fn spawn(system: &System) -> AgentRef {
    let options = PersonOptions {
        label: Some("Dora".to_owned()),
        ..PersonOptions::new("dora-inbox")
    };
    system.spawn(PersonAgent::new(options).unwrap())
}

/// Asks in a call of the principal, which ends after a time if there is one.
async fn ask_as(
    agent: &AgentRef,
    who: &Arc<Principal>,
    time: Option<Duration>,
    message: AskPerson,
) -> Result<PersonAnswer, Failure> {
    let call = CallContext::new(who.clone());
    let call = match time {
        Some(time) => call.with_deadline(Instant::now() + time),
        None => call,
    };
    let asked = agent.ask(message).within_call(Some(Arc::new(call))).await;
    asked.unwrap()
}

/// Asks in a call that ends before anybody answers. Returns the kind of failure.
async fn ask_briefly(agent: &AgentRef, who: &Arc<Principal>, message: AskPerson) -> FailureKind {
    let asked = ask_as(agent, who, Some(POLL_INTERVAL), message).await;
    asked.unwrap_err().kind
}

/// Returns the questions that wait, once there are `number`.
async fn waiting(store: &dyn KvStore, number: usize) -> Vec<InboxRequest> {
    for _ in 0..LOOKS_MAX {
        let waiting = inbox(store, None).await.unwrap();
        if waiting.len() == number {
            return waiting;
        }
        tokio::time::sleep(POLL_INTERVAL / 4).await;
    }
    panic!("there are never {number} questions")
}

/// Writes the stored question with this id as `change` leaves it.
async fn rewrite(store: &dyn KvStore, id: &str, change: impl FnOnce(&mut StoredRequest)) {
    let key = id.split_once('-').unwrap().0;
    let (stored, version) = inbox::read(store, key).await.unwrap();
    let mut stored = stored.unwrap();
    change(&mut stored);
    stored.write(store, version).await.unwrap();
}

/// Goal: a question waits until somebody with the scope of its person has answered, and the requester gets each kind
/// of answer; texts are in no audit entry. Method: an answer of each kind while a call waits.
#[test]
fn answers_reach_the_requester() {
    run_with_paused_time(async |system| {
        let entries = Arc::new(MemoryAuditStore::default());
        let audit: Arc<dyn AuditStore> = entries.clone();
        system
            .set_store(Store {
                audit,
                ..Store::in_memory()
            })
            .unwrap();
        let agent = spawn(system);
        let store = &*system.store().kv;
        let requester = principal("bot", &[]);
        let content = json!({ "answer": "in an hour" });
        for (text, answer, action, values) in [
            (
                "When?",
                accept(content.clone()),
                ElicitationAction::Accept,
                Some(object(content)),
            ),
            (
                "When then?",
                InboxAnswer::Decline,
                ElicitationAction::Decline,
                None,
            ),
            (
                "When at all?",
                InboxAnswer::Cancel,
                ElicitationAction::Cancel,
                None,
            ),
        ] {
            let asking = ask_as(&agent, &requester, None, question(text, None));
            let answering = async {
                let [waits] = &waiting(store, 1).await[..] else {
                    panic!("not one")
                };
                assert_eq!(
                    (&*waits.person, &*waits.requester, &*waits.question),
                    ("dora-inbox", "api_key:bot", text)
                );
                answer_inbox(store, system.audit(), &waits.id, &dora(), answer)
                    .await
                    .unwrap();
            };
            let (answered, ()) = tokio::join!(asking, answering);
            let expected = PersonAnswer {
                action,
                content: values,
                answered_by: "api_key:dora".to_owned(),
            };
            assert_eq!(answered.unwrap(), expected);
            // It is kept, in case the reply was lost.
            let again = ask_as(
                &agent,
                &requester,
                Some(POLL_INTERVAL),
                question(text, None),
            );
            assert_eq!(again.await.unwrap(), expected);
            assert!(inbox(store, None).await.unwrap().is_empty());
        }
        system.audit().flush().await;
        let entries = entries.entries();
        let events: Vec<_> = entries.iter().map(|entry| &*entry.event).collect();
        assert_eq!(events, ["person.asked", "person.answered"].repeat(3));
        let written = format!("{entries:?}");
        assert!(!written.contains("When") && !written.contains("in an hour"));
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: only who may answers, once, and never the requester. Method: principals with other scopes and patterns, the
/// requester with either of two credentials, ids that don't exist.
#[test]
fn only_who_may_answers() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let asks = principal("bot", &["person:dora-inbox"]);
        let bot_again = Principal {
            kind: PrincipalKind::Token,
            ..(*asks).clone()
        };
        let answer = async |id: &str, by: &Principal| {
            answer_inbox(store, system.audit(), id, by, InboxAnswer::Decline).await
        };
        for (scopes, may) in [
            (&["person:dora-inbox"][..], true),
            (&["console.act"], true),
            (&["console.*"], true),
            (&["person:*"], true),
            (&["*"], true),
            (&["person:dora"], false),
            (&["person:dora-inbox2"], false),
            (&["Person:dora-inbox"], false),
            (&["console.read", "console.content"], false),
            (&[], false),
        ] {
            let reference = scopes.join("+");
            let reference = if may { &*reference } else { "unanswered" };
            let kind = ask_briefly(&agent, &asks, question("Well?", Some(reference))).await;
            assert_eq!(kind, FailureKind::TimedOut);
            let waits = &waiting(store, 1).await[0];
            let by = principal("dora", scopes);
            for own in [&*asks, &bot_again] {
                assert!(matches!(answer(&waits.id, own).await, Err(InboxError::Own)));
            }
            let answered = answer(&waits.id, &by).await;
            assert_eq!(answered.is_ok(), may, "{scopes:?}");
            let again = answer(&waits.id, &by).await;
            match may {
                true => assert!(matches!(again, Err(InboxError::Answered))),
                false => assert!(matches!(again, Err(InboxError::Unknown))),
            }
        }
        let waits = &waiting(store, 1).await[0];
        let other = format!("{}0", waits.id);
        for unknown in [&*other, "", "-", "x-1", &waits.id[..32]] {
            let refused = answer(unknown, &dora()).await;
            assert!(matches!(refused, Err(InboxError::Unknown)), "{unknown}");
        }
        let operator = Principal::local_operator();
        answer(&waits.id, &operator).await.unwrap();
        assert!(inbox(store, None).await.unwrap().is_empty());
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: a question outlives process and call, and its requester gets the answer by its reference, others don't. Method:
/// two systems on one store; the answer between them.
#[test]
fn questions_outlive_the_process() {
    let kv: Arc<dyn KvStore> = Arc::new(MemoryKvStore::default());
    let on_store = |system: &System| {
        let kv = kv.clone();
        let set = system.set_store(Store {
            kv,
            ..Store::in_memory()
        });
        set.unwrap();
        spawn(system)
    };
    let (bot, other) = (principal("bot", &[]), principal("other", &[]));
    let deploy = || question("Deploy?", Some("deploy-7"));
    let id = run_with_paused_time(async |system| {
        let agent = on_store(system);
        let time = Some(3 * POLL_INTERVAL);
        let failed = ask_as(&agent, &bot, time, deploy()).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::TimedOut);
        let data = failed.data.unwrap();
        assert_eq!(
            (&data["reason"], &data["reference"]),
            (&json!("person"), &json!("deploy-7"))
        );
        system.shutdown(POLL_INTERVAL).await;
        data["request"].as_str().unwrap().to_owned()
    });
    run_with_paused_time(async |system| {
        let agent = on_store(system);
        // It waits for the question that is there.
        let answering = async {
            let [waits] = &waiting(&*kv, 1).await[..] else {
                panic!("not one")
            };
            assert_eq!(waits.id, id);
            assert!(inbox(&*kv, Some("other-inbox")).await.unwrap().is_empty());
            assert_eq!(inbox(&*kv, Some("dora-inbox")).await.unwrap().len(), 1);
            tokio::time::sleep(2 * POLL_INTERVAL).await;
            let yes = accept(json!({ "answer": "yes" }));
            let answered = answer_inbox(&*kv, system.audit(), &id, &dora(), yes).await;
            answered.unwrap();
        };
        let asking = ask_as(&agent, &bot, None, deploy());
        let (answered, ()) = tokio::join!(asking, answering);
        // Again, in a call without any time to wait.
        let again = ask_as(&agent, &bot, Some(POLL_INTERVAL), deploy()).await;
        assert_eq!(again.unwrap(), answered.unwrap());
        assert_eq!(
            ask_briefly(&agent, &other, deploy()).await,
            FailureKind::TimedOut
        );
        // The reference belongs to this question.
        let changed = question("Delete?", Some("deploy-7"));
        assert_eq!(
            ask_briefly(&agent, &bot, changed).await,
            FailureKind::InvalidInput
        );
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: an unanswered question ends in time and can be asked again; one whose call was cancelled waits on. Method: the
/// answer time passes; a question that expired in the store; a cancelled call.
#[test]
fn unanswered_questions_end() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let bot = principal("bot", &[]);
        let began = Instant::now();
        let late = ask_as(&agent, &bot, None, question("When?", None)).await;
        let late = late.unwrap_err();
        assert_eq!(late.kind, FailureKind::TimedOut);
        assert!(late.message.contains("in time"), "{}", late.message);
        assert!(began.elapsed() <= ANSWER_TIME_DEFAULT + SLOW_POLL_INTERVAL);

        let first = waiting(store, 1).await.remove(0);
        rewrite(store, &first.id, |stored| stored.expires_s = 1).await;
        let declined = InboxAnswer::Decline;
        let refused = answer_inbox(store, system.audit(), &first.id, &dora(), declined).await;
        assert!(matches!(refused, Err(InboxError::Unknown)));
        assert!(inbox(store, None).await.unwrap().is_empty());
        ask_briefly(&agent, &bot, question("When?", None)).await;
        let second = waiting(store, 1).await.remove(0);
        assert_ne!(second.id, first.id);
        inbox::remove(store, &second.id).await.unwrap();

        let call = Arc::new(CallContext::new(bot.clone()));
        let cancelling = async {
            waiting(store, 1).await;
            call.cancel.cancel();
        };
        let asking = agent
            .ask(question("Now?", None))
            .within_call(Some(call.clone()));
        let _ = tokio::join!(asking, cancelling);
        waiting(store, 1).await;
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: what has expired is shown no longer, and is removed a minute later, not before. Method: questions that expired now
/// and two minutes ago; the removal by hand, and that of an agent at its start.
#[test]
fn expired_questions_are_removed() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let bot = principal("bot", &[]);
        let now = inbox::unix_s(SystemTime::now());
        for (text, expires_s) in [("late", now - 1), ("old", now - 120)] {
            ask_briefly(&agent, &bot, question(text, None)).await;
            let waits = waiting(store, 1).await.remove(0);
            rewrite(store, &waits.id, |stored| stored.expires_s = expires_s).await;
        }
        assert_eq!(store.list(SPACE, None, 9).await.unwrap().len(), 2);
        assert_eq!(remove_expired(store).await.unwrap(), 1);
        assert_eq!(remove_expired(store).await.unwrap(), 0);
        let [late] = &store.list(SPACE, None, 9).await.unwrap()[..] else {
            panic!("not one")
        };
        assert!(inbox(store, None).await.unwrap().is_empty());

        let mut stored: StoredRequest = serde_json::from_str(late.body.to_raw().get()).unwrap();
        stored.expires_s = now - 120;
        stored.write(store, late.version).await.unwrap();
        spawn(system);
        for _ in 0..LOOKS_MAX {
            if store.list(SPACE, None, 1).await.unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL / 4).await;
        }
        assert!(store.list(SPACE, None, 1).await.unwrap().is_empty());
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: a call that a restart repeats finds its question, and the answer that was given meanwhile; it may be repeated. Method:
/// a call without a reference whose node ends, as one of a task; the answer; the same call on another node, twice.
#[test]
fn a_repeated_call_finds_its_answer() {
    let kv: Arc<dyn KvStore> = Arc::new(MemoryKvStore::default());
    let on_store = |system: &System| {
        let kv = kv.clone();
        let set = system.set_store(Store {
            kv,
            ..Store::in_memory()
        });
        set.unwrap();
        spawn(system)
    };
    let bot = principal("bot", &[]);
    let id = run_with_paused_time(async |system| {
        let agent = on_store(system);
        let specs = agent.specs();
        let ask = specs.iter().find(|spec| spec.name == "ask").unwrap();
        assert_eq!(OnRestart::from_spec(ask), OnRestart::Resume);
        let id = tokio::select! {
            _ = ask_as(&agent, &bot, None, question("Deploy?", None)) => panic!("nobody has answered"),
            waits = waiting(&*kv, 1) => waits[0].id.clone(),
        };
        system.shutdown(POLL_INTERVAL).await;
        id
    });
    run_with_paused_time(async |system| {
        let agent = on_store(system);
        let yes = accept(json!({ "answer": "yes" }));
        let answered = answer_inbox(&*kv, system.audit(), &id, &dora(), yes).await;
        answered.unwrap();
        for _ in 0..2 {
            let asked = ask_as(&agent, &bot, None, question("Deploy?", None)).await;
            let content = asked.unwrap().content;
            assert_eq!(content, Some(object(json!({ "answer": "yes" }))));
        }
        let (stored, _) = inbox::read(&*kv, id.split_once('-').unwrap().0)
            .await
            .unwrap();
        assert_eq!(stored.unwrap().id, id);
        // Another question, another person's, and one with a reference have no answer.
        for (who, text, reference) in [
            (&bot, "Deploy now?", None),
            (&principal("other", &[]), "Deploy?", None),
            (&bot, "Deploy?", Some("again")),
        ] {
            let kind = ask_briefly(&agent, who, question(text, reference)).await;
            assert_eq!(kind, FailureKind::TimedOut, "{text}");
        }
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: an answer fits the form, and is bounded. Method: values that don't fit a form and do, the longest text and a
/// byte more, to forms of the requester and to the one of a text.
#[test]
fn answers_fit_the_form() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let bot = principal("bot", &[]);
        let answer = async |id: &str, answer: InboxAnswer| {
            answer_inbox(store, system.audit(), id, &dora(), answer).await
        };
        let form = json!({
            "type": "object",
            "properties": { "days": { "type": "integer", "minimum": 1 } },
            "required": ["days"]
        });
        let asked = AskPerson {
            schema: Some(object(form.clone())),
            ..question("How long?", Some("days"))
        };
        ask_briefly(&agent, &bot, asked).await;
        let waits = waiting(store, 1).await.remove(0);
        assert_eq!(waits.schema, Some(form));
        for unfit in [json!({}), json!({ "days": 0 }), json!({ "days": "secret" })] {
            let refused = answer(&waits.id, accept(unfit)).await.unwrap_err();
            assert!(matches!(refused, InboxError::Form(_)), "{refused}");
            assert!(refused.to_string().contains("`days`"), "{refused}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        let fit = accept(json!({ "days": 2 }));
        answer(&waits.id, fit).await.unwrap();

        ask_briefly(&agent, &bot, question("Why?", Some("why"))).await;
        let waits = waiting(store, 1).await.remove(0);
        let of_text = |chars: usize| accept(json!({ "answer": "x".repeat(chars) }));
        let chars = PERSON_ANSWER_BYTES_MAX - "{\"answer\":\"\"}".len();
        let long = answer(&waits.id, of_text(chars + 1)).await;
        assert!(matches!(long, Err(InboxError::TooLarge(16_385))));
        let empty = answer(&waits.id, of_text(0)).await;
        assert!(matches!(empty, Err(InboxError::Form(_))));
        answer(&waits.id, of_text(chars)).await.unwrap();
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: texts are bounded, and options too. Method: the most of each, and one more.
#[test]
fn texts_are_bounded() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let bot = principal("bot", &[]);
        let text = |bytes: usize| "x".repeat(bytes);
        let flat = json!({ "type": "object", "properties": { "x": { "type": "object" } } });
        let nested = AskPerson {
            schema: Some(object(flat)),
            ..question("?", None)
        };
        // Every character is escaped in the store.
        let widest = "\u{1}".repeat(PERSON_QUESTION_BYTES_MAX);
        let reference = text(PERSON_REFERENCE_BYTES_MAX);
        for (message, expected) in [
            (question(&widest, Some(&reference)), FailureKind::TimedOut),
            (
                question(&text(PERSON_QUESTION_BYTES_MAX + 1), None),
                FailureKind::InvalidInput,
            ),
            (
                question("?", Some(&format!("{reference}x"))),
                FailureKind::InvalidInput,
            ),
            (question("?", Some("")), FailureKind::InvalidInput),
            (question(" ", None), FailureKind::InvalidInput),
            (nested, FailureKind::InvalidInput),
        ] {
            assert_eq!(ask_briefly(&agent, &bot, message).await, expected);
        }
        system.shutdown(POLL_INTERVAL).await;
    });
    let new = || PersonOptions::new("dora");
    let labelled = |chars: usize| PersonOptions {
        label: Some("ä".repeat(chars)),
        ..new()
    };
    let timed = |answer_time| PersonOptions {
        answer_time,
        ..new()
    };
    let second = Duration::from_secs(1);
    for (options, expected) in [
        (new(), Ok(())),
        (labelled(PERSON_LABEL_CHARS_MAX), Ok(())),
        (
            labelled(PERSON_LABEL_CHARS_MAX + 1),
            Err(PersonOptionsError::Label),
        ),
        (labelled(0), Err(PersonOptionsError::Label)),
        (timed(second), Ok(())),
        (timed(ANSWER_TIME_MAX), Ok(())),
        (timed(Duration::ZERO), Err(PersonOptionsError::AnswerTime)),
        (
            timed(ANSWER_TIME_MAX + second),
            Err(PersonOptionsError::AnswerTime),
        ),
    ] {
        assert_eq!(options.validate(), expected, "{options:?}");
    }
}
