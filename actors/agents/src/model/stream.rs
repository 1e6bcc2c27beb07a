//! What a model writes, for the caller while it is written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use callboard_message::{Artifact, Content};
use callboard_runtime::Cx;
use tokio::time::Instant;

use super::request::Request;
use crate::decide::limits::cut_bytes;

/// Member of `_meta` in the params of `sampling/createMessage`: `true` where the caller gets the text as it is written, as pieces
/// of one artifact ([`STREAM_ARTIFACT`]).
pub const STREAM_KEY: &str = "callboard/stream";
/// That artifact's id: the one under which a result is kept, so that the whole answer comes to stand in its place.
pub const STREAM_ARTIFACT: &str = "result";
/// Longest piece, in bytes.
pub const STREAM_PIECE_BYTES_MAX: usize = 4 * 1024;
/// How often a piece is given, at most.
pub const STREAM_PIECE_EVERY: Duration = Duration::from_millis(50);

/// Gives the caller what is written so far.
pub(super) struct Pieces<'a> {
    cx: &'a Cx,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    /// Of the text, in bytes.
    bytes: usize,
    /// Whether the caller has seen any.
    any: bool,
    last: Option<Instant>,
}

impl<'a> Pieces<'a> {
    /// `None` where the caller doesn't want them.
    pub fn wanted(request: &Request, cx: &'a Cx) -> Option<Self> {
        request.stream.then(|| Self { cx, given: Mutex::default() })
    }

    /// The text has come so far.
    pub fn written(&self, text: &str) {
        // White space around an answer is none of it: what is given must be its beginning.
        let text = text.trim();
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < given.bytes {
            // Another try begins anew: an artifact that isn't appended stands in the place of what was there.
            self.cx.artifact(Artifact::new(STREAM_ARTIFACT, [Content::text("")]));
            given.bytes = 0;
        }
        let is_early = given.last.is_some_and(|last| last.elapsed() < STREAM_PIECE_EVERY);
        // The end of a text is the reply's: here it may still change.
        let new = text.get(given.bytes..).unwrap_or_default();
        let piece = cut_bytes(new, STREAM_PIECE_BYTES_MAX);
        if is_early || piece.is_empty() {
            return;
        }
        let artifact = Artifact::new(STREAM_ARTIFACT, [Content::text(piece)]);
        self.cx.artifact(if given.any { artifact.appended(false) } else { artifact });
        *given = Given { bytes: given.bytes + piece.len(), any: true, last: Some(Instant::now()) };
    }
}
