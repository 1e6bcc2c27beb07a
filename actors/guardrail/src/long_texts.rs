//! Places for screening long texts: few are screened at once, and principals take turns, so that a
//! long text delays neither short ones nor those of others.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;

use callboard_message::{Principal, PrincipalKind};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of long texts that a guardrail screens at once: one for every two cores, but no
/// more than this. Fixed.
pub(super) const LONG_TEXTS_SCREENED_MAX: usize = 8;
/// Maximum number of long texts that wait until they are screened. A further one is blocked. Fixed.
pub(super) const LONG_TEXTS_QUEUED_MAX: usize = 128;
/// Maximum number of long texts of one principal that wait until they are screened: a quarter of
/// all. A further one is blocked. Fixed.
pub(super) const PRINCIPAL_LONG_TEXTS_QUEUED_MAX: usize = LONG_TEXTS_QUEUED_MAX / 4;

type TextOwner = (PrincipalKind, String);

/// Places to screen long texts, with the texts that wait for one.
pub(super) struct LongTextQueue(Mutex<QueueState>);

struct QueueState {
    free: usize,
    waiting: HashMap<TextOwner, VecDeque<oneshot::Sender<ScreenPlace>>>,
    /// Principals with waiting texts, the next one first.
    turns: VecDeque<TextOwner>,
}

/// Place to screen one long text. Dropping it gives it to the next text.
pub(super) struct ScreenPlace(Arc<LongTextQueue>);

impl LongTextQueue {
    /// Creates a queue with `places`, at least one.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(QueueState {
            free: places.max(1),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
        })))
    }

    /// Creates a queue with a place for half of the cores, so that other work goes on, and at most
    /// [`LONG_TEXTS_SCREENED_MAX`].
    pub fn for_this_machine() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((cores / 2).min(LONG_TEXTS_SCREENED_MAX))
    }

    /// Waits for a place. Returns `None` at once if too many texts wait, of the principal or in
    /// all.
    pub async fn acquire(self: &Arc<Self>, principal: &Principal) -> Option<ScreenPlace> {
        let granted = {
            let mut state = self.0.lock();
            if state.free > 0 {
                // Nobody waits while there are free places.
                state.free -= 1;
                return Some(ScreenPlace(self.clone()));
            }
            state.push((principal.kind, principal.id.clone()))?
        };
        granted.await.ok()
    }
}

impl QueueState {
    /// Adds a text at the end of its principal's. `None` if too many wait.
    fn push(&mut self, owner: TextOwner) -> Option<oneshot::Receiver<ScreenPlace>> {
        let is_full = |state: &Self| {
            let own = state.waiting.get(&owner).map_or(0, VecDeque::len);
            own >= PRINCIPAL_LONG_TEXTS_QUEUED_MAX
                || state.waiting.values().map(VecDeque::len).sum::<usize>() >= LONG_TEXTS_QUEUED_MAX
        };
        if is_full(self) {
            self.remove_abandoned();
            if is_full(self) {
                return None;
            }
        }
        let (grant, granted) = oneshot::channel();
        let own = self.waiting.entry(owner.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(owner);
        }
        own.push_back(grant);
        Some(granted)
    }

    /// Removes the texts that nobody waits for any more.
    fn remove_abandoned(&mut self) {
        self.waiting.retain(|_, own| {
            own.retain(|grant| !grant.is_closed());
            !own.is_empty()
        });
        self.turns.retain(|owner| self.waiting.contains_key(owner));
    }

    /// Removes the text that is next: the oldest one of the principal whose turn it is. Without
    /// one, the place becomes free.
    fn next(&mut self) -> Option<oneshot::Sender<ScreenPlace>> {
        while let Some(owner) = self.turns.pop_front() {
            let own = self.waiting.entry(owner.clone()).or_default();
            let grant = own.pop_front();
            if own.is_empty() {
                self.waiting.remove(&owner);
            } else {
                self.turns.push_back(owner);
            }
            if grant.is_some() {
                return grant;
            }
        }
        self.free += 1;
        None
    }
}

impl Drop for ScreenPlace {
    fn drop(&mut self) {
        let next = self.0.0.lock().next();
        if let Some(grant) = next {
            // If nobody waits for it any more, the place is dropped there, and goes to the next.
            let _ = grant.send(Self(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    fn principal(id: &str) -> Principal {
        Principal::agent(id)
    }

    /// Goal: principals take turns, and an abandoned text takes no place. Method: three texts of
    /// one principal before one of another's, one of the three given up; places are released one by
    /// one.
    #[test]
    fn principals_take_turns() {
        let (queue, a, b) = (LongTextQueue::new(1), principal("a"), principal("b"));
        let held = queue.acquire(&a).now_or_never().unwrap().unwrap();
        let mut first = pin!(queue.acquire(&a));
        let mut given_up = Box::pin(queue.acquire(&a));
        let mut third = pin!(queue.acquire(&a));
        let mut other = pin!(queue.acquire(&b));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(given_up.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(other.as_mut().now_or_never().is_none());
        drop(given_up);
        drop(held);
        let held = first.as_mut().now_or_never().unwrap().unwrap();
        assert!(other.as_mut().now_or_never().is_none());
        drop(held);
        let held = other.as_mut().now_or_never().unwrap().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        drop(held);
        drop(third.as_mut().now_or_never().unwrap().unwrap());
        assert_eq!(queue.0.lock().free, 1);
    }

    /// Goal: the texts that wait are bounded, of each principal and in all; texts that nobody waits
    /// for don't count. Method: as many as may wait, and one more, of one principal and of several.
    #[test]
    fn waiting_texts_are_bounded() {
        let queue = LongTextQueue::new(1);
        let _held = queue.acquire(&principal("a")).now_or_never().unwrap();
        let mut waiting = Vec::new();
        let principals = LONG_TEXTS_QUEUED_MAX / PRINCIPAL_LONG_TEXTS_QUEUED_MAX;
        for n in 0..principals {
            let principal = principal(&n.to_string());
            for _ in 0..PRINCIPAL_LONG_TEXTS_QUEUED_MAX {
                let mut text = Box::pin({
                    let (queue, principal) = (queue.clone(), principal.clone());
                    async move { queue.acquire(&principal).await }
                });
                assert!(text.as_mut().now_or_never().is_none());
                waiting.push(text);
            }
            let refused = queue.acquire(&principal).now_or_never();
            assert!(refused.is_some_and(|place| place.is_none()));
        }
        let other = principal("other");
        let refused = queue.acquire(&other).now_or_never();
        assert!(refused.is_some_and(|place| place.is_none()));
        waiting.pop();
        assert!(queue.acquire(&other).now_or_never().is_none());
    }
}
