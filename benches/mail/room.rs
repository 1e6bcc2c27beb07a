//! A mailroom on SQLite, and agents of its process that have mail in it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard::agents::mailroom::{Mailbox, Mailroom, MailroomOptions, MemberDeclaration};
use callboard::message::mail::DeliverMessage;
use callboard::store::{Retention, SqlStore, StoreOptions};
use callboard::{Agent, Context, Failure, Handlers, Store, SyncHandler, System};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::Outcome;
use crate::stamps::Stamps;

/// So that no bound of a sender is what is measured.
const RATE: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();
/// Capacity for messages not looked at yet: an open loop of a minute and more.
const GOT_MAX: usize = 1 << 17;
/// Timeout for the end of all that runs.
const END: Duration = Duration::from_secs(10);

/// Recipient, message id, and time of its handler.
pub type Got = (String, String, Instant);

/// Takes what comes for one agent.
struct Receiver {
    got: mpsc::Sender<Got>,
}

impl Agent for Receiver {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DeliverMessage>();
    }
}

impl SyncHandler<DeliverMessage> for Receiver {
    fn handle(&mut self, letter: DeliverMessage, _: &mut Context) -> Result<(), Failure> {
        let now = Instant::now();
        self.got
            .try_send((letter.message_id, letter.to, now))
            .map_err(|_| Failure::unavailable("nobody takes it"))
    }
}

/// The mailroom, and all that is needed to take it away again.
pub struct Room {
    pub system: System,
    pub mailroom: Mailroom,
    agent: callboard::AgentRef,
    pub stamps: Arc<Stamps>,
    /// Receiver of all deliveries.
    pub got: mpsc::Receiver<Got>,
    store: SqlStore,
    /// The file, until the end.
    _folder: TempDir,
}

impl Room {
    /// With so many agents, `r0` and on, that take mail; what has ended is taken away each second where `forgets`.
    pub async fn open(receivers: usize, forgets: bool) -> Outcome<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let options = StoreOptions::sqlite(folder.path().join("mail.sqlite"));
        let nothing = Some(Duration::ZERO);
        let options = match forgets {
            true => options
                .retention(Retention {
                    tasks: nothing,
                    mail_bodies: nothing,
                    audit: nothing,
                    streams: nothing,
                })
                .cleanup_interval(Some(Duration::from_secs(1))),
            false => options.cleanup_interval(None),
        };
        let store = SqlStore::open(&options).await?;
        let system = System::start(1)?;
        let parts = store.store();
        let stamps = Stamps::new(parts.mail.clone());
        system.set_store(Store {
            mail: stamps.clone(),
            ..parts
        })?;
        let (sender, got) = mpsc::channel(GOT_MAX);
        let mut members = Vec::new();
        for nth in 0..receivers {
            let (id, got) = (format!("r{nth}"), sender.clone());
            let agent = system
                .prepare_with(move || Receiver { got: got.clone() })
                .label(id.as_str())
                .spawn();
            system.directory().register(id.as_str(), &agent)?;
            members.push(MemberDeclaration::new(&*id).with_delivery_agent(&*id));
        }
        let options = MailroomOptions {
            members,
            messages_per_second: RATE,
            broadcasts_per_minute: RATE,
            ..MailroomOptions::default()
        };
        let mailroom = Mailroom::open(&system, options).await?;
        let kept = mailroom.clone();
        let agent = system
            .prepare_with(move || kept.clone())
            .label("mailroom")
            .spawn();
        Ok(Self {
            system,
            mailroom,
            agent,
            stamps,
            got,
            store,
            _folder: folder,
        })
    }

    /// The mailbox of an agent, which has said its first word.
    pub async fn mailbox(&self, id: &str) -> Outcome<Mailbox> {
        let mailbox = self.mailroom.mailbox(&self.agent, id)?;
        mailbox.check().await?;
        Ok(mailbox)
    }

    /// Ends it, and takes its file away.
    pub async fn close(self) {
        self.system.shutdown(END).await;
        self.store.close().await;
    }
}

/// Latencies noted by the senders.
#[derive(Clone, Default)]
pub struct Noted(Arc<Mutex<Vec<Duration>>>);

impl Noted {
    pub fn add(&self, took: Duration) {
        self.0.lock().push(took);
    }

    pub fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.0.lock())
    }
}
