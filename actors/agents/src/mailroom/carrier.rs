//! Delivers one member's mail: one delivery at a time, urgent first, tried again until it has it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use callboard_message::mail::{Deliver, MAIL_UNREAD_MAX, Reach};
use callboard_message::surface::Converse;
use callboard_message::{Change, Failure, FailureKind, Principal};
use callboard_runtime::{
    Agent, AgentId, AgentRef, Backoff, CallMeta, Changed, Cx, Handler, Handlers, JournalError, MAIL_PAGE_MAX, Profile,
    SyncHandler,
};
use tokio::time::Instant;

use super::Shared;
use super::hand_out::Handed;
use super::line::{Queue, Wake};

/// Letters that a line takes from the store at once.
const PAGE: usize = 64;
/// How long one delivery may take.
pub const DELIVER_WITHIN: Duration = Duration::from_secs(60);
/// Between tries.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60), jitter: 0.2 };
/// How often a letter is tried whose delivery ends with a bug at the other end.
const BUGS_MAX: u32 = 5;
/// Letters that a line remembers as delivered just now: their marks may be on their way to the store.
const RECENT_MAX: usize = 512;
/// Letters that a line remembers as not deliverable.
const LEFT_MAX: usize = 10_000;

/// Delivers the letters of a line.
pub(super) struct Carrier {
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
    pub fn new(room: Arc<Shared>, id: Arc<str>, way: Arc<str>, queue: Arc<Queue>) -> Self {
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
            let page = self.room.mail.open(&self.id, after, true, MAIL_PAGE_MAX).await?;
            after = page.last().map(|(letter, _)| (letter.new.urgent, letter.number));
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
        waiting.count += numbers.into_iter().filter(|number| first.is_none_or(|first| *number < first)).count();
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
                    self.room.delivered(&self.id, number).await;
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
                    if !self.recent.contains(&number) && handed.letter.new.expires > SystemTime::now() {
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
        self.room.settled().await;
        let page = self.room.mail.open(&self.id, self.looked, true, PAGE).await?;
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
        let Some(agent) = cx.system().directory().get(&self.way) else { return Ended::Later(FailureKind::Unavailable) };
        self.follow(&agent, cx);
        let attempt = self.tried.get(&handed.letter.number).map_or(1, |tried| tried.saturating_add(1));
        // On its recipient's behalf: what it says in the course of it, it says as itself.
        let call = CallMeta::new(Arc::new(Principal::agent(&*self.id)));
        let takes_mail = agent.recipient::<Deliver>().is_some();
        let converses = !takes_mail && (agent.is_outside() || agent.recipient::<Converse>().is_some());
        self.queue.nowhere.store(!takes_mail && !converses, Relaxed);
        let answer = if takes_mail {
            let call = call.until(Instant::now() + DELIVER_WITHIN);
            let deliver = self.room.deliver(handed, &self.id, attempt);
            let answer = agent.ask(deliver).within_call(Some(Arc::new(call))).await;
            answer.map_err(Failure::from).and_then(|reply| reply)
        } else if converses {
            match self.queue.talks.begin().await {
                Ok(turn) => super::converse::deliver(&self.room, &agent, handed, &self.id, call, turn).await,
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
        let since = if wake.again { self.failed_at.map(|at| at + BACKOFF.first) } else { self.not_before };
        if since.min(self.not_before).is_some_and(|then| Instant::now() < then) {
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
