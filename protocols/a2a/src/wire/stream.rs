use callboard_message::RawObject;
use serde_json::value::RawValue;

use crate::wire::macros::{one_of, wire};
use crate::wire::{Artifact, At, Members, Message, ReadError, Task, TaskStatus, Wire};

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
            _ if members.has("status") && (members.has("final") || members.has("taskId")) => Ok(Self::Status),
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
