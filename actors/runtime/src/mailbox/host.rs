//! Hosts: one actix actor an arbiter, which owns the future that runs the agents there; and threads for them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context as ActixContext};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::sync::Mutex;

/// Turns given out before the arbiter's other tasks run.
const TURNS_A_POLL_MAX: u32 = 1_024;
/// How long the agents of an arbiter run before its timers and sockets are looked at. Well under the 10 ms that a timer
/// beside a flood may be late; tokio looks at them only between polls that leave nothing ready.
const TIME_A_POLL_MAX: Duration = Duration::from_micros(500);
/// Turns between two looks at the clock.
const TURNS_A_CLOCK: u32 = 16;

/// Something with a turn to take: an agent.
pub(crate) trait Turn: Send {
    /// Takes the turn. The ticket comes back through [`Host::run`] where there is more to do.
    fn turn(self: Box<Self>);
}

type Ticket = Box<dyn Turn>;

#[derive(Default)]
struct Ready {
    tickets: VecDeque<Ticket>,
    /// Kept from sleep to sleep: taking a new one costs more than the message that wakes it.
    waker: Option<Waker>,
    asleep: bool,
    stopped: bool,
}

impl Ready {
    /// Wakes the host if it sleeps. An executor's waker only queues its task, so that may be done under the lock.
    fn awake(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// Where an arbiter's agents wait for their turn.
#[derive(Default)]
pub(crate) struct Host {
    ready: Mutex<Ready>,
    runtime: OnceLock<tokio::runtime::Handle>,
    /// Fires when it gives out no more turns.
    ended: CancellationToken,
}

thread_local! {
    /// The host that gives out turns on this thread right now, by address; 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The tickets of that host that need no lock.
    static LOCAL: RefCell<VecDeque<Ticket>> = const { RefCell::new(VecDeque::new()) };
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

impl Host {
    /// Gives `ticket` a turn, soon.
    pub(crate) fn run(&self, ticket: Ticket) {
        if CURRENT.get() == self.address() {
            return LOCAL.with_borrow_mut(|local| local.push_back(ticket));
        }
        let mut ready = self.ready.lock();
        if self.ended.is_cancelled() {
            drop(ready);
            // It would wait for ever: its agent ends with it.
            return drop(ticket);
        }
        ready.tickets.push_back(ticket);
        ready.awake();
    }

    /// The runtime of its arbiter, once it runs there.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.runtime.get().cloned()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Ends the host's future once its tickets are used up.
    pub(crate) fn stop(&self) {
        let mut ready = self.ready.lock();
        ready.stopped = true;
        ready.awake();
    }

    /// Starts the actor that runs this host on the current arbiter.
    pub(crate) fn start(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let _ = self.runtime.set(runtime);
        }
        HostActor {
            host: self.clone(),
            turns: None,
        }
        .start();
    }

    /// Moves what came from elsewhere behind the local tickets. False where there is nothing at all to do.
    fn collect(&self, waker: &Waker) -> Collected {
        let mut ready = self.ready.lock();
        LOCAL.with_borrow_mut(|local| {
            if local.is_empty() {
                std::mem::swap(local, &mut ready.tickets);
            } else {
                local.append(&mut ready.tickets);
            }
            match (local.is_empty(), ready.stopped) {
                (false, _) => Collected::Some,
                (true, true) => Collected::Stopped,
                (true, false) => {
                    if !ready
                        .waker
                        .as_ref()
                        .is_some_and(|kept| kept.will_wake(waker))
                    {
                        ready.waker = Some(waker.clone());
                    }
                    ready.asleep = true;
                    Collected::Nothing
                }
            }
        })
    }
}

enum Collected {
    Some,
    Nothing,
    Stopped,
}

impl Drop for Turns {
    /// Tickets left behind end their agents, and so do those that come later.
    fn drop(&mut self) {
        let left = {
            let mut ready = self.host.ready.lock();
            self.host.ended.cancel();
            std::mem::take(&mut ready.tickets)
        };
        drop(left);
        self.local.clear();
    }
}

struct HostActor {
    host: Arc<Host>,
    turns: Option<tokio::task::JoinHandle<()>>,
}

impl Actor for HostActor {
    type Context = ActixContext<Self>;

    fn started(&mut self, cx: &mut Self::Context) {
        let turns = Turns {
            host: self.host.clone(),
            local: VecDeque::new(),
            yielding: None,
        };
        // A task of its own: as a future of the context's, actix would look at its mailbox and its timers at every wake-up. The
        // address keeps the actor until the turns have ended, and the actor ends the turns.
        let keep = cx.address();
        self.turns = Some(actix::spawn(async move {
            turns.await;
            drop(keep);
        }));
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(turns) = self.turns.take() {
            turns.abort();
        }
    }
}

/// The future that gives out the turns.
struct Turns {
    host: Arc<Host>,
    /// Local tickets while this isn't polled.
    local: VecDeque<Ticket>,
    yielding: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(yielding) = &mut this.yielding {
            std::task::ready!(yielding.as_mut().poll(cx));
            this.yielding = None;
        }
        let before = CURRENT.replace(this.host.address());
        LOCAL.with_borrow_mut(|local| std::mem::swap(local, &mut this.local));
        let ended = as_agent(|| give_turns(&this.host, cx.waker()));
        LOCAL.with_borrow_mut(|local| std::mem::swap(local, &mut this.local));
        CURRENT.set(before);
        match ended {
            Collected::Stopped => Poll::Ready(()),
            Collected::Nothing => Poll::Pending,
            Collected::Some => {
                // A plain wake would be polled again before timers and sockets are; tokio's own yield lets them go first.
                let mut yielding: Pin<Box<dyn Future<Output = ()>>> =
                    Box::pin(tokio::task::yield_now());
                let _ = yielding.as_mut().poll(cx);
                this.yielding = Some(yielding);
                Poll::Pending
            }
        }
    }
}

/// Gives out turns until there is nothing to do, or others on this thread must have theirs.
fn give_turns(host: &Host, waker: &Waker) -> Collected {
    let mut began = None;
    let mut turns = 0;
    loop {
        let ticket = match LOCAL.with_borrow_mut(VecDeque::pop_front) {
            Some(ticket) => ticket,
            None => match host.collect(waker) {
                Collected::Some => continue,
                end => return end,
            },
        };
        ticket.turn();
        turns += 1;
        if turns % TURNS_A_CLOCK > 0 {
            continue;
        }
        // What came from elsewhere must not wait for ever behind agents here that keep each other busy.
        if let end @ (Collected::Nothing | Collected::Stopped) = host.collect(waker) {
            return end;
        }
        let out_of_time = began.get_or_insert_with(Instant::now).elapsed() >= TIME_A_POLL_MAX;
        if turns >= TURNS_A_POLL_MAX || out_of_time || !tokio::task::coop::has_budget_remaining() {
            return Collected::Some;
        }
    }
}

/// How long the last turns of an arbiter may take.
const LAST_TURNS: Duration = Duration::from_secs(1);

pub(crate) struct Threads {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Threads {
    pub(crate) fn start(hosts: Vec<Arc<Host>>) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("callboard".into())
            .spawn(move || {
                actix_rt::System::new().block_on(serve(hosts, stopped));
                // Nobody may be waiting any more.
                let _ = end.send(());
            })?;
        Ok(Self { stop, ended })
    }

    /// Ends the threads and waits for them.
    pub(crate) async fn ended(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

/// Runs the first host on this thread and the others on arbiters of their own, until `stopped`.
async fn serve(hosts: Vec<Arc<Host>>, stopped: oneshot::Receiver<()>) {
    let all = hosts.clone();
    let mut hosts = hosts.into_iter();
    if let Some(first) = hosts.next() {
        first.start();
    }
    let arbiters: Vec<_> = hosts
        .map(|host| {
            let arbiter = actix_rt::Arbiter::new();
            arbiter.spawn_fn(move || host.start());
            arbiter
        })
        .collect();
    // Either way it is time: a dropped sender is a dropped system.
    let _ = stopped.await;
    // The last turns are taken: agents that were told to end do.
    for host in &all {
        host.stop();
        let _ = tokio::time::timeout(LAST_TURNS, host.ended.cancelled()).await;
    }
    for arbiter in arbiters {
        arbiter.stop();
        let _ = arbiter.join();
    }
}
