//! Mailbox: a bounded queue under one lock that reserves room for waiting senders in their order.
//!
//! Its state has two parts: the *queue* of messages not yet taken, and whether the agent is
//! *scheduled* (its run token is with a scheduler, or with a caller that runs it inline) or *idle*
//! (the token is stored here). A sender that gives an idle agent work takes the token and passes it
//! to the scheduler: no wake-up is lost, and a running agent needs none.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::task::Waker;

// Imported from `super`, where the model checker substitutes its own lock.
use super::sync::{Mutex, MutexGuard};

/// Container for the messages of a mailbox. The agent takes all queued messages at once by swapping
/// containers.
pub(crate) trait Batch: Default + Send {
    fn is_empty(&self) -> bool;
}

/// Run token that contains a batch. The message that makes an idle agent busy goes directly into
/// that batch.
pub(crate) trait HasBatch<Q> {
    fn batch(&mut self) -> &mut Q;
}

/// Minimum capacity of a mailbox that counts as large. A large mailbox frees the room of handled
/// messages in chunks, and reserves room for waiting senders only when half of it is free. A sender
/// woken for less would soon wait again, and a wake-up costs more than a hundred messages. A
/// smaller mailbox frees room with each started message.
pub(crate) const LARGE_CAPACITY_MIN: u32 = 128;

/// Senders from which a mailbox accepts messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// The system is draining: only messages between agents are accepted.
    AgentsOnly,
    Closed,
}

/// Result of an attempt to queue a message.
#[derive(Debug)]
pub(crate) enum PushResult<T> {
    /// The message is queued. Holds the run token if the agent was idle; the sender has to pass it
    /// to the scheduler.
    Queued(Option<T>),
    Full,
    /// The mailbox has no room. Holds the sender's place among the waiting senders.
    Waiting(WaiterId),
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

struct Waiter {
    id: WaiterId,
    /// Waker of the sender; `None` once room has been reserved for it.
    waker: Option<Waker>,
}

/// Bounded mailbox. `Q` holds the messages, `T` is the run token, `C` a control message.
pub(crate) struct Mailbox<Q, T, C> {
    inner: Mutex<MailboxState<Q, T, C>>,
    /// True while control messages wait. Read without the lock.
    urgent: AtomicBool,
}

pub(crate) struct MailboxState<Q, T, C> {
    queue: Q,
    /// Number of messages that occupy room: queued, taken in a batch but not started, or reserved
    /// for a waiting sender.
    held: u32,
    capacity: u32,
    /// Limit for reserving room: waiting senders get room only while `held` is at most this. A
    /// sleeping or suspended agent gives away all room.
    promise_at: u32,
    gate: Gate,
    scheduled: bool,
    /// True while messages must wait for a suspended handler or a delayed restart. Only control
    /// messages and wake-ups schedule the agent then.
    busy: bool,
    woken: bool,
    ended: bool,
    ticket: Option<T>,
    control: VecDeque<C>,
    waiters: VecDeque<Waiter>,
    /// Number of waiting senders without reserved room. New senders have to wait behind them.
    in_line: u32,
    next_waiter: u64,
}

/// Next work of an agent, apart from messages: a control message or a wake-up.
pub(crate) struct NextWork<C> {
    pub(crate) control: Option<C>,
    /// True if a future of the agent has to be polled.
    pub(crate) woken: bool,
}

/// Reason for which an agent's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// The agent has no work left.
    Idle,
    /// Messages must wait for a suspended handler or a delayed restart: only control messages and
    /// wake-ups matter.
    Busy,
    /// The turn's limit of messages or time is reached, and there is more work.
    More,
}

impl<Q: Batch, T: HasBatch<Q>, C> Mailbox<Q, T, C> {
    /// Creates a mailbox for `capacity` messages, at least 1.
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1);
        let promise_at = if capacity >= LARGE_CAPACITY_MIN {
            capacity / 2
        } else {
            capacity - 1
        };
        Self {
            urgent: AtomicBool::new(false),
            inner: Mutex::new(MailboxState {
                queue: Q::default(),
                held: 0,
                capacity,
                promise_at,
                gate: Gate::Open,
                // The token is out until the first turn has created the agent.
                scheduled: true,
                busy: false,
                woken: false,
                ended: false,
                ticket: None,
                control: VecDeque::new(),
                waiters: VecDeque::new(),
                in_line: 0,
                next_waiter: 0,
            }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MailboxState<Q, T, C>> {
        self.inner.lock()
    }

    /// Calls `push` to queue a message if there is room. `inside` returns true if the sender is an
    /// agent; only such senders are accepted during shutdown.
    #[inline]
    pub(crate) fn admit(&self, inside: fn() -> bool, push: impl FnOnce(&mut Q)) -> PushResult<T> {
        let mut inner = self.lock();
        if inner.is_shut(inside) {
            return PushResult::Closed;
        }
        if inner.held >= inner.capacity || inner.in_line > 0 {
            return PushResult::Full;
        }
        inner.held += 1;
        PushResult::Queued(inner.put(push))
    }

    /// Calls `push` to queue a message if there is room, as [`Mailbox::admit`]. Otherwise adds the
    /// sender to the waiting senders, or keeps its `place` there. `waker` is called when room has
    /// been reserved for the sender, or the mailbox has closed.
    pub(crate) fn admit_or_wait(
        &self,
        inside: fn() -> bool,
        place: Option<WaiterId>,
        waker: &Waker,
        push: impl FnOnce(&mut Q),
    ) -> PushResult<T> {
        let mut inner = self.lock();
        if inner.is_shut(inside) {
            // Room reserved for this sender is free again.
            let wakes = inner.remove_waiter(place);
            drop(inner);
            wake_all(wakes);
            return PushResult::Closed;
        }
        let Some(id) = place else {
            if inner.held < inner.capacity && inner.in_line == 0 {
                inner.held += 1;
                return PushResult::Queued(inner.put(push));
            }
            let id = WaiterId(inner.next_waiter);
            inner.next_waiter += 1;
            inner.in_line += 1;
            inner.waiters.push_back(Waiter {
                id,
                waker: Some(waker.clone()),
            });
            return PushResult::Waiting(id);
        };
        match inner
            .position(id)
            .map(|at| (at, inner.waiters[at].waker.is_none()))
        {
            Some((at, true)) => {
                inner.waiters.remove(at);
                PushResult::Queued(inner.put(push))
            }
            Some((at, false)) => {
                if !inner.waiters[at]
                    .waker
                    .as_ref()
                    .is_some_and(|w| w.will_wake(waker))
                {
                    inner.waiters[at].waker = Some(waker.clone());
                }
                PushResult::Waiting(id)
            }
            None => PushResult::Closed,
        }
    }

    /// Removes a sender from the waiting senders. Room reserved for it goes to the next one.
    pub(crate) fn forget(&self, place: WaiterId) {
        let wakes = self.lock().remove_waiter(Some(place));
        wake_all(wakes);
    }

    /// Queues a control message. The queue is unbounded: control messages are few, and only the
    /// runtime sends them. Returns the run token if the agent was idle.
    pub(crate) fn control(&self, control: C) -> Option<T> {
        let mut inner = self.lock();
        if inner.ended {
            return None;
        }
        inner.control.push_back(control);
        self.urgent.store(true, Release);
        inner.schedule()
    }

    /// Requests a poll of the agent's futures. Returns the run token if the agent was idle.
    pub(crate) fn wake(&self) -> Option<T> {
        let mut inner = self.lock();
        inner.woken = true;
        inner.schedule()
    }

    /// Takes the run token, which permits to run the agent, if the agent is idle: no messages,
    /// control messages or wake-ups, and no suspended handler that messages must wait for. `inside`
    /// returns true if the sender is an agent.
    pub(crate) fn claim(&self, inside: fn() -> bool) -> Option<T> {
        let mut inner = self.lock();
        let free = !inner.scheduled
            && !inner.busy
            && !inner.woken
            && inner.held == 0
            && inner.control.is_empty();
        if !free || inner.is_shut(inside) {
            return None;
        }
        inner.scheduled = true;
        inner.ticket.take()
    }

    /// Frees the room of `count` messages that the agent has started, and wakes waiting senders.
    pub(crate) fn release(&self, count: u32) {
        let mut inner = self.lock();
        inner.held -= count;
        let wakes = inner.promise_room(false);
        drop(inner);
        wake_all(wakes);
    }

    /// Returns true while control messages wait.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Acquire)
    }

    /// Adds `count` unstashed messages to the room in use. They may exceed the capacity, as the
    /// stash has its own limit.
    pub(crate) fn hold(&self, count: u32) {
        self.lock().held += count;
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// Returns the agent's next work: control messages first, then wake-ups. First frees the room
    /// of `begun` started messages. If there is no control message, `batch` is empty and
    /// `want_messages` is set, moves the queued messages to `batch`.
    pub(crate) fn take(&self, begun: u32, batch: &mut Q, want_messages: bool) -> NextWork<C> {
        let mut inner = self.lock();
        inner.held -= begun;
        let wakes = inner.promise_room(false);
        let control = inner.control.pop_front();
        if inner.control.is_empty() && control.is_some() {
            self.urgent.store(false, Release);
        }
        if want_messages && control.is_none() && batch.is_empty() && !inner.queue.is_empty() {
            std::mem::swap(&mut inner.queue, batch);
        }
        let woken = control.is_none() && std::mem::take(&mut inner.woken);
        drop(inner);
        wake_all(wakes);
        NextWork { control, woken }
    }

    /// Ends a turn and frees the room of `begun` started messages. Keeps the run token in the
    /// mailbox, or returns it if there is more work.
    pub(crate) fn settle(&self, begun: u32, rest: TurnOutcome, ticket: T) -> Option<T> {
        let mut inner = self.lock();
        inner.held -= begun;
        let wakes = inner.promise_room(rest != TurnOutcome::More);
        inner.busy = rest == TurnOutcome::Busy;
        let more = rest == TurnOutcome::More || inner.woken || !inner.control.is_empty();
        let ticket = if more || (rest == TurnOutcome::Idle && !inner.queue.is_empty()) {
            Some(ticket)
        } else {
            inner.scheduled = false;
            inner.ticket = Some(ticket);
            None
        };
        drop(inner);
        wake_all(wakes);
        ticket
    }

    /// Closes the mailbox for good, moves the remaining messages to `rest`, and wakes the waiting
    /// senders.
    pub(crate) fn close(&self, rest: &mut Q) {
        let (waiters, _control) = {
            let mut inner = self.lock();
            inner.ended = true;
            inner.in_line = 0;
            inner.gate = Gate::Closed;
            inner.held = 0;
            inner.ticket = None;
            std::mem::swap(&mut inner.queue, rest);
            (
                std::mem::take(&mut inner.waiters),
                std::mem::take(&mut inner.control),
            )
        };
        waiters
            .into_iter()
            .filter_map(|w| w.waker)
            .for_each(Waker::wake);
    }

    pub(crate) fn set_gate(&self, gate: Gate) {
        let mut inner = self.lock();
        if inner.gate != Gate::Closed {
            inner.gate = gate;
        }
    }

    /// Returns the number of messages that occupy room, and true if the agent has work or is
    /// running.
    pub(crate) fn depth_and_activity(&self) -> (u32, bool) {
        let inner = self.lock();
        (inner.held, inner.scheduled || inner.busy || inner.held > 0)
    }
}

impl<Q: Batch, T: HasBatch<Q>, C> MailboxState<Q, T, C> {
    #[inline]
    fn is_shut(&self, inside: fn() -> bool) -> bool {
        match self.gate {
            Gate::Open => false,
            Gate::AgentsOnly => !inside(),
            Gate::Closed => true,
        }
    }

    /// Queues a message. If the agent was idle, the message goes directly to the batch of its run
    /// token, which saves a later look into the queue. The token is returned for scheduling.
    #[inline]
    fn put(&mut self, push: impl FnOnce(&mut Q)) -> Option<T> {
        if self.scheduled || self.busy {
            push(&mut self.queue);
            return None;
        }
        self.scheduled = true;
        let mut ticket = self.ticket.take();
        match &mut ticket {
            Some(ticket) if self.queue.is_empty() => push(ticket.batch()),
            _ => push(&mut self.queue),
        }
        ticket
    }

    fn schedule(&mut self) -> Option<T> {
        if self.scheduled {
            return None;
        }
        self.scheduled = true;
        self.ticket.take()
    }

    fn position(&self, id: WaiterId) -> Option<usize> {
        self.waiters.binary_search_by_key(&id, |w| w.id).ok()
    }

    fn remove_waiter(&mut self, place: Option<WaiterId>) -> Option<Vec<Waker>> {
        let at = place.and_then(|id| self.position(id))?;
        let promised = self.waiters.remove(at).is_some_and(|w| w.waker.is_none());
        self.held -= u32::from(promised);
        self.in_line -= u32::from(!promised);
        self.promise_room(promised)
    }

    /// Reserves free room for waiting senders in their order. With `rests`, the agent takes no
    /// messages for now, so even little free room is given away. The caller must wake the returned
    /// wakers after unlocking: a sender may be an agent whose mailbox has to be locked.
    #[must_use]
    #[inline]
    fn promise_room(&mut self, rests: bool) -> Option<Vec<Waker>> {
        if self.in_line == 0 || (self.held > self.promise_at && !rests) {
            return None;
        }
        Some(self.promise_all())
    }

    #[cold]
    fn promise_all(&mut self) -> Vec<Waker> {
        let mut wakes = Vec::new();
        for waiter in &mut self.waiters {
            if self.held >= self.capacity {
                break;
            }
            if let Some(waker) = waiter.waker.take() {
                self.held += 1;
                self.in_line -= 1;
                wakes.push(waker);
            }
        }
        wakes
    }
}

#[inline]
fn wake_all(wakes: Option<Vec<Waker>>) {
    if let Some(wakes) = wakes {
        wakes.into_iter().for_each(Waker::wake);
    }
}
