use crate::content::blocks;
use crate::raw::raw_bodies;
use crate::{Content, RawObject};

raw_bodies! {
    /// A part of a call's result that is there before the rest (A2A artifact): `id`, `name`, `description`, `content` (blocks),
    /// `append`, `last`, `metadata`.
    ///
    /// A caller may miss artifacts, so the reply holds all of it, unless the callee knows better ([`SHOWN`]).
    Artifact;
}

/// Member of a [`crate::ToolResult`]'s `_meta`, `true` where what it holds was given as artifacts already: a caller that keeps
/// those needn't keep it twice.
pub const SHOWN: &str = "callboard/shown";

/// Member of a [`crate::ToolResult`]'s `_meta`, `true` where it is what somebody says at once, and no task's result (A2A's answer
/// by a message).
pub const SAID_AT_ONCE: &str = "callboard/message";

impl Artifact {
    /// One of this call, whole. The same `id` again stands in its place, or goes on with it ([`Artifact::appended`]).
    pub fn new(id: impl Into<String>, content: impl IntoIterator<Item = Content>) -> Self {
        let content: Vec<Content> = content.into_iter().collect();
        Self(RawObject::of("id", id.into()).with("content", content))
    }

    /// The same with a name for people.
    pub fn named(self, name: &str) -> Self {
        Self(self.0.with("name", name))
    }

    /// The same, to be added to what the artifact of its id holds so far; `last`: nothing more comes.
    pub fn appended(self, last: bool) -> Self {
        Self(self.0.with("append", true).with("last", last))
    }

    /// The same, in place of what the artifact of its id holds so far.
    #[must_use]
    pub fn anew(mut self) -> Self {
        self.0.remove("append");
        self
    }

    /// Its name among the call's artifacts.
    pub fn id(&self) -> String {
        self.0.text("id").unwrap_or_default()
    }

    /// Its blocks.
    pub fn content(&self) -> Vec<Content> {
        blocks(&self.0)
    }

    /// Whether it is added to what the artifact of its id holds so far.
    pub fn is_appended(&self) -> bool {
        self.0.read("append").unwrap_or(false)
    }

    /// Whether nothing more comes of it, as far as that is said.
    pub fn is_last(&self) -> bool {
        self.0.read("last").unwrap_or(false)
    }
}
