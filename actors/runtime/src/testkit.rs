//! For tests: a system of one's own, paused time, agents that record or follow a script.
//!
//! A test that leaves agents running fails: call [`System::shutdown`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;
use callboard_message::{Failure, Message, Named, RawReply};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;

use crate::agent::cx::Cx;
use crate::agent::{Agent, ConcurrentHandler, Handlers, SyncHandler};
use crate::handle::AgentRef;
use crate::system::System;
use crate::{
    JournalResult, Letter, LetterFilter, LetterOpen, LetterPage, Mail, MailCopy, Mark, NewLetter,
    StoredEvent,
};

/// Runs `test` on one arbiter with its own system and time paused: it jumps to the next timer when all wait.
pub fn paused<R>(test: impl AsyncFnOnce(&System) -> R) -> R {
    run(true, test)
}

/// Runs `test` on one arbiter with its own system and real time, for what does I/O.
pub fn real<R>(test: impl AsyncFnOnce(&System) -> R) -> R {
    run(false, test)
}

fn run<R>(paused: bool, test: impl AsyncFnOnce(&System) -> R) -> R {
    let runtime = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(paused)
            .build();
        runtime.unwrap_or_else(|e| panic!("failed to start a runtime: {e}"))
    };
    actix_rt::System::with_tokio_rt(runtime).block_on(async {
        let system = System::here_checked(true);
        test(&system).await
    })
}

/// Time that the calling thread has been on a processor: how much work something is, whatever else the machine does.
///
/// # Panics
/// Where the kernel doesn't tell (`/proc/thread-self/schedstat`).
pub fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = stat
        .ok()
        .and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(
        nanos.unwrap_or_else(|| panic!("failed to read the thread's time on a processor")),
    )
}

/// Least real time for which [`eventually`] waits: a busy machine breaks no test.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds, looking again whenever the thread is free, at most `limit` or [`PATIENCE`], whichever is
/// longer.
///
/// # Panics
/// When it doesn't hold by then.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    // Real time: under paused time nothing else would end a wait for another thread.
    let (began, limit) = (std::time::Instant::now(), limit.max(PATIENCE));
    let mut waiting = std::pin::pin!(waiting);
    std::future::poll_fn(|cx| {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        waiting.as_mut().poll(cx)
    })
    .await;
}

/// Messages that a [`Probe`] holds for the test.
const PROBE_MESSAGES_MAX: usize = 65_536;

type Answerer<M> = Box<dyn FnMut(&M) -> <M as Message>::Reply + Send>;

/// An agent that hands every `M` it gets to the test. Its reply is made by `reply`.
pub struct Probe<M: Message> {
    seen: mpsc::Sender<M>,
    reply: Answerer<M>,
}

impl<M: Message> Probe<M> {
    /// Spawns a probe; the messages come out of the receiver.
    pub fn spawn(
        system: &System,
        reply: impl FnMut(&M) -> M::Reply + Send + 'static,
    ) -> (AgentRef, mpsc::Receiver<M>) {
        let (seen, messages) = mpsc::channel(PROBE_MESSAGES_MAX);
        (
            system.spawn(Self {
                seen,
                reply: Box::new(reply),
            }),
            messages,
        )
    }
}

impl<M: Message> Agent for Probe<M> {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<M>();
    }
}

impl<M: Message> SyncHandler<M> for Probe<M> {
    fn handle(&mut self, message: M, _: &mut Cx) -> M::Reply {
        let reply = (self.reply)(&message);
        // A test that looks no more doesn't mind; one that never looked has too much to look at.
        assert!(
            !matches!(
                self.seen.try_send(message),
                Err(mpsc::error::TrySendError::Full(_))
            ),
            "probe is full"
        );
        reply
    }
}

/// What a [`Scripted`] agent does with its next message.
#[derive(Debug, Clone)]
pub enum Act {
    /// Answers with this value.
    Reply(Value),
    /// Answers with this failure.
    Fail(Failure),
    /// Answers with the value after a pause.
    Late(Duration, Value),
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
}

/// An agent that takes any message by name and follows a script, message by message; after its end it fails every one.
pub struct Scripted {
    script: VecDeque<Act>,
    seen: Vec<(String, Value)>,
}

impl Scripted {
    /// An agent with this script.
    pub fn new(script: impl IntoIterator<Item = Act>) -> Self {
        Self {
            script: script.into_iter().collect(),
            seen: Vec::new(),
        }
    }
}

impl Agent for Scripted {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(64);
    }

    /// The messages so far: `[[name, payload], …]`.
    fn observe(&self) -> Value {
        serde_json::json!(self.seen)
    }
}

impl ConcurrentHandler<Named> for Scripted {
    fn handle(&mut self, message: Named, _: Cx) -> impl Future<Output = RawReply> + Send + 'static {
        self.seen.push((
            message.name,
            serde_json::from_str(message.payload.get()).unwrap_or_default(),
        ));
        let act = self
            .script
            .pop_front()
            .unwrap_or_else(|| Act::Fail(Failure::internal("the script has ended")));
        async move {
            let value = match act {
                Act::Reply(value) => value,
                Act::Fail(failure) => return Err(failure),
                Act::Late(pause, value) => {
                    tokio::time::sleep(pause).await;
                    value
                }
                Act::Hang => std::future::pending().await,
                Act::Panic => panic!("as the script says"),
            };
            to_raw_value(&value).map_err(|e| Failure::internal(e.to_string()))
        }
    }
}

/// In front of other mail: what it doesn't treat itself goes on to that. It is [`Mail`] by this.
#[async_trait]
pub trait MailLayer: Send + Sync + 'static {
    /// What it stands in front of.
    fn behind(&self) -> &dyn Mail;

    /// As [`Mail::post`].
    async fn post(&self, new: NewLetter) -> JournalResult<Arc<Letter>> {
        self.behind().post(new).await
    }

    /// As [`Mail::spread`].
    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        self.behind().spread(letter, to, delivered).await
    }

    /// As [`Mail::mark`].
    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> JournalResult<Vec<(String, u64)>> {
        self.behind().mark(marks, mark).await
    }

    /// As [`Mail::is_shared`].
    fn is_shared(&self) -> bool {
        self.behind().is_shared()
    }
}

#[async_trait]
impl<L: MailLayer> Mail for L {
    async fn post(&self, new: NewLetter) -> JournalResult<Arc<Letter>> {
        MailLayer::post(self, new).await
    }

    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        MailLayer::spread(self, letter, to, delivered).await
    }

    async fn unspread(&self, letters_max: usize) -> JournalResult<Vec<Arc<Letter>>> {
        self.behind().unspread(letters_max).await
    }

    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> JournalResult<Vec<(String, u64)>> {
        MailLayer::mark(self, marks, mark).await
    }

    async fn tried(&self, recipient: &str, letter: u64) -> JournalResult<u32> {
        self.behind().tried(recipient, letter).await
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> JournalResult<Vec<LetterOpen>> {
        self.behind()
            .open(recipient, after, undelivered, letters_max)
            .await
    }

    async fn waiting(&self) -> JournalResult<HashMap<String, u64>> {
        self.behind().waiting().await
    }

    async fn letter(&self, id: &str) -> JournalResult<Option<Arc<Letter>>> {
        self.behind().letter(id).await
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        self.behind().receipts(letter, after, copies_max).await
    }

    async fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> JournalResult<LetterPage> {
        self.behind().history(filter, before, letters_max).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredEvent)>> {
        self.behind().events(after, events_max).await
    }

    async fn last_event(&self) -> JournalResult<u64> {
        self.behind().last_event().await
    }

    async fn tell(&self, event: StoredEvent) -> JournalResult<u64> {
        self.behind().tell(event).await
    }

    async fn logs(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        self.behind().logs(agent, after, rows_max).await
    }

    fn is_shared(&self) -> bool {
        MailLayer::is_shared(self)
    }
}
