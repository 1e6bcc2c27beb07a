//! Tasks that ask a person.

use callboard::message::{Elicitation, Failure, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fields::{form, told};
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<ConfirmDelete>(AT_ONCE_MAX).concurrent::<MultiInput>(AT_ONCE_MAX);
}

/// Deletes a file once a person has confirmed it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct ConfirmDelete {
    /// Which.
    filename: String,
}

impl ConcurrentHandler<ConfirmDelete> for Fixture {
    fn handle(
        &mut self,
        ConfirmDelete { filename }: ConfirmDelete,
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let schema = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } } });
            let answer = cx.elicit(Elicitation::form(format!("Delete {filename}?"), schema)).await?;
            Ok(ToolResult::text(format!("{filename}: {}", told(&answer))))
        }
    }
}

/// Asks for two names at once.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct MultiInput;

impl ConcurrentHandler<MultiInput> for Fixture {
    fn handle(&mut self, _: MultiInput, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let (first, second) =
                (form(&cx, "first", "First name?", "name"), form(&cx, "second", "Second name?", "name"));
            let (first, second) = futures::try_join!(first, second)?;
            Ok(ToolResult::text(format!("{first} and {second}")))
        }
    }
}
