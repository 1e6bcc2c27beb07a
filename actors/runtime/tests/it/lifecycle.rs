use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use callboard_macros::Message;
use callboard_runtime::testkit::{Probe, eventually, run_with_paused_time};
use callboard_runtime::*;
use serde_json::json;

use crate::messages::*;

/// Goal: a test that leaves agents running fails. Method: such a test, caught.
#[test]
fn leaks_fail_the_test() {
    let leaks = catch_unwind(AssertUnwindSafe(|| {
        run_with_paused_time(async |system| {
            system.spawn(Counter::default());
        });
    }));
    let message = *leaks.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(
        message,
        "1 agents still run: did you call System::shutdown?"
    );
}

/// Passes itself to the other agent this many times.
#[derive(Message)]
#[message(local)]
struct Relay {
    left: u32,
}

#[derive(Default)]
struct Runner {
    other: Option<AgentRef>,
    handled: u32,
}

/// Sets the other agent.
#[derive(Message)]
#[message(local)]
struct Meet(AgentRef);

impl Agent for Runner {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<Relay>().sync::<Meet>();
    }
}

impl SyncHandler<Meet> for Runner {
    fn handle(&mut self, message: Meet, _: &mut Context) {
        self.other = Some(message.0);
    }
}

impl Handler<Relay> for Runner {
    async fn handle(&mut self, message: Relay, _: &mut Context) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.handled += 1;
        if let (Some(other), Some(left)) = (&self.other, message.left.checked_sub(1)) {
            other.tell(Relay { left }).await.unwrap();
        }
    }
}

/// Goal: shutdown rejects messages from outside, lets agents finish those between them, and ends
/// within its limit. Method: two agents that pass a message to and fro for a second.
#[test]
fn shutdown_drains() {
    for (left, limit, report) in [
        (
            100,
            2 * SECOND,
            ShutdownReport {
                drained: 2,
                killed: 0,
            },
        ),
        (
            1_000,
            SECOND,
            ShutdownReport {
                drained: 1,
                killed: 1,
            },
        ),
    ] {
        run_with_paused_time(async |system| {
            let [a, b] = [0, 1].map(|_| system.spawn(Runner::default()));
            a.tell(Meet(b.clone())).await.unwrap();
            b.tell(Meet(a.clone())).await.unwrap();
            a.tell(Relay { left }).await.unwrap();
            let began = tokio::time::Instant::now();
            let late = async {
                tokio::time::sleep(SECOND / 10).await;
                assert!(matches!(
                    a.tell(Relay { left: 0 }).await,
                    Err(SendError::Closed { .. })
                ));
            };
            let (ended, ()) = futures::join!(system.shutdown(limit), late);
            assert_eq!(ended, report);
            assert!(began.elapsed() <= limit + Duration::from_millis(10));
            assert_eq!(system.snapshot(), []);
            assert_eq!(a.snapshot().state, AgentState::Ended);
        });
    }
}

/// Goal: stop handles the queued messages, kill makes dead letters of them, and callers are told.
/// Method: a slow handler in front.
#[test]
fn stop_and_kill() {
    running(async |system| {
        for (kill, expected) in [
            (false, Ok(3)),
            (
                true,
                Err("the agent ended before it replied; whether it acted is unknown".to_owned()),
            ),
        ] {
            let counter = system.spawn(Counter::default());
            counter
                .tell(SlowAdd {
                    by: 1,
                    pause: SECOND,
                })
                .await
                .unwrap();
            let mut queued = Box::pin(counter.ask(Add { by: 2 }));
            assert!(futures::poll!(queued.as_mut()).is_pending());
            eventually("it runs", SECOND, || counter.snapshot().in_flight == 1).await;
            if kill {
                counter.kill()
            } else {
                counter.stop()
            }
            let (answer, why) = futures::join!(queued, counter.wait_for_exit());
            assert_eq!(answer.map_err(|e| e.to_string()), expected);
            assert_eq!(
                why,
                if kill {
                    ExitReason::Killed
                } else {
                    ExitReason::Stopped
                }
            );
            assert!(matches!(
                counter.try_tell(Add { by: 1 }),
                Err(SendError::Closed {
                    message: Add { by: 1 }
                })
            ));
        }
        assert_eq!(system.dead_letters().count(), 1);
    });
}

/// Goal: only the latest dead letters are kept, but all are counted. Method: limit + 1.
#[test]
fn dead_letters_are_bounded() {
    running(async |system| {
        let profile = AgentProfile::default().mailbox_capacity(2_000);
        let counter = system.prepare(Counter::default()).profile(profile).spawn();
        counter
            .tell(SlowAdd {
                by: 1,
                pause: SECOND,
            })
            .await
            .unwrap();
        eventually("it runs", SECOND, || counter.snapshot().in_flight == 1).await;
        for _ in 0..=DEAD_LETTERS_KEPT_MAX {
            counter.try_tell(Add { by: 1 }).unwrap();
        }
        counter.kill();
        counter.wait_for_exit().await;
        assert_eq!(
            system.dead_letters().count(),
            DEAD_LETTERS_KEPT_MAX as u64 + 1
        );
        assert_eq!(system.dead_letters().latest().len(), DEAD_LETTERS_KEPT_MAX);
    });
}

/// Watches another agent and counts ticks.
#[derive(Default)]
struct Watcher {
    ended: Vec<String>,
    ticks: u32,
}

/// Sets the agent to watch.
#[derive(Message)]
#[message(local)]
struct Watch(AgentRef);

/// Tick of a timer.
#[derive(Message)]
#[message(local)]
struct Tick;

/// Starts two timers.
#[derive(Message)]
#[message(local)]
struct Start;

impl Agent for Watcher {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Watch>().sync::<Tick>().sync::<Start>();
    }

    fn terminated(&mut self, who: AgentId, why: ExitReason, _: &mut Context) {
        self.ended.push(format!("{who} {why:?}"));
    }

    fn observe(&self) -> serde_json::Value {
        json!({ "ended": self.ended, "ticks": self.ticks })
    }
}

impl SyncHandler<Watch> for Watcher {
    fn handle(&mut self, message: Watch, cx: &mut Context) {
        cx.watch(&message.0);
    }
}

impl SyncHandler<Tick> for Watcher {
    fn handle(&mut self, _: Tick, _: &mut Context) {
        self.ticks += 1;
    }
}

impl SyncHandler<Start> for Watcher {
    fn handle(&mut self, _: Start, cx: &mut Context) {
        cx.tell_after(SECOND, Tick);
        cx.tell_every(2 * SECOND, || Tick);
        cx.tell_after(SECOND, Tick).cancel();
    }
}

/// Goal: watchers are notified of an agent's end, even if it ended long ago. Method: watch before,
/// and after.
#[test]
fn death_watch() {
    running(async |system| {
        let [first, second] = [0, 1].map(|_| system.spawn(Counter::default()));
        let watcher = system
            .prepare(Watcher::default())
            .profile(AgentProfile::default().without_inline())
            .spawn();
        watcher.ask(Watch(first.clone())).await.unwrap();
        first.kill();
        second.stop();
        second.wait_for_exit().await;
        watcher.ask(Watch(second.clone())).await.unwrap();
        let expected = json!([
            format!("{} Killed", first.id()),
            format!("{} Stopped", second.id())
        ]);
        assert_eq!(watcher.observe().await["ended"], expected);
    });
}

/// Goal: timers fire once or periodically, until cancelled or the agent ends. Method: five paused
/// seconds.
#[test]
fn timers() {
    running(async |system| {
        let watcher = system
            .prepare(Watcher::default())
            .profile(AgentProfile::default().without_inline())
            .spawn();
        watcher.ask(Start).await.unwrap();
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(watcher.observe().await["ticks"], 3);
    });
}

/// Opens the gate.
#[derive(Message)]
#[message(local)]
struct Open;

/// Is stashed until the gate is open.
#[derive(Message)]
#[message(reply = u32, local)]
struct Enter(u32);

#[derive(Default)]
struct Door {
    open: bool,
    entered: u32,
}

impl Agent for Door {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Open>().sync::<Enter>();
    }

    fn profile() -> AgentProfile {
        AgentProfile {
            stash_capacity: 3,
            ..AgentProfile::default()
        }
    }
}

impl SyncHandler<Open> for Door {
    fn handle(&mut self, _: Open, cx: &mut Context) {
        self.open = true;
        cx.unstash();
    }
}

impl SyncHandler<Enter> for Door {
    fn handle(&mut self, message: Enter, _: &mut Context) -> u32 {
        self.entered = self.entered * 10 + message.0;
        self.entered
    }

    fn ready(&self, _: &Enter) -> bool {
        self.open
    }
}

/// Goal: messages that the agent isn't ready for are stashed in order, with their replies; at limit
/// + 1 the ask fails. Method: four asks before the gate opens, one after.
#[test]
fn stash() {
    running(async |system| {
        let door = system.spawn(Door::default());
        let early = futures::future::join_all((1..=4).map(|n| door.ask(Enter(n))));
        let opened = async {
            door.ask(Open).await.unwrap();
            door.ask(Enter(9)).await.unwrap()
        };
        let (early, last) = futures::join!(early, opened);
        let early: Vec<_> = early
            .into_iter()
            .map(|answer| answer.map_err(|e| e.to_string()))
            .collect();
        assert_eq!(
            early,
            [Ok(1), Ok(12), Ok(123), Err("the agent isn't ready, and its stash of waiting messages is full: try again later".to_owned())]
        );
        assert_eq!(last, 1239);
        assert_eq!(system.dead_letters().count(), 1);
    });
}

/// Goal: a probe records the messages sent to it. Method: the kit's own probe.
#[test]
fn probe() {
    running(async |system| {
        let (probe, mut seen) = Probe::<Add>::spawn(system, |add| add.by + 1);
        assert_eq!(probe.ask(Add { by: 1 }).await.unwrap(), 2);
        assert_eq!(seen.recv().await, Some(Add { by: 1 }));
    });
}
