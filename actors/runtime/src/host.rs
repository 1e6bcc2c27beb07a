//! The host: one actix actor an arbiter, which owns the future that runs the agents there.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context as ActixContext, WrapFuture};

use crate::cell::Ticket;
use crate::sync::Mutex;

/// Turns given out before the arbiter's other tasks run.
const TURNS_A_POLL_MAX: u32 = 128;
/// How long the agents of an arbiter run before its timers and sockets are looked at. Well under the 10 ms that a timer
/// beside a flood may be late; tokio looks at them only between polls that leave nothing ready.
const TIME_A_POLL_MAX: Duration = Duration::from_micros(500);
/// Turns between two looks at the clock.
const TURNS_A_CLOCK: u32 = 8;

/// Something with a turn to take: an agent.
pub(crate) trait Turn: Send + Sync {
    /// Takes the turn. The ticket comes back through [`Host::run`] where there is more to do.
    fn turn(self: Arc<Self>);
}

#[derive(Default)]
struct Ready {
    tickets: VecDeque<Ticket>,
    /// Set while the host sleeps.
    waker: Option<Waker>,
    stopped: bool,
}

/// Where an arbiter's agents wait for their turn.
#[derive(Default)]
pub(crate) struct Host {
    ready: Mutex<Ready>,
}

impl Host {
    /// Gives `ticket` a turn, soon.
    pub(crate) fn run(&self, ticket: Ticket) {
        let waker = {
            let mut ready = self.ready.lock();
            ready.tickets.push_back(ticket);
            ready.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the host's future once its tickets are used up.
    pub(crate) fn stop(&self) {
        let waker = {
            let mut ready = self.ready.lock();
            ready.stopped = true;
            ready.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Starts the actor that runs this host on the current arbiter.
    pub(crate) fn start(self: &Arc<Self>) {
        HostActor { host: self.clone() }.start();
    }
}

struct HostActor {
    host: Arc<Host>,
}

impl Actor for HostActor {
    type Context = ActixContext<Self>;

    fn started(&mut self, cx: &mut Self::Context) {
        let turns = Turns { host: self.host.clone(), local: VecDeque::new(), yielding: None };
        cx.spawn(turns.into_actor(self).map(|(), _, cx| cx.stop()));
    }
}

/// The future that gives out the turns.
struct Turns {
    host: Arc<Host>,
    local: VecDeque<Ticket>,
    yielding: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current code is an agent's.
pub(crate) fn inside() -> bool {
    INSIDE.get()
}

/// Runs `f` as an agent's code.
pub(crate) fn as_agent<R>(f: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = f();
    INSIDE.set(before);
    result
}

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(yielding) = &mut this.yielding {
            std::task::ready!(yielding.as_mut().poll(cx));
            this.yielding = None;
        }
        let began = Instant::now();
        let mut turns = 0;
        loop {
            if this.local.is_empty() {
                let mut ready = this.host.ready.lock();
                if ready.tickets.is_empty() {
                    if ready.stopped {
                        return Poll::Ready(());
                    }
                    ready.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                std::mem::swap(&mut ready.tickets, &mut this.local);
            }
            let Some(ticket) = this.local.pop_front() else { continue };
            as_agent(|| ticket.turn());
            turns += 1;
            if turns % TURNS_A_CLOCK == 0
                && (turns >= TURNS_A_POLL_MAX
                    || began.elapsed() >= TIME_A_POLL_MAX
                    || !tokio::task::coop::has_budget_remaining())
            {
                break;
            }
        }
        // A plain wake would be polled again before timers and sockets are; tokio's own yield lets them go first.
        let mut yielding: Pin<Box<dyn Future<Output = ()>>> = Box::pin(tokio::task::yield_now());
        let _ = yielding.as_mut().poll(cx);
        this.yielding = Some(yielding);
        Poll::Pending
    }
}
