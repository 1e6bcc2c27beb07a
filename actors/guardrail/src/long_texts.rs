//! Places for screening long texts: few are screened at once, and principals take turns, so that a
//! long text delays neither short ones nor those of others.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;

use callboard_message::Principal;
use callboard_runtime::ShareOwner;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of long texts that a guardrail screens at once: one for every two cores, but no
/// more than this. Fixed.
pub(super) const LONG_TEXTS_SCREENED_MAX: usize = 8;
/// Maximum number of long texts that wait until they are screened. For a further one, the newest of
/// the principal with the most is blocked. Fixed.
pub(super) const LONG_TEXTS_QUEUED_MAX: usize = 128;
/// Maximum number of long texts of one principal that wait until they are screened: a quarter of
/// all. A further one is blocked. Fixed.
pub(super) const PRINCIPAL_LONG_TEXTS_QUEUED_MAX: usize = LONG_TEXTS_QUEUED_MAX / 4;

/// Nice value of the threads that screen long texts, so that they take less of a core than requests
/// that need it too. Fixed.
pub(super) const LONG_TEXT_NICENESS: i32 = 5;

/// Runs `work` on a thread of its own with [`LONG_TEXT_NICENESS`], and waits for it. Returns `None` if it
/// panicked, or the thread couldn't be started.
pub(super) fn run_with_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("long-text".to_owned());
        let running = thread.spawn_scoped(scope, || {
            // On Linux, this is the thread's own value. Elsewhere it would be that of the process.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::setpriority_process(None, LONG_TEXT_NICENESS);
            work()
        });
        running.ok()?.join().ok()
    })
}

/// Places to screen long texts, with the texts that wait for one.
pub(super) struct LongTextQueue(Mutex<QueueState>);

struct QueueState {
    free: usize,
    waiting: HashMap<ShareOwner, VecDeque<oneshot::Sender<ScreenPlace>>>,
    /// Principals with waiting texts, the next one first.
    turns: VecDeque<ShareOwner>,
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

    /// Waits for a place. Returns `None` if too many texts wait: at once if they are the
    /// principal's own or no principal has more, else when the text has to give way to another
    /// principal's.
    pub async fn acquire(self: &Arc<Self>, principal: &Principal) -> Option<ScreenPlace> {
        let granted = {
            let mut state = self.0.lock();
            if state.free > 0 {
                // Nobody waits while there are free places.
                state.free -= 1;
                return Some(ScreenPlace(self.clone()));
            }
            state.push(principal.into())?
        };
        granted.await.ok()
    }
}

impl QueueState {
    /// Adds a text at the end of its principal's. If too many wait in all, the newest of the
    /// principal with the most gives way. `None` if too many wait.
    fn push(&mut self, owner: ShareOwner) -> Option<oneshot::Receiver<ScreenPlace>> {
        if self.own_count(&owner) >= PRINCIPAL_LONG_TEXTS_QUEUED_MAX || self.is_full() {
            self.remove_abandoned();
        }
        let own = self.own_count(&owner);
        let has_room = own < PRINCIPAL_LONG_TEXTS_QUEUED_MAX
            && (!self.is_full() || self.remove_newest_of_most(own));
        if !has_room {
            return None;
        }
        let (grant, granted) = oneshot::channel();
        let own = self.waiting.entry(owner.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(owner);
        }
        own.push_back(grant);
        Some(granted)
    }

    fn own_count(&self, owner: &ShareOwner) -> usize {
        self.waiting.get(owner).map_or(0, VecDeque::len)
    }

    fn is_full(&self) -> bool {
        self.waiting.values().map(VecDeque::len).sum::<usize>() >= LONG_TEXTS_QUEUED_MAX
    }

    /// Removes the newest text of the principal with the most, for a text of a principal with
    /// `own` waiting ones. Returns false if the former would then have fewer than the latter.
    fn remove_newest_of_most(&mut self, own: usize) -> bool {
        match self.waiting.values_mut().max_by_key(|texts| texts.len()) {
            // One is left, so its principal keeps its turn.
            Some(texts) if texts.len() > own + 1 => texts.pop_back().is_some(),
            _ => false,
        }
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
    use futures::future::BoxFuture;

    use super::*;

    fn principal(id: &str) -> Principal {
        Principal::agent(id)
    }

    /// Goal: the priority is lowered of the work's own thread alone, and a panic is no result. Method: the
    /// nice value within and after it.
    #[test]
    #[cfg(target_os = "linux")]
    fn long_texts_have_low_priority() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let within = run_with_low_priority(niceness);
        assert_eq!(within, Some(before.max(LONG_TEXT_NICENESS)));
        assert_eq!(niceness(), before);
        assert_eq!(run_with_low_priority(|| panic!("as asked")), None::<()>);
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

    type WaitingText = BoxFuture<'static, Option<ScreenPlace>>;

    /// Begins to wait for a place and returns the future, which is already polled; or whether a
    /// place was granted.
    fn begin(queue: &Arc<LongTextQueue>, id: &str) -> Result<WaitingText, bool> {
        let (queue, principal) = (queue.clone(), principal(id));
        let mut text = async move { queue.acquire(&principal).await }.boxed();
        match text.as_mut().now_or_never() {
            None => Ok(text),
            Some(place) => Err(place.is_some()),
        }
    }

    /// Removes the texts that have got no place and returns their number.
    fn remove_refused(waiting: &mut Vec<WaitingText>) -> usize {
        let before = waiting.len();
        waiting.retain_mut(|text| match text.as_mut().now_or_never() {
            None => true,
            Some(place) => {
                assert!(place.is_none(), "no place is free");
                false
            }
        });
        before - waiting.len()
    }

    /// Goal: the texts that wait are bounded, of each principal and in all; a principal with fewer
    /// takes the place of the newest text of one with the most; texts that nobody waits for don't
    /// count. Method: as many as may wait, and one more, of one principal and of several.
    #[test]
    fn waiting_texts_are_bounded() {
        let queue = LongTextQueue::new(1);
        let _held = queue.acquire(&principal("a")).now_or_never().unwrap();
        let mut waiting = Vec::new();
        let principals = LONG_TEXTS_QUEUED_MAX / PRINCIPAL_LONG_TEXTS_QUEUED_MAX;
        for n in 0..principals {
            let id = n.to_string();
            for _ in 0..PRINCIPAL_LONG_TEXTS_QUEUED_MAX {
                waiting.push(begin(&queue, &id).ok().unwrap());
            }
            assert_eq!(begin(&queue, &id).err(), Some(false));
        }
        assert_eq!(remove_refused(&mut waiting), 0);
        let _other = begin(&queue, "other").ok().unwrap();
        assert_eq!(remove_refused(&mut waiting), 1);
        waiting.pop();
        let _third = begin(&queue, "third").ok().unwrap();
        assert_eq!(remove_refused(&mut waiting), 0);
        assert_eq!(
            waiting.len() + 2,
            LONG_TEXTS_QUEUED_MAX,
            "none but the one given up made room"
        );
    }

    /// Goal: nobody's only text gives way. Method: as many principals as texts may wait, and one
    /// more, which is refused.
    #[test]
    fn an_only_text_keeps_its_place() {
        let queue = LongTextQueue::new(1);
        let _held = queue.acquire(&principal("a")).now_or_never().unwrap();
        let mut waiting: Vec<_> = (0..LONG_TEXTS_QUEUED_MAX)
            .map(|n| begin(&queue, &n.to_string()).ok().unwrap())
            .collect();
        assert_eq!(begin(&queue, "other").err(), Some(false));
        assert_eq!(remove_refused(&mut waiting), 0);
    }
}
