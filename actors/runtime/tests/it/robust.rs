use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use callboard_macros::Message;
use callboard_runtime::testkit::{eventually, run_with_paused_time, run_with_real_time};
use callboard_runtime::*;

use crate::messages::*;

/// Panics in `ready`.
#[derive(Message)]
#[message(local)]
struct Bad;

/// Starts a timer that adds one.
#[derive(Message)]
#[message(local)]
struct Arm;

/// Sets the agent to watch.
#[derive(Message)]
#[message(local)]
struct Watch(AgentRef);

/// Blocks its handler for this long.
#[derive(Message)]
#[message(local)]
struct Hold(Duration);

#[derive(Default, Clone)]
struct Fragile {
    added: Arc<AtomicU32>,
    told: Arc<AtomicU32>,
    /// Panics when it is dropped, if set.
    _shard: Shard,
}

#[derive(Default, Clone)]
struct Shard(bool);

impl Drop for Shard {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "as the test wants");
    }
}

impl Agent for Fragile {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Bad>()
            .sync::<Arm>()
            .sync::<Watch>()
            .sync::<Add>()
            .sync::<Boom>()
            .exclusive::<Hold>();
    }

    fn terminated(&mut self, _: AgentId, _: ExitReason, _: &mut Context) {
        self.told.fetch_add(1, SeqCst);
    }
}

impl SyncHandler<Bad> for Fragile {
    fn handle(&mut self, _: Bad, _: &mut Context) {}

    fn ready(&self, _: &Bad) -> bool {
        panic!("as the test wants")
    }
}

impl SyncHandler<Arm> for Fragile {
    fn handle(&mut self, _: Arm, cx: &mut Context) {
        cx.tell_after(Duration::from_millis(5), Add { by: 1 });
    }
}

impl SyncHandler<Watch> for Fragile {
    fn handle(&mut self, message: Watch, cx: &mut Context) {
        cx.watch(&message.0);
    }
}

impl SyncHandler<Add> for Fragile {
    fn handle(&mut self, message: Add, _: &mut Context) -> u64 {
        u64::from(self.added.fetch_add(message.by as u32, SeqCst)) + message.by
    }
}

impl SyncHandler<Boom> for Fragile {
    fn handle(&mut self, _: Boom, _: &mut Context) {
        panic!("boom")
    }
}

impl Handler<Hold> for Fragile {
    async fn handle(&mut self, message: Hold, _: &mut Context) {
        tokio::time::sleep(message.0).await;
    }
}

/// Goal: a panic in `ready` costs only its message. Method: inline and queued, in a small and a
/// large mailbox.
#[test]
fn ready_panics() {
    for (in_place, mailbox_capacity) in [(true, 16), (false, 16), (false, 1_024)] {
        running(async |system| {
            let profile = AgentProfile {
                inline_sync: in_place,
                mailbox_capacity,
                backoff: Backoff::NONE,
                ..AgentProfile::default()
            };
            let agent = system
                .prepare_with(Fragile::default)
                .profile(profile)
                .spawn();
            agent.observe().await;
            assert!(matches!(agent.ask(Bad).await, Err(SendError::Panicked)));
            assert_eq!(agent.ask(Add { by: 1 }).await.unwrap(), 1);
            assert_eq!(agent.snapshot().mailbox_depth, 0);
        });
    }
}

/// Goal: a state that panics on drop doesn't affect other agents on its arbiter. Method: a restart
/// of such an agent.
#[test]
fn drop_panics() {
    running(async |system| {
        let other = system.spawn(Counter::default());
        let make = || Fragile {
            _shard: Shard(true),
            ..Fragile::default()
        };
        let fragile = system
            .prepare_with(make)
            .profile(AgentProfile::default().without_inline())
            .spawn();
        assert!(matches!(fragile.ask(Boom).await, Err(SendError::Panicked)));
        assert_eq!(
            other
                .ask(SlowAdd {
                    by: 1,
                    pause: SECOND
                })
                .await
                .unwrap(),
            1
        );
    });
}

/// Goal: an exit that happens while a handler has the agent is reported afterwards. Method: a
/// watched agent that ends meanwhile.
#[test]
fn ends_are_told_late() {
    running(async |system| {
        let told = Arc::new(AtomicU32::new(0));
        let watcher = system.spawn(Fragile {
            told: told.clone(),
            ..Fragile::default()
        });
        let watched = system.spawn(Counter::default());
        watcher.ask(Watch(watched.clone())).await.unwrap();
        watcher.tell(Hold(SECOND)).await.unwrap();
        eventually("it stands", SECOND, || watcher.snapshot().in_flight == 1).await;
        watched.kill();
        watched.wait_for_exit().await;
        watcher.ask(Add { by: 0 }).await.unwrap();
        assert_eq!(told.load(SeqCst), 1);
    });
}

/// Goal: a waiting sender doesn't block the shutdown of a draining system. Method: it gives up
/// after the agent's last turn.
#[test]
fn senders_in_line_at_shutdown() {
    for capacity in [1, 256] {
        run_with_paused_time(async |system| {
            let profile = AgentProfile::default().mailbox_capacity(capacity);
            let agent = system.prepare(Fragile::default()).profile(profile).spawn();
            agent.tell(Hold(SECOND)).await.unwrap();
            eventually("it stands", SECOND, || agent.snapshot().in_flight == 1).await;
            while agent.try_tell(Add { by: 1 }).is_ok() {}
            let sender = agent.clone();
            let waiting = tokio::spawn(async move { sender.tell(Add { by: 1 }).await.is_err() });
            tokio::task::yield_now().await;
            let began = tokio::time::Instant::now();
            system.shutdown(100 * SECOND).await;
            assert!(began.elapsed() < 5 * SECOND);
            assert!(waiting.await.unwrap(), "the mailbox was closed to it");
        });
    }
}

/// Goal: dropping a system without shutdown leaves no caller waiting. Method: an ask in progress,
/// on one and two arbiters.
#[test]
fn dropped_systems() {
    run_with_real_time(async |_| {
        for arbiters in [1, 2, 1, 2] {
            let system = System::start(arbiters).unwrap();
            let agent = system.spawn(Fragile::default());
            let asking = agent.clone();
            let asked =
                tokio::spawn(async move { asking.ask(Hold(1_000 * SECOND)).await.is_err() });
            eventually("it stands", SECOND, || agent.snapshot().in_flight == 1).await;
            drop(system);
            assert!(
                tokio::time::timeout(5 * SECOND, asked)
                    .await
                    .unwrap()
                    .unwrap()
            );
        }
    });
}

/// Goal: the caller of an agent that is killed during a handler gets `Stopped`. Method: kill during
/// an ask.
#[test]
fn killed_in_flight() {
    running(async |system| {
        let agent = system.spawn(Fragile::default());
        let asking = agent.clone();
        let asked = tokio::spawn(async move { asking.ask(Hold(SECOND)).await });
        eventually("it stands", SECOND, || agent.snapshot().in_flight == 1).await;
        agent.kill();
        assert!(matches!(asked.await.unwrap(), Err(SendError::Stopped)));
    });
}

/// Goal: a timer started by an inline handler outlives the caller's runtime. Method: that runtime
/// ends before it fires.
#[test]
fn timers_of_askers() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let system = System::start(1).unwrap();
    let added = Arc::new(AtomicU32::new(0));
    let agent = system.spawn(Fragile {
        added: added.clone(),
        ..Fragile::default()
    });
    runtime().block_on(async {
        agent.observe().await;
        agent.ask(Arm).await.unwrap();
    });
    runtime().block_on(async {
        eventually("it fires", 5 * SECOND, || added.load(SeqCst) == 1).await;
        system.shutdown(SECOND).await;
    });
}

/// Goal: a call cancelled before it starts isn't handled, not even inline. Method: a cancelled
/// call.
#[test]
fn cancelled_before_it_begins() {
    running(async |system| {
        let added = Arc::new(AtomicU32::new(0));
        let agent = system.spawn(Fragile {
            added: added.clone(),
            ..Fragile::default()
        });
        agent.observe().await;
        let call = agent.call(Add { by: 1 }).start();
        call.cancel();
        assert!(matches!(call.reply().await, Err(SendError::Cancelled)));
        assert_eq!(added.load(SeqCst), 0);
    });
}

/// Goal: watchers that have ended are removed. Method: 100 of them watch one that lives on; now and
/// then they are removed together.
#[test]
fn watchers_are_let_go() {
    running(async |system| {
        let long = system.spawn(Counter::default());
        let held = Arc::new(AtomicU32::new(0));
        for _ in 0..100 {
            let short = system.spawn(Fragile {
                told: held.clone(),
                ..Fragile::default()
            });
            short.ask(Watch(long.clone())).await.unwrap();
            short.stop();
            short.wait_for_exit().await;
        }
        assert!(Arc::strong_count(&held) <= 3);
    });
}
