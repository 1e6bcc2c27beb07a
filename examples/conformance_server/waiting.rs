//! Tools that take their time, and say what they do meanwhile.

use std::time::Duration;

use callboard::message::{Log, LogLevel, Progress, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{AT_ONCE_MAX, Fixture};

const STEP: Duration = Duration::from_millis(50);

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<WithLogging>(AT_ONCE_MAX).concurrent::<WithProgress>(AT_ONCE_MAX);
}

/// Logs three lines.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_logging", reply = ToolResult)]
struct WithLogging;

impl ConcurrentHandler<WithLogging> for Fixture {
    fn handle(&mut self, _: WithLogging, cx: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                cx.log(Log::new(LogLevel::Info, "conformance", line));
                sleep(STEP).await;
            }
            ToolResult::text("Tool with logging executed successfully")
        }
    }
}

/// Tells its progress three times.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_progress", reply = ToolResult)]
struct WithProgress;

impl ConcurrentHandler<WithProgress> for Fixture {
    fn handle(&mut self, _: WithProgress, cx: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for done in [0.0, 50.0, 100.0] {
                cx.progress(Progress { done, total: Some(100.0), message: None });
                sleep(STEP).await;
            }
            ToolResult::text("Tool with progress executed successfully")
        }
    }
}
