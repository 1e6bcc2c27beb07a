//! Tools that take a second.

use std::time::Duration;

use callboard::message::ToolResult;
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{AT_ONCE_MAX, Fixture};

/// Longer than the server keeps a stream open: the caller fetches the reply by another.
const RECONNECTION: Duration = Duration::from_secs(1);

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<Reconnection>(AT_ONCE_MAX).concurrent::<FailingJob>(AT_ONCE_MAX);
}

/// Takes so long that the caller has to connect again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_reconnection", reply = ToolResult)]
struct Reconnection;

impl ConcurrentHandler<Reconnection> for Fixture {
    fn handle(&mut self, _: Reconnection, _: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(RECONNECTION).await;
            ToolResult::text("Reconnection test completed successfully")
        }
    }
}

/// Works for a second, in vain.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "required")]
struct FailingJob;

impl ConcurrentHandler<FailingJob> for Fixture {
    fn handle(&mut self, _: FailingJob, _: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::from_secs(1)).await;
            ToolResult::error("the job failed")
        }
    }
}
