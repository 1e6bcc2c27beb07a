//! What was delivered is kept in few writes; and copies of what went to many are made in pieces, so that other writes get
//! between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::Message;
use callboard_message::mail::{MAIL_TOPIC, MailHappened};
use callboard_runtime::{
    Agent, AgentRef, Cx, Handler, Handlers, JournalError, Letter, MARKS_AT_ONCE_MAX, Mark, Profile,
    SPREAD_MAX, SyncHandler, System, Timer,
};

use super::Shared;

/// How long copies wait for their recipients to have them: so a copy is written once.
const SPREAD_AFTER: Duration = Duration::from_millis(20);
/// How long what was delivered waits for more: a write is an fsync, which whoever sends then waits for.
const FLUSH_AFTER: Duration = Duration::from_millis(3);
/// How often what is left to write is looked for: what failed, and what had no room in the mailbox.
const REST_EVERY: Duration = Duration::from_secs(1);
/// What may wait for the store; whoever delivers more waits.
const WAITING_MAX: u32 = 8_192;

struct Delivered {
    recipient: Arc<str>,
    letter: u64,
}

struct Spread(Arc<Letter>);

/// The next copies of a letter.
struct SpreadNext(u64);

/// Writes what there is. The reply comes when all that was delivered before is kept.
struct Flush;

/// Does whatever is left to do.
struct Rest;

/// Something is new among the events.
struct Happened;

macro_rules! without_reply {
    ($($name:ident = $wire:literal;)*) => {$(
        impl Message for $name {
            type Reply = ();
            const NAME: &'static str = concat!("callboard.mail.marks.", $wire);
        }
    )*};
}

without_reply! {
    Delivered = "delivered";
    Spread = "spread";
    SpreadNext = "spread_next";
    Flush = "flush";
    Rest = "rest";
    Happened = "happened";
}

/// Whoever writes marks.
pub(super) struct Marks {
    agent: AgentRef,
    /// It is told that something happened, and hasn't looked yet.
    told: Arc<AtomicBool>,
}

impl Marks {
    /// Of the room that is being made, and holds this.
    pub fn open(system: &System, room: &Weak<Shared>) -> Self {
        let told = Arc::new(AtomicBool::new(false));
        let (room, known) = (room.clone(), told.clone());
        let agent = system
            .prepare_with(move || Marker::new(room.clone(), known.clone()))
            .label("mail's marks")
            .spawn();
        Self { agent, told }
    }

    /// A recipient has a letter. Waits where too much isn't kept yet.
    pub async fn delivered(&self, recipient: &Arc<str>, letter: u64) {
        // One that is stopping keeps no more: the letter comes again.
        let _ = self
            .agent
            .tell(Delivered {
                recipient: recipient.clone(),
                letter,
            })
            .await;
    }

    /// The copies of a letter are to be made.
    pub fn spread(&self, letter: Arc<Letter>) {
        // Without room it is spread when the process begins again; until then its copies count as accepted.
        if self.agent.try_tell(Spread(letter)).is_err() {
            callboard_message::log::warn!(
                "too many broadcasts at once: copies of one are made later"
            );
        }
    }

    pub async fn settled(&self) {
        let _ = self.agent.ask(Flush).await;
    }

    /// Ends once what it was told is kept.
    pub async fn end(&self) {
        self.settled().await;
        self.agent.stop();
        self.agent.ended().await;
    }

    /// Tells whoever follows the events that there are new ones.
    pub fn happened(&self) {
        if !self.told.swap(true, SeqCst) && self.agent.try_tell(Happened).is_err() {
            self.told.store(false, SeqCst);
        }
    }
}

struct Spreading {
    letter: Arc<Letter>,
    /// Copies that are made.
    done: usize,
    /// Recipients after those who have it already.
    have_it: BTreeSet<Arc<str>>,
}

impl Spreading {
    fn is_all_there(&self) -> bool {
        self.done + self.have_it.len() >= self.letter.new.recipients.len()
    }
}

struct Marker {
    room: Weak<Shared>,
    told: Arc<AtomicBool>,
    waiting: Vec<(String, u64)>,
    /// A write of what waits is on its way: in a little or, where the last one failed, by the clock.
    is_flushing: bool,
    spreading: BTreeMap<u64, Spreading>,
    clock: Option<Timer>,
}

impl Drop for Marker {
    fn drop(&mut self) {
        // The agent may go on with another, which has its own.
        if let Some(clock) = self.clock.take() {
            clock.cancel();
        }
    }
}

impl Marker {
    fn new(room: Weak<Shared>, told: Arc<AtomicBool>) -> Self {
        told.store(false, SeqCst);
        Self {
            room,
            told,
            waiting: Vec::new(),
            is_flushing: false,
            spreading: BTreeMap::new(),
            clock: None,
        }
    }

    /// Keeps all that waits. What the store won't ever keep is let go of, with no more than was in the same write.
    async fn flush(&mut self) -> Result<(), JournalError> {
        let Some(room) = self.room.upgrade() else {
            return Ok(());
        };
        while !self.waiting.is_empty() {
            let now = self.waiting.len().min(MARKS_AT_ONCE_MAX);
            let marks: Vec<_> = self.waiting.iter().take(now).cloned().collect();
            match room.mail.mark(marks, Mark::Delivered).await {
                Ok(_) => room.marks.happened(),
                Err(error) if error.may_pass() => return Err(error),
                Err(error) => {
                    callboard_message::log::error!(%error, letters = now, "what was delivered can't be kept")
                }
            }
            self.waiting.drain(..now);
        }
        Ok(())
    }

    async fn flush_or_later(&mut self) {
        let flushed = self.flush().await;
        self.is_flushing = flushed.is_err();
        if let Err(error) = flushed {
            callboard_message::log::warn!(%error, "what was delivered isn't kept yet");
        }
    }

    /// Makes the next copies of a letter; `true` where more can be made now. What failed is made by the clock, or never.
    async fn spread_or_later(&mut self, letter: u64) -> bool {
        let error = match self.spread_next(letter).await {
            Ok(more) => return more,
            Err(error) => error,
        };
        if error.may_pass() {
            callboard_message::log::warn!(%error, "copies of a broadcast aren't made yet");
        } else {
            callboard_message::log::error!(%error, letter, "copies of a broadcast can't be made");
            if let Some(spreading) = self.spreading.remove(&letter) {
                // Who has it already is kept one by one.
                self.waiting.extend(
                    spreading
                        .have_it
                        .into_iter()
                        .map(|recipient| (recipient.to_string(), letter)),
                );
            }
        }
        false
    }

    /// `true` where there are more to make.
    async fn spread_next(&mut self, letter: u64) -> Result<bool, JournalError> {
        let Some(room) = self.room.upgrade() else {
            return Ok(false);
        };
        let Some(spreading) = self.spreading.get_mut(&letter) else {
            return Ok(false);
        };
        let recipients = &spreading.letter.new.recipients;
        let to = recipients.len().min(spreading.done + SPREAD_MAX);
        let now = recipients.get(spreading.done..to).unwrap_or_default();
        let have_it = now
            .iter()
            .filter(|recipient| spreading.have_it.contains(recipient.as_str()))
            .cloned()
            .collect();
        room.mail
            .spread(letter, u32::try_from(to).unwrap_or(u32::MAX), have_it)
            .await?;
        for recipient in now {
            spreading.have_it.remove(recipient.as_str());
        }
        spreading.done = to;
        let is_done = to >= recipients.len();
        if is_done {
            self.spreading.remove(&letter);
        }
        room.marks.happened();
        Ok(!is_done)
    }
}

impl Agent for Marker {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Delivered>().sync::<Spread>().exclusive::<Flush>();
        on.exclusive::<SpreadNext>()
            .exclusive::<Rest>()
            .exclusive::<Happened>();
    }

    fn profile() -> Profile {
        Profile::default().mailbox_capacity(WAITING_MAX).pinned()
    }

    fn started(&mut self, cx: &mut Cx) {
        self.clock = Some(cx.tell_every(REST_EVERY, || Rest));
    }
}

impl SyncHandler<Delivered> for Marker {
    fn handle(&mut self, Delivered { recipient, letter }: Delivered, cx: &mut Cx) {
        if let Some(spreading) = self.spreading.get_mut(&letter)
            && let Ok(place) = spreading
                .letter
                .new
                .recipients
                .binary_search_by(|id| id.as_str().cmp(&recipient))
            && place >= spreading.done
        {
            spreading.have_it.insert(recipient);
            if spreading.is_all_there() {
                let _ = cx.me().try_tell(SpreadNext(letter));
            }
            return;
        }
        self.waiting.push((recipient.to_string(), letter));
        if !self.is_flushing {
            self.is_flushing = true;
            cx.tell_after(FLUSH_AFTER, Flush);
        }
    }
}

impl SyncHandler<Spread> for Marker {
    fn handle(&mut self, Spread(letter): Spread, cx: &mut Cx) {
        let (number, done) = (letter.number, letter.spread as usize);
        self.spreading.insert(
            number,
            Spreading {
                letter,
                done,
                have_it: BTreeSet::new(),
            },
        );
        cx.tell_after(SPREAD_AFTER, SpreadNext(number));
    }
}

impl Handler<SpreadNext> for Marker {
    async fn handle(&mut self, SpreadNext(letter): SpreadNext, cx: &mut Cx) {
        if self.spread_or_later(letter).await {
            // At the end of the line: others have their turn. Without room there, by the clock.
            let _ = cx.me().try_tell(SpreadNext(letter));
        }
    }
}

impl Handler<Flush> for Marker {
    async fn handle(&mut self, _: Flush, _: &mut Cx) {
        self.flush_or_later().await;
    }
}

impl Handler<Rest> for Marker {
    async fn handle(&mut self, _: Rest, _: &mut Cx) {
        if !self.waiting.is_empty() {
            self.flush_or_later().await;
        }
        let letters: Vec<u64> = self.spreading.keys().copied().collect();
        for letter in letters {
            self.spread_or_later(letter).await;
        }
    }
}

impl Handler<Happened> for Marker {
    async fn handle(&mut self, _: Happened, cx: &mut Cx) {
        // Before it looks: what happens from here on is told anew.
        self.told.store(false, SeqCst);
        let Some(room) = self.room.upgrade() else {
            return;
        };
        if let Ok(last) = room.mail.last_event().await {
            cx.system()
                .events()
                .publish(MAIL_TOPIC, &MailHappened { last });
        }
    }
}
