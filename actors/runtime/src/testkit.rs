//! Test kit: a system for each test, paused time, and agents that record messages or follow a
//! script.
//!
//! A test that leaves agents running fails: call [`System::shutdown`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;
use callboard_message::{Failure, Message, RawMessage, RawReply};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;

use crate::agent::context::Context;
use crate::agent::{Agent, ConcurrentHandler, Handlers, SyncHandler};
use crate::handle::AgentRef;
use crate::system::System;
use crate::{
    JournalResult, MailCopy, MailHistoryPage, MailMessage, MailMessageFilter, MailMessageWithCopy,
    MailStore, NewMailMessage, ReceiptUpdate, StoredMailEvent,
};

/// Runs `test` on one arbiter with a system of its own and paused time, which jumps to the next
/// timer when all tasks wait.
pub fn run_with_paused_time<R>(test: impl AsyncFnOnce(&System) -> R) -> R {
    run(true, test)
}

/// Runs `test` on one arbiter with a system of its own and real time, for tests with I/O.
pub fn run_with_real_time<R>(test: impl AsyncFnOnce(&System) -> R) -> R {
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
        let system = System::on_current_arbiter_checked(true);
        test(&system).await
    })
}

/// Returns the CPU time of the calling thread. Measures work independently of the machine's load.
///
/// # Panics
/// If the kernel doesn't provide `/proc/thread-self/schedstat`.
pub fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = stat
        .ok()
        .and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(
        nanos.unwrap_or_else(|| panic!("failed to read the thread's time on a processor")),
    )
}

/// Minimum real time for which [`eventually`] waits, so that a busy machine doesn't break tests.
pub const EVENTUALLY_WAIT_MIN: Duration = Duration::from_secs(30);

/// Waits until `condition` holds, checking it whenever the thread is free, for at most `limit` or
/// [`EVENTUALLY_WAIT_MIN`], whichever is longer. `what` describes the condition in the panic
/// message.
///
/// # Panics
/// If the condition doesn't hold in time.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    // Real time: with paused time nothing else would end a wait for another thread.
    let (began, limit) = (std::time::Instant::now(), limit.max(EVENTUALLY_WAIT_MIN));
    let mut waiting = std::pin::pin!(waiting);
    std::future::poll_fn(|cx| {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        waiting.as_mut().poll(cx)
    })
    .await;
}

/// Maximum number of messages that a [`Probe`] holds for the test.
const PROBE_MESSAGES_MAX: usize = 65_536;

type ReplyFn<M> = Box<dyn FnMut(&M) -> <M as Message>::Reply + Send>;

/// Agent that passes each message `M` to the test and replies with the result of a function. It
/// panics once the test has left 65,536 messages unread.
pub struct Probe<M: Message> {
    seen: mpsc::Sender<M>,
    reply: ReplyFn<M>,
}

impl<M: Message> Probe<M> {
    /// Spawns a probe that replies by `reply`. Returns its handle and the receiver of its messages.
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
    fn handle(&mut self, message: M, _: &mut Context) -> M::Reply {
        let reply = (self.reply)(&message);
        // A closed receiver is fine; a full one means that the test never read.
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

/// Behaviour of a [`ScriptedAgent`] for one message.
#[derive(Debug, Clone)]
pub enum ScriptStep {
    /// Replies with this value.
    Reply(Value),
    /// Replies with this failure.
    Fail(Failure),
    /// Replies with the value after a delay.
    ReplyAfter(Duration, Value),
    /// Never replies: the handler waits until it is cancelled.
    Hang,
    /// Panics in the handler.
    Panic,
}

/// Agent that accepts any message by name and follows a script, one step a message. After the last
/// step it fails every message.
pub struct ScriptedAgent {
    script: VecDeque<ScriptStep>,
    seen: Vec<(String, Value)>,
}

impl ScriptedAgent {
    /// Creates an agent with this script.
    pub fn new(script: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self {
            script: script.into_iter().collect(),
            seen: Vec::new(),
        }
    }
}

impl Agent for ScriptedAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(64);
    }

    /// Returns the messages so far as `[[name, payload], …]`.
    fn observe(&self) -> Value {
        serde_json::json!(self.seen)
    }
}

impl ConcurrentHandler<RawMessage> for ScriptedAgent {
    fn handle(
        &mut self,
        message: RawMessage,
        _: Context,
    ) -> impl Future<Output = RawReply> + Send + 'static {
        self.seen.push((
            message.name,
            serde_json::from_str(message.payload.get()).unwrap_or_default(),
        ));
        let act = self
            .script
            .pop_front()
            .unwrap_or_else(|| ScriptStep::Fail(Failure::internal("the script has ended")));
        async move {
            let value = match act {
                ScriptStep::Reply(value) => value,
                ScriptStep::Fail(failure) => return Err(failure),
                ScriptStep::ReplyAfter(pause, value) => {
                    tokio::time::sleep(pause).await;
                    value
                }
                ScriptStep::Hang => std::future::pending().await,
                ScriptStep::Panic => panic!("as the script says"),
            };
            to_raw_value(&value).map_err(|e| Failure::internal(e.to_string()))
        }
    }
}

/// Wrapper of another mail store, for tests that intercept calls. Methods that aren't overridden
/// forward to it. Implements [`MailStore`].
#[async_trait]
pub trait MailStoreLayer: Send + Sync + 'static {
    /// Returns the wrapped store.
    fn inner(&self) -> &dyn MailStore;

    /// Intercepts [`MailStore::post`]; forwards to the wrapped store by default.
    async fn post(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>> {
        self.inner().post(new).await
    }

    /// Intercepts [`MailStore::fan_out`]; forwards to the wrapped store by default.
    async fn fan_out(
        &self,
        message_number: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> JournalResult<()> {
        self.inner().fan_out(message_number, to, delivered).await
    }

    /// Intercepts [`MailStore::update_receipts`]; forwards to the wrapped store by default.
    async fn update_receipts(
        &self,
        copies: Vec<(String, u64)>,
        update: ReceiptUpdate,
    ) -> JournalResult<Vec<(String, u64)>> {
        self.inner().update_receipts(copies, update).await
    }

    /// Intercepts [`MailStore::is_shared`]; forwards to the wrapped store by default.
    fn is_shared(&self) -> bool {
        self.inner().is_shared()
    }
}

#[async_trait]
impl<L: MailStoreLayer> MailStore for L {
    async fn post(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>> {
        MailStoreLayer::post(self, new).await
    }

    async fn fan_out(
        &self,
        message_number: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> JournalResult<()> {
        MailStoreLayer::fan_out(self, message_number, to, delivered).await
    }

    async fn pending_fan_out(&self, messages_max: usize) -> JournalResult<Vec<Arc<MailMessage>>> {
        self.inner().pending_fan_out(messages_max).await
    }

    async fn update_receipts(
        &self,
        copies: Vec<(String, u64)>,
        update: ReceiptUpdate,
    ) -> JournalResult<Vec<(String, u64)>> {
        MailStoreLayer::update_receipts(self, copies, update).await
    }

    async fn count_attempt(&self, recipient: &str, message_number: u64) -> JournalResult<u32> {
        self.inner().count_attempt(recipient, message_number).await
    }

    async fn list_open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        messages_max: usize,
    ) -> JournalResult<Vec<MailMessageWithCopy>> {
        self.inner()
            .list_open(recipient, after, undelivered, messages_max)
            .await
    }

    async fn unread_counts(&self) -> JournalResult<HashMap<String, u64>> {
        self.inner().unread_counts().await
    }

    async fn message(&self, id: &str) -> JournalResult<Option<Arc<MailMessage>>> {
        self.inner().message(id).await
    }

    async fn receipts(
        &self,
        message_number: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        self.inner()
            .receipts(message_number, after, copies_max)
            .await
    }

    async fn history(
        &self,
        filter: MailMessageFilter,
        before: u64,
        messages_max: usize,
    ) -> JournalResult<MailHistoryPage> {
        self.inner().history(filter, before, messages_max).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredMailEvent)>> {
        self.inner().events(after, events_max).await
    }

    async fn last_event(&self) -> JournalResult<u64> {
        self.inner().last_event().await
    }

    async fn append_event(&self, event: StoredMailEvent) -> JournalResult<u64> {
        self.inner().append_event(event).await
    }

    async fn log_rows(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        self.inner().log_rows(agent, after, rows_max).await
    }

    fn is_shared(&self) -> bool {
        MailStoreLayer::is_shared(self)
    }
}
