//! What only the revision without sessions asks for: capabilities and log levels by request.

use callboard::message::{Failure, Log, LogLevel, Sample, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::form;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<NeedsModel>(AT_ONCE_MAX).concurrent::<Streaming>(AT_ONCE_MAX);
    on.sync::<Logging>();
}

/// Needs the caller's model.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_missing_capability", reply = ToolResult, fallible)]
struct NeedsModel;

impl ConcurrentHandler<NeedsModel> for Fixture {
    fn handle(&mut self, _: NeedsModel, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let written = cx.sample(Sample::prompt("Generate a greeting", 50)).await?.written();
            Ok(ToolResult::text(written.unwrap_or_default()))
        }
    }
}

/// Asks a person.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_streaming_elicitation", reply = ToolResult, fallible)]
struct Streaming;

impl ConcurrentHandler<Streaming> for Fixture {
    fn handle(&mut self, _: Streaming, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move { form(&cx, "user_name", "What is your name?", "name").await.map(ToolResult::text) }
    }
}

/// Logs a line, for callers who want to see it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_logging_tool", reply = ToolResult)]
struct Logging;

impl SyncHandler<Logging> for Fixture {
    fn handle(&mut self, _: Logging, cx: &mut Cx) -> ToolResult {
        cx.log(Log::new(LogLevel::Info, "conformance", "a line"));
        ToolResult::text("logged")
    }
}
