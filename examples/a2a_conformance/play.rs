//! The parts, played.

use callboard::Cx;
use callboard::message::{Artifact, Content, Failure, FailureKind, ResourceContent, ToolResult};
use callboard::message::{SAID_AT_ONCE, SHOWN};
use serde_json::json;

use crate::agent::working;
use crate::script::Part;

const TYPE: &str = "text/plain";

/// Plays a part to its end.
pub fn play(part: Part, cx: &Cx) -> Result<ToolResult, Failure> {
    Ok(match part {
        Part::Reject => return Err(Failure::new(FailureKind::Rejected, "rejected")),
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
