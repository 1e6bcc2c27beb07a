//! Authors of agents: the attribute of their tests, and what their mistakes are answered with.

use std::num::ParseIntError;
use std::thread::{self, ThreadId};
use std::time::Instant;

use callboard_runtime::{Agent, Context, Handlers, SendError, SyncHandler, System};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::messages::{Add, Boom, Counter, SECOND};

/// Goal: a test with the attribute has a system and paused time. Method: a sleep of a day, in less than an hour.
#[callboard_macros::test]
async fn time_is_paused(system: &System) {
    let counter = system.spawn(Counter::default());
    let (began, began_paused) = (Instant::now(), tokio::time::Instant::now());
    sleep(SECOND * 86_400).await;
    assert!(began_paused.elapsed() >= SECOND * 86_400);
    assert!(began.elapsed() < SECOND * 3_600);
    assert_eq!(counter.ask(Add { by: 2 }).await.unwrap(), 2);
    // The attribute shuts the system down: otherwise the agent that still runs would fail the test.
}

/// Goal: a test may do without the system and return a `Result`. Method: one with `?`.
#[callboard_macros::test]
async fn results_are_allowed() -> Result<(), ParseIntError> {
    assert_eq!("7".parse::<u32>()?, 7);
    Ok(())
}

/// Goal: a test that panics fails, as its own attributes expect. Method: a wrong assertion with `#[should_panic]`, while an
/// agent runs.
#[callboard_macros::test]
#[should_panic(expected = "the count is 1")]
async fn panics_fail(system: &System) {
    let counter = system.spawn(Counter::default());
    let count = counter.ask(Add { by: 1 }).await.unwrap();
    assert_eq!(count, 0, "the count is {count}");
}

/// Goal: with `real_time`, time isn't paused. Method: a sleep that lasts by the clock of the machine.
#[callboard_macros::test(real_time)]
async fn time_is_real(_system: &System) {
    let (pause, began) = (SECOND / 100, Instant::now());
    sleep(pause).await;
    assert!(began.elapsed() >= pause);
}

/// Goal: with `arbiters`, agents run on threads of their own. Method: the ids of the threads on which two agents start.
#[callboard_macros::test(arbiters = 2)]
async fn agents_have_threads(system: &System) {
    struct Located(Option<oneshot::Sender<ThreadId>>);
    impl Agent for Located {
        fn handlers(_: &mut Handlers<Self>) {}

        fn started(&mut self, _: &mut Context) {
            if let Some(place) = self.0.take() {
                place.send(thread::current().id()).unwrap();
            }
        }
    }
    let mut places = vec![thread::current().id()];
    for _ in 0..2 {
        let (place, located) = oneshot::channel();
        system.spawn(Located(Some(place)));
        places.push(located.await.unwrap());
    }
    assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2]);
}

/// Goal: a handler that was implemented and not registered is found by the first message. Method: the error of a message that
/// nobody registered, and its text.
#[callboard_macros::test]
async fn unregistered_handlers_are_named(system: &System) {
    struct Forgetful;
    impl Agent for Forgetful {
        fn handlers(on: &mut Handlers<Self>) {
            on.sync::<Add>();
        }
    }
    impl SyncHandler<Add> for Forgetful {
        fn handle(&mut self, add: Add, _: &mut Context) -> u64 {
            add.by
        }
    }
    let agent = system.prepare(Forgetful).label("forgetful").spawn();
    assert!(agent.recipient::<Add>().is_some());
    assert!(agent.recipient::<Boom>().is_none());
    let error = agent.tell(Boom).await.unwrap_err();
    assert!(matches!(
        error,
        SendError::NotHandled {
            message: Boom,
            name: "boom",
            ..
        }
    ));
    let text = error.to_string();
    for part in [
        "forgetful (Forgetful",
        "no handler for boom",
        "`on.sync::<Boom>()`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A release build tells nobody which messages an agent has.
    assert_eq!(
        text.contains("handles add"),
        cfg!(debug_assertions),
        "{text}"
    );
}

/// Goal: typical mistakes are answered with the remedy. Method: compile a program with each, and compare the output with the
/// file beside it. `TRYBUILD=overwrite cargo test -p callboard-runtime mistakes` writes these files.
#[test]
fn mistakes_are_answered() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
