//! Views of a running node, as its console and `callboard top` show them and as JSON has them.
//!
//! Times are milliseconds since the Unix epoch. Names of agents, tools and principals are made visible: control and
//! invisible characters are escaped. Contents of messages are in [`CallStep::request`] and [`CallStep::reply`] alone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Summary of a node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Overview {
    /// Name of the node.
    pub node: String,
    /// Version of callboard.
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime_s: u64,
    /// Calls from peers that ended in the last minute.
    pub calls_per_minute: u64,
    /// Calls from peers that failed in the last minute.
    pub failures_per_minute: u64,
    /// 99th percentile of the duration of calls in the last minute, in milliseconds; `None` without any.
    pub p99_ms: Option<f64>,
    /// Calls from peers that run now.
    pub running: usize,
    /// Questions that wait for an answer.
    pub questions: usize,
    /// Upstreams that aren't connected.
    pub upstreams_away: usize,
    /// Messages that were accepted and lost since the start.
    pub dead_letters: u64,
    /// Events that were dropped because the stream was full.
    pub events_dropped: u64,
    /// Exchanges since the start that were counted and, because of their rate, not recorded: they are in no list.
    pub exchanges_unrecorded: u64,
}

/// An agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AgentView {
    /// Id in the node.
    pub id: String,
    /// Name in the directory; `None` without one.
    pub name: Option<String>,
    /// Kind in the topology, such as `upstream`; for others the Rust type.
    pub kind: String,
    /// `starting`, `running`, `restarting`, `draining` or `ended`.
    pub state: String,
    /// Messages in the mailbox.
    pub mailbox: u32,
    /// Capacity of the mailbox.
    pub mailbox_max: u32,
    /// Handlers that wait at an await.
    pub in_flight: u32,
    /// Messages handled since the start.
    pub handled: u64,
    /// Restarts since the start.
    pub restarts: u32,
    /// Latest error: the message whose handler panicked; `None` without one.
    pub last_error: Option<String>,
    /// Calls by policies' name of this agent since the start, and those that failed.
    pub calls: u64,
    /// Failed calls since the start.
    pub failures: u64,
    /// Id of the agent that this one belongs to in the tree; `None` at the top.
    pub parent: Option<String>,
}

/// Call of a peer, or exchange with one, as a line of the live feed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallLine {
    /// Id of the call, for the timeline.
    pub call: String,
    /// Step by which it is shown: `inbound` for a call of a peer; `outbound` for a message that the node sent of its own
    /// accord; `refusal` or `question` if nothing else is known.
    pub kind: String,
    /// Time of the beginning.
    pub at_ms: u64,
    /// Kind and id of the principal, such as `api_key:alice`.
    pub principal: String,
    /// Agent.
    pub agent: String,
    /// Tool or message.
    pub target: String,
    /// Protocol of the caller, such as `mcp`.
    pub protocol: String,
    /// Duration in milliseconds; `None` while it runs.
    pub ms: Option<f64>,
    /// `running`, `asks`, `ok`, `tool_error`, the kind of the failure, or `unknown` if its end may have been lost.
    pub outcome: String,
    /// Trace id, 32 hexadecimal digits.
    pub trace: String,
}

/// Timeline of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Timeline {
    /// The call.
    pub line: CallLine,
    /// Steps by their beginning.
    pub steps: Vec<CallStep>,
    /// Steps that are left out, because the call has too many.
    pub more: usize,
}

/// Step of a call.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallStep {
    /// `inbound`, `local`, `outbound`, `question` or `refusal`.
    pub kind: String,
    /// Nesting below the call, from 0.
    pub depth: usize,
    /// Time since the beginning of the call, in milliseconds.
    pub start_ms: f64,
    /// Duration in milliseconds; `None` while it runs.
    pub ms: Option<f64>,
    /// Agent or peer.
    pub agent: String,
    /// Tool, message, or kind of the question.
    pub target: String,
    /// Protocol; empty within the node.
    pub protocol: String,
    /// Outcome, as in [`CallLine::outcome`]; for questions `accept`, `decline`, `cancel` or `answered`.
    pub outcome: String,
    /// Ids of the rules of a refusal, its reason, or who answered a question; empty without.
    pub detail: String,
    /// Size of the request in bytes.
    pub request_bytes: usize,
    /// Size of the reply in bytes.
    pub reply_bytes: usize,
    /// Span id, 16 hexadecimal digits.
    pub span: String,
    /// Parent span id; empty without.
    pub parent: String,
    /// Request, cut; `None` if it isn't recorded or the reader lacks the right.
    #[debug(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Reply, cut; as `request`.
    #[debug(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}

/// Question that waits for an answer.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QuestionView {
    /// Id, for the answer.
    pub id: String,
    /// Call that waits; empty for a request in the inbox of a person.
    pub call: String,
    /// Time of the question.
    pub at_ms: u64,
    /// Agent that asks.
    pub agent: String,
    /// Kind and id of who is asked.
    pub principal: String,
    /// Text of the question; empty if the reader lacks the right to see contents.
    #[debug(skip)]
    pub message: String,
    /// JSON schema of the answer, an object with primitive properties; `null` if it isn't a form.
    #[debug(skip)]
    pub schema: Value,
    /// Whether it can be answered at the console.
    pub can_answer: bool,
}

/// Upstream of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpstreamView {
    /// Name.
    pub name: String,
    /// `connected`, `connecting`, `apart` (not needed yet), `away`, `disabled` or `unknown`.
    pub state: String,
    /// Milliseconds until the next attempt to connect; `None` if none is due.
    pub retry_ms: Option<u64>,
    /// Consecutive failures.
    pub failures: u64,
    /// State as the upstream tells it.
    pub detail: Value,
}

/// Stored task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskView {
    /// Id.
    pub id: String,
    /// Id of the task that it is a part of; empty without.
    pub parent: String,
    /// Agent.
    pub agent: String,
    /// Owner, such as `api_key:alice`.
    pub owner: String,
    /// State, such as `working` or `input_required`.
    pub state: String,
    /// Time of creation.
    pub created_ms: u64,
    /// Time of the last change.
    pub changed_ms: u64,
}

/// Tool of an upstream with pinned tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ToolView {
    /// Upstream.
    pub upstream: String,
    /// Name.
    pub tool: String,
    /// `approved`, `changed` or `new`.
    pub state: String,
    /// Approved definition as indented JSON; empty without one.
    pub approved: String,
    /// Offered definition as indented JSON; empty if it is the approved one or too large.
    pub offered: String,
    /// Hash of the offered definition, for its approval; empty without one.
    pub offered_hash: String,
}

/// Node with all that a screen of `callboard top` shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct NodeView {
    /// Summary.
    pub overview: Overview,
    /// Agents in the order of the tree.
    pub agents: Arc<Vec<AgentView>>,
    /// Latest calls, newest first.
    pub calls: Vec<CallLine>,
    /// Questions, oldest first.
    pub questions: Vec<QuestionView>,
    /// Upstreams by name.
    pub upstreams: Vec<UpstreamView>,
}
