use callboard_message::TaskState;
use serde_json::value::RawValue;

use super::{settle_message, settle_parts, write_message, write_part};
use crate::Dialect;
use crate::wire::*;

/// In words, as 0.3 and 0.1 over JSON-RPC have them.
pub(crate) fn state_name(state: TaskState) -> String {
    state.as_str().replace('_', "-")
}

fn write_status(dialect: Dialect, status: &TaskStatus, out: &mut Writer<'_>) {
    let mut object = out.object();
    match (dialect, status.state) {
        (Dialect::V03Rest, TaskState::Canceled) => object.text("state", "TASK_STATE_CANCELLED"),
        (Dialect::V03Rest, state) => object.always("state", &state),
        (_, state) => object.text("state", &state_name(state)),
    }
    if let Some(message) = &status.message {
        write_message(dialect, message, &mut object.member("message"));
    }
    object.optional("timestamp", &status.timestamp);
    object.end();
}

fn write_artifact(dialect: Dialect, artifact: &Artifact, out: &mut Writer<'_>) {
    let mut object = out.object();
    object.text("artifactId", &artifact.artifact_id);
    object.words("name", &artifact.name);
    object.words("description", &artifact.description);
    object.list("parts", &artifact.parts, |part, out| write_part(dialect, part, out));
    object.optional("metadata", &artifact.metadata);
    object.default("extensions", &artifact.extensions);
    object.end();
}

fn task(dialect: Dialect, task: &Task, out: &mut Writer<'_>) {
    let mut object = out.object();
    kind(dialect, "task", &mut object);
    object.text("id", &task.id);
    object.text("contextId", &task.context_id);
    write_status(dialect, &task.status, &mut object.member("status"));
    if let Some(artifacts) = &task.artifacts {
        object.list("artifacts", artifacts, |artifact, out| write_artifact(dialect, artifact, out));
    }
    if let Some(history) = &task.history {
        object.list("history", history, |message, out| write_message(dialect, message, out));
    }
    object.optional("metadata", &task.metadata);
    object.end();
}

fn kind(dialect: Dialect, kind: &str, object: &mut ObjectWriter<'_>) {
    if dialect == Dialect::V03 {
        object.text("kind", kind);
    }
}

pub(crate) fn write_task(dialect: Dialect, of: &Task) -> Box<RawValue> {
    written(|out| task(dialect, of, out))
}

pub(crate) fn write_task_list(dialect: Dialect, list: &ListTasksResponse) -> Box<RawValue> {
    written(|out| {
        let mut object = out.object();
        object.list("tasks", &list.tasks, |of, out| task(dialect, of, out));
        object.always("nextPageToken", &list.next_page_token);
        object.always("pageSize", &list.page_size);
        object.always("totalSize", &list.total_size);
        object.end();
    })
}

pub(crate) fn write_send_response(dialect: Dialect, response: &SendMessageResponse) -> Box<RawValue> {
    write_event(dialect, &response.clone().into(), false)
}

/// The object itself, told by its `kind`, or wrapped under its name.
pub(crate) fn write_event(dialect: Dialect, event: &StreamResponse, ends: bool) -> Box<RawValue> {
    let bare = |out: &mut Writer<'_>| match event {
        StreamResponse::Task(of) => task(dialect, of, out),
        StreamResponse::Message(message) => write_message(dialect, message, out),
        StreamResponse::StatusUpdate(update) => write_status_update(dialect, update, ends, out),
        StreamResponse::ArtifactUpdate(update) => write_artifact_update(dialect, update, out),
    };
    if dialect == Dialect::V03 {
        return written(bare);
    }
    let name = match event {
        StreamResponse::Task(_) => "task",
        StreamResponse::Message(_) => "message",
        StreamResponse::StatusUpdate(_) => "statusUpdate",
        StreamResponse::ArtifactUpdate(_) => "artifactUpdate",
    };
    written(|out| {
        let mut object = out.object();
        bare(&mut object.member(name));
        object.end();
    })
}

fn write_status_update(dialect: Dialect, update: &TaskStatusUpdateEvent, ends: bool, out: &mut Writer<'_>) {
    let mut object = out.object();
    kind(dialect, "status-update", &mut object);
    object.text("taskId", &update.task_id);
    object.text("contextId", &update.context_id);
    write_status(dialect, &update.status, &mut object.member("status"));
    object.always("final", &ends);
    object.optional("metadata", &update.metadata);
    object.end();
}

fn write_artifact_update(dialect: Dialect, update: &TaskArtifactUpdateEvent, out: &mut Writer<'_>) {
    let mut object = out.object();
    kind(dialect, "artifact-update", &mut object);
    object.text("taskId", &update.task_id);
    object.text("contextId", &update.context_id);
    write_artifact(dialect, &update.artifact, &mut object.member("artifact"));
    object.default("append", &update.append);
    object.default("lastChunk", &update.last_chunk);
    object.optional("metadata", &update.metadata);
    object.end();
}

fn settle_status(dialect: Dialect, status: &mut TaskStatus) {
    status.message.iter_mut().for_each(|message| settle_message(dialect, message));
}

fn settle_task(dialect: Dialect, task: &mut Task) {
    settle_status(dialect, &mut task.status);
    task.artifacts.iter_mut().flatten().for_each(|artifact| settle_parts(dialect, &mut artifact.parts));
    task.history.iter_mut().flatten().for_each(|message| settle_message(dialect, message));
}

pub(crate) fn read_task(dialect: Dialect, raw: &RawValue) -> Result<Task, ReadError> {
    let mut task = Task::from_raw(raw)?;
    settle_task(dialect, &mut task);
    Ok(task)
}

pub(crate) fn read_task_list(dialect: Dialect, raw: &RawValue) -> Result<ListTasksResponse, ReadError> {
    let mut list = ListTasksResponse::from_raw(raw)?;
    list.tasks.iter_mut().for_each(|task| settle_task(dialect, task));
    Ok(list)
}

pub(crate) fn read_send_response(dialect: Dialect, raw: &RawValue) -> Result<SendMessageResponse, ReadError> {
    let mut response = SendMessageResponse::from_raw(raw)?;
    match &mut response {
        SendMessageResponse::Task(task) => settle_task(dialect, task),
        SendMessageResponse::Message(message) => settle_message(dialect, message),
    }
    Ok(response)
}

pub(crate) fn read_event(dialect: Dialect, raw: &RawValue) -> Result<StreamResponse, ReadError> {
    let mut event = StreamResponse::from_raw(raw)?;
    match &mut event {
        StreamResponse::Task(task) => settle_task(dialect, task),
        StreamResponse::Message(message) => settle_message(dialect, message),
        StreamResponse::StatusUpdate(update) => settle_status(dialect, &mut update.status),
        StreamResponse::ArtifactUpdate(update) => settle_parts(dialect, &mut update.artifact.parts),
    }
    Ok(event)
}
