//! An agent that talks, and asks back in mid-call: what it does, the key of the message that it hears last says.

use std::time::Duration;

use callboard::message::surface::{Converse, SAID};
use callboard::message::{
    Artifact, Content, Elicitation, Failure, Progress, RawObject, ResourceContent, SAID_AT_ONCE, SHOWN, ToolResult,
};
use callboard::{Agent, ConcurrentHandler, Cx, Handlers};
use serde_json::json;

/// Most conversations at the same time.
const AT_ONCE_MAX: u32 = 1024;
/// How long it works before it asks, where nothing else is wanted: long enough to be seen working.
const WORK: Duration = Duration::from_secs(3);
/// Twice as long as the kit waits for an event.
const LONG: Duration = Duration::from_secs(4);

pub struct Conversing;

impl Agent for Conversing {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Converse> for Conversing {
    fn handle(&mut self, said: Converse, cx: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
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

/// Tells the caller that it is at work.
fn working(cx: &Cx) {
    cx.progress(Progress { done: 0.0, total: None, message: Some("working".to_owned()) });
}

/// The key of the message that answers.
async fn answered(cx: &Cx) -> Result<String, Failure> {
    let whatever = json!({ "type": "object", "properties": {} });
    let answer = cx.elicit(Elicitation::form("What else?", whatever)).await?;
    let said: Option<RawObject> = answer.0.object("_meta").and_then(|meta| meta.object(SAID));
    Ok(said.and_then(|said| said.text("key")).unwrap_or_default())
}

/// A part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Works for a while, then asks.
    Work,
    /// Asks at once.
    Ask,
    /// Works for long.
    Linger,
    /// Doesn't want to.
    Reject,
    /// Is done, and has nothing to show.
    End,
    /// Says something, in place of a task.
    Answer(&'static str),
    /// Ends with a text, a file, an address of a file, a value.
    Text(&'static str),
    File,
    Link,
    Data,
    /// Shows a text, a file, a text in pieces; then ends.
    ShowText(&'static str),
    ShowFile,
    ShowPieces,
}

/// The longer beginning before the shorter.
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
    // `tck-complete-task`, and all that the features say nothing of.
    ("tck-", Part::Text("Hello from TCK")),
    ("test-resubscribe-message-id", Part::Linger),
];

impl Part {
    /// The part for a message of this key.
    fn of(key: &str) -> Self {
        PARTS.iter().find(|(begin, _)| key.starts_with(begin)).map_or(Self::Work, |(_, part)| *part)
    }
}

const TYPE: &str = "text/plain";

/// Plays a part to its end.
fn play(part: Part, cx: &Cx) -> Result<ToolResult, Failure> {
    Ok(match part {
        Part::Reject => return Err(Failure::rejected("rejected")),
        Part::Answer(text) => noted(ToolResult::text(text), SAID_AT_ONCE),
        Part::Text(text) => ToolResult::text(text),
        Part::File => ToolResult::of([file()]),
        Part::Link => ToolResult::of([link()]),
        Part::Data => ToolResult::of([]).structured(json!({ "key": "value", "count": 42 })),
        Part::ShowText(text) => show(cx, [Artifact::new("shown", [Content::text(text)])]),
        Part::ShowFile => show(cx, [Artifact::new("shown", [file()])]),
        Part::ShowPieces => {
            let piece = |text, last| Artifact::new("shown", [Content::text(text)]).appended(last);
            show(cx, [piece("chunk-1 ", false), piece("chunk-2", true)])
        }
        Part::Work | Part::Linger | Part::Ask | Part::End => ToolResult::of([]),
    })
}

fn show<const N: usize>(cx: &Cx, artifacts: [Artifact; N]) -> ToolResult {
    working(cx);
    artifacts.into_iter().for_each(|artifact| cx.artifact(artifact));
    noted(ToolResult::of([]), SHOWN)
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
