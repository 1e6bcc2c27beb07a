//! Which part the agent plays, by how a message's key begins: what the kit's `scenarios/*.feature` want, and its branch 0.3.x.

/// A part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
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
    pub fn of(key: &str) -> Self {
        PARTS.iter().find(|(begin, _)| key.starts_with(begin)).map_or(Self::Work, |(_, part)| *part)
    }
}
