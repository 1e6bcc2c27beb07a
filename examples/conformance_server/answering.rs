//! Tools that answer by themselves: with content, with changes, after a while.

use std::time::Duration;

use callboard::message::{Change, Content, Log, LogLevel, Progress, RawObject, ResourceContent, ToolResult};
use callboard::{ConcurrentHandler, Cx, Handlers, Message, SyncHandler};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{AT_ONCE_MAX, Fixture, PIXEL};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<SimpleText>()
        .sync::<ImageContent>()
        .sync::<AudioContent>()
        .sync::<ErrorHandling>()
        .sync::<EmbeddedResource>()
        .sync::<MultipleContentTypes>()
        .sync::<Schema2020>()
        .sync::<ChangeTools>()
        .sync::<ChangePrompts>()
        .sync::<Routed>()
        .concurrent::<WithLogging>(AT_ONCE_MAX)
        .concurrent::<WithProgress>(AT_ONCE_MAX)
        .sync::<Greet>()
        .concurrent::<SlowCompute>(AT_ONCE_MAX)
        .concurrent::<Reconnection>(AT_ONCE_MAX)
        .concurrent::<FailingJob>(AT_ONCE_MAX);
}

const SILENCE: &[u8] = include_bytes!("silence.wav");

/// Answers a sentence.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_simple_text", reply = ToolResult)]
struct SimpleText;

impl SyncHandler<SimpleText> for Fixture {
    fn handle(&mut self, _: SimpleText, _: &mut Cx) -> ToolResult {
        ToolResult::text("This is a simple text response for testing.")
    }
}

/// Answers a picture.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_image_content", reply = ToolResult)]
struct ImageContent;

impl SyncHandler<ImageContent> for Fixture {
    fn handle(&mut self, _: ImageContent, _: &mut Cx) -> ToolResult {
        ToolResult::of([Content::image(PIXEL, "image/png")])
    }
}

/// Answers a sound.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_audio_content", reply = ToolResult)]
struct AudioContent;

impl SyncHandler<AudioContent> for Fixture {
    fn handle(&mut self, _: AudioContent, _: &mut Cx) -> ToolResult {
        ToolResult::of([Content::audio(SILENCE, "audio/wav")])
    }
}

/// Fails, always.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_error_handling", reply = ToolResult)]
struct ErrorHandling;

impl SyncHandler<ErrorHandling> for Fixture {
    fn handle(&mut self, _: ErrorHandling, _: &mut Cx) -> ToolResult {
        ToolResult::error("This tool intentionally returns an error for testing")
    }
}

/// Answers a resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_embedded_resource", reply = ToolResult)]
struct EmbeddedResource;

impl SyncHandler<EmbeddedResource> for Fixture {
    fn handle(&mut self, _: EmbeddedResource, _: &mut Cx) -> ToolResult {
        let text = "This is an embedded resource content.";
        ToolResult::of([Content::resource(ResourceContent::text("test://embedded-resource", "text/plain", text))])
    }
}

/// Answers text, a picture and a resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_multiple_content_types", reply = ToolResult)]
struct MultipleContentTypes;

impl SyncHandler<MultipleContentTypes> for Fixture {
    fn handle(&mut self, _: MultipleContentTypes, _: &mut Cx) -> ToolResult {
        let json = r#"{"test":"data","value":123}"#;
        let resource = ResourceContent::text("test://mixed-content-resource", "application/json", json);
        let text = Content::text("Multiple content types test:");
        ToolResult::of([text, Content::image(PIXEL, "image/png"), Content::resource(resource)])
    }
}

/// Tool with JSON Schema 2020-12 features.
#[derive(Message, Serialize, Deserialize)]
#[message(name = "json_schema_2020_12_tool", reply = ToolResult)]
struct Schema2020(RawObject);

impl JsonSchema for Schema2020 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Schema2020".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        serde_json::from_str(include_str!("schema_2020.json")).unwrap_or_default()
    }
}

impl SyncHandler<Schema2020> for Fixture {
    fn handle(&mut self, Schema2020(contact): Schema2020, _: &mut Cx) -> ToolResult {
        ToolResult::text(format!("{} members", contact.len()))
    }
}

/// Tells that the tools changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_tool_change", reply = ToolResult)]
struct ChangeTools;

impl SyncHandler<ChangeTools> for Fixture {
    fn handle(&mut self, _: ChangeTools, cx: &mut Cx) -> ToolResult {
        cx.changed(Change::Tools);
        ToolResult::text("told")
    }
}

/// Tells that the prompts changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_prompt_change", reply = ToolResult)]
struct ChangePrompts;

impl SyncHandler<ChangePrompts> for Fixture {
    fn handle(&mut self, _: ChangePrompts, cx: &mut Cx) -> ToolResult {
        cx.changed(Change::Prompts);
        ToolResult::text("told")
    }
}

/// Answers the region, by which a gateway may have routed the call.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_header_parameter", reply = ToolResult)]
struct Routed {
    /// Repeated in the header `Mcp-Param-Region`.
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

impl SyncHandler<Routed> for Fixture {
    fn handle(&mut self, Routed { region }: Routed, _: &mut Cx) -> ToolResult {
        ToolResult::text(region)
    }
}

const STEP: Duration = Duration::from_millis(50);

/// Logs three lines.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_logging", reply = ToolResult)]
struct WithLogging;

impl ConcurrentHandler<WithLogging> for Fixture {
    fn handle(&mut self, _: WithLogging, cx: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                cx.log(Log::new(LogLevel::Info, "conformance", line));
                sleep(STEP).await;
            }
            ToolResult::text("Tool with logging executed successfully")
        }
    }
}

/// Tells its progress three times.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_progress", reply = ToolResult)]
struct WithProgress;

impl ConcurrentHandler<WithProgress> for Fixture {
    fn handle(&mut self, _: WithProgress, cx: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for done in [0.0, 50.0, 100.0] {
                cx.progress(Progress { done, total: Some(100.0), message: None });
                sleep(STEP).await;
            }
            ToolResult::text("Tool with progress executed successfully")
        }
    }
}

/// Greets, at once.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Greet {
    /// Whom.
    name: String,
}

impl SyncHandler<Greet> for Fixture {
    fn handle(&mut self, Greet { name }: Greet, _: &mut Cx) -> ToolResult {
        ToolResult::text(format!("Hello, {name}!"))
    }
}

/// Takes so many seconds.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "optional")]
struct SlowCompute {
    /// How long.
    seconds: f64,
    /// What it is called in the reply.
    #[serde(default)]
    label: String,
}

impl ConcurrentHandler<SlowCompute> for Fixture {
    fn handle(
        &mut self,
        SlowCompute { seconds, label }: SlowCompute,
        _: Cx,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
            ToolResult::text(format!("{label} took {seconds} seconds"))
        }
    }
}

/// Longer than the server keeps a stream open: the caller fetches the reply by another.
const RECONNECTION: Duration = Duration::from_secs(1);

/// Takes so long that the caller has to connect again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_reconnection", reply = ToolResult)]
struct Reconnection;

impl ConcurrentHandler<Reconnection> for Fixture {
    fn handle(&mut self, _: Reconnection, _: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(RECONNECTION).await;
            ToolResult::text("Reconnection test completed successfully")
        }
    }
}

/// Works for a second, in vain.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "required")]
struct FailingJob;

impl ConcurrentHandler<FailingJob> for Fixture {
    fn handle(&mut self, _: FailingJob, _: Cx) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::from_secs(1)).await;
            ToolResult::error("the job failed")
        }
    }
}
