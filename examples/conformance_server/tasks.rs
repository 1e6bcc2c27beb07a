//! Tools that may, or must, run as tasks.

use std::time::Duration;

use callboard::message::ToolResult;
use callboard::{ConcurrentHandler, Cx, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<Greet>().concurrent::<SlowCompute>(AT_ONCE_MAX);
}

/// Greets, at once.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Greet {
    /// Whom.
    name: String,
}

impl SyncHandler<Greet> for Fixture {
    fn handle(&mut self, Greet { name }: Greet, _: &mut Cx) -> ToolResult {
        ToolResult::text(format!("Hello, {name}!"))
    }
}

/// Takes so many seconds.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "optional")]
struct SlowCompute {
    /// How long.
    seconds: f64,
    /// What it is called in the reply.
    #[serde(default)]
    label: String,
}

impl ConcurrentHandler<SlowCompute> for Fixture {
    fn handle(
        &mut self,
        SlowCompute { seconds, label }: SlowCompute,
        _: Cx,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
            ToolResult::text(format!("{label} took {seconds} seconds"))
        }
    }
}
