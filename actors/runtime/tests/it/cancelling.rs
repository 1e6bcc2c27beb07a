use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Principal;
use callboard_runtime::testkit::eventually;
use callboard_runtime::*;

use crate::messages::{SECOND, running};

/// Waits to be told that it is cancelled, then tidies up for so long.
#[derive(Message)]
#[message(local)]
struct Wait {
    tidy: Duration,
}

/// Is answered when the agent is free.
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
    async fn handle(&mut self, message: Wait, cx: &mut Cx) {
        self.state += 1;
        cx.cancelled().await;
        self.told.fetch_add(1, SeqCst);
        tokio::time::sleep(message.tidy).await;
        self.tidied.fetch_add(1, SeqCst);
    }
}

impl SyncHandler<Free> for Waiter {
    fn handle(&mut self, _: Free, _: &mut Cx) -> u32 {
        self.state
    }
}

/// Waits in the task of whoever asked, where it may.
#[derive(Default)]
struct Beside;

impl Agent for Beside {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Wait>(1);
    }
}

impl ConcurrentHandler<Wait> for Beside {
    fn handle(&mut self, _: Wait, _: Cx) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }
}

/// Goal: a deadline ends as a timeout, also where the handler's own watch of it comes first; a cancelled call ends as cancelled.
/// Method: handlers without grace, run by the agent's host and in the asker's task.
#[test]
fn deadlines_are_timeouts() {
    for profile in [Profile::default(), Profile::default().with_askers()] {
        let profile = Profile {
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
            let past = CallMeta::new(Arc::new(Principal::local_operator()))
                .until(tokio::time::Instant::now());
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
    /// What the agent's state is afterwards.
    state: u32,
    tidied: u32,
}

/// Goal: dropping an ask, cancelling its call and passing its deadline each tell the running handler, and after a grace stop it at
/// its next await and free its slot. The state is kept if the handler ended, or is cancel-safe; else a fresh agent takes over.
/// Method: a grace of one second, a handler that tidies shorter or longer than that.
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
                    .profile(Profile {
                        cancel_safe,
                        ..Profile::default()
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

/// Goal: what is cancelled before its turn is never begun. Method: it waits behind another, is dropped, and the agent counts.
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

/// Goal: a call that is cancelled while its message waits for room is over at once. Method: a full mailbox of one.
#[test]
fn waiting_for_room() {
    running(async |system| {
        let agent = system
            .prepare_with(Waiter::default)
            .profile(Profile {
                mailbox_capacity: 1,
                ..Profile::default()
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
        let call = CallMeta::new(Arc::new(Principal::agent("ann")));
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
