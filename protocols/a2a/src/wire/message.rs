use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;

use super::codec::enum_constant;
use super::macros::{one_of, quiet, wire};
use super::{FieldPath, JsonWriter, ObjectReader, ReadError, WireType};

/// Author of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The author isn't stated.
    #[default]
    Unspecified,
    /// The client.
    User,
    /// The server.
    Agent,
}

impl WireType for Role {
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        match &*enum_constant(&String::read(raw, at)?, "ROLE_") {
            "USER" | "1" => Ok(Self::User),
            "AGENT" | "2" => Ok(Self::Agent),
            _ => Ok(Self::Unspecified),
        }
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        out.json(match self {
            Self::Unspecified => "\"ROLE_UNSPECIFIED\"",
            Self::User => "\"ROLE_USER\"",
            Self::Agent => "\"ROLE_AGENT\"",
        });
    }

    fn is_blank(&self) -> bool {
        *self == Self::Unspecified
    }
}

/// Content of a part.
#[derive(Clone)]
pub enum PartContent {
    /// Plain text.
    Text(String),
    /// Bytes of a file.
    Raw(Bytes),
    /// URL of a file.
    Url(String),
    /// Any JSON value.
    Data(Box<RawValue>),
}

// Prints only kind and size, because the content may be confidential.
impl fmt::Debug for PartContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Raw(bytes) => write!(f, "Raw({} bytes)", bytes.len()),
            Self::Url(url) => write!(f, "Url({} bytes)", url.len()),
            Self::Data(value) => write!(f, "Data({} bytes)", value.get().len()),
        }
    }
}

/// A piece of a message or of an artifact.
#[derive(Clone)]
pub struct Part {
    /// Content of the part.
    pub content: PartContent,
    /// Metadata from the sender.
    pub metadata: Option<RawObject>,
    /// File name; empty if there is none.
    pub filename: String,
    /// Media type of the content, for example `text/plain`; empty if not stated.
    pub media_type: String,
}

impl Part {
    /// Creates a part with this content and nothing else.
    pub fn new(content: PartContent) -> Self {
        Self {
            content,
            metadata: None,
            filename: String::new(),
            media_type: String::new(),
        }
    }

    /// Creates a part with plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }

    /// Creates a part with a JSON value.
    pub fn data(value: Box<RawValue>) -> Self {
        Self::new(PartContent::Data(value))
    }

    /// Creates a part with the bytes of a file.
    pub fn raw(bytes: impl Into<Bytes>, media_type: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            ..Self::new(PartContent::Raw(bytes.into()))
        }
    }

    /// Creates a part that refers to a file by its URL.
    pub fn url(url: impl Into<String>, media_type: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            ..Self::new(PartContent::Url(url.into()))
        }
    }

    /// Returns the approximate size of the content as JSON, in bytes. Raw bytes count as base64.
    pub(crate) fn content_bytes(&self) -> usize {
        match &self.content {
            PartContent::Text(text) | PartContent::Url(text) => text.len(),
            PartContent::Raw(bytes) => bytes.len() * 4 / 3,
            PartContent::Data(value) => value.get().len(),
        }
    }

    /// Returns the text, if the part holds text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            PartContent::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text, if the part is text without metadata, file name and media type.
    fn plain_text(&mut self) -> Option<&mut String> {
        let is_plain =
            self.metadata.is_none() && self.filename.is_empty() && self.media_type.is_empty();
        match &mut self.content {
            PartContent::Text(text) if is_plain => Some(text),
            _ => None,
        }
    }

    /// Returns the JSON value, if the part holds one.
    pub fn as_data(&self) -> Option<&RawValue> {
        match &self.content {
            PartContent::Data(value) => Some(value),
            _ => None,
        }
    }
}

impl WireType for Part {
    // Also reads the members that older versions nest in `file`, and content that only `kind` or
    // `type` identifies.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let members = ObjectReader::parse(raw, at)?;
        let file_at = members.at("file");
        let file = members
            .find("file", &[])?
            .map(|raw| ObjectReader::parse(raw, &file_at))
            .transpose()?;
        let mut contents = [
            members.optional("text", &[])?.map(PartContent::Text),
            members.optional("raw", &["bytes"])?.map(PartContent::Raw),
            members.optional("url", &["uri"])?.map(PartContent::Url),
            members.optional("data", &[])?.map(PartContent::Data),
            None,
            None,
        ];
        let (mut filename, mut media_type) = Default::default();
        if let Some(file) = &file {
            contents[4] = file
                .optional("bytes", &["fileWithBytes", "raw"])?
                .map(PartContent::Raw);
            contents[5] = file
                .optional("uri", &["fileWithUri", "url"])?
                .map(PartContent::Url);
            filename = file.default("name", &["filename"])?;
            media_type = file.default("mimeType", &["mediaType"])?;
        }
        let mut contents = contents.into_iter().flatten();
        let content = match (contents.next(), contents.next()) {
            (Some(_), Some(_)) => return Err(at.error("has two contents")),
            (Some(content), None) => content,
            (None, _) => match &*members.default::<String>("kind", &["type"])? {
                "text" => PartContent::Text(String::new()),
                // `null` is a valid value.
                _ if members.has("data") => PartContent::Data(RawValue::NULL.to_owned()),
                _ => return Err(at.error("has no content: one of text, raw, url and data")),
            },
        };
        Ok(Self {
            content,
            metadata: members.optional("metadata", &[])?,
            filename: members.optional("filename", &["name"])?.unwrap_or(filename),
            media_type: members
                .optional("mediaType", &["mimeType"])?
                .unwrap_or(media_type),
        })
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let mut object = out.object();
        match &self.content {
            PartContent::Text(text) => object.always("text", text),
            PartContent::Raw(bytes) => object.always("raw", bytes),
            PartContent::Url(url) => object.always("url", url),
            PartContent::Data(value) => object.always("data", value),
        }
        object.optional("metadata", &self.metadata);
        object.default("filename", &self.filename);
        object.default("mediaType", &self.media_type);
        object.end();
    }
}

quiet!(Part);

wire! {
    /// A message of the client or of the agent.
    #[derive(Default)]
    pub struct A2aMessage {
        /// Id of the message, assigned by its sender.
        message_id: String = always "messageId",
        /// Id of the conversation; empty begins a new one.
        context_id: String = default "contextId" | "sessionId",
        /// Id of the task that the message belongs to; empty if there is none yet.
        task_id: String = default "taskId",
        /// Author of the message.
        role: Role = always "role",
        /// Content of the message.
        parts: Vec<Part> = always "parts" | "content",
        /// Metadata from the sender.
        metadata: Option<RawObject> = optional "metadata",
        /// URIs of the protocol extensions that the message uses.
        extensions: Vec<String> = default "extensions",
        /// Ids of other tasks that the message refers to.
        reference_task_ids: Vec<String> = default "referenceTaskIds",
    }

    /// An output of a task.
    #[derive(Default)]
    pub struct A2aArtifact {
        /// Id of the artifact, unique within its task.
        artifact_id: String = always "artifactId" | "index",
        /// Name for people; may be empty.
        name: String = default "name",
        /// Description for people; may be empty.
        description: String = default "description",
        /// Content of the artifact.
        parts: Vec<Part> = always "parts",
        /// Metadata from the sender.
        metadata: Option<RawObject> = optional "metadata",
        /// URIs of the protocol extensions that the artifact uses.
        extensions: Vec<String> = default "extensions",
    }
}

wire! {
    /// State of a task, with the agent's message about it.
    pub struct TaskStatus {
        /// State of the task.
        state: TaskState = state "state",
        /// The agent's message about the state: a question, an address to visit, or the reason of a
        /// failure.
        message: Option<A2aMessage> = optional "message",
        /// Time of the latest change of the status.
        timestamp: Option<SystemTime> = hint "timestamp",
    }

    /// A task: a call with its status, artifacts and messages.
    pub struct A2aTask {
        /// Id of the task, assigned by the server (in 0.1: by the client).
        id: String = required "id",
        /// Id of the conversation.
        context_id: String = default "contextId" | "sessionId",
        /// Current status.
        status: TaskStatus = required "status",
        /// Artifacts so far; `None` if they were not requested.
        artifacts: Option<Vec<A2aArtifact>> = optional "artifacts",
        /// Messages so far, oldest first; `None` if they were not requested.
        history: Option<Vec<A2aMessage>> = optional "history",
        /// Metadata from the server.
        metadata: Option<RawObject> = optional "metadata",
    }
}

impl A2aMessage {
    /// Returns the texts of all text parts, one a line.
    pub(crate) fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(Part::as_text)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl TaskStatus {
    /// Creates a status without message and timestamp.
    pub fn new(state: TaskState) -> Self {
        Self {
            state,
            message: None,
            timestamp: None,
        }
    }
}

impl A2aTask {
    /// Creates a task without artifacts, history and metadata.
    pub fn new(id: impl Into<String>, context_id: impl Into<String>, status: TaskStatus) -> Self {
        let (id, context_id) = (id.into(), context_id.into());
        Self {
            id,
            context_id,
            status,
            artifacts: None,
            history: None,
            metadata: None,
        }
    }
}

wire! {
    /// Stream event: the status of a task has changed, or there is a new message about it.
    pub struct TaskStatusUpdateEvent {
        /// Id of the task.
        task_id: String = required "taskId" | "id",
        /// Id of the conversation.
        context_id: String = always "contextId" | "sessionId",
        /// The new status.
        status: TaskStatus = required "status",
        /// Metadata from the server.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// Stream event: an artifact, or a piece of one, is available.
    pub struct TaskArtifactUpdateEvent {
        /// Id of the task.
        task_id: String = required "taskId" | "id",
        /// Id of the conversation.
        context_id: String = always "contextId" | "sessionId",
        /// The artifact, or the piece.
        artifact: A2aArtifact = required "artifact",
        /// Whether the parts are appended to the artifact of the same id. Otherwise they replace
        /// it.
        append: bool = default "append",
        /// Whether the artifact is complete with this event.
        last_chunk: bool = default "lastChunk",
        /// Metadata from the server.
        metadata: Option<RawObject> = optional "metadata",
    }
}

one_of! {
    /// Response to `SendMessage`: the task that was begun or continued, or a direct reply without a
    /// task.
    pub enum SendMessageResponse {
        /// The task that was begun or continued.
        Task(A2aTask) = "task",
        /// A direct reply without a task.
        Message(A2aMessage) = "message",
    }

    /// An event of a stream.
    pub enum StreamResponse {
        /// Current state of the task.
        Task(A2aTask) = "task",
        /// A direct reply without a task.
        Message(A2aMessage) = "message",
        /// New status of the task.
        StatusUpdate(TaskStatusUpdateEvent) = "statusUpdate",
        /// New output of the task.
        ArtifactUpdate(TaskArtifactUpdateEvent) = "artifactUpdate",
    }
}

/// Appends the parts of a further piece of an artifact. If the last part and the piece's first one
/// are plain text, they become one part: agents send a text in pieces while they write it.
pub(crate) fn append_parts(parts: &mut Vec<Part>, piece: Vec<Part>) {
    let mut piece = piece.into_iter();
    if let Some(text) = parts.last_mut().and_then(Part::plain_text)
        && let Some(mut first) = piece.next()
    {
        match first.plain_text() {
            Some(more) => text.push_str(more),
            None => parts.push(first),
        }
    }
    parts.extend(piece);
}

/// Returns the parts that an artifact has in `now` beyond those in `known`, which came as pieces;
/// empty if it has the same. `None` if `now` doesn't continue `known`.
pub(crate) fn parts_beyond(known: &[Part], now: &[Part]) -> Option<Vec<Part>> {
    let joined = |parts: &[Part]| {
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            append_parts(&mut all, vec![part.clone()]);
        }
        all
    };
    let (mut known, mut now) = (joined(known), joined(now).into_iter());
    let mut last = known.pop()?;
    if !known.into_iter().all(|part| now.next() == Some(part)) {
        return None;
    }
    let mut here = now.next()?;
    if here == last {
        return Some(now.collect());
    }
    let more = here.plain_text()?.strip_prefix(&**last.plain_text()?)?;
    Some([Part::text(more)].into_iter().chain(now).collect())
}

/// Type of an object that the peer sent without the `oneof` member around it, as versions before
/// 1.0 do. It is determined from the object's `kind`, else from its members.
enum BareKind {
    Task,
    Message,
    Status,
    Artifact,
}

impl BareKind {
    /// Returns whether an object is a task, message or event itself, even if it has a member named
    /// like a wrapper: events of 0.1 may have a `message`, which is the user's.
    fn is_bare(members: &ObjectReader<'_>) -> bool {
        ["status", "artifact", "kind"]
            .iter()
            .any(|name| members.has(name))
    }

    fn of(members: &ObjectReader<'_>, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let kind: String = members.default("kind", &["type"])?;
        match &*kind {
            "task" => Ok(Self::Task),
            "message" => Ok(Self::Message),
            "status-update" => Ok(Self::Status),
            "artifact-update" => Ok(Self::Artifact),
            _ if members.has("parts") || members.has("role") => Ok(Self::Message),
            _ if members.has("artifact") => Ok(Self::Artifact),
            _ if members.has("artifacts") || members.has("history") => Ok(Self::Task),
            _ if members.has("status") && (members.has("final") || members.has("taskId")) => {
                Ok(Self::Status)
            }
            _ if members.has("status") => Ok(Self::Task),
            _ => Err(at.error("is neither a task nor a message nor an event")),
        }
    }
}

impl SendMessageResponse {
    fn is_bare(members: &ObjectReader<'_>) -> bool {
        BareKind::is_bare(members)
    }

    fn read_bare(
        raw: &RawValue,
        members: &ObjectReader<'_>,
        at: &FieldPath<'_>,
    ) -> Result<Self, ReadError> {
        match BareKind::of(members, at)? {
            BareKind::Message => A2aMessage::read(raw, at).map(Self::Message),
            _ => A2aTask::read(raw, at).map(Self::Task),
        }
    }
}

impl StreamResponse {
    fn is_bare(members: &ObjectReader<'_>) -> bool {
        BareKind::is_bare(members)
    }

    fn read_bare(
        raw: &RawValue,
        members: &ObjectReader<'_>,
        at: &FieldPath<'_>,
    ) -> Result<Self, ReadError> {
        match BareKind::of(members, at)? {
            BareKind::Task => A2aTask::read(raw, at).map(Self::Task),
            BareKind::Message => A2aMessage::read(raw, at).map(Self::Message),
            BareKind::Status => TaskStatusUpdateEvent::read(raw, at).map(Self::StatusUpdate),
            BareKind::Artifact => TaskArtifactUpdateEvent::read(raw, at).map(Self::ArtifactUpdate),
        }
    }
}

impl From<SendMessageResponse> for StreamResponse {
    fn from(response: SendMessageResponse) -> Self {
        match response {
            SendMessageResponse::Task(task) => Self::Task(task),
            SendMessageResponse::Message(message) => Self::Message(message),
        }
    }
}
