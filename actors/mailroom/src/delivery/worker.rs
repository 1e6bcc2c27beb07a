//! Worker of a delivery queue: delivers its messages one by one, and retries after failures.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use callboard_message::capabilities::Converse;
use callboard_message::mail::{
    CheckDelivery, DeliverMessage, MAIL_TROUBLE_CHARS_MAX, MAIL_UNREAD_MAX,
};
use callboard_message::text::cut_chars;
use callboard_message::{CapabilityChange, Failure, FailureKind, Principal};
use callboard_runtime::{
    Agent, AgentChanged, AgentId, AgentProfile, AgentRef, Backoff, CallContext, Context, Handler,
    Handlers, JournalError, MAIL_PAGE_MAX, SyncHandler,
};
use tokio::time::Instant;

use super::DeliveryService;
use super::conversation::{self, ConversationLimit, DELIVERY_TIMEOUT};
use crate::members::queue::{QueueState, WakeWorker};
use crate::text::{OutgoingMail, neutralize};

/// Number of messages that a delivery worker reads from the store at once.
const PAGE_MESSAGES: usize = 64;
/// Delays between attempts to deliver: from 1 s to 60 s.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
    jitter: 0.2,
};
/// Number of attempts to deliver a message after which an internal failure of the delivery agent
/// makes the message undeliverable.
const BUG_ATTEMPTS_MAX: u32 = 5;
/// Maximum number of delivered messages that a worker remembers, so that they aren't delivered
/// again before their receipts are stored. Beyond it, the oldest are forgotten.
const RECENT_MAX: usize = 512;
/// Maximum number of undeliverable messages that a worker remembers, so that it skips them in the
/// store. Beyond it, all are forgotten and may be tried again.
const UNDELIVERABLE_MAX: usize = 10_000;

/// Worker that delivers the messages of one queue.
pub(crate) struct DeliveryWorker {
    room: Arc<DeliveryService>,
    id: Arc<str>,
    way: Arc<str>,
    queue: Arc<QueueState>,
    conversations: ConversationLimit,
    /// Number of failures since the last successful delivery.
    failed: u32,
    failed_at: Option<Instant>,
    not_before: Option<Instant>,
    /// Urgency and number of the last message that was read from the store; `None` to begin at the
    /// first.
    cursor: Option<(bool, u64)>,
    /// Number of attempts to deliver, by message number.
    attempts: HashMap<u64, u32>,
    recent: VecDeque<u64>,
    undeliverable: HashSet<u64>,
    followed: Option<AgentId>,
    /// Number of successes and failures so far. If it stays the same during a run, the delivery
    /// agent is probed.
    status_version: u64,
    /// Number of failed probes of the delivery agent since the last success.
    unreached: u32,
    /// Time of the next probe; `None` to probe at once.
    reach_at: Option<Instant>,
}

/// Outcome of one delivery.
enum DeliveryResult {
    Delivered,
    /// Temporary failure: the message is delivered again later.
    RetryLater(DeliveryFailure),
    /// Permanent failure: the message isn't delivered by this worker any more.
    Undeliverable(DeliveryFailure),
}

/// Failed delivery, with its reason for the list of members.
struct DeliveryFailure {
    kind: FailureKind,
    why: String,
}

impl DeliveryFailure {
    /// The failure of an agent that delivers mail. Its message is about the way of delivery, for
    /// example the program in a pane.
    fn of_delivery_agent(failure: &Failure) -> Self {
        let line = neutralize(&failure.message).replace(char::is_whitespace, " ");
        Self {
            kind: failure.kind,
            why: cut_chars(&line, MAIL_TROUBLE_CHARS_MAX).to_owned(),
        }
    }

    /// The failure of an agent that converses. Its message may quote the mail, so only the kind is
    /// told.
    fn of_conversation(failure: &Failure) -> Self {
        Self {
            kind: failure.kind,
            why: format!("the agent failed to answer ({})", failure.kind),
        }
    }

    fn not_running() -> Self {
        Self {
            kind: FailureKind::Unavailable,
            why: "the agent that takes its mail isn't running".to_owned(),
        }
    }
}

impl DeliveryWorker {
    pub fn new(
        room: Arc<DeliveryService>,
        id: Arc<str>,
        way: Arc<str>,
        queue: Arc<QueueState>,
        conversations: ConversationLimit,
    ) -> Self {
        Self {
            room,
            id,
            way,
            queue,
            conversations,
            failed: 0,
            failed_at: None,
            not_before: None,
            cursor: None,
            attempts: HashMap::new(),
            recent: VecDeque::new(),
            undeliverable: HashSet::new(),
            followed: None,
            status_version: 0,
            unreached: 0,
            reach_at: None,
        }
    }

    /// Adds the messages that were stored before the queue started to the count of undelivered
    /// messages, up to [`MAIL_UNREAD_MAX`]. Has an effect only once.
    async fn count_stored(&self) -> Result<(), JournalError> {
        if self.queue.lock_pending().is_counted {
            return Ok(());
        }
        let (mut numbers, mut after) = (Vec::new(), None);
        loop {
            let page = self
                .room
                .mail
                .list_open(&self.id, after, true, MAIL_PAGE_MAX)
                .await?;
            after = page
                .last()
                .map(|(letter, _)| (letter.new.urgent, letter.number));
            numbers.extend(page.iter().map(|(letter, _)| letter.number));
            // Pages of long messages have fewer entries, so only an empty one is the last.
            if page.is_empty() || numbers.len() >= MAIL_UNREAD_MAX {
                break;
            }
        }
        let mut waiting = self.queue.lock_pending();
        waiting.is_counted = true;
        // Messages that arrived in the meantime have been counted.
        let first = waiting.first;
        waiting.count += numbers
            .into_iter()
            .filter(|number| first.is_none_or(|first| *number < first))
            .count();
        Ok(())
    }

    /// Delivers all pending messages, urgent ones first. Stops at a temporary failure and schedules
    /// a retry.
    async fn deliver_all(&mut self, cx: &mut Context) -> Result<(), JournalError> {
        self.count_stored().await?;
        while let Some(outgoing) = self.next_message().await? {
            let number = outgoing.letter.number;
            match self.deliver(&outgoing, cx).await {
                DeliveryResult::Delivered => {
                    self.record_success();
                    self.attempts.remove(&number);
                    if self.recent.len() >= RECENT_MAX {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(number);
                    self.room.receipts.record_delivery(&self.id, number).await;
                }
                DeliveryResult::Undeliverable(DeliveryFailure { kind, why }) => {
                    callboard_message::log::warn!(by: &self.id, letter = outgoing.letter.new.id, member = &*self.id, %kind, why, "mail can't be delivered");
                    self.record_success();
                    if self.undeliverable.len() >= UNDELIVERABLE_MAX {
                        self.undeliverable.clear();
                    }
                    self.undeliverable.insert(number);
                    self.attempts.remove(&number);
                    self.room.mail.count_attempt(&self.id, number).await?;
                }
                DeliveryResult::RetryLater(failure) => {
                    let DeliveryFailure { kind, why } = &failure;
                    callboard_message::log::debug!(by: &self.id, letter = outgoing.letter.new.id, member = &*self.id, %kind, why, "mail is tried again later");
                    self.record_failure(&failure);
                    {
                        let mut waiting = self.queue.lock_pending();
                        waiting.insert(outgoing);
                        waiting.count += 1;
                    }
                    self.schedule_retry(cx);
                    let tried = self.room.mail.count_attempt(&self.id, number).await?;
                    self.attempts.insert(number, tried);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn record_success(&mut self) {
        self.status_version += 1;
        self.failed = 0;
        if self.queue.record_success() {
            callboard_message::log::info!(
                member = &*self.id,
                way = &*self.way,
                "mail is delivered again"
            );
        }
    }

    /// Records the reason of a failure for the list of members, and logs a new one.
    fn record_failure(&self, failure: &DeliveryFailure) {
        let DeliveryFailure { kind, why } = failure;
        if self.queue.record_failure(why) {
            callboard_message::log::warn!(by: &self.id, member = &*self.id, way = &*self.way, %kind, why, "mail can't be delivered at the moment: it waits and is tried again");
        }
    }

    fn schedule_retry(&mut self, cx: &mut Context) {
        self.status_version += 1;
        let pause = BACKOFF.pause(self.failed);
        self.failed = self.failed.saturating_add(1);
        self.failed_at = Some(Instant::now());
        self.not_before = Some(Instant::now() + pause);
        // The timer is set only here: timers of other wake-ups would mostly fire too early.
        cx.tell_after(
            pause,
            WakeWorker {
                is_retry_now: false,
            },
        );
    }

    /// Asks the delivery agent whether it can deliver (`CheckDelivery`), if the last delivery
    /// failed or nothing has been delivered. A failed probe is repeated with increasing delays. An
    /// agent that doesn't handle `CheckDelivery` isn't probed.
    async fn probe_receiver(&mut self, cx: &mut Context) {
        let is_open = self.status_version > 0 && !self.queue.has_failed.load(Relaxed);
        if is_open || self.reach_at.is_some_and(|then| Instant::now() < then) {
            return;
        }
        if let Some(agent) = cx.system().directory().get(&self.way) {
            if agent.recipient::<CheckDelivery>().is_none() {
                return;
            }
            let checked = agent.ask(CheckDelivery).within(DELIVERY_TIMEOUT).await;
            match checked.map_err(Failure::from).flatten() {
                Ok(()) => {
                    self.record_success();
                    (self.unreached, self.reach_at) = (0, None);
                    return;
                }
                Err(failure) => {
                    self.record_failure(&DeliveryFailure::of_delivery_agent(&failure));
                }
            }
        }
        let pause = BACKOFF.pause(self.unreached);
        self.unreached = self.unreached.saturating_add(1);
        self.reach_at = Some(Instant::now() + pause);
        cx.tell_after(
            pause,
            WakeWorker {
                is_retry_now: false,
            },
        );
    }

    /// Removes and returns the next message to deliver: from memory, or from the store if memory is
    /// empty. Skips messages that are expired or already delivered. Returns `None` if there is none
    /// or the queue is closed.
    async fn next_message(&mut self) -> Result<Option<Arc<OutgoingMail>>, JournalError> {
        loop {
            if self.queue.is_closed.load(Relaxed) {
                return Ok(None);
            }
            {
                let mut waiting = self.queue.lock_pending();
                while let Some((_, outgoing)) = waiting.messages.pop_first() {
                    waiting.count = waiting.count.saturating_sub(1);
                    let number = outgoing.letter.number;
                    if !self.recent.contains(&number)
                        && outgoing.letter.new.expires > SystemTime::now()
                    {
                        return Ok(Some(outgoing));
                    }
                    self.attempts.remove(&number);
                }
                if !waiting.has_stored {
                    waiting.count = 0;
                    self.attempts.clear();
                    return Ok(None);
                }
                if std::mem::take(&mut waiting.needs_rescan) {
                    self.cursor = None;
                }
            }
            self.load_page().await?;
        }
    }

    /// Reads the next page of undelivered messages from the store into memory. At the end of the
    /// store, clears `has_stored`.
    async fn load_page(&mut self) -> Result<(), JournalError> {
        // Receipts of delivered messages must be stored first.
        self.room.receipts.settled().await;
        let page = self
            .room
            .mail
            .list_open(&self.id, self.cursor, true, PAGE_MESSAGES)
            .await?;
        let mut waiting = self.queue.lock_pending();
        let Some((last, _)) = page.last() else {
            self.cursor = None;
            waiting.has_stored = waiting.needs_rescan;
            return Ok(());
        };
        self.cursor = Some((last.new.urgent, last.number));
        for (letter, copy) in page {
            if self.undeliverable.contains(&letter.number) || self.recent.contains(&letter.number) {
                continue;
            }
            if copy.attempts > 0 {
                self.attempts.insert(letter.number, copy.attempts);
            }
            waiting.insert(Arc::new(OutgoingMail::new(letter)));
        }
        Ok(())
    }

    async fn deliver(&mut self, outgoing: &Arc<OutgoingMail>, cx: &mut Context) -> DeliveryResult {
        let Some(agent) = cx.system().directory().get(&self.way) else {
            return DeliveryResult::RetryLater(DeliveryFailure::not_running());
        };
        self.follow_agent(&agent, cx);
        let attempt = self
            .attempts
            .get(&outgoing.letter.number)
            .map_or(1, |tried| tried.saturating_add(1));
        // Called as the recipient, so that the agent acts under its own identity meanwhile.
        let call = CallContext::new(Arc::new(Principal::agent(&*self.id)));
        let takes_mail = agent.recipient::<DeliverMessage>().is_some();
        let converses =
            !takes_mail && (agent.is_proxy() || agent.recipient::<Converse>().is_some());
        self.queue
            .has_no_receiver
            .store(!takes_mail && !converses, Relaxed);
        let answer = if takes_mail {
            let call = call.with_deadline(Instant::now() + DELIVERY_TIMEOUT);
            let deliver = self.room.delivery_request(outgoing, &self.id, attempt);
            let answer = agent.ask(deliver).within_call(Some(Arc::new(call))).await;
            answer.map_err(Failure::from).and_then(|reply| reply)
        } else if converses {
            match self.conversations.acquire().await {
                Ok(turn) => {
                    conversation::deliver(&self.room, &agent, outgoing, &self.id, call, turn).await
                }
                Err(busy) => Err(busy),
            }
        } else {
            Err(Failure::rejected(
                "the agent has no handler for mail (`DeliverMessage` or `Converse`)",
            ))
        };
        let Err(failure) = answer else {
            return DeliveryResult::Delivered;
        };
        let failure = match takes_mail {
            true => DeliveryFailure::of_delivery_agent(&failure),
            false => DeliveryFailure::of_conversation(&failure),
        };
        let is_temporary = match failure.kind {
            FailureKind::Unavailable
            | FailureKind::Overloaded
            | FailureKind::TimedOut
            | FailureKind::Cancelled => true,
            FailureKind::Internal => attempt < BUG_ATTEMPTS_MAX,
            _ => false,
        };
        if is_temporary {
            DeliveryResult::RetryLater(failure)
        } else {
            DeliveryResult::Undeliverable(failure)
        }
    }

    /// Subscribes to changes of the delivery agent's tools, so that a failed delivery is retried
    /// when the agent is available again.
    fn follow_agent(&mut self, agent: &AgentRef, cx: &Context) {
        if self.followed == Some(agent.id()) {
            return;
        }
        self.followed = Some(agent.id());
        if let Some(me) = cx.me().recipient::<AgentChanged>() {
            agent.follow(me);
        }
    }
}

impl Agent for DeliveryWorker {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<WakeWorker>().sync::<AgentChanged>();
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().mailbox_capacity(4)
    }

    fn started(&mut self, cx: &mut Context) {
        if self.queue.lock_pending().has_stored {
            let _ = cx.me().try_tell(WakeWorker { is_retry_now: true });
        }
    }
}

impl Handler<WakeWorker> for DeliveryWorker {
    async fn handle(&mut self, wake: WakeWorker, cx: &mut Context) {
        // Limits retries for members that send many requests.
        let since = if wake.is_retry_now {
            self.failed_at.map(|at| at + BACKOFF.first)
        } else {
            self.not_before
        };
        if since
            .min(self.not_before)
            .is_some_and(|then| Instant::now() < then)
        {
            return;
        }
        self.not_before = None;
        let version_before = self.status_version;
        if let Err(error) = self.deliver_all(cx).await {
            callboard_message::log::warn!(by: &self.id, member = &*self.id, %error, "failed to access the store: mail delivery waits");
            self.queue.record_failure("the store failed");
            if self.not_before.is_none() {
                self.schedule_retry(cx);
            }
        } else if self.status_version == version_before {
            self.probe_receiver(cx).await;
        }
    }
}

impl SyncHandler<AgentChanged> for DeliveryWorker {
    fn handle(&mut self, changed: AgentChanged, cx: &mut Context) {
        let again = matches!(changed.change, CapabilityChange::Tools)
            && self.queue.has_failed.load(Relaxed);
        // After any change, because this notification may have taken a wake-up's place in the
        // mailbox.
        if again || self.queue.lock_pending().has_pending() {
            let _ = cx.me().try_tell(WakeWorker {
                is_retry_now: again,
            });
        }
    }
}
