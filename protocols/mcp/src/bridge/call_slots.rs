//! Concurrent calls of one server, shared among principals.
//!
//! Each principal has a share of the slots. Beyond it, a principal may use slots as long as a reserve
//! for others is left. A freed slot goes to the waiting principal that uses the fewest. A call whose
//! server waits for an answer is *parked*: it holds no slot meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Answer, Failure, Principal, PrincipalKind, Question, SessionId};
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum number of calls of one principal that wait for a slot. A further call is rejected at once.
pub(crate) const PRINCIPAL_WAITERS_MAX: usize = 256;
/// Factor between the maximum number of parked calls and the number of slots. A call beyond it, or
/// beyond its principal's share of it, keeps its slot while it waits.
const PARKED_CALLS_FACTOR: usize = 4;

/// Principal as the owner of slots and connections.
pub(crate) type SlotOwner = (PrincipalKind, String);

pub(crate) fn slot_owner(principal: &Principal) -> SlotOwner {
    (principal.kind, principal.id.clone())
}

/// Rule by which principals share a limited number of places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FairShare {
    pub max: usize,
    /// Number of places that a principal may use in any case while there are free ones.
    pub share: usize,
    /// Number of places that only principals below their share may use.
    reserve: usize,
}

impl FairShare {
    /// Creates a rule for `max` places, at least one. `percent` is a principal's share of them.
    pub fn new(max: usize, percent: u8) -> Self {
        let max = max.max(1);
        let part = max.saturating_mul(percent.min(100).into()) / 100;
        Self {
            max,
            share: part.max(1),
            reserve: part.min(max - part),
        }
    }

    /// Returns the number of places that a principal may use if no other uses any.
    pub fn alone_max(&self) -> usize {
        (self.max - self.reserve).max(self.share)
    }

    /// Returns true if a principal with `own` places may use one more while `used` are in use.
    pub fn admits(&self, own: usize, used: usize) -> bool {
        let reserved = if own < self.share { 0 } else { self.reserve };
        used < self.max - reserved
    }
}

/// Slots for the concurrent calls of one server.
pub(crate) struct CallSlots {
    pub rule: FairShare,
    parked_rule: FairShare,
    table: Mutex<SlotTable>,
    /// Slots of the calls of each session.
    sessions: Mutex<HashMap<SessionId, Vec<Weak<HeldSlot>>>>,
}

#[derive(Default)]
struct SlotTable {
    /// Number of slots in use. Calls that return from waiting for an answer may exceed the limit.
    used: usize,
    parked: usize,
    waiting: usize,
    /// Number of calls that have begun to wait so far.
    arrivals: u64,
    principals: HashMap<SlotOwner, PrincipalSlots>,
}

#[derive(Default)]
struct PrincipalSlots {
    used: usize,
    parked: usize,
    waiters: VecDeque<Waiter>,
}

/// A call that waits for a slot.
struct Waiter {
    arrival: u64,
    session: Option<SessionId>,
    grant: oneshot::Sender<CallSlot>,
}

/// Reason why a call gets no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// None became free in time.
    TimedOut,
    /// Too many calls of the principal wait already.
    TooManyWaiters,
}

impl CallSlots {
    /// Creates `max` slots, at least one. `share_percent` is a principal's share of them, and of the
    /// calls that may be parked.
    pub fn new(max: usize, share_percent: u8) -> Arc<Self> {
        let parked_max = max.max(1).saturating_mul(PARKED_CALLS_FACTOR);
        Arc::new(Self {
            rule: FairShare::new(max, share_percent),
            parked_rule: FairShare::new(parked_max, share_percent),
            table: Mutex::default(),
            sessions: Mutex::default(),
        })
    }

    /// Returns a slot for a call of `owner` in `session`, if it has one. Waits up to `wait` for a slot.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub async fn acquire(
        self: &Arc<Self>,
        owner: SlotOwner,
        session: Option<SessionId>,
        wait: Duration,
    ) -> Result<CallSlot, NoSlot> {
        let waiting = {
            let mut table = self.table.lock();
            let used = table.used;
            let own = table.principals.entry(owner.clone()).or_default();
            if own.waiters.is_empty() && self.rule.admits(own.used, used) {
                return Ok(self.take(&mut table, &owner, session));
            }
            if own.waiters.len() >= PRINCIPAL_WAITERS_MAX {
                return Err(NoSlot::TooManyWaiters);
            }
            let (grant, granted) = oneshot::channel();
            table.arrivals += 1;
            table.waiting += 1;
            let arrival = table.arrivals;
            let own = table.principals.entry(owner.clone()).or_default();
            own.waiters.push_back(Waiter {
                arrival,
                session,
                grant,
            });
            WaitingCall {
                slots: self,
                owner,
                arrival,
                granted,
            }
        };
        waiting.wait(wait).await
    }

    fn take(
        self: &Arc<Self>,
        table: &mut SlotTable,
        owner: &SlotOwner,
        session: Option<SessionId>,
    ) -> CallSlot {
        table.used += 1;
        table.principals.entry(owner.clone()).or_default().used += 1;
        let held = Arc::new(HeldSlot {
            slots: self.clone(),
            owner: owner.clone(),
            session,
            open_questions: Mutex::default(),
        });
        if let Some(session) = session {
            let mut sessions = self.sessions.lock();
            sessions
                .entry(session)
                .or_default()
                .push(Arc::downgrade(&held));
        }
        CallSlot(held)
    }

    /// Parks a call of the session whose server asks without naming a call. Which one it is doesn't
    /// matter to others. Returns `None` if all have an open question.
    pub fn park_in_session(&self, session: SessionId) -> Option<ParkedCall> {
        let calls: Vec<Arc<HeldSlot>> = {
            let sessions = self.sessions.lock();
            let calls = sessions.get(&session).into_iter().flatten();
            calls.filter_map(Weak::upgrade).collect()
        };
        calls.iter().find_map(HeldSlot::park_idle)
    }

    /// Changes the counts of `owner`, and grants slots that have become free.
    fn update(self: &Arc<Self>, owner: &SlotOwner, change: impl FnOnce(&mut SlotTable)) {
        let mut grants = Vec::new();
        {
            let mut table = self.table.lock();
            change(&mut table);
            while let Some(next) = self.next_waiter(&table) {
                let waiter = table
                    .principals
                    .get_mut(&next)
                    .and_then(|own| own.waiters.pop_front());
                let Some(waiter) = waiter else { break };
                table.waiting -= 1;
                let slot = self.take(&mut table, &next, waiter.session);
                grants.push((waiter.grant, slot));
            }
            table.forget_idle(owner);
        }
        // Outside the lock: a slot whose call has given up is freed by its drop.
        for (grant, slot) in grants {
            drop(grant.send(slot));
        }
    }

    /// Returns the waiting principal that gets the next slot, if one may be given.
    fn next_waiter(&self, table: &SlotTable) -> Option<SlotOwner> {
        if table.waiting == 0 {
            return None;
        }
        let waiting = table.principals.iter().filter_map(|(owner, own)| {
            let first = own.waiters.front()?;
            let may = self.rule.admits(own.used, table.used);
            may.then_some(((own.used, first.arrival), owner))
        });
        let next = waiting.min_by_key(|(rank, _)| *rank);
        next.map(|(_, owner)| owner.clone())
    }

    /// Returns the numbers of slots in use and of parked calls.
    pub fn counts(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.used, table.parked)
    }

    /// Frees the slot of a call of `owner` that waits for an answer. Returns false if too many calls
    /// are parked, so that the call keeps its slot. With a single slot, none is parked: the server
    /// handles one call at a time, and would get a second one when the parked call goes on.
    fn park(self: &Arc<Self>, owner: &SlotOwner) -> bool {
        if self.rule.max == 1 {
            return false;
        }
        let mut is_parked = false;
        self.update(owner, |table| {
            let (parked, own) = (
                table.parked,
                table.principals.entry(owner.clone()).or_default(),
            );
            is_parked = self.parked_rule.admits(own.parked, parked);
            if is_parked {
                own.parked += 1;
                own.used = own.used.saturating_sub(1);
                table.parked += 1;
                table.used = table.used.saturating_sub(1);
            }
        });
        is_parked
    }

    /// Gives a parked call a slot, whether or not one is free: its server works on it again.
    fn unpark(self: &Arc<Self>, owner: &SlotOwner) {
        self.update(owner, |table| {
            let own = table.principals.entry(owner.clone()).or_default();
            own.parked = own.parked.saturating_sub(1);
            own.used += 1;
            table.parked = table.parked.saturating_sub(1);
            table.used += 1;
        });
    }
}

impl SlotTable {
    fn forget_idle(&mut self, owner: &SlotOwner) {
        let is_idle =
            |own: &PrincipalSlots| own.used == 0 && own.parked == 0 && own.waiters.is_empty();
        if self.principals.get(owner).is_some_and(is_idle) {
            self.principals.remove(owner);
        }
    }
}

/// Guard of a waiting call. Dropping it removes the call from the queue.
struct WaitingCall<'a> {
    slots: &'a Arc<CallSlots>,
    owner: SlotOwner,
    arrival: u64,
    granted: oneshot::Receiver<CallSlot>,
}

impl WaitingCall<'_> {
    async fn wait(mut self, limit: Duration) -> Result<CallSlot, NoSlot> {
        match timeout(limit, &mut self.granted).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(NoSlot::TimedOut),
        }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.slots.update(&self.owner, |table| {
            let Some(own) = table.principals.get_mut(&self.owner) else {
                return;
            };
            let before = own.waiters.len();
            own.waiters.retain(|waiter| waiter.arrival != self.arrival);
            table.waiting -= before - own.waiters.len();
        });
    }
}

/// Slot of a running call. Dropping its last handle frees it.
#[derive(Clone)]
pub(crate) struct CallSlot(Arc<HeldSlot>);

struct HeldSlot {
    slots: Arc<CallSlots>,
    owner: SlotOwner,
    session: Option<SessionId>,
    open_questions: Mutex<OpenQuestions>,
}

#[derive(Default)]
struct OpenQuestions {
    count: usize,
    is_parked: bool,
}

impl CallSlot {
    /// Parks the call while the returned guard lives.
    pub fn park(&self) -> ParkedCall {
        HeldSlot::add_question(&self.0, &mut self.0.open_questions.lock())
    }

    /// Wraps the call's caller so that the call is parked while a question is open.
    pub fn wrap(&self, caller: Arc<dyn Caller>) -> Arc<dyn Caller> {
        Arc::new(ParkingCaller {
            inner: caller,
            slot: self.clone(),
        })
    }
}

impl HeldSlot {
    /// Parks the call if it has no open question. `None` if it has one.
    fn park_idle(self: &Arc<Self>) -> Option<ParkedCall> {
        let mut open = self.open_questions.lock();
        (open.count == 0).then(|| self.add_question(&mut open))
    }

    /// Counts an open question, with which the call is parked. `open` are the call's own questions.
    fn add_question(self: &Arc<Self>, open: &mut OpenQuestions) -> ParkedCall {
        open.count += 1;
        if open.count == 1 {
            open.is_parked = self.slots.park(&self.owner);
        }
        ParkedCall(Arc::downgrade(self))
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            let mut sessions = self.slots.sessions.lock();
            if let Some(calls) = sessions.get_mut(session) {
                calls.retain(|call| call.strong_count() > 0);
                if calls.is_empty() {
                    sessions.remove(session);
                }
            }
        }
        let is_parked = self.open_questions.get_mut().is_parked;
        self.slots.update(&self.owner, |table| {
            let own = table.principals.entry(self.owner.clone()).or_default();
            let (own, all) = match is_parked {
                true => (&mut own.parked, &mut table.parked),
                false => (&mut own.used, &mut table.used),
            };
            *own = own.saturating_sub(1);
            *all = all.saturating_sub(1);
        });
    }
}

/// Guard of a parked call. Dropping it gives the call a slot again, unless the call has ended.
pub(crate) struct ParkedCall(Weak<HeldSlot>);

impl Drop for ParkedCall {
    fn drop(&mut self) {
        let Some(held) = self.0.upgrade() else {
            return;
        };
        let mut open = held.open_questions.lock();
        open.count -= 1;
        if open.count == 0 && std::mem::take(&mut open.is_parked) {
            held.slots.unpark(&held.owner);
        }
    }
}

/// Caller whose call is parked while it answers.
struct ParkingCaller {
    inner: Arc<dyn Caller>,
    slot: CallSlot,
}

impl Caller for ParkingCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        let parked = self.slot.park();
        Box::pin(async move {
            let _parked = parked;
            self.inner.ask(question).await
        })
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        let parked = self.slot.park();
        Box::pin(async move {
            let _parked = parked;
            self.inner.forward(method, params).await
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn owner(name: &str) -> SlotOwner {
        slot_owner(&Principal::agent(name))
    }

    fn try_acquire(slots: &Arc<CallSlots>, name: &str) -> Option<CallSlot> {
        let acquired = slots.acquire(owner(name), None, SOON).now_or_never();
        acquired.and_then(Result::ok)
    }

    fn fill(slots: &Arc<CallSlots>, name: &str) -> Vec<CallSlot> {
        std::iter::from_fn(|| try_acquire(slots, name)).collect()
    }

    /// Goal: a principal alone uses all but the reserve; others still get their share. Method: rows
    /// of maxima and shares, one principal after the other.
    #[tokio::test]
    async fn shares_are_exact() {
        for (max, share, taken) in [
            (1, 25, [1, 0, 0]),
            (2, 25, [2, 0, 0]),
            (4, 25, [3, 1, 0]),
            (64, 25, [48, 16, 0]),
            (64, 10, [58, 6, 0]),
            (64, 100, [64, 0, 0]),
            (8, 75, [6, 2, 0]),
        ] {
            let slots = CallSlots::new(max, share);
            assert_eq!(slots.rule.alone_max(), taken[0]);
            let mut held = Vec::new();
            for (name, expected) in ["a", "b", "c"].into_iter().zip(taken) {
                let own = fill(&slots, name);
                assert_eq!(own.len(), expected, "{max} {share} {name}");
                held.push(own);
            }
            drop(held);
            assert_eq!(slots.counts(), (0, 0));
            assert!(slots.table.lock().principals.is_empty());
        }
    }

    /// Goal: a freed slot goes to the waiting principal with the fewest, and within it to the call
    /// that came first. Method: waiters of a principal with many slots and of two with few, in an
    /// adverse order; slots are freed one by one.
    #[tokio::test]
    async fn the_fewest_are_served_first() {
        let slots = CallSlots::new(4, 25);
        let mut held = fill(&slots, "a");
        held.extend(fill(&slots, "b"));
        let mut waiting: Vec<_> = ["a", "a", "b", "c", "c"]
            .into_iter()
            .map(|name| (name, Box::pin(slots.acquire(owner(name), None, SOON))))
            .collect();
        for (_, waiter) in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let mut taken = Vec::new();
        // The second is kept for a principal without any.
        for served in [Some("c"), None, Some("a"), Some("b")] {
            drop(held.remove(0));
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (name, waiter))| {
                    Some((at, *name, waiter.as_mut().now_or_never()?))
                });
            assert_eq!(ready.as_ref().map(|(_, name, _)| *name), served);
            if let Some((at, _, slot)) = ready {
                drop(waiting.remove(at));
                taken.push(slot.unwrap());
            }
        }
    }

    /// Goal: waiting calls of a principal are bounded, those that give up leave nothing, and none
    /// waits longer than its limit. Method: the limit and one more; drop them; paused time.
    #[tokio::test(start_paused = true)]
    async fn waiters_are_bounded() {
        let slots = CallSlots::new(1, 25);
        let held = try_acquire(&slots, "a").unwrap();
        let mut waiting: Vec<_> = (0..PRINCIPAL_WAITERS_MAX)
            .map(|_| Box::pin(slots.acquire(owner("b"), None, SOON)))
            .collect();
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let refused = slots.acquire(owner("b"), None, SOON).now_or_never();
        assert_eq!(refused.unwrap().err(), Some(NoSlot::TooManyWaiters));
        drop(waiting);
        let late = slots.acquire(owner("b"), None, SOON).await;
        assert_eq!(late.err(), Some(NoSlot::TimedOut));
        drop(held);
        assert!(try_acquire(&slots, "b").is_some());
        assert_eq!(slots.counts(), (0, 0));
    }

    /// Goal: a server with one slot never has two calls at once. Method: a call with an open question,
    /// a waiting one; the question is answered, the call ends.
    #[tokio::test]
    async fn a_single_slot_is_kept() {
        let slots = CallSlots::new(1, 25);
        let call = try_acquire(&slots, "a").unwrap();
        let question = call.park();
        assert_eq!(slots.counts(), (1, 0));
        let mut next = Box::pin(slots.acquire(owner("b"), None, SOON));
        assert!(next.as_mut().now_or_never().is_none());
        drop(question);
        assert_eq!(slots.counts(), (1, 0));
        assert!(next.as_mut().now_or_never().is_none());
        drop(call);
        let next = next.now_or_never().unwrap();
        assert!(next.is_ok());
        assert_eq!(slots.counts(), (1, 0));
    }

    /// Goal: questions of a session that name no call park a call each. Method: threads park at the
    /// same time, as many as there are calls, and one more; repeated.
    #[test]
    fn session_questions_park_different_calls() {
        let slots = CallSlots::new(8, 100);
        let session = SessionId::generate();
        for _ in 0..200 {
            let acquire = || {
                slots
                    .acquire(owner("a"), Some(session), SOON)
                    .now_or_never()
            };
            let calls: Vec<_> = (0..4).map(|_| acquire().unwrap().ok().unwrap()).collect();
            let barrier = std::sync::Barrier::new(4);
            let park = || {
                barrier.wait();
                slots.park_in_session(session)
            };
            let parked: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(park)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            assert!(parked.iter().all(Option::is_some));
            assert_eq!(slots.counts(), (0, 4));
            assert!(slots.park_in_session(session).is_none());
            drop((parked, calls));
            assert_eq!(slots.counts(), (0, 0));
        }
    }

    /// Goal: a parked call holds no slot, gets one back at once, and parked calls are bounded for
    /// each principal. Method: park until slots are kept; several questions of one call.
    #[tokio::test]
    async fn parked_calls_hold_no_slots() {
        let slots = CallSlots::new(4, 25);
        // A principal may park a share of four times the slots, and more while others have a reserve.
        let mut parked = Vec::new();
        for n in 1..=12 {
            let slot = try_acquire(&slots, "a").unwrap();
            parked.push((slot.park(), slot));
            assert_eq!(slots.counts(), (0, n));
        }
        let kept = try_acquire(&slots, "a").unwrap();
        let keeps = kept.park();
        assert_eq!(slots.counts(), (1, 12));
        let others = fill(&slots, "b");
        assert_eq!(others.len(), 2);
        drop((keeps, kept));
        let (first, slot) = parked.pop().unwrap();
        let second = slot.park();
        drop(first);
        assert_eq!(slots.counts(), (2, 12));
        drop(second);
        assert_eq!(slots.counts(), (3, 11));
        while let Some((question, _slot)) = parked.pop() {
            drop(question);
        }
        drop((slot, others));
        assert_eq!(slots.counts(), (0, 0));
    }
}
