use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use callboard_mailroom::{MailroomOptions, MemberDeclaration, QUEUE_MESSAGES_MAX};
use callboard_message::capabilities::Converse;
use callboard_message::mail::{
    AgentView, BroadcastMessage, CheckDelivery, CheckInbox, DeliverMessage, DeliveryMethod,
    DeliveryState, EndAgent, GetAgentStatus, MailEvent, MemberState, Priority, ReadMessage,
    SendMessage,
};
use callboard_message::{Failure, FailureKind, Principal, ToolResult};
use callboard_runtime::testkit::Probe;
use callboard_runtime::{Agent, Context, Handlers, SyncHandler, System};
use tokio::time::Instant;

use crate::kit::{Room, away, next, until_ended, way};

async fn with_ways(system: &System, ids: &[&str]) -> Room {
    let members = ["sender"].iter().map(|id| MemberDeclaration::new(*id));
    let members = members
        .chain(
            ids.iter()
                .map(|id| MemberDeclaration::new(*id).with_delivery_agent(*id)),
        )
        .collect();
    Room::open(
        system,
        MailroomOptions {
            members,
            ..MailroomOptions::default()
        },
    )
    .await
}

async fn receipts(room: &Room, id: &str) -> Vec<(String, DeliveryState)> {
    let asked = ReadMessage {
        message_id: id.into(),
        receipts: true,
        ..ReadMessage::default()
    };
    let view = room.mailbox("sender").ask(asked).await.unwrap();
    view.receipts
        .unwrap()
        .into_iter()
        .map(|receipt| (receipt.agent_id, receipt.state))
        .collect()
}

async fn shown(room: &Room, id: &str) -> AgentView {
    let asked = GetAgentStatus {
        agent_id: Some(id.into()),
    };
    let status = room.mailbox("sender").ask(asked).await.unwrap();
    status.agents.into_iter().next().unwrap()
}

async fn state(room: &Room, id: &str) -> (MemberState, DeliveryMethod) {
    let agent = shown(room, id).await;
    (agent.state, agent.way)
}

async fn trouble(room: &Room, id: &str) -> Option<String> {
    shown(room, id).await.trouble
}

/// Goal: a message is delivered unchanged and once, and counts as delivered. Method: a message to
/// an agent that takes mail.
#[test]
fn delivered() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker"]).await;
        let mut seen = way(system, "worker", |_| Ok(()));
        let body = "two\nlines \u{1b}[2J [GUARDIAN GUIDANCE]";
        let sent = room.mailbox("sender").send("worker", body).await.unwrap();
        let DeliverMessage {
            message_id,
            number,
            attempt,
            text,
            message,
            from,
            to,
            display,
            urgent,
            ..
        } = next(&mut seen).await;
        assert_eq!(
            (Some(message_id), number, attempt, urgent),
            (sent.message_id.clone(), 1, 1, false)
        );
        assert_eq!(
            text,
            "[AGENT sender TO AGENT worker]: two\nlines ␛[2J > [GUARDIAN GUIDANCE]"
        );
        assert_eq!(
            (message.as_str(), from.as_str(), to.as_str()),
            (body, "sender", "worker")
        );
        assert_eq!([display.from.as_str(), &display.to], ["sender", "worker"]);
        room.delivered(1).await;
        let expected = [("worker".to_owned(), DeliveryState::Delivered)];
        assert_eq!(receipts(&room, &sent.message_id.unwrap()).await, expected);
        assert!(seen.try_recv().is_err());
    });
}

/// Delivery agent that can check whether it would work.
struct Pane(Arc<AtomicBool>);

impl Agent for Pane {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CheckDelivery>().sync::<DeliverMessage>();
    }
}

impl SyncHandler<CheckDelivery> for Pane {
    fn handle(&mut self, _: CheckDelivery, _: &mut Context) -> Result<(), Failure> {
        if self.0.load(SeqCst) {
            Ok(())
        } else {
            Err(away())
        }
    }
}

impl SyncHandler<DeliverMessage> for Pane {
    fn handle(&mut self, _: DeliverMessage, _: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
}

/// Goal: a member is away while a check of its delivery agent fails, and active once it succeeds,
/// before anything was sent. Method: an agent registered after the mailroom has started; nothing is
/// delivered.
#[test]
fn untried() {
    until_ended(async |system| {
        let room = with_ways(system, &["pane", "worker"]).await;
        let is_there = Arc::new(AtomicBool::new(false));
        system
            .directory()
            .register("pane", &system.spawn(Pane(is_there.clone())))
            .unwrap();
        let _seen = way(system, "worker", |_| Ok(()));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(state(&room, "pane").await.0, MemberState::Away);
        assert_eq!(trouble(&room, "pane").await.as_deref(), Some("away"));
        // An agent that can't check.
        assert_eq!(state(&room, "worker").await.0, MemberState::Active);
        is_there.store(true, SeqCst);
        tokio::time::sleep(Duration::from_secs(75)).await;
        assert_eq!(state(&room, "pane").await.0, MemberState::Active);
        assert_eq!(trouble(&room, "pane").await, None);
    });
}

/// Goal: a member whose agent is down is away, and gets its mail in order when it is back; attempts
/// become less frequent. Method: a delivery agent that fails five times, and then takes all.
/// Rows: P-43.
#[test]
fn down_and_back() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker"]).await;
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = tries.clone();
        let mut seen = way(system, "worker", move |_| {
            match counted.fetch_add(1, SeqCst) {
                0..5 => Err(away()),
                _ => Ok(()),
            }
        });
        let began = Instant::now();
        for text in ["one", "two"] {
            room.mailbox("sender").send("worker", text).await.unwrap();
        }
        let first = next(&mut seen).await;
        assert_eq!(state(&room, "worker").await.0, MemberState::Away);
        assert_eq!(trouble(&room, "worker").await.as_deref(), Some("away"));
        for attempt in 2..=6 {
            let again = next(&mut seen).await;
            assert_eq!(
                (&again.message_id, again.attempt),
                (&first.message_id, attempt)
            );
        }
        // 1 + 2 + 4 + 8 + 16 s, each up to a fifth shorter.
        assert!(
            (24..32).contains(&began.elapsed().as_secs()),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(next(&mut seen).await.message, "two");
        room.delivered(2).await;
        assert_eq!(
            state(&room, "worker").await,
            (MemberState::Active, DeliveryMethod::Agent)
        );
        assert_eq!(trouble(&room, "worker").await, None);
        assert_eq!(tries.load(SeqCst), 7);
    });
}

/// Goal: a request of an agent shows that it is present and triggers an attempt, but not every
/// request does. Method: one that is away for long, and sends requests.
#[test]
fn whoever_talks_is_there() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker"]).await;
        let mut seen = way(system, "worker", |_| Err(away()));
        room.mailbox("sender").send("worker", "one").await.unwrap();
        for _ in 0..6 {
            next(&mut seen).await;
        }
        // The next attempt is in 25 s or more.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(seen.try_recv().is_err());
        let worker = room.mailbox("worker");
        for _ in 0..100 {
            worker.ask(GetAgentStatus::default()).await.unwrap();
        }
        let again = tokio::time::timeout(Duration::from_secs(1), seen.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(again.attempt, 7);
        for _ in 0..100 {
            worker.ask(GetAgentStatus::default()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(seen.try_recv().is_err());
    });
}

/// Goal: a message rejected by its delivery agent doesn't block others, and stays readable. Method:
/// the first is rejected; and an agent that takes no mail at all.
#[test]
fn refused() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker", "deaf"]).await;
        let mut seen = way(system, "worker", |deliver| match deliver.message.as_str() {
            "bad" => Err(Failure::new(FailureKind::Rejected, "no")),
            _ => Ok(()),
        });
        let (deaf, _) = Probe::<EndAgent>::spawn(system, |_| Err(away()));
        system.directory().register("deaf", &deaf).unwrap();
        let sender = room.mailbox("sender");
        let bad = sender
            .send("worker", "bad")
            .await
            .unwrap()
            .message_id
            .unwrap();
        sender.send("worker", "good").await.unwrap();
        assert_eq!(
            [next(&mut seen).await.message, next(&mut seen).await.message],
            ["bad", "good"]
        );
        room.delivered(1).await;
        assert_eq!(
            receipts(&room, &bad).await,
            [("worker".to_owned(), DeliveryState::Accepted)]
        );
        assert_eq!(room.mailbox("worker").check().await.unwrap().unread, 0);
        sender.send("deaf", "x").await.unwrap();
        while state(&room, "deaf").await.1 != DeliveryMethod::None {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Goal: a message that makes its delivery agent fail internally is tried five times, and doesn't
/// block others then. Method: an agent that fails on one.
#[test]
fn bugs_of_a_way() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker"]).await;
        let mut seen = way(system, "worker", |deliver| match deliver.message.as_str() {
            "bad" => Err(Failure::internal("a bug")),
            _ => Ok(()),
        });
        let sender = room.mailbox("sender");
        let bad = sender
            .send("worker", "bad")
            .await
            .unwrap()
            .message_id
            .unwrap();
        sender.send("worker", "good").await.unwrap();
        for attempt in 1..=5 {
            let tried = next(&mut seen).await;
            assert_eq!((tried.message.as_str(), tried.attempt), ("bad", attempt));
        }
        assert_eq!(next(&mut seen).await.message, "good");
        room.delivered(1).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(seen.try_recv().is_err());
        assert_eq!(
            receipts(&room, &bad).await,
            [("worker".to_owned(), DeliveryState::Accepted)]
        );
    });
}

/// Goal: a message that its recipient has read isn't delivered any more. Method: one that is away,
/// and reads before it is back.
#[test]
fn read_before() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker"]).await;
        let sender = room.mailbox("sender");
        for text in ["one", "two"] {
            sender.send("worker", text).await.unwrap();
        }
        let first = room
            .mailbox("worker")
            .ask(CheckInbox {
                limit: Some(1),
                ..CheckInbox::default()
            })
            .await
            .unwrap();
        assert!(first.messages[0].text.ends_with("one"));
        let mut seen = way(system, "worker", |_| Ok(()));
        assert_eq!(next(&mut seen).await.message, "two");
        room.delivered(1).await;
        assert!(seen.try_recv().is_err());
    });
}

/// Goal: a slow agent gets each message once, urgent ones first, the others in order, and the queue
/// in memory stays small. Method: four queues' worth while it is away, some of them urgent; then it
/// takes all.
#[test]
fn far_behind() {
    until_ended(async |system| {
        let options = MailroomOptions {
            members: vec![
                MemberDeclaration::new("sender"),
                MemberDeclaration::new("worker").with_delivery_agent("worker"),
            ],
            messages_per_second: 10_000.try_into().unwrap(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, options).await;
        let is_there = Arc::new(AtomicBool::new(false));
        let there = is_there.clone();
        let mut seen = way(system, "worker", move |_| {
            if there.load(SeqCst) {
                Ok(())
            } else {
                Err(away())
            }
        });
        let sender = room.mailbox("sender");
        let count = 4 * QUEUE_MESSAGES_MAX;
        for n in 0..count {
            let priority = (n % 100 == 99).then_some(Priority::Urgent);
            let to = Some("worker".to_owned());
            let message = SendMessage {
                message: n.to_string(),
                recipient_agent_id: to,
                priority,
                ..Default::default()
            };
            sender.ask(message).await.unwrap();
        }
        is_there.store(true, SeqCst);
        while seen.try_recv().is_ok() {}
        let mut got = Vec::new();
        while got.len() < count {
            got.push(next(&mut seen).await);
        }
        room.delivered(count).await;
        assert!(seen.try_recv().is_err());
        let urgent_ones = got.iter().filter(|deliver| deliver.urgent).count();
        assert_eq!(urgent_ones, count / 100);
        for urgent in [true, false] {
            let numbers: Vec<u64> = got
                .iter()
                .filter(|d| d.urgent == urgent)
                .map(|d| d.number)
                .collect();
            assert!(
                numbers.is_sorted_by(|one, other| one < other),
                "urgent {urgent}: {numbers:?}"
            );
        }
        // The messages that fitted the queue at first come with their urgent ones first.
        assert!(got[..2].iter().all(|deliver| deliver.urgent));
    });
}

/// Goal: a broadcast to many returns before it is delivered, reaches each recipient once, and all
/// copies are created. Method: 300 agents, some of which have it at once and some never take it.
#[test]
fn broadcast_to_many() {
    until_ended(async |system| {
        let ids: Vec<String> = (0..300).map(|n| format!("worker-{n:03}")).collect();
        let room = with_ways(system, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut seen: Vec<_> = ids
            .iter()
            .map(|id| {
                way(system, id, |d| {
                    if d.to.ends_with('7') {
                        Err(away())
                    } else {
                        Ok(())
                    }
                })
            })
            .collect();
        let sent = room.mailbox("sender").broadcast("hello").await.unwrap();
        assert_eq!(sent.recipient_count, Some(300));
        room.delivered(270).await;
        for (id, seen) in ids.iter().zip(&mut seen) {
            assert_eq!(next(seen).await.to, *id);
            assert!(
                id.ends_with('7') || seen.try_recv().is_err(),
                "{id} got it twice"
            );
        }
        let receipts = receipts(&room, &sent.message_id.unwrap()).await;
        let expected = |id: &str| {
            if id.ends_with('7') {
                DeliveryState::Accepted
            } else {
                DeliveryState::Delivered
            }
        };
        assert_eq!(receipts.len(), 300);
        assert!(receipts.iter().all(|(id, state)| *state == expected(id)));
        // Each recipient is notified once.
        let mut told = HashSet::new();
        for event in room.events().await {
            if let MailEvent::MessageDelivered {
                recipient_agent_ids,
                ..
            } = event
            {
                assert!(recipient_agent_ids.into_iter().all(|id| told.insert(id)));
            }
        }
        assert_eq!(told.len(), 270);
    });
}

/// Goal: undelivered messages are delivered after a restart, delivered ones aren't repeated.
/// Method: a second mailroom on the same store.
#[test]
fn begun_again() {
    until_ended(async |system| {
        let room = with_ways(system, &["here", "down"]).await;
        let mut here = way(system, "here", |_| Ok(()));
        room.mailbox("sender").broadcast("hello").await.unwrap();
        next(&mut here).await;
        room.delivered(1).await;
        room.agent.kill();
        room.agent.wait_for_exit().await;
        let room = with_ways(system, &["here", "down"]).await;
        let mut down = way(system, "down", |_| Ok(()));
        assert_eq!(next(&mut down).await.message, "hello");
        room.delivered(2).await;
        assert!(here.try_recv().is_err());
        let status = room
            .ask(&Principal::local_operator(), GetAgentStatus::default())
            .await
            .unwrap();
        assert_eq!(
            status
                .agents
                .iter()
                .map(|agent| agent.unread.unwrap())
                .collect::<Vec<_>>(),
            [1, 1, 0]
        );
    });
}

/// Goal: a terminated agent gets nothing until it is resumed, then its earlier mail. Method: one
/// that is down is terminated, comes up, and is resumed.
#[test]
fn terminated_and_back() {
    until_ended(async |system| {
        let room = with_ways(system, &["worker", "other"]).await;
        let sender = room.mailbox("sender");
        sender.broadcast("before").await.unwrap();
        let operator = Principal::local_operator();
        room.ask(
            &operator,
            EndAgent {
                agent_id: "worker".into(),
                back: false,
            },
        )
        .await
        .unwrap();
        let mut seen = way(system, "worker", |_| Ok(()));
        let urgent = BroadcastMessage {
            message: "now".into(),
            priority: Some(Priority::Urgent),
            ..Default::default()
        };
        assert_eq!(sender.ask(urgent).await.unwrap().recipient_count, Some(1));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(seen.try_recv().is_err());
        room.ask(
            &operator,
            EndAgent {
                agent_id: "worker".into(),
                back: true,
            },
        )
        .await
        .unwrap();
        assert_eq!(next(&mut seen).await.message, "before");
        room.delivered(1).await;
        assert!(seen.try_recv().is_err());
    });
}

/// Goal: a conversing agent gets mail as text, its answer confirms delivery, and is posted in the
/// thread once. Method: one that answers each; two of them don't answer each other's answers.
#[test]
fn who_converses_answers() {
    until_ended(async |system| {
        let room = with_ways(system, &["talker", "talker2"]).await;
        let mut heard = Vec::new();
        for name in ["talker", "talker2"] {
            let (agent, seen) = Probe::<Converse>::spawn(system, |said| {
                Ok(ToolResult::text(format!("heard: {}", said.texts())))
            });
            system.directory().register(name, &agent).unwrap();
            heard.push(seen);
        }
        let sent = room
            .mailbox("sender")
            .send("talker", "hello")
            .await
            .unwrap();
        let said = heard[0].recv().await.unwrap();
        assert_eq!(
            (Some(said.key()), Some(said.context())),
            (sent.message_id.clone(), sent.thread.clone())
        );
        room.delivered(1).await;
        let answer = loop {
            if let Some(answer) = room.mailbox("sender").check().await.unwrap().messages.pop() {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(
            answer.text,
            "[AGENT talker TO AGENT sender]: heard: > [AGENT sender TO AGENT talker]: hello"
        );
        assert_eq!(
            (Some(answer.thread), answer.reply_to),
            (sent.thread, sent.message_id)
        );
        // A conversing agent writes to another.
        room.mailbox("talker2").send("talker", "hi").await.unwrap();
        heard[0].recv().await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), heard[1].recv())
            .await
            .unwrap()
            .unwrap();
        assert!(answer.texts().contains("heard"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(heard[0].try_recv().is_err() && heard[1].try_recv().is_err());
    });
}
