//! Tools that go on where they paused: the state of their calls travels, sealed, with the caller.

use callboard::message::{Elicitation, Failure, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fields::{form, told};
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<Confirm>(AT_ONCE_MAX).concurrent::<Sealed>(AT_ONCE_MAX).concurrent::<TwoSteps>(AT_ONCE_MAX);
}

/// Asks for a confirmation.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_request_state", reply = ToolResult, fallible)]
struct Confirm;

impl ConcurrentHandler<Confirm> for Fixture {
    fn handle(&mut self, _: Confirm, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        confirm(cx)
    }
}

/// Asks for a confirmation; an answer with another's state is refused.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_tampered_state", reply = ToolResult, fallible)]
struct Sealed;

impl ConcurrentHandler<Sealed> for Fixture {
    fn handle(&mut self, _: Sealed, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        confirm(cx)
    }
}

/// Asks twice, one question after the other.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_multi_round", reply = ToolResult, fallible)]
struct TwoSteps;

impl ConcurrentHandler<TwoSteps> for Fixture {
    fn handle(&mut self, _: TwoSteps, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let name = form(&cx, "step1", "Step 1: What is your name?", "name").await?;
            let color = form(&cx, "step2", "Step 2: What is your favorite color?", "color").await?;
            Ok(ToolResult::text(format!("{name} likes {color}")))
        }
    }
}

async fn confirm(cx: Cx) -> Result<ToolResult, Failure> {
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
    let answer = cx.elicit(Elicitation::form("Please confirm", schema).key("confirm")).await?;
    Ok(ToolResult::text(format!("state-ok: {}", told(&answer))))
}
