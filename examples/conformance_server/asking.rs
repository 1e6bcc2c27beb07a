//! Tools that ask the caller's model or the person behind it, in mid-call.

use callboard::message::{Elicitation, Failure, Sample, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fields::told;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<Sampling>(AT_ONCE_MAX).concurrent::<Asking>(AT_ONCE_MAX);
}

/// Hands a prompt to the caller's model.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_sampling", reply = ToolResult, fallible)]
struct Sampling {
    /// The prompt.
    prompt: String,
}

impl ConcurrentHandler<Sampling> for Fixture {
    fn handle(
        &mut self,
        Sampling { prompt }: Sampling,
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let written = cx.sample(Sample::prompt(prompt, 100)).await?.written();
            Ok(ToolResult::text(format!("LLM response: {}", written.unwrap_or_default())))
        }
    }
}

/// Asks a person for a name and an address.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation", reply = ToolResult, fallible)]
struct Asking {
    /// What the person reads.
    message: String,
}

impl ConcurrentHandler<Asking> for Fixture {
    fn handle(
        &mut self,
        Asking { message }: Asking,
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let username = json!({ "type": "string", "description": "User's response" });
            let email = json!({ "type": "string", "description": "User's email address" });
            let fields = json!({ "username": username, "email": email });
            let schema = json!({ "type": "object", "properties": fields, "required": ["username", "email"] });
            let answer = cx.elicit(Elicitation::form(message, schema)).await?;
            Ok(ToolResult::text(format!("User response: {}", told(&answer))))
        }
    }
}
