//! Concurrent calls of one server, shared among principals.
//!
//! Principals share the slots by the rule of [`PrincipalShares`]. A call whose server waits for an
//! answer is *parked*: it holds no slot meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Answer, Failure, Question, SessionId};
use callboard_runtime::{Caller, PrincipalShares, ShareError, ShareOwner, SharePermit};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Maximum number of calls of one principal that wait for a slot, and of its requests that wait for a
/// connection. A further one is rejected at once.
pub(crate) const PRINCIPAL_WAITERS_MAX: usize = 256;
/// Factor between the maximum number of parked calls and the number of slots. A call beyond it, or
/// beyond its principal's share of it, keeps its slot while it waits.
const PARKED_CALLS_FACTOR: usize = 4;

/// Slots for the concurrent calls of one server.
pub(crate) struct CallSlots {
    running: Arc<PrincipalShares>,
    parked: Arc<PrincipalShares>,
    /// Slots of the calls of each session.
    sessions: Mutex<HashMap<SessionId, Vec<Weak<HeldSlot>>>>,
}

impl CallSlots {
    /// Creates `max` slots, at least one. `share_percent` is a principal's share of them, and of the
    /// calls that may be parked.
    pub fn new(max: usize, share_percent: u8) -> Arc<Self> {
        let max = max.max(1);
        let parked_max = max.saturating_mul(PARKED_CALLS_FACTOR);
        Arc::new(Self {
            running: PrincipalShares::with_queue(max, share_percent, PRINCIPAL_WAITERS_MAX),
            parked: PrincipalShares::new(parked_max, share_percent),
            sessions: Mutex::default(),
        })
    }

    /// Returns a slot for a call of `owner` in `session`, if it has one. Waits up to `wait` for a slot.
    ///
    /// # Errors
    /// [`ShareError::TimedOut`], [`ShareError::TooManyWaiters`].
    pub async fn acquire(
        self: &Arc<Self>,
        owner: ShareOwner,
        session: Option<SessionId>,
        wait: Duration,
    ) -> Result<CallSlot, ShareError> {
        let permit = self
            .running
            .acquire(owner, Some(Instant::now() + wait))
            .await?;
        let held = Arc::new(HeldSlot {
            slots: self.clone(),
            session,
            state: Mutex::new(SlotState {
                questions: 0,
                is_parked: false,
                permit,
            }),
        });
        if let Some(session) = session {
            let mut sessions = self.sessions.lock();
            sessions
                .entry(session)
                .or_default()
                .push(Arc::downgrade(&held));
        }
        Ok(CallSlot(held))
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

    /// Returns the numbers of slots in use and of parked calls.
    pub fn counts(&self) -> (usize, usize) {
        (self.running.used(), self.parked.used())
    }

    /// Frees the slot of a call that waits for an answer. The call keeps it if too many are parked.
    /// With a single slot, none is parked: the server handles one call at a time, and would get a
    /// second one when the parked call goes on.
    fn park(&self, state: &mut SlotState) {
        if self.running.rule().max > 1
            && let Ok(parked) = self.parked.try_acquire(state.permit.owner().clone())
        {
            state.permit = parked;
            state.is_parked = true;
        }
    }

    /// Gives a parked call a slot, whether or not one is free: its server works on it again.
    fn unpark(&self, state: &mut SlotState) {
        if std::mem::take(&mut state.is_parked) {
            let owner = state.permit.owner().clone();
            state.permit = self.running.acquire_above_limit(owner);
        }
    }
}

/// Slot of a running call. Dropping its last handle frees it.
#[derive(Clone)]
pub(crate) struct CallSlot(Arc<HeldSlot>);

struct HeldSlot {
    slots: Arc<CallSlots>,
    session: Option<SessionId>,
    state: Mutex<SlotState>,
}

struct SlotState {
    /// Number of open questions of the call.
    questions: usize,
    is_parked: bool,
    /// Slot of the call, or its place among the parked calls.
    permit: SharePermit,
}

impl CallSlot {
    /// Parks the call while the returned guard lives.
    pub fn park(&self) -> ParkedCall {
        HeldSlot::add_question(&self.0, &mut self.0.state.lock())
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
        let mut state = self.state.lock();
        (state.questions == 0).then(|| self.add_question(&mut state))
    }

    /// Counts an open question, with which the call is parked.
    fn add_question(self: &Arc<Self>, state: &mut SlotState) -> ParkedCall {
        state.questions += 1;
        if state.questions == 1 {
            self.slots.park(state);
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
    }
}

/// Guard of a parked call. Dropping it gives the call a slot again, unless the call has ended.
pub(crate) struct ParkedCall(Weak<HeldSlot>);

impl Drop for ParkedCall {
    fn drop(&mut self) {
        let Some(held) = self.0.upgrade() else {
            return;
        };
        let mut state = held.state.lock();
        state.questions -= 1;
        if state.questions == 0 {
            held.slots.unpark(&mut state);
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
    use callboard_message::Principal;
    use futures::FutureExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    fn owner(name: &str) -> ShareOwner {
        (&Principal::agent(name)).into()
    }

    fn try_acquire(slots: &Arc<CallSlots>, name: &str) -> Option<CallSlot> {
        let acquired = slots.acquire(owner(name), None, SOON).now_or_never();
        acquired.and_then(Result::ok)
    }

    fn fill(slots: &Arc<CallSlots>, name: &str) -> Vec<CallSlot> {
        std::iter::from_fn(|| try_acquire(slots, name)).collect()
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
