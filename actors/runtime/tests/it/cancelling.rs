use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Principal;
use callboard_runtime::testkit::eventually;
use callboard_runtime::*;

use crate::messages::{SECOND, running};

/// Waits until it is cancelled, then cleans up for this long.
#[derive(Message)]
#[message(local)]
struct Wait {
    tidy: Duration,
}

/// Gets a reply once the agent is free.
#[derive(Message)]
#[message(reply = u32, local)]
struct Free;

#[derive(Default)]
struct Waiter {
    state: u32,
    told: Arc<AtomicU32>,
    tidied: Arc<AtomicU32>,
}

impl Agent for Waiter {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Wait>().sync::<Free>();
    }
}

impl Handler<Wait> for Waiter {
    async fn handle(&mut self, message: Wait, cx: &mut Context) {
        self.state += 1;
        cx.cancelled().await;
        self.told.fetch_add(1, SeqCst);
        tokio::time::sleep(message.tidy).await;
        self.tidied.fetch_add(1, SeqCst);
    }
}

impl SyncHandler<Free> for Waiter {
    fn handle(&mut self, _: Free, _: &mut Context) -> u32 {
        self.state
    }
}

/// Agent that waits in the caller's task if possible.
#[derive(Default)]
struct Beside;

impl Agent for Beside {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Wait>(1);
    }
}

impl ConcurrentHandler<Wait> for Beside {
    fn handle(&mut self, _: Wait, _: Context) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }
}

/// Goal: a missed deadline is a timeout even if the handler notices it first; a cancelled call is
/// reported as cancelled. Method: handlers without grace, on the agent's arbiter and in the
/// caller's task.
#[test]
fn deadlines_are_timeouts() {
    for profile in [
        AgentProfile::default(),
        AgentProfile::default().inline_concurrent(),
    ] {
        let profile = AgentProfile {
            cancel_grace: Duration::ZERO,
            ..profile
        };
        running(async |system| {
            let agent = system
                .prepare_with(Beside::default)
                .profile(profile.clone())
                .spawn();
            let late = agent.ask(Wait { tidy: SECOND }).within(SECOND).await;
            assert!(
                matches!(late, Err(SendError::TimedOut(after)) if after >= SECOND),
                "{late:?}"
            );
            let call = agent.call(Wait { tidy: SECOND }).within(SECOND).start();
            call.cancel();
            assert!(matches!(call.reply().await, Err(SendError::Cancelled)));
            let past = CallContext::new(Arc::new(Principal::local_operator()))
                .with_deadline(tokio::time::Instant::now());
            let late = agent
                .ask(Wait { tidy: SECOND })
                .within_call(Some(Arc::new(past)))
                .await;
            assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
        });
    }
}

struct Case {
    tidy: Duration,
    cancel_safe: bool,
    /// Expected state of the agent afterwards.
    state: u32,
    tidied: u32,
}

/// Goal: dropping an ask, cancelling its call and passing its deadline each notify the running
/// handler, stop it after a grace period at its next await, and free its slot. The state is kept if
/// the handler ended or is cancel-safe; else a fresh agent takes over. Method: a grace of one
/// second, and handlers that need less or more.
#[test]
fn running_handlers() {
    let cases = [
        Case {
            tidy: SECOND / 2,
            cancel_safe: false,
            state: 1,
            tidied: 1,
        },
        Case {
            tidy: 2 * SECOND,
            cancel_safe: false,
            state: 0,
            tidied: 0,
        },
        Case {
            tidy: 2 * SECOND,
            cancel_safe: true,
            state: 1,
            tidied: 0,
        },
    ];
    for Case {
        tidy,
        cancel_safe,
        state,
        tidied,
    } in cases
    {
        for how in ["drop", "deadline", "call"] {
            running(async |system| {
                let (told, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
                let (told_, done_) = (told.clone(), done.clone());
                let make = move || Waiter {
                    state: 0,
                    told: told_.clone(),
                    tidied: done_.clone(),
                };
                let agent = system
                    .prepare_with(make)
                    .profile(AgentProfile {
                        cancel_safe,
                        ..AgentProfile::default()
                    })
                    .spawn();
                match how {
                    "drop" => {
                        let mut ask = Box::pin(agent.ask(Wait { tidy }));
                        assert!(futures::poll!(ask.as_mut()).is_pending());
                        eventually("it runs", SECOND, || agent.snapshot().in_flight == 1).await;
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
                        let ended = call.reply().await;
                        assert_eq!(ended.is_ok(), tidied == 1, "{ended:?}");
                    }
                }
                let began = tokio::time::Instant::now();
                assert_eq!(agent.ask(Free).await.unwrap(), state, "{how}");
                assert!(
                    began.elapsed() <= SECOND,
                    "the slot was freed within the grace"
                );
                assert_eq!((told.load(SeqCst), done.load(SeqCst)), (1, tidied), "{how}");
            });
        }
    }
}

/// Goal: a message cancelled before its turn is never started. Method: it waits behind another, is
/// dropped, and the agent counts.
#[test]
fn queued_messages() {
    running(async |system| {
        let agent = system.spawn_with(Waiter::default);
        let mut first = Box::pin(agent.ask(Wait {
            tidy: Duration::ZERO,
        }));
        let mut second = Box::pin(agent.ask(Wait {
            tidy: Duration::ZERO,
        }));
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(futures::poll!(second.as_mut()).is_pending());
        eventually("it runs", SECOND, || agent.snapshot().in_flight == 1).await;
        drop(second);
        drop(first);
        assert_eq!(agent.ask(Free).await.unwrap(), 1);
    });
}

/// Goal: a call cancelled while its message waits for room ends at once. Method: a full mailbox of
/// one.
#[test]
fn waiting_for_room() {
    running(async |system| {
        let agent = system
            .prepare_with(Waiter::default)
            .profile(AgentProfile {
                mailbox_capacity: 1,
                ..AgentProfile::default()
            })
            .spawn();
        let mut running = Box::pin(agent.ask(Wait {
            tidy: Duration::ZERO,
        }));
        assert!(futures::poll!(running.as_mut()).is_pending());
        eventually("it runs", SECOND, || agent.snapshot().in_flight == 1).await;
        let mut queued = Box::pin(agent.ask(Wait {
            tidy: Duration::ZERO,
        }));
        assert!(futures::poll!(queued.as_mut()).is_pending());
        let call = CallContext::new(Arc::new(Principal::agent("ann")));
        let cancel = call.cancel.clone();
        let mut waiting = Box::pin(
            agent
                .ask(Wait {
                    tidy: Duration::ZERO,
                })
                .within_call(Some(call.into())),
        );
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        cancel.cancel();
        assert!(matches!(waiting.await, Err(SendError::Cancelled)));
        drop((queued, running));
    });
}
