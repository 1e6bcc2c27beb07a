//! Tasks, messages and events in versions before 1.0: 0.3 over JSON-RPC
//! (`specification/json/a2a.json` at 0.3.0) and over HTTP+JSON (the ProtoJSON of its
//! `specification/grpc/a2a.proto`), and 0.1 (`specification/json/a2a.json` at 0.1.0).

use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;

use crate::Dialect;
use crate::wire::*;

/// Key in the metadata of a data part. Marks a value that was written as `{"value": …}`, because
/// older versions allow only objects as data.
const WRAPPED_METADATA: &str = "callboard/wrapped";
/// Keys in a part's metadata for its media type and file name, where older versions have no member
/// for them.
const MEDIA_TYPE_METADATA: &str = "callboard/mediaType";
const FILENAME_METADATA: &str = "callboard/filename";

fn write_part(dialect: Dialect, part: &Part, out: &mut JsonWriter<'_>) {
    let mut metadata = part.metadata.clone();
    let mut beside = |name: &str, value: Box<RawValue>| {
        metadata.get_or_insert_default().set_raw(name, value);
    };
    let is_file = matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
    for (name, text) in [
        (MEDIA_TYPE_METADATA, &part.media_type),
        (FILENAME_METADATA, &part.filename),
    ] {
        if !is_file && !text.is_empty() {
            beside(name, text.to_raw());
        }
    }
    let mut object = out.object();
    // Member that identifies the kind of the part.
    let mut is_a = |kind| match dialect {
        Dialect::V10 | Dialect::V03Rest => {}
        Dialect::V03 => object.text("kind", kind),
        Dialect::V01 => object.text("type", kind),
    };
    match &part.content {
        PartContent::Text(text) => {
            is_a("text");
            object.text("text", text);
        }
        PartContent::Raw(_) | PartContent::Url(_) => {
            is_a("file");
            write_file(dialect, part, &mut object.member("file"));
        }
        PartContent::Data(value) => {
            is_a("data");
            let is_object = value.get().starts_with('{');
            if !is_object {
                beside(WRAPPED_METADATA, true.to_raw());
            }
            let wrap = |name, value: &RawValue| RawObject::single(name, value).to_raw();
            let value = if is_object {
                value.clone()
            } else {
                wrap("value", value)
            };
            let value = if dialect == Dialect::V03Rest {
                wrap("data", &value)
            } else {
                value
            };
            object.always("data", &value);
        }
    }
    object.optional("metadata", &metadata);
    object.end();
}

fn write_file(dialect: Dialect, part: &Part, out: &mut JsonWriter<'_>) {
    let is_rest = dialect == Dialect::V03Rest;
    let mut file = out.object();
    match &part.content {
        PartContent::Raw(bytes) => {
            file.always(if is_rest { "fileWithBytes" } else { "bytes" }, bytes)
        }
        PartContent::Url(url) => file.text(if is_rest { "fileWithUri" } else { "uri" }, url),
        PartContent::Text(_) | PartContent::Data(_) => {}
    }
    file.non_empty_text("mimeType", &part.media_type);
    // Not in the schema of 0.3.0, but in its SDKs.
    file.non_empty_text("name", &part.filename);
    file.end();
}

pub(super) fn write_message(dialect: Dialect, message: &A2aMessage, out: &mut JsonWriter<'_>) {
    let is_v01 = dialect == Dialect::V01;
    let mut object = begin_object(dialect, "message", out);
    if !is_v01 {
        object.text("messageId", &message.message_id);
        object.non_empty_text("contextId", &message.context_id);
        object.non_empty_text("taskId", &message.task_id);
    }
    match (dialect, message.role) {
        (Dialect::V10 | Dialect::V03Rest, role) => object.always("role", &role),
        (_, Role::User) => object.text("role", "user"),
        (_, Role::Agent | Role::Unspecified) => object.text("role", "agent"),
    }
    let parts = if dialect == Dialect::V03Rest {
        "content"
    } else {
        "parts"
    };
    object.list(parts, &message.parts, |part, out| {
        write_part(dialect, part, out)
    });
    object.optional("metadata", &message.metadata);
    if !is_v01 {
        object.default("extensions", &message.extensions);
    }
    // Not in the schema of 0.3.
    if dialect == Dialect::V03 {
        object.default("referenceTaskIds", &message.reference_task_ids);
    }
    object.end();
}

/// Begins an object, with its `kind` if the version has one.
fn begin_object<'a>(dialect: Dialect, kind: &str, out: &'a mut JsonWriter<'_>) -> ObjectWriter<'a> {
    let mut object = out.object();
    if dialect == Dialect::V03 {
        object.text("kind", kind);
    }
    object
}

fn write_status(dialect: Dialect, status: &TaskStatus, out: &mut JsonWriter<'_>) {
    let mut object = out.object();
    let state = match (dialect, status.state) {
        // 0.1 lacks two states: a task that waits for a credential is shown as waiting for input,
        // and a rejected one as failed, with the reason.
        (Dialect::V01, TaskState::AuthRequired) => TaskState::InputRequired,
        (Dialect::V01, TaskState::Rejected) => TaskState::Failed,
        (_, state) => state,
    };
    match (dialect, state) {
        (Dialect::V03Rest, TaskState::Canceled) => object.text("state", "TASK_STATE_CANCELLED"),
        (Dialect::V03Rest, state) => object.always("state", &state),
        (_, state) => object.text("state", &state.as_str().replace('_', "-")),
    }
    let rejected = (state != status.state && state == TaskState::Failed)
        .then(|| rejection_message(status.message.as_ref()));
    if let Some(message) = rejected.as_ref().or(status.message.as_ref()) {
        write_message(dialect, message, &mut object.member("message"));
    }
    object.optional("timestamp", &status.timestamp);
    object.end();
}

fn rejection_message(message: Option<&A2aMessage>) -> A2aMessage {
    let reason = message
        .into_iter()
        .flat_map(|message| &message.parts)
        .find_map(Part::as_text);
    let text = reason.map_or_else(
        || "Task rejected".to_owned(),
        |reason| format!("Task rejected: {reason}"),
    );
    A2aMessage {
        role: Role::Agent,
        parts: vec![Part::text(text)],
        ..Default::default()
    }
}

/// Writes an artifact. In 0.1 its `index` is written in place of its id, and `pieces` as two flags:
/// whether the artifact is appended to an earlier piece, and whether it is complete.
fn write_artifact(
    dialect: Dialect,
    artifact: &A2aArtifact,
    index: usize,
    pieces: Option<[bool; 2]>,
    out: &mut JsonWriter<'_>,
) {
    let is_v01 = dialect == Dialect::V01;
    let mut object = out.object();
    if !is_v01 {
        object.text("artifactId", &artifact.artifact_id);
    }
    object.non_empty_text("name", &artifact.name);
    object.non_empty_text("description", &artifact.description);
    object.list("parts", &artifact.parts, |part, out| {
        write_part(dialect, part, out)
    });
    if is_v01 {
        object.member("index").json(&index.to_string());
        if let Some([append, last_chunk]) = pieces {
            object.always("append", &append);
            object.always("lastChunk", &last_chunk);
        }
    }
    object.optional("metadata", &artifact.metadata);
    if !is_v01 {
        object.default("extensions", &artifact.extensions);
    }
    object.end();
}

/// Writes a task. `ends` is the member `final`, which tells whether the stream ends. It is given
/// only in streams of 0.1, where a task also serves as a status event.
pub(super) fn write_task(
    dialect: Dialect,
    task: &A2aTask,
    ends: Option<bool>,
    out: &mut JsonWriter<'_>,
) {
    let mut object = begin_object(dialect, "task", out);
    object.text("id", &task.id);
    match dialect {
        Dialect::V01 => object.non_empty_text("sessionId", &task.context_id),
        _ => object.text("contextId", &task.context_id),
    }
    write_status(dialect, &task.status, &mut object.member("status"));
    object.optional("final", &ends);
    if let Some(artifacts) = &task.artifacts {
        object.list(
            "artifacts",
            artifacts.iter().enumerate(),
            |(index, artifact), out| {
                write_artifact(dialect, artifact, index, None, out);
            },
        );
    }
    if let Some(history) = &task.history {
        object.list("history", history, |message, out| {
            write_message(dialect, message, out)
        });
    }
    object.optional("metadata", &task.metadata);
    object.end();
}

pub(super) fn write_task_list(
    dialect: Dialect,
    list: &ListTasksResponse,
    out: &mut JsonWriter<'_>,
) {
    let mut object = out.object();
    object.list("tasks", &list.tasks, |task, out| {
        write_task(dialect, task, None, out)
    });
    object.always("nextPageToken", &list.next_page_token);
    object.always("pageSize", &list.page_size);
    object.always("totalSize", &list.total_size);
    object.end();
}

/// Returns a completed task with the message's parts as its only artifact, for 0.1, which has no
/// responses without a task.
pub(super) fn message_as_task(message: &A2aMessage) -> A2aTask {
    let id = if message.task_id.is_empty() {
        &message.message_id
    } else {
        &message.task_id
    };
    let artifact = A2aArtifact {
        artifact_id: "0".to_owned(),
        parts: message.parts.clone(),
        ..Default::default()
    };
    let status = TaskStatus::new(TaskState::Completed);
    A2aTask {
        artifacts: Some(vec![artifact]),
        metadata: message.metadata.clone(),
        ..A2aTask::new(id, &message.context_id, status)
    }
}

/// Writes an event of a stream. `seen` holds the ids of the stream's artifacts so far, because 0.1
/// numbers them in the order of their first event.
pub(super) fn write_event(
    dialect: Dialect,
    event: &StreamResponse,
    ends: bool,
    seen: &mut Vec<String>,
    out: &mut JsonWriter<'_>,
) {
    let is_v01 = dialect == Dialect::V01;
    let mut index_of = |id: &String| {
        if !is_v01 {
            return 0;
        }
        seen.iter()
            .position(|other| other == id)
            .unwrap_or_else(|| {
                seen.push(id.clone());
                seen.len() - 1
            })
    };
    let about = |task_id: &str, context_id: &str, object: &mut ObjectWriter<'_>| match is_v01 {
        true => object.text("id", task_id),
        false => {
            object.text("taskId", task_id);
            object.text("contextId", context_id);
        }
    };
    match event {
        StreamResponse::Task(task) => {
            task.artifacts
                .iter()
                .flatten()
                .for_each(|artifact| _ = index_of(&artifact.artifact_id));
            write_task(dialect, task, is_v01.then_some(ends), out);
        }
        StreamResponse::Message(message) if is_v01 => {
            write_task(dialect, &message_as_task(message), Some(true), out);
        }
        StreamResponse::Message(message) => write_message(dialect, message, out),
        StreamResponse::StatusUpdate(update) => {
            let mut object = begin_object(dialect, "status-update", out);
            about(&update.task_id, &update.context_id, &mut object);
            write_status(dialect, &update.status, &mut object.member("status"));
            object.always("final", &ends);
            object.optional("metadata", &update.metadata);
            object.end();
        }
        StreamResponse::ArtifactUpdate(update) => {
            let TaskArtifactUpdateEvent {
                artifact,
                append,
                last_chunk,
                ..
            } = update;
            let mut object = begin_object(dialect, "artifact-update", out);
            about(&update.task_id, &update.context_id, &mut object);
            let (index, pieces) = (
                index_of(&artifact.artifact_id),
                Some([*append, *last_chunk]),
            );
            write_artifact(
                dialect,
                artifact,
                index,
                pieces,
                &mut object.member("artifact"),
            );
            if !is_v01 {
                object.default("append", append);
                object.default("lastChunk", last_chunk);
            }
            object.optional("metadata", &update.metadata);
            object.end();
        }
    }
}

/// Restores the original data, media type and file name of parts that an older version's writer
/// ([`write_part`]) changed.
fn upgrade_parts(dialect: Dialect, parts: &mut [Part]) {
    if dialect == Dialect::V10 {
        return;
    }
    for part in parts {
        if let (Dialect::V03Rest, PartContent::Data(value)) = (dialect, &mut part.content)
            && let Some(inner) = only_member(value, "data")
        {
            *value = inner;
        }
        let Some(metadata) = &mut part.metadata else {
            continue;
        };
        if let PartContent::Data(value) = &mut part.content
            && metadata.remove(WRAPPED_METADATA).is_some()
            && let Some(inner) = only_member(value, "value")
        {
            *value = inner;
        }
        for (name, at) in [
            (MEDIA_TYPE_METADATA, &mut part.media_type),
            (FILENAME_METADATA, &mut part.filename),
        ] {
            if let Some(text) = metadata.text(name) {
                metadata.remove(name);
                *at = text;
            }
        }
        if metadata.is_empty() {
            part.metadata = None;
        }
    }
}

fn only_member(value: &RawValue, name: &str) -> Option<Box<RawValue>> {
    let mut object = RawObject::parse(value)
        .ok()
        .filter(|object| object.len() == 1)?;
    object.remove(name)
}

pub(super) fn upgrade_message(dialect: Dialect, message: &mut A2aMessage) {
    upgrade_parts(dialect, &mut message.parts);
}

fn upgrade_status(dialect: Dialect, status: &mut TaskStatus) {
    status
        .message
        .iter_mut()
        .for_each(|message| upgrade_message(dialect, message));
}

/// Converts a task that was read in an older version to 1.0. Artifacts and messages of 0.1 without
/// ids get generated ones.
pub(super) fn upgrade_task(dialect: Dialect, task: &mut A2aTask) {
    upgrade_status(dialect, &mut task.status);
    task.artifacts
        .iter_mut()
        .flatten()
        .for_each(|artifact| upgrade_parts(dialect, &mut artifact.parts));
    task.history
        .iter_mut()
        .flatten()
        .for_each(|message| upgrade_message(dialect, message));
    if dialect != Dialect::V01 {
        return;
    }
    for (index, artifact) in task.artifacts.iter_mut().flatten().enumerate() {
        if artifact.artifact_id.is_empty() {
            artifact.artifact_id = index.to_string();
        }
    }
    let (id, history) = (&task.id, task.history.iter_mut().flatten());
    for (n, message) in history.chain(task.status.message.iter_mut()).enumerate() {
        if message.message_id.is_empty() {
            message.message_id = format!("{id}-{n}");
        }
    }
}

/// Converts an event that was read in an older version to 1.0. `raw` is the JSON of the event.
pub(super) fn upgrade_event(dialect: Dialect, event: &mut StreamResponse, raw: &RawValue) {
    match event {
        StreamResponse::Task(task) => upgrade_task(dialect, task),
        StreamResponse::Message(message) => upgrade_message(dialect, message),
        StreamResponse::StatusUpdate(update) => upgrade_status(dialect, &mut update.status),
        StreamResponse::ArtifactUpdate(update) => {
            upgrade_parts(dialect, &mut update.artifact.parts);
            if dialect == Dialect::V01 {
                if update.artifact.artifact_id.is_empty() {
                    update.artifact.artifact_id = "0".to_owned();
                }
                // In 0.1 these flags are members of the artifact.
                let inner = RawObject::parse(raw)
                    .ok()
                    .and_then(|all| all.object("artifact"))
                    .unwrap_or_default();
                update.append |= inner.read("append").unwrap_or(false);
                update.last_chunk |= inner.read("lastChunk").unwrap_or(false);
            }
        }
    }
}
