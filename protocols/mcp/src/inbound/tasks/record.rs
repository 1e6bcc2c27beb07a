//! MCP's data in a stored task, and its representation on the wire.

use std::time::Duration;

use callboard_message::time::format_rfc3339;
use callboard_message::{CallerCapabilities, RawObject, TaskState};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{JournalError, Task, TaskError, TaskOutcome, TaskStep};
use serde_json::value::RawValue;

use crate::inbound::agent_adapter::RpcResult;
use crate::inbound::client_messages::question_request;
use crate::inbound::request::{IDEMPOTENCY_KEY_META, MetaName, RequestParams};
use crate::wire::error_mapping::{from_rpc, peer_error, to_rpc_or};
use crate::wire::{Revision, code as mcp, meta};

/// Value of `shape` in `Task::extra` of MCP tasks: their replies are `CallToolResult` objects.
const REPLY_SHAPE: &str = "tool_result";

/// Members that MCP stores in `Task::extra`.
pub(crate) struct TaskExtra {
    pub revision: Revision,
    /// Client capabilities declared when the task was created.
    pub client: CallerCapabilities,
    /// Time that the task is kept after its creation.
    pub ttl: Duration,
}

impl TaskExtra {
    pub fn to_object(&self) -> RawObject {
        let extra =
            RawObject::single("shape", REPLY_SHAPE).with("revision", self.revision.as_str());
        extra
            .with("client", &self.client.0)
            .with("ttl_ms", millis(self.ttl))
    }

    /// Parses `Task::extra`. Returns `None` if another protocol created the task.
    pub fn from_task(task: &Task) -> Option<Self> {
        let revision = Revision::parse(&task.extra.text("revision")?)?;
        let client = CallerCapabilities(task.extra.object("client").unwrap_or_default());
        Some(Self {
            revision,
            client,
            ttl: ttl(task),
        })
    }
}

/// Returns the time that a task is kept after its creation.
fn ttl(task: &Task) -> Duration {
    let millis = task.extra.read::<u64>("ttl_ms").map(Duration::from_millis);
    millis.unwrap_or_else(|| {
        task.expires
            .duration_since(task.created)
            .unwrap_or_default()
    })
}

/// Returns the step that ends a task: completed with the result, or failed with the error.
pub(crate) fn final_step(outcome: RpcResult) -> TaskStep {
    match outcome {
        Ok(result) => TaskStep::Completed(result),
        Err(error) => TaskStep::Failed(from_rpc(&error)),
    }
}

/// Returns the outcome of a task's call: its result or error. `None` while the call runs, and if it
/// was cancelled.
pub(crate) fn call_outcome(task: &Task) -> Option<Result<&RawValue, RpcError>> {
    Some(match task.outcome.as_ref()? {
        TaskOutcome::Reply(result) => Ok(result),
        TaskOutcome::Failed(failure) => {
            let of_store = || to_rpc_or(code::INVALID_PARAMS, failure.clone());
            Err(peer_error(failure).unwrap_or_else(of_store))
        }
        TaskOutcome::NotKept => Err(RpcError::new(
            mcp::UNAVAILABLE,
            "the task completed, but its result was kept in memory only and was lost when the server restarted",
        )),
    })
}

/// Returns the params to be stored with a task: without the members that differ when a client sends
/// the same request again, such as `requestState` or the idempotency key.
pub(crate) fn stored_request(params: &RequestParams) -> Option<Box<RawValue>> {
    let mut params = RawObject::parse(params.raw()?).ok()?;
    for of_hop in ["task", "inputResponses", "requestState"] {
        params.remove(of_hop);
    }
    if let Some(mut meta) = params.object("_meta") {
        meta.remove(IDEMPOTENCY_KEY_META);
        params.set("_meta", meta);
    }
    // A purpose is judged again when the request is repeated.
    meta::strip_hop_members(&params.to_raw(), true).ok()
}

/// Returns the idempotency key of a request, if any.
///
/// # Errors
/// `INVALID_PARAMS` if the key isn't a string. Its length is checked by the store.
pub(crate) fn idempotency_key(params: &RequestParams) -> Result<Option<String>, RpcError> {
    let Some(key) = params.meta(MetaName::IdempotencyKey) else {
        return Ok(None);
    };
    let invalid = |_| {
        RpcError::invalid_params(format!(
            "`_meta[\"{IDEMPOTENCY_KEY_META}\"]` must be a string"
        ))
    };
    serde_json::from_str(key.get()).map(Some).map_err(invalid)
}

/// Converts an error of the task store to an error for the client.
pub(crate) fn task_error(error: TaskError) -> RpcError {
    let message = error.to_string();
    let code = match error {
        TaskError::Journal(JournalError::Invalid(_))
        | TaskError::NotFound
        | TaskError::HasEnded(_)
        | TaskError::KeyReused
        | TaskError::TooLarge { .. }
        | TaskError::Illegal { .. } => code::INVALID_PARAMS,
        TaskError::Journal(
            JournalError::Fenced { .. } | JournalError::Damaged(_) | JournalError::Store(_),
        ) => code::INTERNAL_ERROR,
        _ => mcp::OVERLOADED,
    };
    if code == code::INTERNAL_ERROR {
        callboard_message::log::error!(error = message, "the task store failed");
        return RpcError::new(code, "internal error");
    }
    RpcError::new(code, message)
}

/// Member of `_meta` that names the task to which a message belongs (2025-11-25).
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Returns the task as MCP's `Task` of 2025-11-25.
pub(crate) fn legacy_view(task: &Task, poll: Duration) -> RawObject {
    let seen = common_view(task, legacy_status(task));
    seen.with("ttl", millis(ttl(task)))
        .with("pollInterval", millis(poll))
}

/// Returns the value of [`RELATED_TASK`] for a task.
pub(crate) fn related_meta(task: &Task) -> RawObject {
    RawObject::single("taskId", task.id.as_str())
}

/// Returns the task as the `Task` object of the tasks extension, without outcome and open
/// questions.
pub(crate) fn modern_view(task: &Task, poll: Duration) -> RawObject {
    let seen = common_view(task, modern_status(task));
    seen.with("ttlMs", millis(ttl(task)))
        .with("pollIntervalMs", millis(poll))
}

/// Returns the task as the `DetailedTask` object of the tasks extension, with outcome and open
/// questions.
pub(crate) fn detailed_view(task: &Task, poll: Duration) -> RawObject {
    let mut seen = modern_view(task, poll);
    if task.state == TaskState::InputRequired {
        let mut requests = RawObject::new();
        for open in &task.open_questions {
            requests.set_some(&open.key, &question_request(&open.question));
        }
        seen.set("inputRequests", requests);
    }
    match call_outcome(task) {
        Some(Ok(result)) => seen.set_raw("result", result.to_owned()),
        Some(Err(error)) => {
            let mut error_object =
                RawObject::single("code", error.code).with("message", &error.message);
            error_object.set_some("data", &error.data);
            seen.set("error", error_object);
        }
        None => {}
    }
    seen
}

fn common_view(task: &Task, status: &str) -> RawObject {
    let mut seen = RawObject::single("taskId", task.id.as_str()).with("status", status);
    seen.set_some("statusMessage", &task.status_message);
    seen.with("createdAt", format_rfc3339(task.created))
        .with("lastUpdatedAt", format_rfc3339(task.updated))
}

/// Returns the task's status as 2025-11-25 defines it. A tool result with `isError` counts as
/// failed, but as completed in the later tasks extension.
pub(crate) fn legacy_status(task: &Task) -> &'static str {
    match call_outcome(task) {
        Some(Ok(result)) if is_error_result(result) => "failed",
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

fn is_error_result(result: &RawValue) -> bool {
    result.get().contains("\"isError\"")
        && RawObject::parse(result)
            .ok()
            .and_then(|result| result.read("isError"))
            .unwrap_or(false)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
