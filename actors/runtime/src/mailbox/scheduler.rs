//! Schedulers: one actix actor for each arbiter, whose future runs the agents there; and the
//! arbiter threads.

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

/// Maximum number of agents' turns before an arbiter's other tasks run.
const TURNS_PER_POLL_MAX: u32 = 1_024;
/// Maximum time that an arbiter's agents run before timers and sockets are polled. Well below the
/// 10 ms by which a timer may be late under load; tokio polls them only when no task is ready.
const POLL_TIME_MAX: Duration = Duration::from_micros(500);
/// Number of agents' turns between two readings of the clock.
const TURNS_PER_CLOCK_CHECK: u32 = 16;

/// An agent with work to do: its run token, type-erased.
pub(crate) trait Runnable: Send {
    /// Takes one turn. If there is more work afterwards, the run token is queued again by
    /// [`Scheduler::run`].
    fn run_turn(self: Box<Self>);
}

type BoxedRunnable = Box<dyn Runnable>;

#[derive(Default)]
struct ReadyQueue {
    tickets: VecDeque<BoxedRunnable>,
    /// Waker of the scheduler's future, kept between sleeps: a new one costs more than the message
    /// that causes the wake-up.
    waker: Option<Waker>,
    asleep: bool,
    stopped: bool,
}

impl ReadyQueue {
    /// Wakes the scheduler if it sleeps. May be called while a lock is held, as the waker only
    /// queues a task.
    fn wake(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}

/// Scheduler of an arbiter: a queue of its agents that have work to do.
#[derive(Default)]
pub(crate) struct Scheduler {
    ready: Mutex<ReadyQueue>,
    runtime: OnceLock<tokio::runtime::Handle>,
    /// Token that is cancelled once the scheduler gives no more turns.
    ended: CancellationToken,
}

thread_local! {
    /// Address of the scheduler that is running on this thread; 0 if there is none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Queue of run tokens that code on the thread of a scheduler pushes without a lock.
    static LOCAL: RefCell<VecDeque<BoxedRunnable>> = const { RefCell::new(VecDeque::new()) };
    static IS_AGENT_CODE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the current thread is running code of an agent.
pub(crate) fn is_agent_code() -> bool {
    IS_AGENT_CODE.get()
}

/// Runs `f` with the current thread marked as running agent code.
pub(crate) fn run_as_agent<R>(f: impl FnOnce() -> R) -> R {
    let before = IS_AGENT_CODE.replace(true);
    let result = f();
    IS_AGENT_CODE.set(before);
    result
}

impl Scheduler {
    /// Queues the run token `ticket`, so that its agent gets a turn.
    pub(crate) fn run(&self, ticket: BoxedRunnable) {
        if CURRENT.get() == self.address() {
            return LOCAL.with_borrow_mut(|local| local.push_back(ticket));
        }
        let mut ready = self.ready.lock();
        if self.ended.is_cancelled() {
            drop(ready);
            // A run token dropped here ends its agent, which would otherwise wait for ever.
            return drop(ticket);
        }
        ready.tickets.push_back(ticket);
        ready.wake();
    }

    /// Returns the arbiter's runtime; `None` until the scheduler has started there.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.runtime.get().cloned()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Ends the scheduler's future once its queue is empty.
    pub(crate) fn stop(&self) {
        let mut ready = self.ready.lock();
        ready.stopped = true;
        ready.wake();
    }

    /// Starts the actor that runs this scheduler on the current arbiter.
    pub(crate) fn start(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let _ = self.runtime.set(runtime);
        }
        SchedulerActor {
            host: self.clone(),
            turns: None,
        }
        .start();
    }

    /// Moves run tokens queued by other threads to the queue of this thread. Marks the scheduler as
    /// asleep if both queues are empty.
    fn collect(&self, waker: &Waker) -> CollectResult {
        let mut ready = self.ready.lock();
        LOCAL.with_borrow_mut(|local| {
            if local.is_empty() {
                std::mem::swap(local, &mut ready.tickets);
            } else {
                local.append(&mut ready.tickets);
            }
            match (local.is_empty(), ready.stopped) {
                (false, _) => CollectResult::Ready,
                (true, true) => CollectResult::Stopped,
                (true, false) => {
                    if !ready
                        .waker
                        .as_ref()
                        .is_some_and(|kept| kept.will_wake(waker))
                    {
                        ready.waker = Some(waker.clone());
                    }
                    ready.asleep = true;
                    CollectResult::Nothing
                }
            }
        })
    }
}

enum CollectResult {
    Ready,
    Nothing,
    Stopped,
}

impl Drop for SchedulerLoop {
    /// Ends the agents whose run tokens are queued, and those whose tokens are queued later.
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

struct SchedulerActor {
    host: Arc<Scheduler>,
    turns: Option<tokio::task::JoinHandle<()>>,
}

impl Actor for SchedulerActor {
    type Context = ActixContext<Self>;

    fn started(&mut self, cx: &mut Self::Context) {
        let turns = SchedulerLoop {
            host: self.host.clone(),
            local: VecDeque::new(),
            yielding: None,
        };
        // A separate task: as a future of the actor's context, actix would check its mailbox and
        // timers at each wake-up. The address keeps the actor alive until the task has ended, and
        // the actor aborts the task.
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

/// Future that gives turns to agents.
struct SchedulerLoop {
    host: Arc<Scheduler>,
    /// Queue of local run tokens while this future isn't being polled.
    local: VecDeque<BoxedRunnable>,
    yielding: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Future for SchedulerLoop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(yielding) = &mut this.yielding {
            std::task::ready!(yielding.as_mut().poll(cx));
            this.yielding = None;
        }
        let before = CURRENT.replace(this.host.address());
        LOCAL.with_borrow_mut(|local| std::mem::swap(local, &mut this.local));
        let ended = run_as_agent(|| run_turns(&this.host, cx.waker()));
        LOCAL.with_borrow_mut(|local| std::mem::swap(local, &mut this.local));
        CURRENT.set(before);
        match ended {
            CollectResult::Stopped => Poll::Ready(()),
            CollectResult::Nothing => Poll::Pending,
            CollectResult::Ready => {
                // A plain wake would be polled again before timers and sockets; tokio's yield lets
                // them go first.
                let mut yielding: Pin<Box<dyn Future<Output = ()>>> =
                    Box::pin(tokio::task::yield_now());
                let _ = yielding.as_mut().poll(cx);
                this.yielding = Some(yielding);
                Poll::Pending
            }
        }
    }
}

/// Gives agents turns until none is ready, or the thread's other tasks must run.
fn run_turns(host: &Scheduler, waker: &Waker) -> CollectResult {
    let mut began = None;
    let mut turns = 0;
    loop {
        let ticket = match LOCAL.with_borrow_mut(VecDeque::pop_front) {
            Some(ticket) => ticket,
            None => match host.collect(waker) {
                CollectResult::Ready => continue,
                end => return end,
            },
        };
        ticket.run_turn();
        turns += 1;
        if turns % TURNS_PER_CLOCK_CHECK > 0 {
            continue;
        }
        // Tokens from other threads must not starve behind local agents that keep each other busy.
        if let end @ (CollectResult::Nothing | CollectResult::Stopped) = host.collect(waker) {
            return end;
        }
        let out_of_time = began.get_or_insert_with(Instant::now).elapsed() >= POLL_TIME_MAX;
        if turns >= TURNS_PER_POLL_MAX || out_of_time || !tokio::task::coop::has_budget_remaining()
        {
            return CollectResult::Ready;
        }
    }
}

/// Time limit for an arbiter's last turns at shutdown.
const LAST_TURNS_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct ArbiterThreads {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl ArbiterThreads {
    pub(crate) fn start(hosts: Vec<Arc<Scheduler>>) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("callboard".into())
            .spawn(move || {
                actix_rt::System::new().block_on(run_schedulers(hosts, stopped));
                // The receiver may be gone.
                let _ = end.send(());
            })?;
        Ok(Self { stop, ended })
    }

    /// Stops the arbiter threads and waits until they have ended.
    pub(crate) async fn stop_and_join(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

/// Runs the first scheduler on this thread and the others on arbiters of their own, until `stopped`
/// completes.
async fn run_schedulers(hosts: Vec<Arc<Scheduler>>, stopped: oneshot::Receiver<()>) {
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
    // A dropped sender means that the system was dropped.
    let _ = stopped.await;
    // Agents that were told to stop get their last turns.
    for host in &all {
        host.stop();
        let _ = tokio::time::timeout(LAST_TURNS_TIMEOUT, host.ended.cancelled()).await;
    }
    for arbiter in arbiters {
        arbiter.stop();
        let _ = arbiter.join();
    }
}
