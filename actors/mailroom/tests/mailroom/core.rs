use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mailroom::{
    CONVERSATIONS_MAX, LISTED_TEXT_CHARS_MAX, MailroomOptions, MemberDeclaration, RECEIPTS_MAX,
    ReconfigureMailroom,
};
use callboard_message::capabilities::Converse;
use callboard_message::mail::{
    CheckInbox, DeliverMessage, DeliveryState, EndAgent, FetchMail, GetAgentStatus,
    MAIL_MEMBERS_MAX, MarkRead,
};
use callboard_message::{CapabilityChange, Failure, FailureKind, Principal, Progress, ToolResult};
use callboard_runtime::testkit::{MailStoreLayer, eventually};
use callboard_runtime::{
    Agent, ConcurrentHandler, Context, Handlers, JournalError, MailMessage, MailStore,
    MemoryMailStore, NewMailMessage, ReceiptUpdate, Store, SyncHandler, System, async_trait,
};
use tokio::sync::{Semaphore, mpsc};

use crate::kit::{Room, SOON, away, key, next, until_ended, way};

/// In-memory mail store that fails to store receipts and copies on request, and counts these
/// operations.
struct Faulty {
    mail: MemoryMailStore,
    no_marks: Mutex<Option<JournalError>>,
    no_copies: Mutex<Option<JournalError>>,
    marks: AtomicUsize,
    copies: AtomicUsize,
    /// Announces changes right after a message is stored.
    noisy: Arc<Mutex<Option<Context>>>,
}

impl Faulty {
    fn of(system: &System) -> Arc<Self> {
        let memory = Store::in_memory();
        let mail = Arc::new(Self {
            mail: MemoryMailStore::new(memory.audit.clone()),
            no_marks: Mutex::default(),
            no_copies: Mutex::default(),
            marks: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            noisy: Arc::default(),
        });
        system
            .set_store(Store {
                mail: mail.clone(),
                ..memory
            })
            .unwrap();
        mail
    }
}

#[async_trait]
impl MailStoreLayer for Faulty {
    fn inner(&self) -> &dyn MailStore {
        &self.mail
    }

    async fn post(&self, new: NewMailMessage) -> Result<Arc<MailMessage>, JournalError> {
        let letter = self.mail.post(new).await;
        if let Some(cx) = &*self.noisy.lock().unwrap() {
            (0..4).for_each(|_| cx.notify_changed(CapabilityChange::Prompts));
        }
        letter
    }

    async fn fan_out(
        &self,
        letter: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> Result<(), JournalError> {
        self.copies.fetch_add(1, SeqCst);
        let refused = self.no_copies.lock().unwrap().clone();
        match refused {
            Some(error) => Err(error),
            None => self.mail.fan_out(letter, to, delivered).await,
        }
    }

    async fn update_receipts(
        &self,
        marks: Vec<(String, u64)>,
        mark: ReceiptUpdate,
    ) -> Result<Vec<(String, u64)>, JournalError> {
        self.marks.fetch_add(1, SeqCst);
        let refused = self.no_marks.lock().unwrap().clone();
        match refused {
            Some(error) => Err(error),
            None => self.mail.update_receipts(marks, mark).await,
        }
    }
}

/// Delivery agent that announces changes.
struct Changing {
    seen: mpsc::Sender<DeliverMessage>,
    cx: Arc<Mutex<Option<Context>>>,
}

impl Agent for Changing {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DeliverMessage>();
    }
}

impl SyncHandler<DeliverMessage> for Changing {
    fn handle(&mut self, deliver: DeliverMessage, cx: &mut Context) -> Result<(), Failure> {
        *self.cx.lock().unwrap() = Some(cx.clone());
        self.seen.try_send(deliver).map_err(|_| away())
    }
}

/// Conversing agent that shows activity, and answers on permission.
struct Slow {
    heard: Arc<AtomicUsize>,
    may: Arc<Semaphore>,
}

impl Agent for Slow {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(1_024);
    }
}

impl ConcurrentHandler<Converse> for Slow {
    fn handle(
        &mut self,
        _: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        self.heard.fetch_add(1, SeqCst);
        let may = self.may.clone();
        async move {
            cx.progress(Progress::default());
            may.acquire().await.map_err(|_| away())?.forget();
            Ok(ToolResult::text("yes"))
        }
    }
}

fn options(members: Vec<MemberDeclaration>) -> MailroomOptions {
    MailroomOptions {
        members,
        messages_per_second: 10_000.try_into().unwrap(),
        ..MailroomOptions::default()
    }
}

async fn open(system: &System, ids: &[String], with_way: bool) -> Room {
    let other = |id: &String| {
        let declared = MemberDeclaration::new(id.as_str());
        if with_way {
            declared.with_delivery_agent(id.as_str())
        } else {
            declared
        }
    };
    Room::open(
        system,
        options(
            [MemberDeclaration::new("sender")]
                .into_iter()
                .chain(ids.iter().map(other))
                .collect(),
        ),
    )
    .await
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("worker-{n:05}")).collect()
}

/// Goal: a message is delivered at once, however many changes its delivery agent announces at that
/// moment. Method: as many as the queue worker's mailbox holds, between storage and dispatch.
#[test]
fn changes_hide_no_letter() {
    until_ended(async |system| {
        let mail = Faulty::of(system);
        let room = open(system, &ids(1), true).await;
        let (seen, mut got) = mpsc::channel(8);
        let worker = system.spawn(Changing {
            seen,
            cx: mail.noisy.clone(),
        });
        system
            .directory()
            .register("worker-00000", &worker)
            .unwrap();
        for text in ["one", "two", "three"] {
            room.mailbox("sender")
                .send("worker-00000", text)
                .await
                .unwrap();
            assert_eq!(next(&mut got).await.message, text);
        }
    });
}

/// Goal: requests of a member don't make delivery attempts more frequent. Method: a member whose
/// agent is unavailable sends requests for a minute, then none for ten.
#[test]
fn tries_stay_rare() {
    until_ended(async |system| {
        let room = open(system, &ids(1), true).await;
        let mut seen = way(system, "worker-00000", |_| Err(away()));
        room.mailbox("sender")
            .send("worker-00000", "one")
            .await
            .unwrap();
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            room.mailbox("worker-00000")
                .ask(GetAgentStatus::default())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        while seen.try_recv().is_ok() {}
        tokio::time::sleep(Duration::from_secs(600)).await;
        // 60 s apart, each up to a fifth shorter.
        assert!((9..=13).contains(&seen.len()), "{} tries", seen.len());
    });
}

/// Goal: an unavailable store is tried once a second, and receipts are stored when it is back.
/// Method: 20 queues that start with mail, so that each waits for its receipts.
#[test]
fn store_is_away() {
    until_ended(async |system| {
        let mail = Faulty::of(system);
        let ids = ids(20);
        open(system, &ids, false)
            .await
            .mailbox("sender")
            .broadcast("hello")
            .await
            .unwrap();
        *mail.no_marks.lock().unwrap() = Some(JournalError::Unavailable("away".into()));
        let mut seen: Vec<_> = ids.iter().map(|id| way(system, id, |_| Ok(()))).collect();
        let room = open(system, &ids, true).await;
        for seen in &mut seen {
            next(seen).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = mail.marks.load(SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = mail.marks.load(SeqCst) - before;
        assert!((59..=61).contains(&asked), "{asked} writes a minute");
        *mail.no_marks.lock().unwrap() = None;
        room.delivered(20).await;
        assert!(seen.iter_mut().all(|seen| seen.try_recv().is_err()));
    });
}

/// Goal: mail can be read while the store is full, and its receipts are stored when there is room;
/// an explicit confirmation fails. Method: each kind of read with a store that is full, then one
/// with room; a defect of the store is still told.
#[test]
fn mail_is_read_from_a_full_store() {
    until_ended(async |system| {
        let mail = Faulty::of(system);
        let room = open(system, &ids(1), false).await;
        let worker = room.mailbox("worker-00000");
        let long = "x".repeat(LISTED_TEXT_CHARS_MAX + 1);
        let mut sent = Vec::new();
        for text in ["one", "two", &long] {
            let receipt = room.mailbox("sender").send("worker-00000", text).await;
            sent.push(receipt.unwrap().message_id.unwrap());
        }
        let confirm = |id: &String| MarkRead {
            message_id: id.clone(),
            state: None,
        };
        let full = JournalError::NoSpace;
        *mail.no_marks.lock().unwrap() = Some(full);
        assert_eq!(
            worker.read(&sent[0]).await.unwrap().state,
            DeliveryState::Read
        );
        let fetched = worker.ask(FetchMail {
            message_ids: sent.clone(),
            receipts: false,
        });
        assert_eq!(fetched.await.unwrap().messages.len(), 3);
        let inbox = worker.check().await.unwrap();
        assert_eq!(inbox.messages.len(), 3);
        assert!(inbox.messages[2].cut);
        let refused = worker.ask(confirm(&sent[0])).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);

        let unread = async || {
            let all = worker.ask(GetAgentStatus::default()).await.unwrap();
            let own = all.agents.iter().find(|view| view.unread.is_some());
            own.unwrap().unread.unwrap()
        };
        assert_eq!(unread().await, 3);
        *mail.no_marks.lock().unwrap() = None;
        tokio::time::sleep(Duration::from_secs(3)).await;
        // As counted, before the inbox is looked through again.
        assert_eq!(unread().await, 1);
        let look = CheckInbox {
            peek: true,
            ..CheckInbox::default()
        };
        let inbox = worker.ask(look).await.unwrap();
        let states: Vec<_> = inbox.messages.iter().map(|view| view.state).collect();
        assert_eq!((states, inbox.unread), (vec![DeliveryState::Delivered], 1));

        *mail.no_marks.lock().unwrap() = Some(JournalError::Damaged("mail".into()));
        let refused = worker.read(&sent[2]).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Internal);
    });
}

/// Goal: receipts of consecutive deliveries are stored in one write, because each is an fsync.
/// Method: ten.
#[test]
fn marks_of_many() {
    until_ended(async |system| {
        let mail = Faulty::of(system);
        let room = open(system, &ids(1), true).await;
        let _seen = way(system, "worker-00000", |_| Ok(()));
        let sender = room.mailbox("sender");
        for _ in 0..10 {
            sender.send("worker-00000", "hello").await.unwrap();
        }
        room.delivered(10).await;
        assert_eq!(mail.marks.load(SeqCst), 1);
    });
}

/// Goal: copies that the store rejects permanently aren't retried, and deliveries are still
/// recorded. Method: a broadcast to 300 whose copies are rejected.
#[test]
fn copies_refused() {
    until_ended(async |system| {
        let mail = Faulty::of(system);
        *mail.no_copies.lock().unwrap() = Some(JournalError::Invalid("no"));
        let ids = ids(300);
        let room = open(system, &ids, true).await;
        let _seen: Vec<_> = ids.iter().map(|id| way(system, id, |_| Ok(()))).collect();
        room.mailbox("sender").broadcast("hello").await.unwrap();
        room.delivered(300).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(mail.copies.load(SeqCst), 1);
    });
}

/// Goal: a stopped mailroom delivers nothing more. Method: its only message is for a member that
/// joins later.
#[test]
fn ended() {
    until_ended(async |system| {
        let room = open(system, &ids(1), true).await;
        room.mailbox("sender")
            .send("worker-00000", "one")
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        room.agent.stop();
        room.agent.wait_for_exit().await;
        room.mailroom.close().await;
        let mut seen = way(system, "worker-00000", |_| Ok(()));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(seen.try_recv().is_err());
        // The next mailroom delivers it.
        let room = open(system, &ids(1), true).await;
        assert_eq!(next(&mut seen).await.message, "one");
        room.delivered(1).await;
    });
}

/// Goal: the number of unanswered messages of a slow conversing agent is limited. Method: one
/// message more than the limit, and an answer.
#[test]
fn talks_at_once() {
    until_ended(async |system| {
        let room = open(system, &ids(1), true).await;
        let (heard, may) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let slow = system.spawn(Slow {
            heard: heard.clone(),
            may: may.clone(),
        });
        system.directory().register("worker-00000", &slow).unwrap();
        for n in 0..=CONVERSATIONS_MAX {
            room.mailbox("sender")
                .send("worker-00000", &n.to_string())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(heard.load(SeqCst), CONVERSATIONS_MAX);
        may.add_permits(1);
        eventually("the last is heard", SOON, || {
            heard.load(SeqCst) > CONVERSATIONS_MAX
        })
        .await;
        may.add_permits(CONVERSATIONS_MAX);
        room.delivered(CONVERSATIONS_MAX + 1).await;
    });
}

/// Goal: one response has no more receipts than one message can have. Method: broadcasts with as
/// many in all, and one message more.
#[test]
fn receipts_at_once() {
    until_ended(async |system| {
        let ids = ids(RECEIPTS_MAX / 2 + 1);
        let room = open(system, &ids, false).await;
        let sender = room.mailbox("sender");
        let mut sent = vec![sender.broadcast("all").await.unwrap().message_id.unwrap()];
        for id in &ids[..2] {
            let gone = EndAgent {
                agent_id: id.clone(),
                back: false,
            };
            room.ask(&Principal::local_operator(), gone).await.unwrap();
        }
        sent.push(sender.broadcast("most").await.unwrap().message_id.unwrap());
        let fetch = |ids: &[String]| FetchMail {
            message_ids: ids.to_vec(),
            receipts: true,
        };
        let fetched = sender.ask(fetch(&sent)).await.unwrap().messages;
        let shown: Vec<usize> = fetched
            .into_iter()
            .map(|view| view.receipts.unwrap().len())
            .collect();
        assert_eq!(shown, [RECEIPTS_MAX / 2 + 1, RECEIPTS_MAX / 2 - 1]);
        sent.push(
            sender
                .send(&ids[2], "one")
                .await
                .unwrap()
                .message_id
                .unwrap(),
        );
        assert_eq!(
            sender.ask(fetch(&sent)).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
        assert_eq!(
            sender
                .ask(FetchMail {
                    receipts: false,
                    ..fetch(&sent)
                })
                .await
                .unwrap()
                .messages
                .len(),
            3
        );
    });
}

/// Goal: a rejected configuration changes nothing. Method: a member too many, and a shorter expiry.
#[test]
fn refused_options() {
    until_ended(async |system| {
        let room = open(system, &ids(1), false).await;
        let members = (0..MAIL_MEMBERS_MAX)
            .map(|n| MemberDeclaration::new(format!("other-{n}")))
            .collect();
        let soon = MailroomOptions {
            expires: Duration::from_secs(60),
            ..options(members)
        };
        assert_eq!(
            room.refused(&key("ann", &[]), ReconfigureMailroom { options: soon })
                .await,
            FailureKind::Rejected
        );
        let sent = room
            .mailbox("sender")
            .send("worker-00000", "one")
            .await
            .unwrap()
            .message_id
            .unwrap();
        let view = room.mailbox("sender").read(&sent).await.unwrap();
        assert_ne!(view.sent[..10], view.expires[..10]);
    });
}
