//! Tools that ask one question: of a person, of a model, about folders.

use callboard::message::{Failure, Sample, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fields::form;
use crate::{AT_ONCE_MAX, Fixture};

pub fn register(on: &mut Handlers<Fixture>) {
    on.concurrent::<AskName>(AT_ONCE_MAX).concurrent::<AskModel>(AT_ONCE_MAX).concurrent::<AskFolders>(AT_ONCE_MAX);
}

/// Asks for a name and greets.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_elicitation", reply = ToolResult, fallible)]
struct AskName;

impl ConcurrentHandler<AskName> for Fixture {
    fn handle(&mut self, _: AskName, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
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
    fn handle(&mut self, _: AskModel, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let written = cx
                .sample(Sample::prompt("What is the capital of France?", 100).key("capital_question"))
                .await?
                .written();
            Ok(ToolResult::text(written.unwrap_or_default()))
        }
    }
}

/// Asks which folders the caller lends.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_input_required_result_list_roots", reply = ToolResult, fallible)]
struct AskFolders;

impl ConcurrentHandler<AskFolders> for Fixture {
    fn handle(&mut self, _: AskFolders, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let roots = cx.roots().await?.roots();
            let uris: Vec<_> = roots.into_iter().map(|root| root.uri).collect();
            Ok(ToolResult::text(format!("Folders: {}", uris.join(", "))))
        }
    }
}
