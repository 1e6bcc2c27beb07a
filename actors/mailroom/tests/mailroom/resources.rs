use std::sync::{Arc, Mutex};

use callboard_mailroom::{Mailbox, SESSIONS_MAX};
use callboard_message::mail::{
    CheckInbox, GetAgentStatus, Join, MailPreferences, MemberState, MemberWay, Priority,
    SendMessage,
};
use callboard_message::surface::{Describe, ListResources, ReadResource, Subscribe};
use callboard_message::{
    Abilities, Answer, Change, ElicitAnswer, Failure, FailureKind, Log, LogLevel, Message,
    Principal, Progress, Question, RawObject,
};
use callboard_runtime::testkit::Probe;
use callboard_runtime::{CallMeta, Caller, Changed, PeerSession};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kit::{Room, in_room, key};

fn uri(uri: &str) -> RawObject {
    RawObject::new().with("uri", uri)
}

async fn read(of: &Mailbox, address: &str) -> Result<Value, Failure> {
    let result = of.ask(ReadResource(uri(address))).await?;
    let contents: Vec<Value> = result.0.read("contents").unwrap();
    Ok(serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap())
}

/// Goal: each has its own inbox and messages as resources, and nobody else's. Method: lists, reads and subscriptions of one's
/// own and another's.
#[test]
fn own_resources() {
    in_room(&["a", "b"], async |room, _| {
        let (a, b) = (room.mailbox("a"), room.mailbox("b"));
        let id = a.send("b", "hi").await.unwrap().message_id.unwrap();
        let listed: Vec<Value> = b
            .ask(ListResources(RawObject::new()))
            .await
            .unwrap()
            .read("resources")
            .unwrap();
        let uris: Vec<&str> = listed
            .iter()
            .map(|resource| resource["uri"].as_str().unwrap())
            .collect();
        assert_eq!(uris, ["callboard://inbox/b", "callboard://agents"]);
        let inbox = read(&b, "callboard://inbox/b").await.unwrap();
        assert_eq!(
            (&inbox["unread"], &inbox["messages"][0]["state"]),
            (&json!(1), &json!("accepted"))
        );
        let message = read(&b, &format!("callboard://messages/{id}"))
            .await
            .unwrap();
        assert_eq!(message["state"], "read");
        assert_eq!(read(&b, "callboard://inbox/b").await.unwrap()["unread"], 0);
        assert_eq!(read(&a, "callboard://agents").await.unwrap()["count"], 2);
        for other in [
            "callboard://inbox/b",
            "callboard://inbox/",
            "callboard://x",
            "http://a",
            "",
        ] {
            assert_eq!(
                read(&a, other).await.unwrap_err().kind,
                FailureKind::NotFound,
                "{other}"
            );
            assert_eq!(
                a.ask(Subscribe(uri(other))).await.unwrap_err().kind,
                FailureKind::NotFound,
                "{other}"
            );
        }
        let about = a.ask(Describe(RawObject::new())).await.unwrap();
        assert!(
            about
                .0
                .text("instructions")
                .unwrap()
                .contains("check_inbox")
        );
    });
}

/// Goal: whoever watches an inbox is told of new mail in it, and of nothing else. Method: two inboxes, one watched, then both.
#[test]
fn watched_inboxes() {
    in_room(&["a", "b", "c"], async |room, system| {
        let (follower, mut changes) = Probe::<Changed>::spawn(system, |_| ());
        room.agent.follow(follower.recipient().unwrap());
        let inbox = || uri("callboard://inbox/b");
        room.mailbox("b").ask(Subscribe(inbox())).await.unwrap();
        room.mailbox("a").send("c", "x").await.unwrap();
        room.mailbox("a").send("b", "x").await.unwrap();
        let told = async |changes: &mut tokio::sync::mpsc::Receiver<Changed>| loop {
            match changes.recv().await.unwrap().change {
                Change::Resource(uri) if uri == "callboard://agents" => {}
                change => return change,
            }
        };
        assert_eq!(
            told(&mut changes).await,
            Change::Resource("callboard://inbox/b".into())
        );
        // As whoever watches for others does it: without a call.
        room.agent
            .tell(Subscribe(uri("callboard://inbox/c")))
            .await
            .unwrap();
        room.mailbox("a").broadcast("x").await.unwrap();
        let both = [told(&mut changes).await, told(&mut changes).await];
        assert_eq!(
            both,
            ["b", "c"].map(|id| Change::Resource(format!("callboard://inbox/{id}")))
        );
        assert!(changes.try_recv().is_err());
    });
}

type Answers = Box<dyn Fn(Question) -> Result<Answer, Failure> + Send + Sync>;

/// What a session is told, and how it answers.
struct Told(Mutex<Vec<Log>>, Answers);

impl Default for Told {
    fn default() -> Self {
        Self(
            Mutex::default(),
            Box::new(|_| Err(Failure::new(FailureKind::NobodyToAsk, "nobody"))),
        )
    }
}

impl Caller for Told {
    fn progress(&self, _: Progress) {}

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(std::future::ready((self.1)(question)))
    }

    fn abilities(&self) -> Abilities {
        Abilities::all()
    }

    fn log(&self, line: Log) {
        self.0.lock().unwrap().push(line);
    }
}

async fn ask_in<T, M>(room: &Room, who: &Principal, session: &Arc<PeerSession>, message: M) -> T
where
    T: Send + 'static,
    M: Message<Reply = Result<T, Failure>>,
{
    let call = CallMeta {
        session: Some(session.clone()),
        ..CallMeta::new(Arc::new(who.clone()))
    };
    room.agent
        .ask(message)
        .within_call(Some(Arc::new(call)))
        .await
        .unwrap()
        .unwrap()
}

/// Goal: a live session is told that there is mail and from whom, not what it says; whoever has one is here, and when the last
/// is over, away. Method: a session that is told, and ends.
#[test]
fn live_sessions() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let caller = Arc::new(Told::default());
        let over = CancellationToken::new();
        let session = Arc::new(PeerSession::new(over.clone(), caller.clone()));
        ask_in(&room, &ann, &session, Join {}).await;
        ask_in(&room, &ann, &session, Join {}).await;
        let id = room
            .mailbox("a")
            .send("ann", "secret words")
            .await
            .unwrap()
            .message_id
            .unwrap();
        let told = std::mem::take(&mut *caller.0.lock().unwrap());
        assert_eq!((told.len(), told[0].level()), (1, LogLevel::Notice));
        let Log(line) = &told[0];
        let expected = json!({ "message_id": id, "from": "a", "priority": "normal", "unread": 1 });
        assert_eq!(
            (line.text("logger").as_deref(), line.read::<Value>("data")),
            (Some("mail"), Some(expected))
        );
        let status = async || {
            let asked = GetAgentStatus {
                agent_id: Some("ann".into()),
            };
            let agent = room.mailbox("a").ask(asked).await.unwrap().agents.remove(0);
            (agent.state, agent.way)
        };
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        assert_eq!(status().await, (MemberState::Active, MemberWay::Mcp));
        over.cancel();
        assert_eq!(status().await, (MemberState::Away, MemberWay::None));
        room.mailbox("a").send("ann", "x").await.unwrap();
        assert!(caller.0.lock().unwrap().is_empty());
    });
}

/// Goal: of a member's live sessions the newest are told, each once, and no more than there may be. Method: as many, and one more.
#[test]
fn the_newest_sessions() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let callers: Vec<_> = (0..=SESSIONS_MAX)
            .map(|_| Arc::new(Told::default()))
            .collect();
        for caller in &callers {
            let (over, caller) = (CancellationToken::new(), caller.clone());
            ask_in(
                &room,
                &ann,
                &Arc::new(PeerSession::new(over, caller)),
                Join {},
            )
            .await;
        }
        room.mailbox("a").send("ann", "x").await.unwrap();
        let told: Vec<usize> = callers
            .iter()
            .map(|caller| caller.0.lock().unwrap().len())
            .collect();
        assert_eq!((told[0], &told[1..]), (0, &[1; SESSIONS_MAX][..]));
    });
}

/// Goal: whoever wants it is asked about urgent mail; who answers has read it and replied, who doesn't keeps it. Method: one
/// that answers, one that cancels, one that isn't urgent.
#[test]
fn urgent_mail_is_a_question() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let answers: Answers = Box::new(|question| match question {
            Question::Elicit(elicitation) if elicitation.message().ends_with("later") => {
                Ok(Answer::Elicit(ElicitAnswer::cancel()))
            }
            Question::Elicit(elicitation) => {
                assert_eq!(elicitation.message(), "[AGENT a TO AGENT ann]: now");
                Ok(Answer::Elicit(ElicitAnswer::accept(
                    json!({ "reply": "yes" }),
                )))
            }
            _ => panic!("another question"),
        });
        let caller = Arc::new(Told(Mutex::default(), answers));
        let session = Arc::new(PeerSession::new(CancellationToken::new(), caller));
        ask_in(
            &room,
            &ann,
            &session,
            MailPreferences {
                ask_urgent: Some(true),
                ..Default::default()
            },
        )
        .await;
        let a = room.mailbox("a");
        let say = async |message: &str, priority| {
            let to = Some("ann".to_owned());
            let message = SendMessage {
                message: message.into(),
                recipient_agent_id: to,
                priority,
                ..Default::default()
            };
            a.ask(message).await.unwrap().message_id.unwrap()
        };
        say("not urgent", None).await;
        say("later", Some(Priority::Urgent)).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let asked = say("now", Some(Priority::Urgent)).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let reply = a.check().await.unwrap().messages.remove(0);
        assert_eq!(
            (reply.text.as_str(), reply.reply_to),
            ("[AGENT ann TO AGENT a]: yes", Some(asked))
        );
        let left = ask_in(&room, &ann, &session, CheckInbox::default())
            .await
            .messages;
        let texts: Vec<&str> = left
            .iter()
            .map(|message| message.text.rsplit(": ").next().unwrap())
            .collect();
        assert_eq!(texts, ["later", "not urgent"]);
    });
}
