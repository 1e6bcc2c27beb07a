//! Batched writes of delivery receipts, and creation of recipients' copies in small batches, so
//! that other writes can run in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::Message;
use callboard_message::mail::{MAIL_EVENTS_TOPIC, NewMailEvents};
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, Context, FAN_OUT_BATCH_MAX, Handler, Handlers, JournalError,
    MailMessage, MailStore, RECEIPT_BATCH_MAX, ReceiptUpdate, SyncHandler, System, Timer,
};

/// Delay between the acceptance of a message and the creation of its copies, one stored record for
/// each recipient. The copy of a recipient that gets the message within this delay is written once,
/// as delivered.
const FAN_OUT_DELAY: Duration = Duration::from_millis(20);
/// Delay in which delivery receipts are collected for one write. Each write is an fsync, which
/// delays the messages of senders.
const FLUSH_DELAY: Duration = Duration::from_millis(3);
/// Interval at which failed writes of receipts and copies are retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of read receipts that wait for room in the store. Further ones are dropped: the
/// messages stay unread.
const PENDING_READS_MAX: usize = 65_536;
/// Maximum number of delivery receipts that wait for room in the store. Further ones are dropped: the
/// messages count as not delivered and may be delivered again.
const PENDING_DELIVERIES_MAX: usize = 65_536;
/// Mailbox capacity of the agent that writes receipts. When it is full, delivery workers wait.
const PENDING_RECEIPTS_MAX: u32 = 8_192;

struct RecordDelivery {
    recipient: Arc<str>,
    letter: u64,
}

/// Request to store that a member has read messages, which could not be stored at once.
struct RecordRead {
    reader: Arc<str>,
    letters: Vec<u64>,
}

struct FanOut(Arc<MailMessage>);

/// Request to create the next batch of copies of the message with this number.
struct FanOutNext(u64);

/// Request to write all pending receipts. The reply comes after one attempt. If the store fails
/// temporarily, receipts are still pending then; if it fails permanently, they are dropped.
struct Flush;

/// Timer message: retry failed writes of receipts and copies.
struct RetryPending;

/// Notification that events were stored, to be published on the system's event bus.
struct EventsAppended;

macro_rules! without_reply {
    ($($name:ident = $wire:literal;)*) => {$(
        impl Message for $name {
            type Reply = ();
            const NAME: &'static str = concat!("callboard.mail.marks.", $wire);
        }
    )*};
}

without_reply! {
    RecordDelivery = "delivered";
    RecordRead = "read";
    FanOut = "spread";
    FanOutNext = "spread_next";
    Flush = "flush";
    RetryPending = "rest";
    EventsAppended = "happened";
}

/// Handle of the agent that stores delivery receipts and creates the recipients' copies of
/// messages.
pub(crate) struct ReceiptWriter {
    agent: AgentRef,
    /// Whether an `EventsAppended` notification is already in the agent's mailbox.
    is_notified: Arc<AtomicBool>,
    on_read: Arc<OnceLock<ReadObserver>>,
}

/// Callback for a message that a member has read and whose read receipt has just been stored late.
type ReadObserver = Box<dyn Fn(&str) + Send + Sync>;

impl ReceiptWriter {
    /// Starts the agent that writes to `mail`.
    pub fn open(system: &System, mail: &Arc<dyn MailStore>) -> Self {
        let is_notified = Arc::new(AtomicBool::new(false));
        let on_read = Arc::new(OnceLock::new());
        let (mail, known, told) = (mail.clone(), is_notified.clone(), on_read.clone());
        let agent = system
            .prepare_with(move || {
                ReceiptWriterAgent::new(mail.clone(), known.clone(), told.clone())
            })
            .label("mail's marks")
            .spawn();
        Self {
            agent,
            is_notified,
            on_read,
        }
    }

    /// Sets the callback for read receipts that are stored late. Later calls have no effect.
    pub fn set_read_observer(&self, observer: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.on_read.set(Box::new(observer));
    }

    /// Records that the message with the number `letter` was delivered to a recipient. The receipt
    /// is stored later, in a batch. Waits while the agent's mailbox is full. Has no effect once the
    /// agent has stopped: the message will be delivered again.
    pub async fn record_delivery(&self, recipient: &Arc<str>, letter: u64) {
        // A stopping agent stores nothing more: the message will be delivered again.
        let _ = self
            .agent
            .tell(RecordDelivery {
                recipient: recipient.clone(),
                letter,
            })
            .await;
    }

    /// Records that a member has read messages, by number, after the store has rejected to record
    /// it. The receipts are stored once the store has room. If the agent's mailbox is full, they
    /// are dropped: the messages stay unread.
    pub fn record_read(&self, reader: &Arc<str>, letters: Vec<u64>) {
        let reader = reader.clone();
        // Without room in the mailbox, the messages stay unread and are shown again.
        let _ = self.agent.try_tell(RecordRead { reader, letters });
    }

    /// Requests the creation of a copy of the message for each recipient. If the agent's mailbox is
    /// full, the copies are created at the next start of the process.
    pub fn fan_out(&self, letter: Arc<MailMessage>) {
        // Without room in the mailbox, copies are created at the next start of the process; until
        // then they count as accepted.
        if self.agent.try_tell(FanOut(letter)).is_err() {
            callboard_message::log::warn!(
                "too many broadcasts at once: the copies of one are made later"
            );
        }
    }

    pub async fn settled(&self) {
        let _ = self.agent.ask(Flush).await;
    }

    /// Makes one attempt to store all recorded receipts, and then stops the agent. Receipts that
    /// could not be stored are dropped.
    pub async fn close(&self) {
        self.settled().await;
        self.agent.stop();
        self.agent.wait_for_exit().await;
    }

    /// Publishes the number of the newest event on the system's event bus, so that listeners read
    /// the new events. Several calls may be combined into one.
    pub fn notify_events(&self) {
        notify_agent(&self.is_notified, &self.agent);
    }
}

/// Notifies the agent that events were stored, unless such a notification waits in its mailbox
/// already (`is_notified`).
fn notify_agent(is_notified: &AtomicBool, agent: &AgentRef) {
    if !is_notified.swap(true, SeqCst) && agent.try_tell(EventsAppended).is_err() {
        is_notified.store(false, SeqCst);
    }
}

struct FanOutProgress {
    letter: Arc<MailMessage>,
    /// Number of recipients whose copies have been created, in order of recipients.
    copies_made: usize,
    /// Recipients that have got the message before their copy was created. Their copies are created
    /// as delivered.
    delivered: BTreeSet<Arc<str>>,
}

impl FanOutProgress {
    fn is_complete(&self) -> bool {
        self.copies_made + self.delivered.len() >= self.letter.new.recipients.len()
    }
}

/// Receipts that aren't stored yet, by member and message number.
type PendingReceipts = BTreeSet<(Arc<str>, u64)>;

/// Adds receipts as long as there are fewer than `receipts_max`.
fn add_pending(
    pending: &mut PendingReceipts,
    receipts: impl IntoIterator<Item = (Arc<str>, u64)>,
    receipts_max: usize,
) {
    for receipt in receipts {
        if pending.len() < receipts_max {
            pending.insert(receipt);
        }
    }
}

/// Returns the next receipts to store.
fn next_batch(pending: &PendingReceipts) -> Vec<(String, u64)> {
    let next = pending.iter().take(RECEIPT_BATCH_MAX);
    next.map(|(member, letter)| (member.to_string(), *letter))
        .collect()
}

/// Removes the receipts that [`next_batch`] returns.
fn drop_batch(pending: &mut PendingReceipts) {
    let rest = pending.iter().nth(RECEIPT_BATCH_MAX).cloned();
    *pending = rest.map_or_else(BTreeSet::new, |first| pending.split_off(&first));
}

struct ReceiptWriterAgent {
    mail: Arc<dyn MailStore>,
    is_notified: Arc<AtomicBool>,
    on_read: Arc<OnceLock<ReadObserver>>,
    /// Delivery receipts that aren't stored yet, by recipient and message number.
    pending: PendingReceipts,
    /// Read receipts that the store has rejected so far, by reader and message number.
    pending_reads: PendingReceipts,
    /// Whether a write of the pending receipts is scheduled, by `FLUSH_DELAY` or by the retry
    /// interval.
    is_flushing: bool,
    fan_outs: BTreeMap<u64, FanOutProgress>,
    retry_timer: Option<Timer>,
}

impl Drop for ReceiptWriterAgent {
    fn drop(&mut self) {
        // A restarted agent has a timer of its own.
        if let Some(clock) = self.retry_timer.take() {
            clock.cancel();
        }
    }
}

impl ReceiptWriterAgent {
    fn new(
        mail: Arc<dyn MailStore>,
        is_notified: Arc<AtomicBool>,
        on_read: Arc<OnceLock<ReadObserver>>,
    ) -> Self {
        is_notified.store(false, SeqCst);
        Self {
            mail,
            is_notified,
            on_read,
            pending: BTreeSet::new(),
            pending_reads: BTreeSet::new(),
            is_flushing: false,
            fan_outs: BTreeMap::new(),
            retry_timer: None,
        }
    }

    /// Stores all pending receipts. A batch that the store rejects permanently is dropped.
    ///
    /// # Errors
    /// A temporary failure of the store; the receipts that aren't stored stay pending.
    async fn flush(&mut self, me: &AgentRef) -> Result<(), JournalError> {
        while !self.pending.is_empty() {
            let batch = next_batch(&self.pending);
            self.store_batch(batch, ReceiptUpdate::Delivered, me)
                .await?;
            drop_batch(&mut self.pending);
        }
        while !self.pending_reads.is_empty() {
            let batch = next_batch(&self.pending_reads);
            let read = self.store_batch(batch, ReceiptUpdate::Read, me).await?;
            drop_batch(&mut self.pending_reads);
            if let Some(on_read) = self.on_read.get() {
                read.iter().for_each(|(reader, _)| on_read(reader));
            }
        }
        Ok(())
    }

    /// Stores a batch of receipts and returns those that changed.
    ///
    /// # Errors
    /// Temporary errors of the store; a permanent one is logged.
    async fn store_batch(
        &self,
        batch: Vec<(String, u64)>,
        update: ReceiptUpdate,
        me: &AgentRef,
    ) -> Result<Vec<(String, u64)>, JournalError> {
        let letters = batch.len();
        match self.mail.update_receipts(batch, update).await {
            Ok(changed) => {
                notify_agent(&self.is_notified, me);
                Ok(changed)
            }
            Err(error) if error.is_transient() => Err(error),
            Err(error) => {
                callboard_message::log::error!(%error, letters, ?update, "failed to store receipts: they are dropped");
                Ok(Vec::new())
            }
        }
    }

    async fn flush_or_retry(&mut self, me: &AgentRef) {
        let flushed = self.flush(me).await;
        self.is_flushing = flushed.is_err();
        if let Err(error) = flushed {
            callboard_message::log::warn!(%error, "failed to store delivery receipts: retrying");
        }
    }

    /// Creates the next batch of copies of a message. Returns whether the caller should continue
    /// with another batch. After a temporary failure it returns `false`, and the retry timer
    /// continues; after a permanent one it returns `false`, and no more copies of the message are
    /// created.
    async fn fan_out_or_retry(&mut self, letter: u64, me: &AgentRef) -> bool {
        let error = match self.fan_out_next(letter, me).await {
            Ok(more) => return more,
            Err(error) => error,
        };
        if error.is_transient() {
            callboard_message::log::warn!(%error, "failed to store copies of a broadcast: retrying");
        } else {
            callboard_message::log::error!(%error, letter, "failed to store copies of a broadcast");
            if let Some(spreading) = self.fan_outs.remove(&letter) {
                // Recipients that have the message are recorded one by one.
                let delivered = spreading.delivered.into_iter();
                add_pending(
                    &mut self.pending,
                    delivered.map(|recipient| (recipient, letter)),
                    PENDING_DELIVERIES_MAX,
                );
            }
        }
        false
    }

    /// Creates the next batch of copies of a message. Returns whether recipients without a copy
    /// remain.
    ///
    /// # Errors
    /// Failures of the store; the batch is not created then.
    async fn fan_out_next(&mut self, letter: u64, me: &AgentRef) -> Result<bool, JournalError> {
        let Some(spreading) = self.fan_outs.get_mut(&letter) else {
            return Ok(false);
        };
        let recipients = &spreading.letter.new.recipients;
        let to = recipients
            .len()
            .min(spreading.copies_made + FAN_OUT_BATCH_MAX);
        let now = recipients
            .get(spreading.copies_made..to)
            .unwrap_or_default();
        let have_it = now
            .iter()
            .filter(|recipient| spreading.delivered.contains(recipient.as_str()))
            .cloned()
            .collect();
        self.mail
            .fan_out(letter, u32::try_from(to).unwrap_or(u32::MAX), have_it)
            .await?;
        for recipient in now {
            spreading.delivered.remove(recipient.as_str());
        }
        spreading.copies_made = to;
        let is_done = to >= recipients.len();
        if is_done {
            self.fan_outs.remove(&letter);
        }
        notify_agent(&self.is_notified, me);
        Ok(!is_done)
    }
}

impl Agent for ReceiptWriterAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<RecordDelivery>()
            .sync::<FanOut>()
            .exclusive::<Flush>();
        on.sync::<RecordRead>();
        on.exclusive::<FanOutNext>()
            .exclusive::<RetryPending>()
            .exclusive::<EventsAppended>();
    }

    fn profile() -> AgentProfile {
        AgentProfile::default()
            .mailbox_capacity(PENDING_RECEIPTS_MAX)
            .without_inline()
    }

    fn started(&mut self, cx: &mut Context) {
        self.retry_timer = Some(cx.tell_every(RETRY_INTERVAL, || RetryPending));
    }
}

impl SyncHandler<RecordDelivery> for ReceiptWriterAgent {
    fn handle(&mut self, RecordDelivery { recipient, letter }: RecordDelivery, cx: &mut Context) {
        if let Some(spreading) = self.fan_outs.get_mut(&letter)
            && let Ok(place) = spreading
                .letter
                .new
                .recipients
                .binary_search_by(|id| id.as_str().cmp(&recipient))
            && place >= spreading.copies_made
        {
            spreading.delivered.insert(recipient);
            if spreading.is_complete() {
                let _ = cx.me().try_tell(FanOutNext(letter));
            }
            return;
        }
        add_pending(
            &mut self.pending,
            [(recipient, letter)],
            PENDING_DELIVERIES_MAX,
        );
        if !self.is_flushing {
            self.is_flushing = true;
            cx.tell_after(FLUSH_DELAY, Flush);
        }
    }
}

impl SyncHandler<RecordRead> for ReceiptWriterAgent {
    fn handle(&mut self, RecordRead { reader, letters }: RecordRead, _: &mut Context) {
        // The retry timer stores them: the store has just rejected them.
        let letters = letters.into_iter();
        add_pending(
            &mut self.pending_reads,
            letters.map(|letter| (reader.clone(), letter)),
            PENDING_READS_MAX,
        );
    }
}

impl SyncHandler<FanOut> for ReceiptWriterAgent {
    fn handle(&mut self, FanOut(letter): FanOut, cx: &mut Context) {
        let (number, done) = (letter.number, letter.copies_made as usize);
        self.fan_outs.insert(
            number,
            FanOutProgress {
                letter,
                copies_made: done,
                delivered: BTreeSet::new(),
            },
        );
        cx.tell_after(FAN_OUT_DELAY, FanOutNext(number));
    }
}

impl Handler<FanOutNext> for ReceiptWriterAgent {
    async fn handle(&mut self, FanOutNext(letter): FanOutNext, cx: &mut Context) {
        if self.fan_out_or_retry(letter, cx.me()).await {
            // Enqueued at the end of the mailbox, so that other requests get their turn. Without
            // room, the timer continues.
            let _ = cx.me().try_tell(FanOutNext(letter));
        }
    }
}

impl Handler<Flush> for ReceiptWriterAgent {
    async fn handle(&mut self, _: Flush, cx: &mut Context) {
        self.flush_or_retry(cx.me()).await;
    }
}

impl Handler<RetryPending> for ReceiptWriterAgent {
    async fn handle(&mut self, _: RetryPending, cx: &mut Context) {
        if !self.pending.is_empty() || !self.pending_reads.is_empty() {
            self.flush_or_retry(cx.me()).await;
        }
        let letters: Vec<u64> = self.fan_outs.keys().copied().collect();
        for letter in letters {
            self.fan_out_or_retry(letter, cx.me()).await;
        }
    }
}

impl Handler<EventsAppended> for ReceiptWriterAgent {
    async fn handle(&mut self, _: EventsAppended, cx: &mut Context) {
        // Reset before the read: later events cause a new notification.
        self.is_notified.store(false, SeqCst);
        if let Ok(last) = self.mail.last_event().await {
            cx.system()
                .events()
                .publish(MAIL_EVENTS_TOPIC, &NewMailEvents { last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: requests can't fill the process with receipts while the store refuses them: repeated
    /// ones count once, further ones are dropped. Method: one more than each limit, each twice; the
    /// batches of the rest.
    #[test]
    fn pending_receipts_are_bounded() {
        for receipts_max in [PENDING_DELIVERIES_MAX, PENDING_READS_MAX] {
            let (mut pending, member) = (PendingReceipts::new(), Arc::<str>::from("a"));
            let all = (0..=receipts_max as u64).flat_map(|letter| [letter, letter]);
            add_pending(
                &mut pending,
                all.map(|letter| (member.clone(), letter)),
                receipts_max,
            );
            assert_eq!(pending.len(), receipts_max);
            let batch = next_batch(&pending);
            assert_eq!(batch.len(), RECEIPT_BATCH_MAX);
            drop_batch(&mut pending);
            assert_eq!(pending.len(), receipts_max - RECEIPT_BATCH_MAX);
            assert!(!pending.contains(&(member, batch[batch.len() - 1].1)));
        }
    }
}
