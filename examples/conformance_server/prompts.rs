//! Prompts, and how their arguments may go on.

use callboard::message::surface::{Complete, CompleteResult, GetPrompt, GetPromptResult, ListPrompts};
use callboard::message::{Content, Failure, RawObject, ResourceContent, Speaker};
use callboard::{ConcurrentHandler, Cx, FailureKind, Handlers, SyncHandler};

use crate::fields::form;
use crate::{AT_ONCE_MAX, Fixture, PIXEL};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<ListPrompts>().concurrent::<GetPrompt>(AT_ONCE_MAX).sync::<Complete>();
}

impl SyncHandler<ListPrompts> for Fixture {
    fn handle(&mut self, _: ListPrompts, _: &mut Cx) -> Result<RawObject, Failure> {
        serde_json::from_str(include_str!("prompts.json")).map_err(|e| Failure::internal(e.to_string()))
    }
}

impl ConcurrentHandler<GetPrompt> for Fixture {
    fn handle(
        &mut self,
        wanted: GetPrompt,
        cx: Cx,
    ) -> impl Future<Output = Result<GetPromptResult, Failure>> + Send + 'static {
        async move { Ok(GetPromptResult::of(blocks(wanted, cx).await?.into_iter().map(|block| (Speaker::User, block)))) }
    }
}

async fn blocks(wanted: GetPrompt, cx: Cx) -> Result<Vec<Content>, Failure> {
    let argument = |name: &str| wanted.argument(name).ok_or_else(|| Failure::invalid(format!("{name} is missing")));
    let text = |text: &str| Content::text(text);
    Ok(match &*wanted.name() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            vec![text(&format!("Prompt with arguments: arg1='{}', arg2='{}'", argument("arg1")?, argument("arg2")?))]
        }
        "test_prompt_with_embedded_resource" => {
            let held = "Embedded resource content for testing.";
            let resource = Content::resource(ResourceContent::text(&argument("resourceUri")?, "text/plain", held));
            vec![resource, text("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => vec![Content::image(PIXEL, "image/png"), text("Please analyze the image above.")],
        "test_input_required_result_prompt" => {
            let context = form(&cx, "user_context", "What context should the prompt use?", "context").await?;
            vec![text(&format!("Use this context: {context}"))]
        }
        other => return Err(Failure::new(FailureKind::NotFound, format!("there is no prompt {other}"))),
    })
}

impl SyncHandler<Complete> for Fixture {
    fn handle(&mut self, begun: Complete, _: &mut Cx) -> Result<CompleteResult, Failure> {
        let words = ["paris", "park", "party", "test1", "test2"].map(str::to_owned);
        Ok(CompleteResult::of(words.into_iter().filter(|word| word.starts_with(&begun.typed()))))
    }
}
