//! An agent that the tests share.

use callboard_macros::Message;
use callboard_runtime::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adds to the counter.
#[derive(Message, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(reply = u64)]
pub struct Add {
    /// How much.
    pub by: u64,
}

/// Adds slowly: reads, waits, writes.
#[derive(Message, Debug)]
#[message(reply = u64, local)]
pub struct SlowAdd {
    pub by: u64,
    pub pause: std::time::Duration,
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
        on.sync::<Add>().exclusive::<SlowAdd>().sync::<Boom>().exclusive::<SlowBoom>();
    }

    fn observe(&self) -> serde_json::Value {
        self.total.into()
    }
}

impl SyncHandler<Add> for Counter {
    fn handle(&mut self, message: Add, _: &mut Cx) -> u64 {
        self.total += message.by;
        self.total
    }
}

impl Handler<SlowAdd> for Counter {
    async fn handle(&mut self, message: SlowAdd, _: &mut Cx) -> u64 {
        let before = self.total;
        tokio::time::sleep(message.pause).await;
        self.total = before + message.by;
        self.total
    }
}

impl SyncHandler<Boom> for Counter {
    fn handle(&mut self, _: Boom, _: &mut Cx) {
        panic!("boom");
    }
}

impl Handler<SlowBoom> for Counter {
    async fn handle(&mut self, _: SlowBoom, _: &mut Cx) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        panic!("slow boom");
    }
}
