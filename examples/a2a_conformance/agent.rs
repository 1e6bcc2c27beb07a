//! Agent for the A2A conformance kit. The prefix of a message's id selects its behaviour.

use std::time::Duration;

use callboard::message::capabilities::{Converse, SOURCE_MESSAGE_META_KEY};
use callboard::message::{
    ARTIFACTS_SENT_META_KEY, Artifact, Content, DIRECT_MESSAGE_META_KEY, Elicitation, Failure, Progress, RawObject,
    ResourceContent, ToolResult,
};
use callboard::{Agent, ConcurrentHandler, Context, Handlers};
use serde_json::json;

/// Maximum number of concurrent conversations.
const AT_ONCE_MAX: u32 = 1024;
/// Default delay before a question, long enough for a client to see the working state.
const WORK: Duration = Duration::from_secs(3);
/// Delay of twice the kit's timeout for an event.
const LONG: Duration = Duration::from_secs(4);

pub struct Conversing;

impl Agent for Conversing {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Converse> for Conversing {
    fn handle(
        &mut self,
        said: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let mut part = Part::of(&said.key());
            if matches!(part, Part::Work | Part::Linger) {
                working(&cx);
                tokio::time::sleep(if part == Part::Work { WORK } else { LONG }).await;
            }
            loop {
                match part {
                    Part::Ask | Part::Work => part = Part::of(&answered(&cx).await?),
                    part => return play(part, &cx),
                }
            }
        }
    }
}

/// Reports the working state to the caller.
fn working(cx: &Context) {
    cx.progress(Progress { done: 0.0, total: None, message: Some("working".to_owned()) });
}

/// Asks the caller, and returns the key of the answering message.
async fn answered(cx: &Context) -> Result<String, Failure> {
    let whatever = json!({ "type": "object", "properties": {} });
    let answer = cx.elicit(Elicitation::form("What else?", whatever)).await?;
    let said: Option<RawObject> = answer.0.object("_meta").and_then(|meta| meta.object(SOURCE_MESSAGE_META_KEY));
    Ok(said.and_then(|said| said.text("key")).unwrap_or_default())
}

/// A behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Works for a while, then asks a question.
    Work,
    /// Asks a question at once.
    Ask,
    /// Works for [`LONG`].
    Linger,
    /// Rejects the request.
    Reject,
    /// Completes without a result.
    End,
    /// Replies with a message in place of a task.
    Answer(&'static str),
    /// Completes with a text, a file, a file URL or a value as artifact.
    Text(&'static str),
    File,
    Link,
    Data,
    /// Sends a text, a file or a text in chunks as artifacts while working, then completes.
    ShowText(&'static str),
    ShowFile,
    ShowPieces,
}

/// Behaviours by prefix. A longer prefix precedes a shorter one.
const PARTS: [(&str, Part); 16] = [
    ("tck-stream-artifact-chunked", Part::ShowPieces),
    ("tck-stream-artifact-file", Part::ShowFile),
    ("tck-stream-artifact-text", Part::ShowText("Streamed text content")),
    ("tck-stream-ordering-001", Part::ShowText("Ordered output")),
    ("tck-stream-001", Part::ShowText("Stream hello from TCK")),
    ("tck-stream-002", Part::End),
    ("tck-stream-003", Part::ShowText("Stream task lifecycle")),
    ("tck-artifact-file-url", Part::Link),
    ("tck-artifact-file", Part::File),
    ("tck-artifact-text", Part::Text("Generated text content")),
    ("tck-artifact-data", Part::Data),
    ("tck-message-response", Part::Answer("Direct message response")),
    ("tck-input-required", Part::Ask),
    ("tck-reject-task", Part::Reject),
    // `tck-complete-task`, and ids that the kit's scenarios don't define.
    ("tck-", Part::Text("Hello from TCK")),
    ("test-resubscribe-message-id", Part::Linger),
];

impl Part {
    /// Returns the behaviour for a message key.
    fn of(key: &str) -> Self {
        PARTS.iter().find(|(begin, _)| key.starts_with(begin)).map_or(Self::Work, |(_, part)| *part)
    }
}

const TYPE: &str = "text/plain";

/// Runs a behaviour to its end.
fn play(part: Part, cx: &Context) -> Result<ToolResult, Failure> {
    Ok(match part {
        Part::Reject => return Err(Failure::rejected("rejected")),
        Part::Answer(text) => noted(ToolResult::text(text), DIRECT_MESSAGE_META_KEY),
        Part::Text(text) => ToolResult::text(text),
        Part::File => ToolResult::from_content([file()]),
        Part::Link => ToolResult::from_content([link()]),
        Part::Data => ToolResult::from_content([]).with_structured_content(json!({ "key": "value", "count": 42 })),
        Part::ShowText(text) => show(cx, [Artifact::new("shown", [Content::text(text)])]),
        Part::ShowFile => show(cx, [Artifact::new("shown", [file()])]),
        Part::ShowPieces => {
            let piece = |text, last| Artifact::new("shown", [Content::text(text)]).appending(last);
            show(cx, [piece("chunk-1 ", false), piece("chunk-2", true)])
        }
        Part::Work | Part::Linger | Part::Ask | Part::End => ToolResult::from_content([]),
    })
}

fn show<const N: usize>(cx: &Context, artifacts: [Artifact; N]) -> ToolResult {
    working(cx);
    artifacts.into_iter().for_each(|artifact| cx.artifact(artifact));
    noted(ToolResult::from_content([]), ARTIFACTS_SENT_META_KEY)
}

fn noted(ToolResult(body): ToolResult, what: &str) -> ToolResult {
    ToolResult(body.with("_meta", json!({ what: true })))
}

fn file() -> Content {
    let resource = ResourceContent::blob("file:///output.txt", TYPE, b"Generated file content");
    Content(
        Content::resource(resource)
            .0
            .with("_meta", json!({ "a2a/part": { "filename": "output.txt", "mediaType": TYPE } })),
    )
}

fn link() -> Content {
    Content(Content::resource_link("https://example.com/output.txt", "output.txt").0.with("mimeType", TYPE))
}
