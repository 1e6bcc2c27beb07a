use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_runtime::testkit::eventually;
use callboard_runtime::*;

use crate::messages::*;

fn profile(restarts_max: u32) -> AgentProfile {
    let restarts = RestartIntensity {
        restarts_max,
        within: 10 * SECOND,
    };
    AgentProfile {
        restarts,
        backoff: Backoff::NONE,
        ..AgentProfile::default()
    }
}

/// Goal: a panic fails only its ask; a fresh agent takes the queued messages. Method: inline,
/// through the mailbox, and across an await.
#[test]
fn panic_fails_one_ask() {
    for in_place in [true, false] {
        running(async |system| {
            let profile = AgentProfile {
                inline_sync: in_place,
                ..profile(5)
            };
            let counter = system
                .prepare_with(Counter::default)
                .profile(profile)
                .spawn();
            assert_eq!(counter.ask(Add { by: 1 }).await.unwrap(), 1);
            let (boom, after) = futures::join!(counter.ask(Boom), counter.ask(Add { by: 5 }));
            assert!(matches!(boom, Err(SendError::Panicked)));
            assert_eq!(after.unwrap(), 5, "a fresh agent, the queued message");
            let (boom, after) = futures::join!(counter.ask(SlowBoom), counter.ask(Add { by: 7 }));
            assert!(matches!(boom, Err(SendError::Panicked)));
            assert_eq!(after.unwrap(), 7);
            let seen = counter.snapshot();
            assert_eq!(
                (seen.restarts, seen.last_error.as_deref()),
                (2, Some("panicked in an async handler"))
            );
        });
    }
}

/// Goal: N restarts within T are allowed; the next one ends the agent and makes dead letters of its
/// messages; spread wider than T, all are allowed. Method: N = 3 in paused time.
#[test]
fn restart_n_plus_one_escalates() {
    running(async |system| {
        let counter = system
            .prepare_with(Counter::default)
            .profile(profile(3))
            .spawn();
        for _ in 0..3 {
            assert!(matches!(counter.ask(Boom).await, Err(SendError::Panicked)));
        }
        tokio::time::sleep(11 * SECOND).await;
        for _ in 0..3 {
            assert!(matches!(counter.ask(Boom).await, Err(SendError::Panicked)));
        }
        counter.try_tell(Boom).unwrap();
        counter.try_tell(Add { by: 1 }).unwrap();
        assert_eq!(counter.wait_for_exit().await, ExitReason::Failed);
        assert_eq!(system.dead_letters().count(), 1);
        assert_eq!(system.dead_letters().latest()[0].message, "add");
        assert!(matches!(
            counter.ask(Add { by: 1 }).await,
            Err(SendError::Closed {
                message: Add { by: 1 }
            })
        ));
    });
}

/// Goal: delays grow from restart to restart, with jitter, up to a maximum. Method: delays of many
/// restarts.
#[test]
fn backoff_grows() {
    let backoff = Backoff {
        first: Duration::from_millis(100),
        max: SECOND,
        jitter: 0.5,
    };
    for (nth, longest_ms) in [
        (0, 100),
        (1, 200),
        (2, 400),
        (3, 800),
        (4, 1_000),
        (400, 1_000),
    ] {
        let pause = backoff.pause(nth).as_millis();
        assert!(
            (longest_ms / 2..=longest_ms).contains(&pause),
            "{nth}: {pause}"
        );
    }
}

/// Goal: during the delay before a restart, an agent keeps its messages and obeys control messages.
/// Method: a delay of a second in paused time.
#[test]
fn messages_wait_out_the_pause() {
    running(async |system| {
        let backoff = Backoff {
            first: SECOND,
            max: SECOND,
            jitter: 0.0,
        };
        let counter = system
            .prepare_with(Counter::default)
            .profile(AgentProfile {
                backoff,
                ..AgentProfile::default()
            })
            .spawn();
        counter.tell(Boom).await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(counter.ask(Add { by: 2 }).await.unwrap(), 2);
        assert_eq!(began.elapsed().as_secs(), 1);
        counter.tell(Boom).await.unwrap();
        counter.kill();
        assert_eq!(counter.wait_for_exit().await, ExitReason::Killed);
        assert_eq!(began.elapsed().as_secs(), 1);
    });
}

/// Goal: an agent without a factory ends at its first panic. Method: one panic.
#[test]
fn without_a_factory() {
    running(async |system| {
        let counter = system.spawn(Counter::default());
        assert!(matches!(counter.ask(Boom).await, Err(SendError::Panicked)));
        assert_eq!(counter.wait_for_exit().await, ExitReason::Failed);
    });
}

/// Returns a factory that counts its calls in `made`.
fn counted(made: &Arc<AtomicU32>) -> impl Fn() -> Counter + Send + Sync + use<> {
    let made = made.clone();
    move || {
        made.fetch_add(1, SeqCst);
        Counter::default()
    }
}

/// Goal: one-for-one restarts one agent, all-for-one restarts all. Method: two agents each, one
/// panics; count the factories' calls.
#[test]
fn strategies() {
    for (strategy, expected) in [
        (RestartStrategy::OneForOne, 3),
        (RestartStrategy::AllForOne, 4),
    ] {
        running(async |system| {
            let supervisor = Supervisor::new(strategy, RestartIntensity::default(), Backoff::NONE);
            let made = Arc::new(AtomicU32::new(0));
            let [a, b] = [0, 1].map(|_| {
                system
                    .prepare_with(counted(&made))
                    .under(&supervisor)
                    .spawn()
            });
            b.ask(Add { by: 1 }).await.unwrap();
            assert!(matches!(a.ask(Boom).await, Err(SendError::Panicked)));
            assert_eq!(a.ask(Add { by: 1 }).await.unwrap(), 1);
            let kept = if strategy == RestartStrategy::OneForOne {
                1
            } else {
                0
            };
            assert_eq!(b.ask(Add { by: 0 }).await.unwrap(), kept);
            assert_eq!(made.load(SeqCst), expected);
        });
    }
}

/// Goal: a group that exceeds its limit is escalated to its parent, which restarts the group, then
/// gives up and ends all below it. Method: a parent with a limit of one restart over a group with a
/// limit of one, and an agent of the parent's own.
#[test]
fn escalation_through_the_tree() {
    running(async |system| {
        let one = RestartIntensity {
            restarts_max: 1,
            within: 60 * SECOND,
        };
        let root = Supervisor::new(RestartStrategy::OneForOne, one, Backoff::NONE);
        let group = root.child(RestartStrategy::OneForOne, one, Backoff::NONE);
        let made = Arc::new(AtomicU32::new(0));
        let outside = system.prepare_with(Counter::default).under(&root).spawn();
        let [a, b] = [0, 1].map(|_| system.prepare_with(counted(&made)).under(&group).spawn());
        b.ask(Add { by: 1 }).await.unwrap();
        let boom = async || assert!(matches!(a.ask(Boom).await, Err(SendError::Panicked)));
        boom().await; // borne by the group: 3 made
        assert_eq!(b.ask(Add { by: 0 }).await.unwrap(), 1);
        boom().await; // borne by the root: the whole group starts afresh
        eventually("group is fresh", SECOND, || made.load(SeqCst) == 5).await;
        assert_eq!(b.ask(Add { by: 0 }).await.unwrap(), 0);
        boom().await; // the group counts afresh
        a.ask(Add { by: 0 }).await.unwrap();
        boom().await; // nobody bears it
        assert_eq!(a.wait_for_exit().await, ExitReason::Failed);
        assert_eq!(b.wait_for_exit().await, ExitReason::Escalated);
        assert_eq!(outside.wait_for_exit().await, ExitReason::Escalated);
    });
}
