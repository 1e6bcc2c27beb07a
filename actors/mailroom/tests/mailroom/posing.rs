use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use callboard_mailroom::{Declared, LOOK_EVERY, MailroomOptions};
use callboard_message::mail::{
    BroadcastMessage, CheckInbox, EndAgent, GetAgentStatus, Join, MailPreferences, MemberState,
    ReplyMessage, SendMessage, Sent,
};
use callboard_message::surface::Converse;
use callboard_message::{Failure, FailureKind, Principal, RawObject, ToolResult};
use callboard_runtime::{
    Agent, Cx, Handler, Handlers, JournalError, MemoryMail, Note, NoteError, Notes, Store, System,
    async_trait,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::kit::{Room, in_room, key, next, until_ended, way};
use crate::nodes::Shared;

/// How long [`Slow`] takes to answer.
const SLOW: Duration = Duration::from_secs(30);

/// Tells that it was asked, and answers later.
struct Slow(mpsc::Sender<()>);

impl Agent for Slow {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Converse>();
    }
}

impl Handler<Converse> for Slow {
    async fn handle(&mut self, _: Converse, _: &mut Cx) -> Result<ToolResult, Failure> {
        self.0.send(()).await.unwrap();
        sleep(SLOW).await;
        Ok(ToolResult::text("late"))
    }
}

fn ending(id: &str, back: bool) -> EndAgent {
    EndAgent {
        agent_id: id.into(),
        back,
    }
}

/// A store of several nodes, in which so many notes can't be read once it says so.
fn shared(system: &System) -> Arc<AtomicUsize> {
    let memory = Store::in_memory();
    let mail = Arc::new(Shared(MemoryMail::new(memory.audit.clone())));
    let fails = Arc::new(AtomicUsize::new(0));
    let notes = Arc::new(Flaky(memory.notes.clone(), fails.clone()));
    system
        .keep_in(Store {
            mail,
            notes,
            ..memory
        })
        .unwrap();
    fails
}

/// Notes that can't be read for a while.
struct Flaky(Arc<dyn Notes>, Arc<AtomicUsize>);

#[async_trait]
impl Notes for Flaky {
    async fn get(&self, space: &str, key: &str) -> Result<Option<Note>, JournalError> {
        match self
            .1
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        {
            Ok(_) => Err(JournalError::Store("down".into())),
            Err(_) => self.0.get(space, key).await,
        }
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, NoteError> {
        self.0.put(space, key, body, expected).await
    }

    async fn remove(&self, space: &str, key: &str) -> Result<bool, JournalError> {
        self.0.remove(space, key).await
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        notes_max: usize,
    ) -> Result<Vec<Note>, JournalError> {
        self.0.list(space, after, notes_max).await
    }

    async fn clear(&self, space: &str) -> Result<u64, JournalError> {
        self.0.clear(space).await
    }
}

/// Goal: no agent shows as the operator or the Guardian. Method: keys whose names begin so, and what their messages say.
#[test]
fn nobody_shows_as_an_office() {
    in_room(&["a"], async |room, _| {
        for (id, shown) in [("operator-x", "operator-"), ("guardian-x", "guardian-")] {
            let to = Some("a".to_owned());
            let message = SendMessage {
                message: "x".into(),
                recipient_agent_id: to,
                ..SendMessage::default()
            };
            room.ask(&key(id, &[]), message).await.unwrap();
            let inbox = room.mailbox("a").check().await.unwrap();
            assert_eq!(
                inbox.messages[0].text,
                format!("[AGENT {shown} TO AGENT a]: x")
            );
        }
    });
}

/// Goal: whoever is terminated at one node is so everywhere, whatever it does at another before that knows of it, and is
/// delivered to again once it is back. Method: two nodes on one store, the end at one, preferences and a new scope at the
/// other right after; a way at the other.
#[test]
fn an_end_lasts_on_all_nodes() {
    until_ended(async |system| {
        shared(system);
        let (operator, ann) = (Principal::local_operator(), key("ann", &[]));
        let here = Room::of(system, &["sender", "worker"]).await;
        let members = vec![
            Declared::new("sender"),
            Declared::new("worker").with_way("worker"),
        ];
        let there = Room::open(
            system,
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            },
        )
        .await;
        here.ask(&ann, Join {}).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        here.ask(&operator, ending("ann", false)).await.unwrap();
        // It doesn't know yet, and what it keeps now isn't an agent that was never ended.
        let wants = MailPreferences {
            ask_urgent: Some(true),
            ..MailPreferences::default()
        };
        let _ = there.ask(&ann, wants).await;
        assert_eq!(there.refused(&ann, Join {}).await, FailureKind::Denied);
        here.ask(&operator, ending("worker", false)).await.unwrap();
        let grouped = key("worker", &["mail.group:red"]);
        assert_eq!(there.refused(&grouped, Join {}).await, FailureKind::Denied);
        sleep(Duration::from_secs(1)).await;
        for room in [&here, &there, &Room::of(system, &[]).await] {
            let status = room
                .ask(&operator, GetAgentStatus::default())
                .await
                .unwrap();
            let ended = status
                .agents
                .iter()
                .filter(|agent| agent.state == MemberState::Terminated);
            assert_eq!(
                ended
                    .map(|agent| agent.agent_id.as_str())
                    .collect::<Vec<_>>(),
                ["ann", "worker"]
            );
        }
        let mut seen = way(system, "worker", |_| Ok(()));
        here.ask(&operator, ending("worker", true)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        here.mailbox("sender")
            .send("worker", "hello")
            .await
            .unwrap();
        assert_eq!(next(&mut seen).await.message, "hello");
    });
}

/// Goal: a letter that came by another node counts once, though the store fails in the middle of a look. Method: a letter, then
/// somebody new; that one's note can't be read three times.
#[test]
fn a_look_that_fails_counts_nothing_twice() {
    until_ended(async |system| {
        let fails = shared(system);
        let here = Room::of(system, &["sender", "worker"]).await;
        let there = Room::of(system, &["sender", "worker"]).await;
        // Between two looks: both events come in one page.
        sleep(LOOK_EVERY * 5 / 2).await;
        fails.store(3, SeqCst);
        here.mailbox("sender").send("worker", "x").await.unwrap();
        here.ask(&key("ann", &[]), Join {}).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(fails.load(SeqCst), 0);
        for room in [&here, &there] {
            let status = room
                .ask(&Principal::local_operator(), GetAgentStatus::default())
                .await
                .unwrap();
            let unread: Vec<_> = status
                .agents
                .iter()
                .map(|agent| (agent.agent_id.as_str(), agent.unread))
                .collect();
            assert_eq!(
                unread,
                [("ann", Some(0)), ("sender", Some(0)), ("worker", Some(1))]
            );
        }
    });
}

/// Goal: the same message again under its key gets the same answer, whoever of its recipients is gone by then. Method: one, a
/// list, a broadcast and an answer to all, each again after the end of whom they were for; other messages under the keys.
#[test]
fn a_key_outlives_its_recipients() {
    in_room(&["a", "b", "c"], async |room, _| {
        let a = room.mailbox("a");
        let one = SendMessage {
            message: "x".into(),
            recipient_agent_id: Some("b".into()),
            idempotency_key: Some("one".into()),
            ..SendMessage::default()
        };
        let ids = vec!["b".to_owned(), "c".to_owned()];
        let list = SendMessage {
            recipient_agent_id: None,
            recipient_agent_ids: ids,
            idempotency_key: Some("list".into()),
            ..one.clone()
        };
        let all = BroadcastMessage {
            message: "x".into(),
            idempotency_key: Some("all".into()),
            ..Default::default()
        };
        let mut first: Vec<Sent> = Vec::new();
        first.push(a.ask(one.clone()).await.unwrap());
        first.push(a.ask(list.clone()).await.unwrap());
        first.push(a.ask(all.clone()).await.unwrap());
        let reply = ReplyMessage {
            message_id: first[1].message_id.clone().unwrap(),
            message: "y".into(),
            idempotency_key: Some("reply".into()),
            ..ReplyMessage::default()
        };
        first.push(a.ask(reply.clone()).await.unwrap());
        for gone in ["b", "c"] {
            room.ask(&Principal::local_operator(), ending(gone, false))
                .await
                .unwrap();
            let again = [
                a.ask(one.clone()).await.unwrap(),
                a.ask(list.clone()).await.unwrap(),
                a.ask(all.clone()).await.unwrap(),
                a.ask(reply.clone()).await.unwrap(),
            ];
            assert_eq!(again.as_slice(), first);
        }
        let other = SendMessage {
            message: "z".into(),
            ..one.clone()
        };
        assert_eq!(a.ask(other).await.unwrap_err().kind, FailureKind::Rejected);
        let fresh = SendMessage {
            idempotency_key: Some("fresh".into()),
            ..one.clone()
        };
        assert!(!a.ask(fresh).await.unwrap().success);
        let like_an_answer = SendMessage {
            idempotency_key: Some("a2a:1".into()),
            ..one
        };
        assert_eq!(
            a.ask(like_an_answer).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: what a terminated agent answers late isn't said. Method: one that converses, is asked, and is ended before it answers.
#[test]
fn an_answer_after_the_end() {
    until_ended(async |system| {
        let members = vec![
            Declared::new("sender"),
            Declared::new("talker").with_way("talker"),
        ];
        let room = Room::open(
            system,
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            },
        )
        .await;
        let (heard, mut hears) = mpsc::channel(1);
        system
            .directory()
            .register("talker", &system.spawn(Slow(heard)))
            .unwrap();
        room.mailbox("sender")
            .send("talker", "hello")
            .await
            .unwrap();
        hears.recv().await.unwrap();
        room.ask(&Principal::local_operator(), ending("talker", false))
            .await
            .unwrap();
        sleep(2 * SLOW).await;
        assert!(
            room.mailbox("sender")
                .ask(CheckInbox::default())
                .await
                .unwrap()
                .messages
                .is_empty()
        );
    });
}
