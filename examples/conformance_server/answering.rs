//! Tools that answer without asking the caller: content, notifications, delays.

use std::time::Duration;

use callboard::message::{
    CapabilityChange, Content, LogLevel, LogMessage, Progress, RawObject, ResourceContent, ToolResult,
};
use callboard::{ConcurrentHandler, Context, Handlers, Message, SyncHandler};
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

/// Returns a text.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_simple_text", reply = ToolResult)]
struct SimpleText;

impl SyncHandler<SimpleText> for Fixture {
    fn handle(&mut self, _: SimpleText, _: &mut Context) -> ToolResult {
        ToolResult::text("This is a simple text response for testing.")
    }
}

/// Returns an image.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_image_content", reply = ToolResult)]
struct ImageContent;

impl SyncHandler<ImageContent> for Fixture {
    fn handle(&mut self, _: ImageContent, _: &mut Context) -> ToolResult {
        ToolResult::from_content([Content::image(PIXEL, "image/png")])
    }
}

/// Returns audio.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_audio_content", reply = ToolResult)]
struct AudioContent;

impl SyncHandler<AudioContent> for Fixture {
    fn handle(&mut self, _: AudioContent, _: &mut Context) -> ToolResult {
        ToolResult::from_content([Content::audio(SILENCE, "audio/wav")])
    }
}

/// Always fails.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_error_handling", reply = ToolResult)]
struct ErrorHandling;

impl SyncHandler<ErrorHandling> for Fixture {
    fn handle(&mut self, _: ErrorHandling, _: &mut Context) -> ToolResult {
        ToolResult::error("This tool intentionally returns an error for testing")
    }
}

/// Returns an embedded resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_embedded_resource", reply = ToolResult)]
struct EmbeddedResource;

impl SyncHandler<EmbeddedResource> for Fixture {
    fn handle(&mut self, _: EmbeddedResource, _: &mut Context) -> ToolResult {
        let text = "This is an embedded resource content.";
        ToolResult::from_content([Content::resource(ResourceContent::text(
            "test://embedded-resource",
            "text/plain",
            text,
        ))])
    }
}

/// Returns text, an image and a resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_multiple_content_types", reply = ToolResult)]
struct MultipleContentTypes;

impl SyncHandler<MultipleContentTypes> for Fixture {
    fn handle(&mut self, _: MultipleContentTypes, _: &mut Context) -> ToolResult {
        let json = r#"{"test":"data","value":123}"#;
        let resource = ResourceContent::text("test://mixed-content-resource", "application/json", json);
        let text = Content::text("Multiple content types test:");
        ToolResult::from_content([text, Content::image(PIXEL, "image/png"), Content::resource(resource)])
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
    fn handle(&mut self, Schema2020(contact): Schema2020, _: &mut Context) -> ToolResult {
        ToolResult::text(format!("{} members", contact.len()))
    }
}

/// Reports that the list of tools changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_tool_change", reply = ToolResult)]
struct ChangeTools;

impl SyncHandler<ChangeTools> for Fixture {
    fn handle(&mut self, _: ChangeTools, cx: &mut Context) -> ToolResult {
        cx.notify_changed(CapabilityChange::Tools);
        ToolResult::text("told")
    }
}

/// Reports that the list of prompts changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_prompt_change", reply = ToolResult)]
struct ChangePrompts;

impl SyncHandler<ChangePrompts> for Fixture {
    fn handle(&mut self, _: ChangePrompts, cx: &mut Context) -> ToolResult {
        cx.notify_changed(CapabilityChange::Prompts);
        ToolResult::text("told")
    }
}

/// Returns the region, by which a gateway may have routed the call.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_header_parameter", reply = ToolResult)]
struct Routed {
    /// Repeated in the header `Mcp-Param-Region`.
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

impl SyncHandler<Routed> for Fixture {
    fn handle(&mut self, Routed { region }: Routed, _: &mut Context) -> ToolResult {
        ToolResult::text(region)
    }
}

const STEP: Duration = Duration::from_millis(50);

/// Writes three log lines.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_logging", reply = ToolResult)]
struct WithLogging;

impl ConcurrentHandler<WithLogging> for Fixture {
    fn handle(&mut self, _: WithLogging, cx: Context) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                cx.log(LogMessage::new(LogLevel::Info, "conformance", line));
                sleep(STEP).await;
            }
            ToolResult::text("Tool with logging executed successfully")
        }
    }
}

/// Reports progress three times.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_tool_with_progress", reply = ToolResult)]
struct WithProgress;

impl ConcurrentHandler<WithProgress> for Fixture {
    fn handle(&mut self, _: WithProgress, cx: Context) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            for done in [0.0, 50.0, 100.0] {
                cx.progress(Progress { done, total: Some(100.0), message: None });
                sleep(STEP).await;
            }
            ToolResult::text("Tool with progress executed successfully")
        }
    }
}

/// Greets a person.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Greet {
    /// Name of the person.
    name: String,
}

impl SyncHandler<Greet> for Fixture {
    fn handle(&mut self, Greet { name }: Greet, _: &mut Context) -> ToolResult {
        ToolResult::text(format!("Hello, {name}!"))
    }
}

/// Waits for some seconds.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "optional")]
struct SlowCompute {
    /// Duration in seconds.
    seconds: f64,
    /// Label in the reply.
    #[serde(default)]
    label: String,
}

impl ConcurrentHandler<SlowCompute> for Fixture {
    fn handle(
        &mut self,
        SlowCompute { seconds, label }: SlowCompute,
        _: Context,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
            ToolResult::text(format!("{label} took {seconds} seconds"))
        }
    }
}

/// Longer than the server keeps a stream open, so that the client has to reconnect for the reply.
const RECONNECTION: Duration = Duration::from_secs(1);

/// Takes so long that the client has to reconnect.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_reconnection", reply = ToolResult)]
struct Reconnection;

impl ConcurrentHandler<Reconnection> for Fixture {
    fn handle(&mut self, _: Reconnection, _: Context) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(RECONNECTION).await;
            ToolResult::text("Reconnection test completed successfully")
        }
    }
}

/// Works for a second, then fails.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, task = "required")]
struct FailingJob;

impl ConcurrentHandler<FailingJob> for Fixture {
    fn handle(&mut self, _: FailingJob, _: Context) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            sleep(Duration::from_secs(1)).await;
            ToolResult::error("the job failed")
        }
    }
}
