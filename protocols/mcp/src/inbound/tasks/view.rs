//! A task as its clients see it, in the words of their era.

use std::time::Duration;

use callboard_message::time::rfc3339;
use callboard_message::{RawObject, TaskState};
use callboard_runtime::Task;
use serde_json::value::RawValue;

use super::asking;
use super::record::{outcome, ttl};

/// Member of `_meta` that says which task something belongs to (2025-11-25).
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// MCP's `Task` of 2025-11-25.
pub(super) fn legacy(task: &Task, poll: Duration) -> RawObject {
    let seen = common(task, legacy_status(task));
    seen.with("ttl", millis(ttl(task))).with("pollInterval", millis(poll))
}

/// `_meta` that says that something belongs to the task.
pub(super) fn related(task: &Task) -> RawObject {
    RawObject::new().with("taskId", task.id.as_str())
}

/// `Task` of the extension, without what it came to or waits for.
pub(super) fn modern(task: &Task, poll: Duration) -> RawObject {
    let seen = common(task, modern_status(task));
    seen.with("ttlMs", millis(ttl(task))).with("pollIntervalMs", millis(poll))
}

/// `DetailedTask` of the extension.
pub(super) fn detailed(task: &Task, poll: Duration) -> RawObject {
    let mut seen = modern(task, poll);
    if task.state == TaskState::InputRequired {
        let mut requests = RawObject::new();
        for open in &task.open {
            if let Some((method, params)) = asking::request(&open.question) {
                requests.set(&open.key, RawObject::new().with("method", method).with("params", params));
            }
        }
        seen.set("inputRequests", requests);
    }
    match outcome(task) {
        Some(Ok(result)) => seen.set_raw("result", result.to_owned()),
        Some(Err(error)) => {
            let mut told = RawObject::new().with("code", error.code).with("message", &error.message);
            if let Some(data) = &error.data {
                told.set_raw("data", data.clone());
            }
            seen.set("error", told);
        }
        None => {}
    }
    seen
}

fn common(task: &Task, status: &str) -> RawObject {
    let mut seen = RawObject::new().with("taskId", task.id.as_str()).with("status", status);
    if let Some(said) = &task.said {
        seen.set("statusMessage", said);
    }
    seen.with("createdAt", rfc3339(task.created)).with("lastUpdatedAt", rfc3339(task.updated))
}

/// In 2025-11-25 a tool that says what went wrong has failed; in the extension its call has completed.
pub(super) fn legacy_status(task: &Task) -> &'static str {
    match outcome(task) {
        Some(Ok(result)) if says_error(result) => "failed",
        _ => modern_status(task),
    }
}

fn modern_status(task: &Task) -> &'static str {
    match task.state {
        TaskState::InputRequired | TaskState::AuthRequired => "input_required",
        TaskState::Completed => "completed",
        TaskState::Failed | TaskState::Rejected => "failed",
        TaskState::Canceled => "cancelled",
        TaskState::Submitted | TaskState::Working => "working",
    }
}

fn says_error(result: &RawValue) -> bool {
    result.get().contains("\"isError\"")
        && RawObject::parse(result).ok().and_then(|result| result.read("isError")).unwrap_or(false)
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
