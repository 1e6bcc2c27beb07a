use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mailroom::{Declare, Declared, MailroomOptions, RECEIPTS_MAX, TALKS_AT_ONCE_MAX};
use callboard_message::mail::{Deliver, EndAgent, FetchMail, GetAgentStatus, MAIL_MEMBERS_MAX};
use callboard_message::surface::Converse;
use callboard_message::{Change, Failure, FailureKind, Principal, Progress, ToolResult};
use callboard_runtime::testkit::{MailLayer, eventually};
use callboard_runtime::{
    Agent, ConcurrentHandler, Cx, Handlers, JournalError, Letter, Mail, Mark, MemoryMail,
    NewLetter, Store, SyncHandler, System, async_trait,
};
use tokio::sync::{Semaphore, mpsc};

use crate::kit::{Room, SOON, away, key, next, until_ended, way};

/// Mail in memory that keeps no marks and copies where it is told so, and counts how often it is asked for that.
struct Faulty {
    mail: MemoryMail,
    no_marks: Mutex<Option<JournalError>>,
    no_copies: Mutex<Option<JournalError>>,
    marks: AtomicUsize,
    copies: AtomicUsize,
    /// Tells of changes right after a letter is kept.
    noisy: Arc<Mutex<Option<Cx>>>,
}

impl Faulty {
    fn of(system: &System) -> Arc<Self> {
        let memory = Store::in_memory();
        let mail = Arc::new(Self {
            mail: MemoryMail::new(memory.audit.clone()),
            no_marks: Mutex::default(),
            no_copies: Mutex::default(),
            marks: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            noisy: Arc::default(),
        });
        system
            .keep_in(Store {
                mail: mail.clone(),
                ..memory
            })
            .unwrap();
        mail
    }
}

#[async_trait]
impl MailLayer for Faulty {
    fn behind(&self) -> &dyn Mail {
        &self.mail
    }

    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError> {
        let letter = self.mail.post(new).await;
        if let Some(cx) = &*self.noisy.lock().unwrap() {
            (0..4).for_each(|_| cx.changed(Change::Prompts));
        }
        letter
    }

    async fn spread(
        &self,
        letter: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> Result<(), JournalError> {
        self.copies.fetch_add(1, SeqCst);
        let refused = self.no_copies.lock().unwrap().clone();
        match refused {
            Some(error) => Err(error),
            None => self.mail.spread(letter, to, delivered).await,
        }
    }

    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> Result<Vec<(String, u64)>, JournalError> {
        self.marks.fetch_add(1, SeqCst);
        let refused = self.no_marks.lock().unwrap().clone();
        match refused {
            Some(error) => Err(error),
            None => self.mail.mark(marks, mark).await,
        }
    }
}

/// Takes mail, and lends what it changes by.
struct Changing {
    seen: mpsc::Sender<Deliver>,
    cx: Arc<Mutex<Option<Cx>>>,
}

impl Agent for Changing {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Deliver>();
    }
}

impl SyncHandler<Deliver> for Changing {
    fn handle(&mut self, deliver: Deliver, cx: &mut Cx) -> Result<(), Failure> {
        *self.cx.lock().unwrap() = Some(cx.clone());
        self.seen.try_send(deliver).map_err(|_| away())
    }
}

/// Gives a sign, and answers where it may.
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
        cx: Cx,
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

fn options(members: Vec<Declared>) -> MailroomOptions {
    MailroomOptions {
        members,
        messages_a_second: 10_000.try_into().unwrap(),
        ..MailroomOptions::default()
    }
}

async fn open(system: &System, ids: &[String], with_way: bool) -> Room {
    let other = |id: &String| {
        let declared = Declared::new(id.as_str());
        if with_way {
            declared.with_way(id.as_str())
        } else {
            declared
        }
    };
    Room::open(
        system,
        options(
            [Declared::new("sender")]
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

/// Goal: a letter is delivered at once, however many changes its recipient's way tells of when it comes. Method: as many as a
/// line's mailbox holds, between the letter's keeping and its handing out.
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

/// Goal: tries get no more often by what its member says. Method: one that is away and talks for a minute, then is silent for
/// ten.
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

/// Goal: while the store is away it is asked once a second, and what was delivered is kept when it is back. Method: 20 lines
/// that begin with mail, so that each waits for its marks.
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

/// Goal: letters that are delivered one right after the other are marked in one write, for each is an fsync. Method: ten.
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

/// Goal: copies that the store will never make aren't asked for again, and who has the letter counts all the same. Method: a
/// broadcast to 300 whose copies are refused for good.
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

/// Goal: a mailroom that has ended delivers nothing more. Method: its only letter is for one that comes after.
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
        room.agent.ended().await;
        room.mailroom.end().await;
        let mut seen = way(system, "worker-00000", |_| Ok(()));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(seen.try_recv().is_err());
        // The next has it.
        let room = open(system, &ids(1), true).await;
        assert_eq!(next(&mut seen).await.message, "one");
        room.delivered(1).await;
    });
}

/// Goal: an agent that answers late is told no more than it may be answering at once. Method: one letter more than that, and an
/// answer.
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
        for n in 0..=TALKS_AT_ONCE_MAX {
            room.mailbox("sender")
                .send("worker-00000", &n.to_string())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(heard.load(SeqCst), TALKS_AT_ONCE_MAX);
        may.add_permits(1);
        eventually("the last is heard", SOON, || {
            heard.load(SeqCst) > TALKS_AT_ONCE_MAX
        })
        .await;
        may.add_permits(TALKS_AT_ONCE_MAX);
        room.delivered(TALKS_AT_ONCE_MAX + 1).await;
    });
}

/// Goal: one answer shows no more receipts than one message can have. Method: broadcasts with as many in all, and one message
/// more.
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

/// Goal: what a mailroom refuses to be set up as changes nothing. Method: a member too many, and messages that expire sooner.
#[test]
fn refused_options() {
    until_ended(async |system| {
        let room = open(system, &ids(1), false).await;
        let members = (0..MAIL_MEMBERS_MAX)
            .map(|n| Declared::new(format!("other-{n}")))
            .collect();
        let soon = MailroomOptions {
            expires: Duration::from_secs(60),
            ..options(members)
        };
        assert_eq!(
            room.refused(&key("ann", &[]), Declare { options: soon })
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
