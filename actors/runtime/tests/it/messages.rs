//! Messages and a counter agent shared by the tests.

use std::time::Duration;

use callboard_macros::Message;
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const SECOND: Duration = Duration::from_secs(1);

/// Runs `test` in paused time, with a system that is shut down afterwards.
pub fn running(test: impl AsyncFnOnce(&System)) {
    run_with_paused_time(async |system| {
        test(system).await;
        system.shutdown(SECOND).await;
    });
}

/// Adds to the counter.
#[derive(Message, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(reply = u64)]
pub struct Add {
    /// Amount to add.
    pub by: u64,
}

/// Adds slowly: reads, waits, writes.
#[derive(Message, Debug)]
#[message(reply = u64, local)]
pub struct SlowAdd {
    pub by: u64,
    pub pause: Duration,
}

/// Panics, at once or across an await.
#[derive(Message, Debug)]
#[message(local)]
pub struct Boom;

/// Panics across an await.
#[derive(Message, Debug)]
#[message(local)]
pub struct SlowBoom;

#[derive(Default)]
pub struct Counter {
    pub total: u64,
}

impl Agent for Counter {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>()
            .exclusive::<SlowAdd>()
            .sync::<Boom>()
            .exclusive::<SlowBoom>();
    }

    fn observe(&self) -> serde_json::Value {
        self.total.into()
    }
}

impl SyncHandler<Add> for Counter {
    fn handle(&mut self, message: Add, _: &mut Context) -> u64 {
        self.total += message.by;
        self.total
    }
}

impl Handler<SlowAdd> for Counter {
    async fn handle(&mut self, message: SlowAdd, _: &mut Context) -> u64 {
        let before = self.total;
        tokio::time::sleep(message.pause).await;
        self.total = before + message.by;
        self.total
    }
}

impl SyncHandler<Boom> for Counter {
    fn handle(&mut self, _: Boom, _: &mut Context) {
        panic!("boom");
    }
}

impl Handler<SlowBoom> for Counter {
    async fn handle(&mut self, _: SlowBoom, _: &mut Context) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        panic!("slow boom");
    }
}
