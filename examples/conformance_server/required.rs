//! A task that is refused, and one that begins once its question is answered.

use callboard::message::{Failure, ToolResult};
use callboard::{ConcurrentHandler, Cx, FailureKind, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::form;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<ProtocolErrorJob>().concurrent::<ToolWithTask>(AT_ONCE_MAX);
}

/// Is refused by the protocol's own word, not by the tool's.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct ProtocolErrorJob;

impl SyncHandler<ProtocolErrorJob> for Fixture {
    fn handle(&mut self, _: ProtocolErrorJob, _: &mut Cx) -> Result<ToolResult, Failure> {
        Err(Failure::new(FailureKind::Denied, "the job may not run"))
    }
}

/// Asks for a name, then greets in the background.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_task", reply = ToolResult, fallible, task = "after_questions")]
struct ToolWithTask;

impl ConcurrentHandler<ToolWithTask> for Fixture {
    fn handle(
        &mut self,
        _: ToolWithTask,
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let name = form(&cx, "user_name", "What is your name?", "name").await?;
            Ok(ToolResult::text(format!("Hello, {name}!")))
        }
    }
}
