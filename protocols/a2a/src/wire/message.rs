use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;

use super::codec::constant;
use super::macros::{one_of, quiet, wire};
use super::{At, Members, ReadError, Wire, Writer};

/// Who says something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Nobody said.
    #[default]
    Unspecified,
    /// The client.
    User,
    /// The server.
    Agent,
}

impl Wire for Role {
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        match &*constant(&String::read(raw, at)?, "ROLE_") {
            "USER" | "1" => Ok(Self::User),
            "AGENT" | "2" => Ok(Self::Agent),
            _ => Ok(Self::Unspecified),
        }
    }

    fn write(&self, out: &mut Writer<'_>) {
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

/// What a part holds.
#[derive(Clone)]
pub enum PartContent {
    /// Words.
    Text(String),
    /// A file's bytes.
    Raw(Bytes),
    /// Where a file lies.
    Url(String),
    /// Any JSON value.
    Data(Box<RawValue>),
}

// Which kind, and how much of it: the rest is anybody's data.
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

/// A piece of what is said, or of a result.
#[derive(Clone)]
pub struct Part {
    /// What it holds.
    pub content: PartContent,
    /// Whatever the sender put beside it.
    pub metadata: Option<RawObject>,
    /// The file's name; empty if it has none.
    pub filename: String,
    /// What the content is, for example `text/plain`; empty if nobody said.
    pub media_type: String,
}

impl Part {
    /// A part with nothing beside its content.
    pub fn new(content: PartContent) -> Self {
        Self {
            content,
            metadata: None,
            filename: String::new(),
            media_type: String::new(),
        }
    }

    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }

    /// A value.
    pub fn data(value: Box<RawValue>) -> Self {
        Self::new(PartContent::Data(value))
    }

    /// A file's bytes.
    pub fn raw(bytes: impl Into<Bytes>, media_type: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            ..Self::new(PartContent::Raw(bytes.into()))
        }
    }

    /// Where a file lies.
    pub fn url(url: impl Into<String>, media_type: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            ..Self::new(PartContent::Url(url.into()))
        }
    }

    /// How large its content is, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.content {
            PartContent::Text(text) | PartContent::Url(text) => text.len(),
            PartContent::Raw(bytes) => bytes.len() * 4 / 3,
            PartContent::Data(value) => value.get().len(),
        }
    }

    /// Its words, if it holds some.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            PartContent::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Its value, if it holds one.
    pub fn as_data(&self) -> Option<&RawValue> {
        match &self.content {
            PartContent::Data(value) => Some(value),
            _ => None,
        }
    }
}

impl Wire for Part {
    // Beside 1.0's members those that older versions nest in `file`, and a content that only `kind` or `type` tells.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let members = Members::of(raw, at)?;
        let file_at = members.at("file");
        let file = members
            .find("file", &[])?
            .map(|raw| Members::of(raw, &file_at))
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
                // `null` is a value like others.
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

    fn write(&self, out: &mut Writer<'_>) {
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
    /// Something said, by either side.
    #[derive(Default)]
    pub struct Message {
        /// Made by who says it.
        message_id: String = always "messageId",
        /// The conversation; empty: a new one.
        context_id: String = default "contextId" | "sessionId",
        /// The task it is about; empty: none yet.
        task_id: String = default "taskId",
        /// Who says it.
        role: Role = always "role",
        /// What is said.
        parts: Vec<Part> = always "parts" | "content",
        /// Whatever the sender put beside it.
        metadata: Option<RawObject> = optional "metadata",
        /// Extensions that it uses, as URIs.
        extensions: Vec<String> = default "extensions",
        /// Other tasks that it refers to.
        reference_task_ids: Vec<String> = default "referenceTaskIds",
    }

    /// A piece of a task's result.
    #[derive(Default)]
    pub struct Artifact {
        /// Unique within its task.
        artifact_id: String = always "artifactId" | "index",
        /// For people; may be empty.
        name: String = default "name",
        /// For people; may be empty.
        description: String = default "description",
        /// What it holds.
        parts: Vec<Part> = always "parts",
        /// Whatever the sender put beside it.
        metadata: Option<RawObject> = optional "metadata",
        /// Extensions that it uses, as URIs.
        extensions: Vec<String> = default "extensions",
    }
}

wire! {
    /// Where a task stands.
    pub struct TaskStatus {
        /// Its state.
        state: TaskState = state "state",
        /// What the agent says about it: a question, where it went, why it failed.
        message: Option<Message> = optional "message",
        /// Since when.
        timestamp: Option<SystemTime> = hint "timestamp",
    }

    /// A call as its caller may look at it.
    pub struct Task {
        /// Made by the server (in 0.1: by the client).
        id: String = required "id",
        /// The conversation.
        context_id: String = default "contextId" | "sessionId",
        /// Where it stands.
        status: TaskStatus = required "status",
        /// What it made so far; `None`: not asked for.
        artifacts: Option<Vec<Artifact>> = optional "artifacts",
        /// What was said, oldest first; `None`: not asked for.
        history: Option<Vec<Message>> = optional "history",
        /// Whatever the server put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }
}

impl Message {
    /// Its texts, one a line.
    pub(crate) fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(Part::as_text)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl TaskStatus {
    /// A state, and nothing said about it.
    pub fn new(state: TaskState) -> Self {
        Self {
            state,
            message: None,
            timestamp: None,
        }
    }
}

impl Task {
    /// A task without artifacts and history.
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
    /// A task stands elsewhere, or something was said about where it stands.
    pub struct TaskStatusUpdateEvent {
        /// Which task.
        task_id: String = required "taskId" | "id",
        /// Its conversation.
        context_id: String = always "contextId" | "sessionId",
        /// Where it stands now.
        status: TaskStatus = required "status",
        /// Whatever the server put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// An artifact, or a piece of one.
    pub struct TaskArtifactUpdateEvent {
        /// Which task.
        task_id: String = required "taskId" | "id",
        /// Its conversation.
        context_id: String = always "contextId" | "sessionId",
        /// The artifact.
        artifact: Artifact = required "artifact",
        /// Whether its parts go to the end of those of the artifact of its id.
        append: bool = default "append",
        /// Whether the artifact is whole with it.
        last_chunk: bool = default "lastChunk",
        /// Whatever the server put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }
}

one_of! {
    /// What answers a message.
    pub enum SendMessageResponse {
        /// A task.
        Task(Task) = "task",
        /// An answer, and no task.
        Message(Message) = "message",
    }

    /// What a stream carries.
    pub enum StreamResponse {
        /// The task as it is.
        Task(Task) = "task",
        /// An answer, and no task.
        Message(Message) = "message",
        /// Where the task stands now.
        StatusUpdate(TaskStatusUpdateEvent) = "statusUpdate",
        /// Something that the task made.
        ArtifactUpdate(TaskArtifactUpdateEvent) = "artifactUpdate",
    }
}

/// What a bare object is, by its `kind` or by what it has.
enum Bare {
    Task,
    Message,
    Status,
    Artifact,
}

impl Bare {
    fn of(members: &Members<'_>, at: &At<'_>) -> Result<Self, ReadError> {
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
    // A bare status update has no `message` of its own, a bare task neither.
    fn read_bare(raw: &RawValue, members: &Members<'_>, at: &At<'_>) -> Result<Self, ReadError> {
        match Bare::of(members, at)? {
            Bare::Message => Message::read(raw, at).map(Self::Message),
            _ => Task::read(raw, at).map(Self::Task),
        }
    }
}

impl StreamResponse {
    fn read_bare(raw: &RawValue, members: &Members<'_>, at: &At<'_>) -> Result<Self, ReadError> {
        match Bare::of(members, at)? {
            Bare::Task => Task::read(raw, at).map(Self::Task),
            Bare::Message => Message::read(raw, at).map(Self::Message),
            Bare::Status => TaskStatusUpdateEvent::read(raw, at).map(Self::StatusUpdate),
            Bare::Artifact => TaskArtifactUpdateEvent::read(raw, at).map(Self::ArtifactUpdate),
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
