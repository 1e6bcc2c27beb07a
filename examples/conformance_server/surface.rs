//! Resources and prompts.

use callboard::message::capabilities::{
    CompleteArgument, CompleteResult, GetPrompt, GetPromptResult, ListPrompts, ListResourceTemplates, ListResources,
    ReadResource, ReadResourceResult,
};
use callboard::message::{Content, Failure, RawObject, ResourceContent, Speaker};
use callboard::{ConcurrentHandler, Context, Handlers, SyncHandler};
use serde_json::json;

use crate::questions::form;
use crate::{AT_ONCE_MAX, Fixture, PIXEL};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<ListResources>()
        .sync::<ListResourceTemplates>()
        .sync::<ReadResource>()
        .sync::<ListPrompts>()
        .concurrent::<GetPrompt>(AT_ONCE_MAX)
        .sync::<CompleteArgument>();
}

impl SyncHandler<ListResources> for Fixture {
    fn handle(&mut self, _: ListResources, _: &mut Context) -> Result<RawObject, Failure> {
        let resource = |name: &str, mime_type: &str| {
            let uri = format!("test://{name}");
            json!({ "uri": uri, "name": name, "description": "A resource for testing", "mimeType": mime_type })
        };
        let text = [resource("static-text", "text/plain"), resource("watched-resource", "text/plain")];
        let all: Vec<_> = text.into_iter().chain([resource("static-binary", "image/png")]).collect();
        Ok(RawObject::single("resources", all))
    }
}

impl SyncHandler<ListResourceTemplates> for Fixture {
    fn handle(&mut self, _: ListResourceTemplates, _: &mut Context) -> Result<RawObject, Failure> {
        let address = "test://template/{id}/data";
        let family = json!({ "uriTemplate": address, "name": "template", "description": "Data by id" });
        Ok(RawObject::single("resourceTemplates", [family]))
    }
}

impl SyncHandler<ReadResource> for Fixture {
    fn handle(&mut self, wanted: ReadResource, _: &mut Context) -> Result<ReadResourceResult, Failure> {
        let uri = wanted.uri();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let content = match (&*uri, id) {
            ("test://static-text", _) => {
                ResourceContent::text(&uri, "text/plain", "This is the content of the static text resource.")
            }
            ("test://watched-resource", _) => ResourceContent::text(&uri, "text/plain", "Watched resource content"),
            ("test://static-binary", _) => ResourceContent::blob(&uri, "image/png", PIXEL),
            (_, Some(id)) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                ResourceContent::text(&uri, "application/json", data.to_string())
            }
            _ => return Err(Failure::not_found(format!("there is no resource {uri}"))),
        };
        Ok(ReadResourceResult::from_contents([content]))
    }
}

impl SyncHandler<ListPrompts> for Fixture {
    fn handle(&mut self, _: ListPrompts, _: &mut Context) -> Result<RawObject, Failure> {
        serde_json::from_str(include_str!("prompts.json")).map_err(|e| Failure::internal(e.to_string()))
    }
}

impl ConcurrentHandler<GetPrompt> for Fixture {
    fn handle(
        &mut self,
        wanted: GetPrompt,
        cx: Context,
    ) -> impl Future<Output = Result<GetPromptResult, Failure>> + Send + 'static {
        async move {
            Ok(GetPromptResult::from_turns(blocks(wanted, cx).await?.into_iter().map(|block| (Speaker::User, block))))
        }
    }
}

async fn blocks(wanted: GetPrompt, cx: Context) -> Result<Vec<Content>, Failure> {
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
        other => return Err(Failure::not_found(format!("there is no prompt {other}"))),
    })
}

impl SyncHandler<CompleteArgument> for Fixture {
    fn handle(&mut self, begun: CompleteArgument, _: &mut Context) -> Result<CompleteResult, Failure> {
        let words = ["paris", "park", "party", "test1", "test2"].map(str::to_owned);
        Ok(CompleteResult::from_values(words.into_iter().filter(|word| word.starts_with(&begun.typed_value()))))
    }
}
