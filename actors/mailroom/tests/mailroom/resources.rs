use std::sync::{Arc, Mutex};

use callboard_mailroom::{MEMBER_SESSIONS_MAX, Mailbox};
use callboard_message::capabilities::{
    DescribeAgent, ListResourceTemplates, ListResources, ReadResource, SubscribeResource,
};
use callboard_message::mail::{
    CheckInbox, DeliveryMethod, GetAgentStatus, JoinMailroom, MailPreferences, MemberState,
    Priority, SaveMemory, SendMessage,
};
use callboard_message::{
    Answer, CallerCapabilities, CapabilityChange, ElicitationAnswer, Failure, FailureKind,
    LogLevel, LogMessage, Message, Principal, Progress, Question, RawObject,
};
use callboard_runtime::testkit::Probe;
use callboard_runtime::{AgentChanged, CallContext, Caller, PeerSession};
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

/// Goal: each member has its own inbox and messages as resources, and no access to others. Method:
/// lists, reads and subscriptions of one's own and another's.
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
        assert_eq!(
            uris,
            [
                "callboard://inbox/b",
                "callboard://agents",
                "callboard://memory/b"
            ]
        );
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
            "callboard://memory/b",
            "callboard://memory/b/k",
            "callboard://memory/ab",
            "callboard://memory/a/k",
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
                a.ask(SubscribeResource(uri(other))).await.unwrap_err().kind,
                FailureKind::NotFound,
                "{other}"
            );
        }
        let about = a.ask(DescribeAgent(RawObject::new())).await.unwrap();
        assert!(
            about
                .0
                .text("instructions")
                .unwrap()
                .contains("check_inbox")
        );
    });
}

/// Goal: what a member saved is a resource of its own. Method: the list, one entry with a name that a
/// URI must escape, another member's, and the template.
/// Rows: P-9.
#[test]
fn saved_entries() {
    in_room(&["a", "b"], async |room, _| {
        let a = room.mailbox("a");
        a.ask(SaveMemory {
            content: "42".into(),
            key: Some("the answer/é".into()),
            ..SaveMemory::default()
        })
        .await
        .unwrap();
        let list = read(&a, "callboard://memory/a").await.unwrap();
        assert_eq!(list["entries"][0]["key"], "the answer/é");
        let address = "callboard://memory/a/the%20answer%2F%C3%A9";
        let entry = read(&a, address).await.unwrap();
        assert_eq!(entry["content"], "42");
        for other in [address, "callboard://memory/a"] {
            assert_eq!(
                read(&room.mailbox("b"), other).await.unwrap_err().kind,
                FailureKind::NotFound
            );
        }
        let templates: Vec<Value> = a
            .ask(ListResourceTemplates(RawObject::new()))
            .await
            .unwrap()
            .read("resourceTemplates")
            .unwrap();
        assert_eq!(templates[1]["uriTemplate"], "callboard://memory/a/{key}");
    });
}

/// Goal: a subscriber of an inbox is notified of new mail in it, and of nothing else. Method: two
/// inboxes, one subscribed to, then both.
#[test]
fn watched_inboxes() {
    in_room(&["a", "b", "c"], async |room, system| {
        let (follower, mut changes) = Probe::<AgentChanged>::spawn(system, |_| ());
        room.agent.follow(follower.recipient().unwrap());
        let inbox = || uri("callboard://inbox/b");
        room.mailbox("b")
            .ask(SubscribeResource(inbox()))
            .await
            .unwrap();
        room.mailbox("a").send("c", "x").await.unwrap();
        room.mailbox("a").send("b", "x").await.unwrap();
        let told = async |changes: &mut tokio::sync::mpsc::Receiver<AgentChanged>| loop {
            match changes.recv().await.unwrap().change {
                CapabilityChange::Resource(uri) if uri == "callboard://agents" => {}
                change => return change,
            }
        };
        assert_eq!(
            told(&mut changes).await,
            CapabilityChange::Resource("callboard://inbox/b".into())
        );
        // Subscribed without a call, as an endpoint does for its clients.
        room.agent
            .tell(SubscribeResource(uri("callboard://inbox/c")))
            .await
            .unwrap();
        room.mailbox("a").broadcast("x").await.unwrap();
        let both = [told(&mut changes).await, told(&mut changes).await];
        assert_eq!(
            both,
            ["b", "c"].map(|id| CapabilityChange::Resource(format!("callboard://inbox/{id}")))
        );
        assert!(changes.try_recv().is_err());
    });
}

type Answers = Box<dyn Fn(Question) -> Result<Answer, Failure> + Send + Sync>;

/// Notifications to a session, and its scripted answers.
struct RecordingCaller(Mutex<Vec<LogMessage>>, Answers);

impl Default for RecordingCaller {
    fn default() -> Self {
        Self(
            Mutex::default(),
            Box::new(|_| Err(Failure::new(FailureKind::NoResponder, "nobody"))),
        )
    }
}

impl Caller for RecordingCaller {
    fn progress(&self, _: Progress) {}

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(std::future::ready((self.1)(question)))
    }

    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities::all()
    }

    fn log(&self, line: LogMessage) {
        self.0.lock().unwrap().push(line);
    }
}

async fn ask_in<T, M>(room: &Room, who: &Principal, session: &Arc<PeerSession>, message: M) -> T
where
    T: Send + 'static,
    M: Message<Reply = Result<T, Failure>>,
{
    let call = CallContext {
        session: Some(session.clone()),
        ..CallContext::new(Arc::new(who.clone()))
    };
    room.agent
        .ask(message)
        .within_call(Some(Arc::new(call)))
        .await
        .unwrap()
        .unwrap()
}

/// Goal: a live session is notified of mail and its sender, without the text; a member with a
/// session is active, and away after the last ends. Method: a session that is notified, and ends.
#[test]
fn live_sessions() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let caller = Arc::new(RecordingCaller::default());
        let over = CancellationToken::new();
        let session = Arc::new(PeerSession::new(over.clone(), caller.clone()));
        ask_in(&room, &ann, &session, JoinMailroom {}).await;
        ask_in(&room, &ann, &session, JoinMailroom {}).await;
        let id = room
            .mailbox("a")
            .send("ann", "secret words")
            .await
            .unwrap()
            .message_id
            .unwrap();
        let told = std::mem::take(&mut *caller.0.lock().unwrap());
        assert_eq!((told.len(), told[0].level()), (1, LogLevel::Notice));
        let LogMessage(line) = &told[0];
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
        assert_eq!(status().await, (MemberState::Active, DeliveryMethod::Mcp));
        over.cancel();
        assert_eq!(status().await, (MemberState::Away, DeliveryMethod::None));
        room.mailbox("a").send("ann", "x").await.unwrap();
        assert!(caller.0.lock().unwrap().is_empty());
    });
}

/// Goal: the newest live sessions of a member are notified, once each, up to the limit. Method: as
/// many, and one more.
#[test]
fn the_newest_sessions() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let callers: Vec<_> = (0..=MEMBER_SESSIONS_MAX)
            .map(|_| Arc::new(RecordingCaller::default()))
            .collect();
        for caller in &callers {
            let (over, caller) = (CancellationToken::new(), caller.clone());
            ask_in(
                &room,
                &ann,
                &Arc::new(PeerSession::new(over, caller)),
                JoinMailroom {},
            )
            .await;
        }
        room.mailbox("a").send("ann", "x").await.unwrap();
        let told: Vec<usize> = callers
            .iter()
            .map(|caller| caller.0.lock().unwrap().len())
            .collect();
        assert_eq!((told[0], &told[1..]), (0, &[1; MEMBER_SESSIONS_MAX][..]));
    });
}

/// Goal: a member that wants it is asked about urgent mail; an answer marks it as read and is sent
/// as a reply, otherwise it stays unread. Method: one that answers, one that cancels, one that
/// isn't urgent.
/// Rows: P-37.
#[test]
fn urgent_mail_is_a_question() {
    in_room(&["a"], async |room, _| {
        let ann = key("ann", &[]);
        let answers: Answers = Box::new(|question| match question {
            Question::Elicit(elicitation) if elicitation.message().ends_with("later") => {
                Ok(Answer::Elicit(ElicitationAnswer::cancel()))
            }
            Question::Elicit(elicitation) => {
                assert_eq!(elicitation.message(), "[AGENT a TO AGENT ann]: now");
                Ok(Answer::Elicit(ElicitationAnswer::accept(
                    json!({ "reply": "yes" }),
                )))
            }
            _ => panic!("another question"),
        });
        let caller = Arc::new(RecordingCaller(Mutex::default(), answers));
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
