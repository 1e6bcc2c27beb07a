//! The mailbox: a bounded queue under one lock, with room promised to waiting senders in their order.
//!
//! It holds two things: the *queue* of messages not yet taken, and whether the agent is *scheduled* (its ticket is with a
//! host, or with a caller that runs it in place) or *idle* (the ticket lies here). Whoever makes an idle agent have work
//! takes the ticket and hands it to the host: no wake-up is lost, and none is paid for an agent that is awake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::task::Waker;

// By `super`: the model checker puts its own lock there.
use super::sync::{Mutex, MutexGuard};

/// What a mailbox keeps its messages in; swapped out whole by the agent.
pub(crate) trait Batch: Default + Send {
    fn is_empty(&self) -> bool;
}

/// A ticket has a batch of its own: what makes an idle agent busy goes straight there.
pub(crate) trait HasBatch<Q> {
    fn batch(&mut self) -> &mut Q;
}

/// Mailboxes of at least this many messages give room back a chunk at a time, and promise it to waiting senders only when
/// half of it is free: a sender woken for less would be back in the line at once, and waking costs more than a hundred
/// messages. Smaller ones count each message as it is begun.
pub(crate) const LARGE_FROM: u32 = 128;

/// Who may still put messages in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// The system drains: only what agents send one another is accepted.
    AgentsOnly,
    Closed,
}

/// What became of an attempt to put a message in.
#[derive(Debug)]
pub(crate) enum Admitted<T> {
    /// It is in. Where the agent was idle, its ticket: hand it to the host.
    In(Option<T>),
    Full,
    /// A place in the line of waiting senders.
    Waiting(WaiterId),
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

struct Waiter {
    id: WaiterId,
    /// `None` once room was promised.
    waker: Option<Waker>,
}

/// `Q` holds the messages, `T` is the ticket, `C` a control message.
pub(crate) struct Mailbox<Q, T, C> {
    inner: Mutex<Inner<Q, T, C>>,
    /// Whether control waits: looked at without the lock.
    urgent: AtomicBool,
}

pub(crate) struct Inner<Q, T, C> {
    queue: Q,
    /// Messages in the queue, taken out in a batch but not yet begun, or promised to a waiter.
    held: u32,
    capacity: u32,
    /// Waiting senders are promised room when no more than this is held.
    promise_at: u32,
    gate: Gate,
    scheduled: bool,
    /// A handler of the agent is suspended: messages wait, only control and wake-ups schedule it.
    busy: bool,
    woken: bool,
    ended: bool,
    ticket: Option<T>,
    control: VecDeque<C>,
    waiters: VecDeque<Waiter>,
    /// How many of them have no promise yet: only those go before newcomers.
    in_line: u32,
    next_waiter: u64,
}

/// What the agent has to do next.
pub(crate) struct Work<C> {
    pub(crate) control: Option<C>,
    /// A future of the agent's wants to be polled.
    pub(crate) woken: bool,
}

/// How an agent's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing left but what may arrive.
    Idle,
    /// A handler is suspended: only control and wake-ups matter.
    Busy,
    /// The budget of the turn is spent; there is more.
    More,
}

impl<Q: Batch, T: HasBatch<Q>, C> Mailbox<Q, T, C> {
    /// `capacity` in messages, at least one.
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1);
        let promise_at = if capacity >= LARGE_FROM {
            capacity / 2
        } else {
            capacity - 1
        };
        Self {
            urgent: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                queue: Q::default(),
                held: 0,
                capacity,
                promise_at,
                gate: Gate::Open,
                // Until the first turn has built the agent, the ticket is out.
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner<Q, T, C>> {
        self.inner.lock()
    }

    /// Puts a message in by `push`, or says why not. `inside`: the sender is an agent.
    #[inline]
    pub(crate) fn admit(&self, inside: fn() -> bool, push: impl FnOnce(&mut Q)) -> Admitted<T> {
        let mut inner = self.lock();
        if inner.shut(inside) {
            return Admitted::Closed;
        }
        if inner.held >= inner.capacity || inner.in_line > 0 {
            return Admitted::Full;
        }
        inner.held += 1;
        Admitted::In(inner.put(push))
    }

    /// As [`Mailbox::admit`], but a sender without room gets, or keeps, a place in the line. `waker` is called when room
    /// was promised to it, or the mailbox closed.
    pub(crate) fn admit_or_wait(
        &self,
        inside: fn() -> bool,
        place: Option<WaiterId>,
        waker: &Waker,
        push: impl FnOnce(&mut Q),
    ) -> Admitted<T> {
        let mut inner = self.lock();
        if inner.shut(inside) {
            // The room that was promised to it is nobody's any more.
            let wakes = inner.leave(place);
            drop(inner);
            wake_all(wakes);
            return Admitted::Closed;
        }
        let Some(id) = place else {
            if inner.held < inner.capacity && inner.in_line == 0 {
                inner.held += 1;
                return Admitted::In(inner.put(push));
            }
            let id = WaiterId(inner.next_waiter);
            inner.next_waiter += 1;
            inner.in_line += 1;
            inner.waiters.push_back(Waiter {
                id,
                waker: Some(waker.clone()),
            });
            return Admitted::Waiting(id);
        };
        match inner
            .position(id)
            .map(|at| (at, inner.waiters[at].waker.is_none()))
        {
            Some((at, true)) => {
                inner.waiters.remove(at);
                Admitted::In(inner.put(push))
            }
            Some((at, false)) => {
                if !inner.waiters[at]
                    .waker
                    .as_ref()
                    .is_some_and(|w| w.will_wake(waker))
                {
                    inner.waiters[at].waker = Some(waker.clone());
                }
                Admitted::Waiting(id)
            }
            None => Admitted::Closed,
        }
    }

    /// A waiting sender gives up: its place, or the room promised to it, goes to the next.
    pub(crate) fn forget(&self, place: WaiterId) {
        let wakes = self.lock().leave(Some(place));
        wake_all(wakes);
    }

    /// Puts a control message in. Control has no bound: there are few, and only the kernel sends them.
    pub(crate) fn control(&self, control: C) -> Option<T> {
        let mut inner = self.lock();
        if inner.ended {
            return None;
        }
        inner.control.push_back(control);
        self.urgent.store(true, Release);
        inner.schedule()
    }

    /// A future of the agent's wants to be polled.
    pub(crate) fn wake(&self) -> Option<T> {
        let mut inner = self.lock();
        inner.woken = true;
        inner.schedule()
    }

    /// Takes the ticket of an agent that has nothing at all to do.
    pub(crate) fn claim(&self, inside: fn() -> bool) -> Option<T> {
        let mut inner = self.lock();
        let free = !inner.scheduled
            && !inner.busy
            && !inner.woken
            && inner.held == 0
            && inner.control.is_empty();
        if !free || inner.shut(inside) {
            return None;
        }
        inner.scheduled = true;
        inner.ticket.take()
    }

    /// `count` messages are begun.
    pub(crate) fn release(&self, count: u32) {
        let mut inner = self.lock();
        inner.held -= count;
        let wakes = inner.promise(false);
        drop(inner);
        wake_all(wakes);
    }

    /// Whether control waits.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Acquire)
    }

    /// `count` messages that were set aside are back. They may exceed the capacity: they were within it once, and the stash has
    /// a bound of its own.
    pub(crate) fn hold(&self, count: u32) {
        self.lock().held += count;
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// The next work: control before a wake-up before messages. Messages go into `batch` if that is empty.
    pub(crate) fn take(&self, begun: u32, batch: &mut Q, want_messages: bool) -> Work<C> {
        let mut inner = self.lock();
        inner.held -= begun;
        let wakes = inner.promise(false);
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
        Work { control, woken }
    }

    /// The turn ends: the ticket comes back here, or is returned because there is more to do.
    pub(crate) fn settle(&self, begun: u32, rest: Rest, ticket: T) -> Option<T> {
        let mut inner = self.lock();
        inner.held -= begun;
        let wakes = inner.promise(rest != Rest::More);
        inner.busy = rest == Rest::Busy;
        let more = rest == Rest::More || inner.woken || !inner.control.is_empty();
        let ticket = if more || (rest == Rest::Idle && !inner.queue.is_empty()) {
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

    /// Closes the mailbox for good and takes what is left. Waiting senders learn that it is closed.
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

    /// Messages held, and whether the agent is doing or about to do anything.
    pub(crate) fn depth_and_activity(&self) -> (u32, bool) {
        let inner = self.lock();
        (inner.held, inner.scheduled || inner.busy || inner.held > 0)
    }
}

impl<Q: Batch, T: HasBatch<Q>, C> Inner<Q, T, C> {
    #[inline]
    fn shut(&self, inside: fn() -> bool) -> bool {
        match self.gate {
            Gate::Open => false,
            Gate::AgentsOnly => !inside(),
            Gate::Closed => true,
        }
    }

    /// Puts a message in; where that makes an idle agent busy, in its ticket, which spares it a look in here.
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

    fn leave(&mut self, place: Option<WaiterId>) -> Option<Vec<Waker>> {
        let at = place.and_then(|id| self.position(id))?;
        let promised = self.waiters.remove(at).is_some_and(|w| w.waker.is_none());
        self.held -= u32::from(promised);
        self.in_line -= u32::from(!promised);
        self.promise(promised)
    }

    /// Promises free room to waiting senders, in their order. `rests`: the agent takes no more for now, so they get what there is.
    /// The wakers are for after the lock: a sender may be an agent, and waking it takes the lock of its mailbox.
    #[must_use]
    #[inline]
    fn promise(&mut self, rests: bool) -> Option<Vec<Waker>> {
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
