//! Tools that ask the caller questions.

use callboard::message::{Elicitation, ElicitationAnswer, Failure, LogLevel, LogMessage, SamplingRequest, ToolResult};
use callboard::{ConcurrentHandler, Context, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{AT_ONCE_MAX, Fixture};

/// Result of a tool.
type Outcome = Result<ToolResult, Failure>;

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<Sampling>(AT_ONCE_MAX)
        .concurrent::<Asking>(AT_ONCE_MAX)
        .concurrent::<Defaults>(AT_ONCE_MAX)
        .concurrent::<Choices>(AT_ONCE_MAX)
        .concurrent::<AskName>(AT_ONCE_MAX)
        .concurrent::<AskModel>(AT_ONCE_MAX)
        .concurrent::<AskFolders>(AT_ONCE_MAX)
        .concurrent::<Confirm>(AT_ONCE_MAX)
        .concurrent::<Sealed>(AT_ONCE_MAX)
        .concurrent::<TwoSteps>(AT_ONCE_MAX)
        .concurrent::<AskAll>(AT_ONCE_MAX)
        .concurrent::<AskAble>(AT_ONCE_MAX)
        .concurrent::<NeedsModel>(AT_ONCE_MAX)
        .concurrent::<Streaming>(AT_ONCE_MAX)
        .sync::<Logging>()
        .concurrent::<ConfirmDelete>(AT_ONCE_MAX)
        .concurrent::<MultiInput>(AT_ONCE_MAX)
        .sync::<ProtocolErrorJob>()
        .concurrent::<ToolWithTask>(AT_ONCE_MAX);
}

/// Asks for a text and waits for the answer. In the modern era the answer arrives under `key`.
pub async fn form(cx: &Context, key: &str, message: &str, field: &str) -> Result<String, Failure> {
    let schema = json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field] });
    let answer = cx.elicit(Elicitation::form(message, schema).with_key(key)).await?;
    let text = answer.content().and_then(|content| content[field].as_str().map(str::to_owned));
    text.ok_or_else(|| Failure::rejected(format!("{message} Nobody said.")))
}

/// Describes the answer to an elicitation.
fn told(answer: &ElicitationAnswer) -> String {
    let action = answer.0.text("action").unwrap_or_default();
    format!("action={action}, content={}", answer.content().unwrap_or(json!({})))
}

/// Requests sampling from the caller's model.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_sampling", reply = ToolResult, fallible)]
struct Sampling {
    /// Prompt of the sampling request.
    prompt: String,
}

impl ConcurrentHandler<Sampling> for Fixture {
    fn handle(&mut self, Sampling { prompt }: Sampling, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let written = cx.sample(SamplingRequest::prompt(prompt, 100)).await?.written_text();
            Ok(ToolResult::text(format!("LLM response: {}", written.unwrap_or_default())))
        }
    }
}

/// Asks a person for a name and an address.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation", reply = ToolResult, fallible)]
struct Asking {
    /// Message to the person.
    message: String,
}

impl ConcurrentHandler<Asking> for Fixture {
    fn handle(&mut self, Asking { message }: Asking, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
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

/// Asks with a form that has defaults.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation_sep1034_defaults", reply = ToolResult, fallible)]
struct Defaults;

impl ConcurrentHandler<Defaults> for Fixture {
    fn handle(&mut self, _: Defaults, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
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

/// Asks for one and for several choices, with and without titles.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_elicitation_sep1330_enums", reply = ToolResult, fallible)]
struct Choices;

impl ConcurrentHandler<Choices> for Fixture {
    fn handle(&mut self, _: Choices, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
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

async fn ask(cx: Context, message: &'static str, fields: Value) -> Outcome {
    let answer = cx.elicit(Elicitation::form(message, json!({ "type": "object", "properties": fields }))).await?;
    Ok(ToolResult::text(format!("Elicitation completed: {}", told(&answer))))
}

/// Asks for a name and greets.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_elicitation", reply = ToolResult, fallible)]
struct AskName;

impl ConcurrentHandler<AskName> for Fixture {
    fn handle(&mut self, _: AskName, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let name = form(&cx, "user_name", "What is your name?", "name").await?;
            Ok(ToolResult::text(format!("Hello, {name}!")))
        }
    }
}

/// Asks the caller's model for a capital.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_sampling", reply = ToolResult, fallible)]
struct AskModel;

impl ConcurrentHandler<AskModel> for Fixture {
    fn handle(&mut self, _: AskModel, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let written = cx
                .sample(SamplingRequest::prompt("What is the capital of France?", 100).with_key("capital_question"))
                .await?
                .written_text();
            Ok(ToolResult::text(written.unwrap_or_default()))
        }
    }
}

/// Asks for the caller's roots.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_list_roots", reply = ToolResult, fallible)]
struct AskFolders;

impl ConcurrentHandler<AskFolders> for Fixture {
    fn handle(&mut self, _: AskFolders, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let roots = cx.roots().await?.roots();
            let uris: Vec<_> = roots.into_iter().map(|root| root.uri).collect();
            Ok(ToolResult::text(format!("Folders: {}", uris.join(", "))))
        }
    }
}

/// Asks for a confirmation.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_request_state", reply = ToolResult, fallible)]
struct Confirm;

impl ConcurrentHandler<Confirm> for Fixture {
    fn handle(&mut self, _: Confirm, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        confirm(cx)
    }
}

/// Asks for a confirmation; an answer with a foreign state token is rejected.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_tampered_state", reply = ToolResult, fallible)]
struct Sealed;

impl ConcurrentHandler<Sealed> for Fixture {
    fn handle(&mut self, _: Sealed, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        confirm(cx)
    }
}

/// Asks two questions in sequence.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_multi_round", reply = ToolResult, fallible)]
struct TwoSteps;

impl ConcurrentHandler<TwoSteps> for Fixture {
    fn handle(&mut self, _: TwoSteps, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let name = form(&cx, "step1", "Step 1: What is your name?", "name").await?;
            let color = form(&cx, "step2", "Step 2: What is your favorite color?", "color").await?;
            Ok(ToolResult::text(format!("{name} likes {color}")))
        }
    }
}

async fn confirm(cx: Context) -> Outcome {
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
    let answer = cx.elicit(Elicitation::form("Please confirm", schema).with_key("confirm")).await?;
    Ok(ToolResult::text(format!("state-ok: {}", told(&answer))))
}

/// Asks a person and a model, and requests roots, all concurrently.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_multiple_inputs", reply = ToolResult, fallible)]
struct AskAll;

impl ConcurrentHandler<AskAll> for Fixture {
    fn handle(&mut self, _: AskAll, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let name = form(&cx, "user_name", "What is your name?", "name");
            let greeting = cx.sample(SamplingRequest::prompt("Generate a greeting", 50).with_key("greeting"));
            let (name, greeting, roots) = futures::try_join!(name, greeting, cx.roots())?;
            let greeting = greeting.written_text().unwrap_or_default();
            Ok(ToolResult::text(format!("{greeting} {name}, of {} folders", roots.roots().len())))
        }
    }
}

/// Asks a model or a person, depending on the caller's capabilities.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_capabilities", reply = ToolResult, fallible)]
struct AskAble;

impl ConcurrentHandler<AskAble> for Fixture {
    fn handle(&mut self, _: AskAble, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            if cx.caller_capabilities().has_sampling() {
                let written = cx.sample(SamplingRequest::prompt("Generate a greeting", 50)).await?.written_text();
                return Ok(ToolResult::text(written.unwrap_or_default()));
            }
            form(&cx, "user_name", "What is your name?", "name").await.map(ToolResult::text)
        }
    }
}

/// Requires the caller's model.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_missing_capability", reply = ToolResult, fallible)]
struct NeedsModel;

impl ConcurrentHandler<NeedsModel> for Fixture {
    fn handle(&mut self, _: NeedsModel, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let written = cx.sample(SamplingRequest::prompt("Generate a greeting", 50)).await?.written_text();
            Ok(ToolResult::text(written.unwrap_or_default()))
        }
    }
}

/// Asks a person.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_streaming_elicitation", reply = ToolResult, fallible)]
struct Streaming;

impl ConcurrentHandler<Streaming> for Fixture {
    fn handle(&mut self, _: Streaming, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move { form(&cx, "user_name", "What is your name?", "name").await.map(ToolResult::text) }
    }
}

/// Writes a log line.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_logging_tool", reply = ToolResult)]
struct Logging;

impl SyncHandler<Logging> for Fixture {
    fn handle(&mut self, _: Logging, cx: &mut Context) -> ToolResult {
        cx.log(LogMessage::new(LogLevel::Info, "conformance", "a line"));
        ToolResult::text("logged")
    }
}

/// Deletes a file after a person has confirmed it.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct ConfirmDelete {
    /// Name of the file.
    filename: String,
}

impl ConcurrentHandler<ConfirmDelete> for Fixture {
    fn handle(
        &mut self,
        ConfirmDelete { filename }: ConfirmDelete,
        cx: Context,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let schema = json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } } });
            let answer = cx.elicit(Elicitation::form(format!("Delete {filename}?"), schema)).await?;
            Ok(ToolResult::text(format!("{filename}: {}", told(&answer))))
        }
    }
}

/// Asks for two names concurrently.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct MultiInput;

impl ConcurrentHandler<MultiInput> for Fixture {
    fn handle(&mut self, _: MultiInput, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let (first, second) =
                (form(&cx, "first", "First name?", "name"), form(&cx, "second", "Second name?", "name"));
            let (first, second) = futures::try_join!(first, second)?;
            Ok(ToolResult::text(format!("{first} and {second}")))
        }
    }
}

/// Fails with a protocol error, not a tool error.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible, task = "optional")]
struct ProtocolErrorJob;

impl SyncHandler<ProtocolErrorJob> for Fixture {
    fn handle(&mut self, _: ProtocolErrorJob, _: &mut Context) -> Outcome {
        Err(Failure::denied("the job may not run"))
    }
}

/// Asks for a name, then greets in the background.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_task", reply = ToolResult, fallible, task = "after_questions")]
struct ToolWithTask;

impl ConcurrentHandler<ToolWithTask> for Fixture {
    fn handle(&mut self, _: ToolWithTask, cx: Context) -> impl Future<Output = Outcome> + Send + 'static {
        async move {
            let name = form(&cx, "user_name", "What is your name?", "name").await?;
            Ok(ToolResult::text(format!("Hello, {name}!")))
        }
    }
}
