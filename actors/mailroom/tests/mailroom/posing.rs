use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use callboard_mailroom::{MailroomOptions, MemberDeclaration, PEER_POLL_INTERVAL};
use callboard_message::capabilities::Converse;
use callboard_message::mail::{
    BroadcastMessage, CheckInbox, EndAgent, GetAgentStatus, JoinMailroom, MailPreferences,
    MemberState, ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::{Failure, FailureKind, Principal, RawObject, ToolResult};
use callboard_runtime::{
    Agent, Context, Handler, Handlers, JournalError, KvEntry, KvError, KvStore, MemoryMailStore,
    Store, System, async_trait,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::kit::{Room, in_room, key, next, until_ended, way};
use crate::nodes::Shared;

/// Time that [`Slow`] takes to answer.
const SLOW: Duration = Duration::from_secs(30);

/// Agent that reports each request and answers later.
struct Slow(mpsc::Sender<()>);

impl Agent for Slow {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Converse>();
    }
}

impl Handler<Converse> for Slow {
    async fn handle(&mut self, _: Converse, _: &mut Context) -> Result<ToolResult, Failure> {
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

/// Makes the system's store a shared one, in which the given number of reads fail.
fn shared(system: &System) -> Arc<AtomicUsize> {
    let memory = Store::in_memory();
    let mail = Arc::new(Shared(MemoryMailStore::new(memory.audit.clone())));
    let fails = Arc::new(AtomicUsize::new(0));
    let notes = Arc::new(Flaky(memory.kv.clone(), fails.clone()));
    system
        .set_store(Store {
            mail,
            kv: notes,
            ..memory
        })
        .unwrap();
    fails
}

/// Key-value store whose reads fail for a while.
struct Flaky(Arc<dyn KvStore>, Arc<AtomicUsize>);

#[async_trait]
impl KvStore for Flaky {
    async fn get(&self, space: &str, key: &str) -> Result<Option<KvEntry>, JournalError> {
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
    ) -> Result<u64, KvError> {
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
    ) -> Result<Vec<KvEntry>, JournalError> {
        self.0.list(space, after, notes_max).await
    }

    async fn clear(&self, space: &str) -> Result<u64, JournalError> {
        self.0.clear(space).await
    }
}

/// Goal: no agent is displayed as the operator or the Guardian. Method: keys whose names begin like
/// theirs, and the prefixes of their messages.
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

/// Goal: an agent terminated at one node is so everywhere, even if it acts at another before that
/// knows, and gets mail again once it is resumed. Method: two nodes on one store, termination at
/// one, preferences and a new scope at the other right after; a delivery agent at the other.
#[test]
fn an_end_lasts_on_all_nodes() {
    until_ended(async |system| {
        shared(system);
        let (operator, ann) = (Principal::local_operator(), key("ann", &[]));
        let here = Room::of(system, &["sender", "worker"]).await;
        let members = vec![
            MemberDeclaration::new("sender"),
            MemberDeclaration::new("worker").with_delivery_agent("worker"),
        ];
        let there = Room::open(
            system,
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            },
        )
        .await;
        here.ask(&ann, JoinMailroom {}).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        here.ask(&operator, ending("ann", false)).await.unwrap();
        // That node doesn't know yet, and must not store the agent as never terminated.
        let wants = MailPreferences {
            ask_urgent: Some(true),
            ..MailPreferences::default()
        };
        let _ = there.ask(&ann, wants).await;
        assert_eq!(
            there.refused(&ann, JoinMailroom {}).await,
            FailureKind::Denied
        );
        here.ask(&operator, ending("worker", false)).await.unwrap();
        let grouped = key("worker", &["mail.group:red"]);
        assert_eq!(
            there.refused(&grouped, JoinMailroom {}).await,
            FailureKind::Denied
        );
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

/// Goal: a message of another node is counted once, even if the store fails during a poll. Method:
/// a message, then a new member whose record can't be read three times.
#[test]
fn a_look_that_fails_counts_nothing_twice() {
    until_ended(async |system| {
        let fails = shared(system);
        let here = Room::of(system, &["sender", "worker"]).await;
        let there = Room::of(system, &["sender", "worker"]).await;
        // Between two polls: both events are in one page.
        sleep(PEER_POLL_INTERVAL * 5 / 2).await;
        fails.store(3, SeqCst);
        here.mailbox("sender").send("worker", "x").await.unwrap();
        here.ask(&key("ann", &[]), JoinMailroom {}).await.unwrap();
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

/// Goal: a duplicate under the same key gets the same receipt, even if its recipients are gone.
/// Method: one, a list, a broadcast and a reply to all, each repeated after its recipients were
/// terminated; other messages under the keys.
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
        let mut first: Vec<SendReceipt> = Vec::new();
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

/// Goal: the late answer of a terminated agent isn't posted. Method: a conversing agent that is
/// terminated before it answers.
#[test]
fn an_answer_after_the_end() {
    until_ended(async |system| {
        let members = vec![
            MemberDeclaration::new("sender"),
            MemberDeclaration::new("talker").with_delivery_agent("talker"),
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
