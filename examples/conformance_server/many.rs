//! Tools that ask several questions at once, or only those that the caller can answer.

use callboard::message::{Failure, Sample, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::form;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<AskAll>(AT_ONCE_MAX).concurrent::<AskAble>(AT_ONCE_MAX);
}

/// Asks a person, a model, and for folders, all at once.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_multiple_inputs", reply = ToolResult, fallible)]
struct AskAll;

impl ConcurrentHandler<AskAll> for Fixture {
    fn handle(&mut self, _: AskAll, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let name = form(&cx, "user_name", "What is your name?", "name");
            let greeting = cx.sample(Sample::prompt("Generate a greeting", 50).key("greeting"));
            let (name, greeting, roots) = futures::try_join!(name, greeting, cx.roots())?;
            let greeting = greeting.written().unwrap_or_default();
            Ok(ToolResult::text(format!("{greeting} {name}, of {} folders", roots.roots().len())))
        }
    }
}

/// Asks a model or a person, whichever the caller has.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_capabilities", reply = ToolResult, fallible)]
struct AskAble;

impl ConcurrentHandler<AskAble> for Fixture {
    fn handle(&mut self, _: AskAble, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            if cx.abilities().sampling() {
                let written = cx.sample(Sample::prompt("Generate a greeting", 50)).await?.written();
                return Ok(ToolResult::text(written.unwrap_or_default()));
            }
            form(&cx, "user_name", "What is your name?", "name").await.map(ToolResult::text)
        }
    }
}
