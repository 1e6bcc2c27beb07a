//! The letters that wait for a member's way. A line holds few: what is too much for it is looked up in the store once there
//! is room.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use callboard_message::mail::{Deliver, MAIL_UNREAD_MAX, Reach};
use callboard_message::surface::Converse;
use callboard_message::{Change, Failure, FailureKind, Message, Principal};
use callboard_runtime::{
    Agent, AgentId, AgentRef, Backoff, CallMeta, Changed, Cx, Handler, Handlers, JournalError,
    MAIL_PAGE_MAX, Profile, Recipient, SyncHandler, System,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::Shared;
use super::conversation_delivery::{DELIVER_WITHIN, Talks};
use super::text::Handed;

/// Letters that a member's line holds; what is more waits in the store.
pub const LINE_LETTERS_MAX: usize = 256;

/// There may be something to deliver.
struct Wake {
    /// Whoever gets it may be back: try at once.
    again: bool,
}

impl Message for Wake {
    type Reply = ();
    const NAME: &'static str = "callboard.mail.wake";
}

/// The way of one member's mail.
pub(super) struct Line {
    /// Whoever delivers. It ends after its last delivery.
    pub carrier: AgentRef,
    wake: Recipient<Wake>,
    queue: Arc<Queue>,
    /// Whose way it is, by name.
    pub way: Arc<str>,
}

/// What a line and its carrier share.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// The last delivery failed.
    fails: AtomicBool,
    /// Nobody there takes mail.
    nowhere: AtomicBool,
    is_over: AtomicBool,
    talks: Talks,
}

#[derive(Default)]
struct Waiting {
    /// Urgent first, then by number.
    letters: BTreeMap<(bool, u64), Arc<Handed>>,
    /// There may be letters that are in the store alone.
    is_behind: bool,
    /// And there may be new ones before where it was last looked.
    anew: bool,
    /// Letters that came and weren't delivered, in the line or not; those in the store before the line began are counted by its
    /// first look.
    count: usize,
    /// Those are among them.
    is_counted: bool,
    /// The first letter that came since it began, by number.
    first: Option<u64>,
}

impl Line {
    /// Begins the line of a member. There may be letters in the store.
    pub fn open(system: &System, room: &Arc<Shared>, id: &Arc<str>, way: &str) -> Option<Self> {
        let queue = Arc::new(Queue::default());
        let way: Arc<str> = way.into();
        let make = {
            let (room, id, way, queue) = (room.clone(), id.clone(), way.clone(), queue.clone());
            move || {
                // What is in the store, with what a carrier before this one had in hand.
                queue.waiting().is_behind = true;
                Carrier::new(room.clone(), id.clone(), way.clone(), queue.clone())
            }
        };
        let carrier = system
            .prepare_with(make)
            .label(format!("mail of {id}"))
            .spawn();
        let wake = carrier.recipient()?;
        Some(Self {
            carrier,
            wake,
            queue,
            way,
        })
    }

    /// One letter more, unless there are too many.
    pub fn hand(&self, handed: &Arc<Handed>) {
        self.queue.waiting().push(handed);
        self.wake(false);
    }

    /// It needn't deliver these any more: its member asked for them.
    pub fn forget(&self, letters: &[u64]) {
        let mut waiting = self.queue.waiting();
        for letter in letters {
            for is_normal in [false, true] {
                if waiting.letters.remove(&(is_normal, *letter)).is_some() {
                    waiting.count = waiting.count.saturating_sub(1);
                }
            }
        }
    }

    /// Letters that weren't delivered.
    pub fn undelivered(&self) -> usize {
        self.queue.waiting().count
    }

    /// Whoever gets it may be back.
    pub fn retry(&self) {
        if self.queue.fails.load(Relaxed) {
            self.wake(true);
        }
    }

    /// There may be letters in the store that came by another process.
    pub fn look(&self, letter: u64) {
        {
            let mut waiting = self.queue.waiting();
            waiting.came(letter);
            waiting.fall_behind();
        }
        self.wake(false);
    }

    fn wake(&self, again: bool) {
        // Where there is no room it is awake.
        let _ = self.wake.try_tell(Wake { again });
    }

    /// The last delivery ended well, as far as it went.
    pub fn works(&self) -> bool {
        !self.queue.fails.load(Relaxed) && !self.leads_nowhere()
    }

    /// Nobody there takes mail.
    pub fn leads_nowhere(&self) -> bool {
        self.queue.nowhere.load(Relaxed)
    }

    /// Ends it. What it held stays in the store.
    pub fn end(&self) {
        self.queue.is_over.store(true, Relaxed);
        self.queue.waiting().letters.clear();
        self.carrier.stop();
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl Waiting {
    fn came(&mut self, letter: u64) {
        self.count += 1;
        self.first = Some(self.first.map_or(letter, |first| first.min(letter)));
    }

    fn push(&mut self, handed: &Arc<Handed>) {
        self.came(handed.letter.number);
        // While it is behind, what is new isn't put before what is older.
        if self.is_behind || self.letters.len() >= LINE_LETTERS_MAX {
            self.fall_behind();
        } else {
            self.put(handed.clone());
        }
    }

    /// There is something to deliver, as far as it is known.
    fn has_some(&self) -> bool {
        self.is_behind || !self.letters.is_empty()
    }

    fn put(&mut self, handed: Arc<Handed>) {
        self.letters
            .insert((!handed.letter.new.urgent, handed.letter.number), handed);
    }

    fn fall_behind(&mut self) {
        self.is_behind = true;
        self.anew = true;
    }
}

/// Letters that a line takes from the store at once.
const PAGE: usize = 64;
/// Between tries.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    max: Duration::from_secs(60),
    jitter: 0.2,
};
/// How often a letter is tried whose delivery ends with a bug at the other end.
const BUGS_MAX: u32 = 5;
/// Letters that a line remembers as delivered just now: their marks may be on their way to the store.
const RECENT_MAX: usize = 512;
/// Letters that a line remembers as not deliverable.
const LEFT_MAX: usize = 10_000;

/// Delivers the letters of a line.
struct Carrier {
    room: Arc<Shared>,
    id: Arc<str>,
    way: Arc<str>,
    queue: Arc<Queue>,
    /// Failures since the last delivery.
    failed: u32,
    failed_at: Option<Instant>,
    not_before: Option<Instant>,
    /// Where it looked last in the store: the letter's urgency and number.
    looked: Option<(bool, u64)>,
    /// How often a letter was tried, where it was.
    tried: HashMap<u64, u32>,
    recent: VecDeque<u64>,
    left: HashSet<u64>,
    followed: Option<AgentId>,
    /// How often it was told whether it works, by deliveries.
    told: u64,
    /// How often it was asked in vain whether it would, and when it is asked again.
    unreached: u32,
    reach_at: Option<Instant>,
}

/// How a delivery ended.
enum Ended {
    Delivered,
    /// It may be delivered another time.
    Later(FailureKind),
    /// It never will.
    Left(FailureKind),
}

impl Carrier {
    fn new(room: Arc<Shared>, id: Arc<str>, way: Arc<str>, queue: Arc<Queue>) -> Self {
        Self {
            room,
            id,
            way,
            queue,
            failed: 0,
            failed_at: None,
            not_before: None,
            looked: None,
            tried: HashMap::new(),
            recent: VecDeque::new(),
            left: HashSet::new(),
            followed: None,
            told: 0,
            unreached: 0,
            reach_at: None,
        }
    }

    /// Counts what was in the store before the line began, as far as a box may be filled.
    async fn count(&self) -> Result<(), JournalError> {
        if self.queue.waiting().is_counted {
            return Ok(());
        }
        let (mut numbers, mut after) = (Vec::new(), None);
        loop {
            let page = self
                .room
                .mail
                .open(&self.id, after, true, MAIL_PAGE_MAX)
                .await?;
            after = page
                .last()
                .map(|(letter, _)| (letter.new.urgent, letter.number));
            numbers.extend(page.iter().map(|(letter, _)| letter.number));
            // A page of long letters has fewer.
            if page.is_empty() || numbers.len() >= MAIL_UNREAD_MAX {
                break;
            }
        }
        let mut waiting = self.queue.waiting();
        waiting.is_counted = true;
        // What came meanwhile has been counted.
        let first = waiting.first;
        waiting.count += numbers
            .into_iter()
            .filter(|number| first.is_none_or(|first| *number < first))
            .count();
        Ok(())
    }

    /// Delivers what there is, until it fails.
    async fn deliver_all(&mut self, cx: &mut Cx) -> Result<(), JournalError> {
        self.count().await?;
        while let Some(handed) = self.next().await? {
            let number = handed.letter.number;
            match self.deliver(&handed, cx).await {
                Ended::Delivered => {
                    self.works();
                    self.tried.remove(&number);
                    if self.recent.len() >= RECENT_MAX {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(number);
                    self.room.marks.delivered(&self.id, number).await;
                }
                Ended::Left(kind) => {
                    callboard_message::log::warn!(by: &self.id, letter = handed.letter.new.id, member = &*self.id, %kind, "mail can't be delivered");
                    self.works();
                    if self.left.len() >= LEFT_MAX {
                        self.left.clear();
                    }
                    self.left.insert(number);
                    self.tried.remove(&number);
                    self.room.mail.tried(&self.id, number).await?;
                }
                Ended::Later(kind) => {
                    callboard_message::log::debug!(by: &self.id, letter = handed.letter.new.id, member = &*self.id, %kind, "mail is tried again later");
                    {
                        let mut waiting = self.queue.waiting();
                        waiting.put(handed);
                        waiting.count += 1;
                    }
                    self.later(cx);
                    let tried = self.room.mail.tried(&self.id, number).await?;
                    self.tried.insert(number, tried);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn works(&mut self) {
        self.told += 1;
        self.failed = 0;
        self.queue.fails.store(false, Relaxed);
    }

    fn later(&mut self, cx: &mut Cx) {
        self.told += 1;
        let pause = BACKOFF.pause(self.failed);
        self.failed = self.failed.saturating_add(1);
        self.queue.fails.store(true, Relaxed);
        self.failed_at = Some(Instant::now());
        self.not_before = Some(Instant::now() + pause);
        // No sooner than that: each try from outside leaves a timer, and all but the last find it too early.
        cx.tell_after(pause, Wake { again: false });
    }

    /// Asks the way whether it would work, where no delivery has told, until it says so.
    async fn reach(&mut self, cx: &mut Cx) {
        let is_open = self.told > 0 && !self.queue.fails.load(Relaxed);
        if is_open || self.reach_at.is_some_and(|then| Instant::now() < then) {
            return;
        }
        if let Some(agent) = cx.system().directory().get(&self.way) {
            if agent.recipient::<Reach>().is_none() {
                return;
            }
            let is_reached = matches!(agent.ask(Reach).within(DELIVER_WITHIN).await, Ok(Ok(())));
            self.queue.fails.store(!is_reached, Relaxed);
            if is_reached {
                (self.told, self.unreached, self.reach_at) = (self.told + 1, 0, None);
                return;
            }
        }
        let pause = BACKOFF.pause(self.unreached);
        self.unreached = self.unreached.saturating_add(1);
        self.reach_at = Some(Instant::now() + pause);
        cx.tell_after(pause, Wake { again: false });
    }

    /// The next letter, from the line or, where it is behind, from the store.
    async fn next(&mut self) -> Result<Option<Arc<Handed>>, JournalError> {
        loop {
            if self.queue.is_over.load(Relaxed) {
                return Ok(None);
            }
            {
                let mut waiting = self.queue.waiting();
                while let Some((_, handed)) = waiting.letters.pop_first() {
                    waiting.count = waiting.count.saturating_sub(1);
                    let number = handed.letter.number;
                    if !self.recent.contains(&number)
                        && handed.letter.new.expires > SystemTime::now()
                    {
                        return Ok(Some(handed));
                    }
                    self.tried.remove(&number);
                }
                if !waiting.is_behind {
                    waiting.count = 0;
                    self.tried.clear();
                    return Ok(None);
                }
                if std::mem::take(&mut waiting.anew) {
                    self.looked = None;
                }
            }
            self.look().await?;
        }
    }

    /// Takes a page from the store. At the end of it the line is behind no more.
    async fn look(&mut self) -> Result<(), JournalError> {
        // What was delivered has to be known there first.
        self.room.marks.settled().await;
        let page = self
            .room
            .mail
            .open(&self.id, self.looked, true, PAGE)
            .await?;
        let mut waiting = self.queue.waiting();
        let Some((last, _)) = page.last() else {
            self.looked = None;
            waiting.is_behind = waiting.anew;
            return Ok(());
        };
        self.looked = Some((last.new.urgent, last.number));
        for (letter, copy) in page {
            if self.left.contains(&letter.number) || self.recent.contains(&letter.number) {
                continue;
            }
            if copy.attempts > 0 {
                self.tried.insert(letter.number, copy.attempts);
            }
            waiting.put(Arc::new(Handed::new(letter)));
        }
        Ok(())
    }

    async fn deliver(&mut self, handed: &Arc<Handed>, cx: &mut Cx) -> Ended {
        let Some(agent) = cx.system().directory().get(&self.way) else {
            return Ended::Later(FailureKind::Unavailable);
        };
        self.follow(&agent, cx);
        let attempt = self
            .tried
            .get(&handed.letter.number)
            .map_or(1, |tried| tried.saturating_add(1));
        // On its recipient's behalf: what it says in the course of it, it says as itself.
        let call = CallMeta::new(Arc::new(Principal::agent(&*self.id)));
        let takes_mail = agent.recipient::<Deliver>().is_some();
        let converses =
            !takes_mail && (agent.is_outside() || agent.recipient::<Converse>().is_some());
        self.queue.nowhere.store(!takes_mail && !converses, Relaxed);
        let answer = if takes_mail {
            let call = call.until(Instant::now() + DELIVER_WITHIN);
            let deliver = self.room.deliver(handed, &self.id, attempt);
            let answer = agent.ask(deliver).within_call(Some(Arc::new(call))).await;
            answer.map_err(Failure::from).and_then(|reply| reply)
        } else if converses {
            match self.queue.talks.begin().await {
                Ok(turn) => {
                    super::conversation_delivery::deliver(
                        &self.room, &agent, handed, &self.id, call, turn,
                    )
                    .await
                }
                Err(busy) => Err(busy),
            }
        } else {
            Err(Failure::rejected("the agent takes no mail"))
        };
        match answer.map_err(|failure| failure.kind) {
            Ok(()) => Ended::Delivered,
            Err(
                kind @ (FailureKind::Unavailable
                | FailureKind::Overloaded
                | FailureKind::TimedOut
                | FailureKind::Cancelled),
            ) => Ended::Later(kind),
            Err(FailureKind::Internal) if attempt < BUGS_MAX => Ended::Later(FailureKind::Internal),
            Err(kind) => Ended::Left(kind),
        }
    }

    /// When what the agent shows changes, it is there again.
    fn follow(&mut self, agent: &AgentRef, cx: &Cx) {
        if self.followed == Some(agent.id()) {
            return;
        }
        self.followed = Some(agent.id());
        if let Some(me) = cx.me().recipient::<Changed>() {
            agent.follow(me);
        }
    }
}

impl Agent for Carrier {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Wake>().sync::<Changed>();
    }

    fn profile() -> Profile {
        Profile::default().mailbox_capacity(4)
    }

    fn started(&mut self, cx: &mut Cx) {
        if self.queue.waiting().is_behind {
            let _ = cx.me().try_tell(Wake { again: true });
        }
    }
}

impl Handler<Wake> for Carrier {
    async fn handle(&mut self, wake: Wake, cx: &mut Cx) {
        // Whoever talks much isn't tried as often.
        let since = if wake.again {
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
        let told = self.told;
        if let Err(error) = self.deliver_all(cx).await {
            callboard_message::log::warn!(by: &self.id, member = &*self.id, %error, "mail waits for the store");
            if self.not_before.is_none() {
                self.later(cx);
            }
        } else if self.told == told {
            self.reach(cx).await;
        }
    }
}

impl SyncHandler<Changed> for Carrier {
    fn handle(&mut self, changed: Changed, cx: &mut Cx) {
        let again = matches!(changed.change, Change::Tools) && self.queue.fails.load(Relaxed);
        // Whatever has changed: this one may have been in the place of a wake.
        if again || self.queue.waiting().has_some() {
            let _ = cx.me().try_tell(Wake { again });
        }
    }
}
