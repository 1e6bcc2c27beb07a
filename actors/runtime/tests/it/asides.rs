use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Principal;
use callboard_runtime::testkit::{eventually, run_with_paused_time, run_with_real_time};
use callboard_runtime::*;
use futures::FutureExt;
use tokio::sync::Semaphore;

use crate::messages::{SECOND, running};

/// Waits for a permit or its cancellation, then cleans up for this long. Replies with the thread
/// that ran it.
#[derive(Message)]
#[message(reply = ThreadId, local)]
struct Wait {
    tidy: Duration,
}

#[derive(Message)]
#[message(local)]
struct Panic {
    at_once: bool,
}

/// Sleeps for an hour, if the handler runs on this thread; otherwise panics.
#[derive(Message)]
#[message(local)]
struct Sleep {
    on: ThreadId,
}

/// Returns the number of handlers that this incarnation has started.
#[derive(Message)]
#[message(reply = u32, local)]
struct Begun;

#[derive(Clone)]
struct Waiter {
    begun: u32,
    permits: Arc<Semaphore>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    told: Arc<AtomicU32>,
    tidied: Arc<AtomicU32>,
}

impl Default for Waiter {
    fn default() -> Self {
        Self {
            begun: 0,
            permits: Arc::new(Semaphore::new(0)),
            running: Arc::default(),
            most: Arc::default(),
            told: Arc::default(),
            tidied: Arc::default(),
        }
    }
}

impl Agent for Waiter {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Wait>(2)
            .concurrent::<Panic>(1)
            .concurrent::<Sleep>(1)
            .sync::<Begun>();
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().inline_concurrent()
    }
}

impl ConcurrentHandler<Wait> for Waiter {
    fn handle(
        &mut self,
        message: Wait,
        cx: Context,
    ) -> impl Future<Output = ThreadId> + Send + 'static {
        self.begun += 1;
        let shared = self.clone();
        async move {
            let running = shared.running.fetch_add(1, SeqCst) + 1;
            shared.most.fetch_max(running, SeqCst);
            tokio::select! {
                permit = shared.permits.acquire() => permit.unwrap().forget(),
                () = cx.cancelled() => {
                    shared.told.fetch_add(1, SeqCst);
                    tokio::time::sleep(message.tidy).await;
                    shared.tidied.fetch_add(1, SeqCst);
                }
            }
            shared.running.fetch_sub(1, SeqCst);
            std::thread::current().id()
        }
    }
}

impl ConcurrentHandler<Panic> for Waiter {
    fn handle(&mut self, message: Panic, _: Context) -> impl Future<Output = ()> + Send + 'static {
        self.begun += 1;
        assert!(!message.at_once, "as it was told");
        async {
            tokio::task::yield_now().await;
            panic!("as it was told");
        }
    }
}

impl ConcurrentHandler<Sleep> for Waiter {
    fn handle(&mut self, message: Sleep, _: Context) -> impl Future<Output = ()> + Send + 'static {
        self.begun += 1;
        async move {
            assert_eq!(std::thread::current().id(), message.on);
            tokio::time::sleep(3_600 * SECOND).await;
        }
    }
}

impl SyncHandler<Begun> for Waiter {
    fn handle(&mut self, _: Begun, _: &mut Context) -> u32 {
        self.begun
    }
}

fn wait() -> Wait {
    Wait {
        tidy: Duration::ZERO,
    }
}

/// Goal: a concurrent handler runs in the caller's task if the profile allows it, and on the
/// agent's own arbiter if not, if the agent is busy, or if the caller has no runtime. Method: an
/// agent on another thread.
#[test]
fn where_handlers_run() {
    let system = System::start(1).unwrap();
    let (waiter, pinned) = (Waiter::default(), AgentProfile::default());
    let permits = waiter.permits.clone();
    let here = std::thread::current().id();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let agent = system.spawn(waiter.clone());
    let elsewhere = system
        .prepare_with(move || waiter.clone())
        .profile(pinned)
        .spawn();
    runtime.block_on(async {
        // The agent starts with its first message.
        assert_eq!(
            agent.ask(Begun).await.unwrap() + elsewhere.ask(Begun).await.unwrap(),
            0
        );
        eventually("it rests", SECOND, || agent.snapshot().mailbox_depth == 0).await;
        permits.add_permits(2);
        assert_eq!(agent.ask(wait()).await.unwrap(), here);
        assert_ne!(elsewhere.ask(wait()).await.unwrap(), here);
    });
    permits.add_permits(1);
    let mut ask = Box::pin(agent.ask(wait()));
    assert!(
        ask.as_mut().now_or_never().is_none(),
        "begun where there is no runtime"
    );
    assert_ne!(runtime.block_on(ask).unwrap(), here);
    runtime.block_on(system.shutdown(SECOND));
}

/// Goal: a handler with a timer that outlives the runtime of its caller ends with it, and does the
/// agent no harm. Method: a handler in a task of a runtime that shuts down.
#[test]
fn a_runtime_ends_before_its_handlers() {
    let system = System::start(1).unwrap();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let agent = system.spawn(Waiter::default());
    let of_caller = runtime();
    of_caller.block_on(async {
        assert_eq!(agent.ask(Begun).await.unwrap(), 0);
        eventually("it rests", SECOND, || agent.snapshot().mailbox_depth == 0).await;
        let (agent, on) = (agent.clone(), std::thread::current().id());
        tokio::spawn(async move { agent.ask(Sleep { on }).await });
        // Its timer is there once the task waits.
        tokio::task::yield_now().await;
    });
    assert_eq!(agent.snapshot().in_flight, 1);
    drop(of_caller);
    runtime().block_on(async {
        // The agent has got the handler by now.
        assert_eq!(agent.ask(Begun).await.unwrap(), 1);
        eventually("it has ended", SECOND, || agent.snapshot().in_flight == 0).await;
        let AgentSnapshot {
            last_error,
            restarts,
            ..
        } = agent.snapshot();
        assert_eq!((last_error, restarts), (None, 0));
        assert_eq!(agent.ask(Begun).await.unwrap(), 1);
        system.shutdown(SECOND).await;
    });
}

/// Goal: the limit of concurrent handlers holds wherever they run, and waiting messages continue
/// when one ends. Method: five asks of an agent that takes two.
#[test]
fn in_flight_is_bounded() {
    running(async |system| {
        let waiter = Waiter::default();
        let (permits, most) = (waiter.permits.clone(), waiter.most.clone());
        let agent = system.spawn(waiter);
        assert_eq!(agent.ask(Begun).await.unwrap(), 0);
        let mut asks: Vec<_> = (0..5).map(|_| Box::pin(agent.ask(wait()))).collect();
        for ask in &mut asks {
            assert!(futures::poll!(ask.as_mut()).is_pending());
        }
        assert_eq!(agent.snapshot().in_flight, 2);
        permits.add_permits(5);
        for answer in futures::future::join_all(asks).await {
            answer.unwrap();
        }
        assert_eq!((most.load(SeqCst), agent.snapshot().in_flight), (2, 0));
    });
}

/// Goal: a stopped agent ends after its handlers in other tasks; a killed agent or system ends at
/// once, and they with it. Method: one handler in progress.
#[test]
fn ends() {
    for how in ["stop", "shutdown", "kill"] {
        run_with_paused_time(async |system| {
            let waiter = Waiter::default();
            let (permits, tidied) = (waiter.permits.clone(), waiter.tidied.clone());
            let agent = system.spawn(waiter);
            assert_eq!(agent.ask(Begun).await.unwrap(), 0);
            let mut ask = Box::pin(agent.ask(wait()));
            assert!(futures::poll!(ask.as_mut()).is_pending());
            let mut ended = Box::pin(agent.wait_for_exit());
            let mut shutdown = Box::pin(system.shutdown(SECOND));
            match how {
                "stop" => agent.stop(),
                "kill" => agent.kill(),
                _ => assert!(futures::poll!(shutdown.as_mut()).is_pending()),
            }
            if how == "kill" {
                assert_eq!(ended.await, ExitReason::Killed);
                assert!(matches!(ask.await, Err(SendError::Stopped)));
            } else {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                    assert!(futures::poll!(ended.as_mut()).is_pending());
                }
                permits.add_permits(1);
                ask.await.unwrap();
                if how == "shutdown" {
                    assert_eq!(shutdown.await.killed, 0);
                    return;
                }
                assert_eq!(ended.await, ExitReason::Stopped);
            }
            assert_eq!(tidied.load(SeqCst), 0);
            shutdown.await;
        });
    }
}

/// Goal: a panic costs one reply and the state, wherever it happens; other handlers continue.
/// Method: one panic at the start, one after an await, next to a handler that waits.
#[test]
fn panics() {
    for at_once in [true, false] {
        running(async |system| {
            let waiter = Waiter::default();
            let permits = waiter.permits.clone();
            let agent = system.spawn_with(move || waiter.clone());
            assert_eq!(agent.ask(Begun).await.unwrap(), 0);
            let mut beside = Box::pin(agent.ask(wait()));
            assert!(futures::poll!(beside.as_mut()).is_pending());
            assert!(matches!(
                agent.ask(Panic { at_once }).await,
                Err(SendError::Panicked)
            ));
            assert_eq!(agent.ask(Begun).await.unwrap(), 0, "a fresh one");
            assert_eq!(agent.snapshot().restarts, 1);
            permits.add_permits(1);
            beside.await.unwrap();
        });
    }
}

/// Goal: a dropped or late ask and a cancelled call notify the handler, which has its grace period
/// to clean up; then its place is free. Method: a grace of one second, and handlers that need less
/// or more.
#[test]
fn cancelled_handlers_have_their_grace() {
    for (tidy, tidied) in [(SECOND / 2, 1), (2 * SECOND, 0)] {
        for how in ["drop", "deadline", "call"] {
            running(async |system| {
                let waiter = Waiter::default();
                let (told, done) = (waiter.told.clone(), waiter.tidied.clone());
                let agent = system.spawn(waiter);
                assert_eq!(agent.ask(Begun).await.unwrap(), 0);
                match how {
                    "drop" => {
                        let mut ask = Box::pin(agent.ask(Wait { tidy }));
                        assert!(futures::poll!(ask.as_mut()).is_pending());
                    }
                    "deadline" => {
                        let late = agent.ask(Wait { tidy }).within(SECOND).await;
                        assert!(
                            matches!(late, Err(SendError::TimedOut(after)) if after >= SECOND),
                            "{late:?}"
                        );
                    }
                    _ => {
                        let mut call = agent.call(Wait { tidy }).start();
                        let _ = futures::poll!(Box::pin(call.next()).as_mut());
                        eventually("it runs", SECOND, || agent.snapshot().in_flight == 1).await;
                        call.cancel();
                        assert_eq!(call.reply().await.is_ok(), tidied == 1);
                    }
                }
                tokio::time::sleep(SECOND + SECOND / 4).await;
                eventually("its place is free", SECOND, || {
                    agent.snapshot().in_flight == 0
                })
                .await;
                assert_eq!((told.load(SeqCst), done.load(SeqCst)), (1, tidied), "{how}");
            });
        }
    }
}

/// Goal: an ask ends at its deadline even if its call was cancelled before and the handler still
/// cleans up. Method: a cancellation at half the time, with a grace that lasts longer than the
/// rest.
#[test]
fn cancelled_asks_end_at_their_deadline() {
    running(async |system| {
        let agent = system.spawn(Waiter::default());
        assert_eq!(agent.ask(Begun).await.unwrap(), 0);
        let began = tokio::time::Instant::now();
        let call =
            CallContext::new(Arc::new(Principal::agent("ann"))).with_deadline(began + SECOND);
        let cancel = call.cancel.clone();
        let ask = agent
            .ask(Wait { tidy: 2 * SECOND })
            .within_call(Some(Arc::new(call)));
        let cancelling = async {
            tokio::time::sleep(SECOND / 2).await;
            cancel.cancel();
        };
        let (late, ()) = tokio::join!(ask, cancelling);
        assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
        assert!(
            began.elapsed() < SECOND + SECOND / 4,
            "{:?}",
            began.elapsed()
        );
    });
}

/// Goal: no message is lost or stuck when many threads ask one agent. Method: callers on four
/// threads, each of which drops every third ask.
#[test]
fn askers_on_many_threads() {
    const ASKS: u32 = 300;
    run_with_real_time(async |system| {
        let waiter = Waiter::default();
        let (permits, most) = (waiter.permits.clone(), waiter.most.clone());
        permits.add_permits(Semaphore::MAX_PERMITS / 2);
        let agent = system.spawn(waiter);
        let askers: Vec<_> = (0..4)
            .map(|_| {
                let agent = agent.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    runtime.block_on(async {
                        for nth in 0..ASKS {
                            let mut ask = Box::pin(agent.ask(wait()));
                            match nth % 3 {
                                0 => drop(futures::poll!(ask.as_mut())),
                                _ => drop(ask.await.unwrap()),
                            }
                        }
                    });
                })
            })
            .collect();
        eventually("all have ended", 60 * SECOND, || {
            askers.iter().all(|asker| asker.is_finished())
        })
        .await;
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        eventually("nothing runs", SECOND, || agent.snapshot().in_flight == 0).await;
        assert!(most.load(SeqCst) <= 2);
        system.shutdown(SECOND).await;
    });
}
