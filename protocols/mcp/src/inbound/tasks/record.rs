//! What MCP keeps with a task, and reads from it.

use std::time::Duration;

use callboard_message::time::rfc3339;
use callboard_message::{Abilities, RawObject, TaskState};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{JournalError, Task, TaskError, TaskOutcome, TaskStep};
use serde_json::value::RawValue;

use crate::inbound::agent_adapter::Outcome;
use crate::inbound::client::question_request;
use crate::inbound::request::Params;
use crate::wire::failure::{of_rpc, sent_by_peer, to_rpc_or};
use crate::wire::{Revision, code as mcp, meta};

/// `_meta` of a `tools/call`: the same key of the same owner is the same task. A string of 1 to 128 bytes.
const KEY: &str = "callboard/key";

/// The shape of [`TaskOutcome::Reply`] here: MCP's `CallToolResult`.
const SHAPE: &str = "tool_result";

/// The members of `Task::extra`.
pub(crate) struct Extra {
    pub revision: Revision,
    /// What the client can be asked.
    pub client: Abilities,
    /// How long the task is kept, from its beginning.
    pub ttl: Duration,
}

impl Extra {
    pub fn written(&self) -> RawObject {
        let extra = RawObject::of("shape", SHAPE).with("revision", self.revision.as_str());
        extra
            .with("client", &self.client.0)
            .with("ttl_ms", millis(self.ttl))
    }

    /// `None` where another protocol began the task.
    pub fn of(task: &Task) -> Option<Self> {
        let revision = Revision::parse(&task.extra.text("revision")?)?;
        let client = Abilities(task.extra.object("client").unwrap_or_default());
        Some(Self {
            revision,
            client,
            ttl: ttl(task),
        })
    }
}

/// How long a task is kept, from its beginning.
fn ttl(task: &Task) -> Duration {
    let millis = task.extra.read::<u64>("ttl_ms").map(Duration::from_millis);
    millis.unwrap_or_else(|| {
        task.expires
            .duration_since(task.created)
            .unwrap_or_default()
    })
}

/// The step that ends a task whose call came to this.
pub(crate) fn ended(outcome: Outcome) -> TaskStep {
    match outcome {
        Ok(result) => TaskStep::Completed(result),
        Err(error) => TaskStep::Failed(of_rpc(&error)),
    }
}

/// What its call came to; `None` as long as it runs, and where it was cancelled.
pub(crate) fn outcome(task: &Task) -> Option<Result<&RawValue, RpcError>> {
    Some(match task.outcome.as_ref()? {
        TaskOutcome::Reply(result) => Ok(result),
        TaskOutcome::Failed(failure) => {
            let of_store = || to_rpc_or(code::INVALID_PARAMS, failure.clone());
            Err(sent_by_peer(failure).unwrap_or_else(of_store))
        }
        TaskOutcome::NotKept => Err(RpcError::new(
            mcp::UNAVAILABLE,
            "the result was of a kind that isn't kept over a restart of the server",
        )),
    })
}

/// What a request is kept as: without what belongs to its hop, so that the same one sent again is the same.
pub(crate) fn request(params: &Params) -> Option<Box<RawValue>> {
    let mut params = RawObject::parse(params.raw()?).ok()?;
    for of_hop in ["task", "inputResponses", "requestState"] {
        params.remove(of_hop);
    }
    if let Some(mut meta) = params.object("_meta") {
        meta.remove(KEY);
        params.set("_meta", meta);
    }
    meta::without_hop(&params.to_raw()).ok()
}

/// The idempotency key of a request.
///
/// # Errors
/// `INVALID_PARAMS` where it is no string. (How long it may be is the store's to say.)
pub(crate) fn key(params: &Params) -> Result<Option<String>, RpcError> {
    let Some(key) = params.meta_member(KEY) else {
        return Ok(None);
    };
    let invalid = |_| RpcError::invalid_params(format!("`_meta[\"{KEY}\"]` must be a string"));
    serde_json::from_str(key.get()).map(Some).map_err(invalid)
}

/// Why a task isn't begun, or doesn't take what its client sends.
pub(crate) fn refused(error: TaskError) -> RpcError {
    let said = error.to_string();
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
        callboard_message::log::error!(error = said, "the store of tasks failed");
        return RpcError::new(code, "internal error");
    }
    RpcError::new(code, said)
}

/// Member of `_meta` that says which task something belongs to (2025-11-25).
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// MCP's `Task` of 2025-11-25.
pub(crate) fn legacy_view(task: &Task, poll: Duration) -> RawObject {
    let seen = common(task, legacy_status(task));
    seen.with("ttl", millis(ttl(task)))
        .with("pollInterval", millis(poll))
}

/// `_meta` that says that something belongs to the task.
pub(crate) fn related_meta(task: &Task) -> RawObject {
    RawObject::of("taskId", task.id.as_str())
}

/// `Task` of the extension, without what it came to or waits for.
pub(crate) fn modern_view(task: &Task, poll: Duration) -> RawObject {
    let seen = common(task, modern_status(task));
    seen.with("ttlMs", millis(ttl(task)))
        .with("pollIntervalMs", millis(poll))
}

/// `DetailedTask` of the extension.
pub(crate) fn detailed_view(task: &Task, poll: Duration) -> RawObject {
    let mut seen = modern_view(task, poll);
    if task.state == TaskState::InputRequired {
        let mut requests = RawObject::new();
        for open in &task.open {
            requests.set_some(&open.key, &question_request(&open.question));
        }
        seen.set("inputRequests", requests);
    }
    match outcome(task) {
        Some(Ok(result)) => seen.set_raw("result", result.to_owned()),
        Some(Err(error)) => {
            let mut told = RawObject::of("code", error.code).with("message", &error.message);
            told.set_some("data", &error.data);
            seen.set("error", told);
        }
        None => {}
    }
    seen
}

fn common(task: &Task, status: &str) -> RawObject {
    let mut seen = RawObject::of("taskId", task.id.as_str()).with("status", status);
    seen.set_some("statusMessage", &task.said);
    seen.with("createdAt", rfc3339(task.created))
        .with("lastUpdatedAt", rfc3339(task.updated))
}

/// In 2025-11-25 a tool that says what went wrong has failed; in the extension its call has completed.
pub(crate) fn legacy_status(task: &Task) -> &'static str {
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
        && RawObject::parse(result)
            .ok()
            .and_then(|result| result.read("isError"))
            .unwrap_or(false)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
