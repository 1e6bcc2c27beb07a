//! Forms with defaults and with every kind of choice.

use callboard::message::{Elicitation, Failure, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fields::told;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<Defaults>(AT_ONCE_MAX).concurrent::<Choices>(AT_ONCE_MAX);
}

/// Asks with a form that is filled in already.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation_sep1034_defaults", reply = ToolResult, fallible)]
struct Defaults;

impl ConcurrentHandler<Defaults> for Fixture {
    fn handle(&mut self, _: Defaults, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let fields = json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        });
        ask(cx, "Please review and update the form fields with defaults", fields)
    }
}

/// Asks for one and for several of a list, with titles and without.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation_sep1330_enums", reply = ToolResult, fallible)]
struct Choices;

impl ConcurrentHandler<Choices> for Fixture {
    fn handle(&mut self, _: Choices, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let plain = json!(["option1", "option2", "option3"]);
        let choice = |value: &str, title: &str| json!({ "const": value, "title": title });
        let titled = [choice("value1", "First"), choice("value2", "Second"), choice("value3", "Third")];
        let names = json!(["Option One", "Option Two", "Option Three"]);
        let fields = json!({
            "untitledSingle": { "type": "string", "enum": plain },
            "titledSingle": { "type": "string", "oneOf": titled },
            "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled } },
        });
        ask(cx, "Please select options from the enum fields", fields)
    }
}

async fn ask(cx: Cx, message: &'static str, fields: Value) -> Result<ToolResult, Failure> {
    let answer = cx.elicit(Elicitation::form(message, json!({ "type": "object", "properties": fields }))).await?;
    Ok(ToolResult::text(format!("Elicitation completed: {}", told(&answer))))
}
