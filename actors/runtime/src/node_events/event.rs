//! Events of a node.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{CallId, FailureKind, Principal, TaskState, TraceContext};

/// Protocol by which a message came or goes. The names are those of the protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CallOrigin {
    /// Protocol: `mcp`, `a2a`, `mail`; empty for a call that began in this process.
    pub protocol: &'static str,
    /// Version of the protocol; empty if unknown.
    pub version: &'static str,
    /// Method of the protocol, such as `tools/call` or `SendMessage`; empty if it follows from the message.
    pub method: &'static str,
    /// Transport as OpenTelemetry names it: `tcp` or `pipe`; empty if unknown.
    pub transport: &'static str,
}

impl CallOrigin {
    /// MCP, any version.
    pub const MCP: Self = Self::of("mcp");
    /// A2A, any version.
    pub const A2A: Self = Self::of("a2a");
    /// Agent mail over HTTP.
    pub const MAIL: Self = Self::of("mail");

    /// Returns an origin of which only the protocol is known.
    pub const fn of(protocol: &'static str) -> Self {
        Self {
            protocol,
            version: "",
            method: "",
            transport: "",
        }
    }
}

/// Kind of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeKind {
    /// Message from a peer to an agent of this node.
    Inbound,
    /// Message from an agent of this node to a peer.
    Outbound,
    /// Message between agents of this node, within a call.
    Local,
}

/// A message to an agent, with its reply one exchange.
#[derive(derive_more::Debug)]
pub struct Exchange {
    /// Kind of the exchange.
    pub kind: ExchangeKind,
    /// Call that the message belongs to. All exchanges of a call have the same.
    pub call: CallId,
    /// Trace, span and parent span.
    pub trace: TraceContext,
    /// Principal on whose behalf the message is sent.
    pub principal: Arc<Principal>,
    /// Name by which policies know the agent or peer; for [`ExchangeKind::Local`] that in the directory.
    pub agent: Box<str>,
    /// Name of the message.
    pub message: Box<str>,
    /// Tool that the message calls; `None` if it calls none.
    pub tool: Option<Box<str>>,
    /// Protocol of the peer; empty for [`ExchangeKind::Local`].
    pub origin: CallOrigin,
    /// Time at which it began.
    pub began_at: SystemTime,
    /// Size of the payload, in bytes of JSON; 0 for [`ExchangeKind::Local`].
    pub request_bytes: usize,
    /// Payload, cut to [`EVENT_CONTENT_BYTES_MAX`](super::EVENT_CONTENT_BYTES_MAX); `None` if it isn't recorded.
    #[debug(skip)]
    pub content: Option<Box<str>>,
}

/// End of an exchange.
#[derive(derive_more::Debug)]
pub struct ExchangeEnd {
    /// The exchange.
    pub exchange: Arc<Exchange>,
    /// Time since its beginning.
    pub duration: Duration,
    /// Kind of the failure; `None` if it was answered. A caller that has gone is `Cancelled`.
    pub failure: Option<FailureKind>,
    /// Whether the answer is a tool result with `isError`.
    pub is_tool_error: bool,
    /// Size of the reply, in bytes of JSON; 0 without one and for [`ExchangeKind::Local`].
    pub reply_bytes: usize,
    /// Reply, cut like the request; `None` if it isn't recorded.
    #[debug(skip)]
    pub content: Option<Box<str>>,
}

/// Question in the course of a call.
#[derive(Debug)]
pub struct QuestionEvent {
    /// Id of the question, unique in this node.
    pub id: CallId,
    /// Call that asks.
    pub call: CallId,
    /// Trace, span and parent span.
    pub trace: TraceContext,
    /// Principal of the call, who is asked.
    pub principal: Arc<Principal>,
    /// Agent that asks, as policies know the one that was called.
    pub agent: Box<str>,
    /// `sample`, `elicit`, `roots`, or the method of a forwarded request.
    pub kind: Box<str>,
    /// Protocol of the caller.
    pub origin: CallOrigin,
    /// Time at which it was asked.
    pub asked_at: SystemTime,
}

/// End of a question.
#[derive(Debug)]
pub struct QuestionEnd {
    /// The question.
    pub question: Arc<QuestionEvent>,
    /// Time since it was asked.
    pub duration: Duration,
    /// Kind of the failure; `None` if it was answered, also with a refusal.
    pub failure: Option<FailureKind>,
    /// `accept`, `decline` or `cancel` of an elicitation; empty otherwise.
    pub action: &'static str,
    /// Principal that answered at a console; `None` if the caller did.
    pub answered_by: Option<Arc<Principal>>,
}

/// Message or part of an exchange that a policy rejected.
#[derive(Debug)]
pub struct PolicyRefusal {
    /// Call that the message belongs to.
    pub call: CallId,
    /// Kind and id of the principal.
    pub principal: Box<str>,
    /// Agent or peer that it was for.
    pub agent: Box<str>,
    /// Name of the message, or kind of the question.
    pub message: Box<str>,
    /// Whether the message came from a peer or went to one.
    pub direction: ExchangeKind,
    /// Part that was rejected: `message`, `reply`, `question` or `answer`.
    pub part: &'static str,
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Ids of the rules that rejected it; empty if there are none.
    pub rules: Vec<String>,
    /// Message of the failure, as the sender gets it.
    pub reason: Box<str>,
}

/// Event of an agent's life.
#[derive(Debug)]
pub struct AgentEvent {
    /// Name in the directory; empty without one.
    pub name: Box<str>,
    /// Rust type name of the agent.
    pub kind: &'static str,
    /// `restarted`, or the reason of its end.
    pub event: Box<str>,
}

/// Change of the connection to an upstream.
#[derive(Debug)]
pub struct UpstreamChange {
    /// Name of the upstream.
    pub server: Box<str>,
    /// Whether it is connected.
    pub is_up: bool,
}

/// Change of a stored task's state.
#[derive(Debug)]
pub struct TaskStateChange {
    /// Id of the task.
    pub id: Box<str>,
    /// Agent that works on it.
    pub agent: Box<str>,
    /// New state.
    pub state: TaskState,
}

/// Event of a node. Large ones are shared, so that an event takes few bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeEvent {
    /// An exchange has begun.
    ExchangeBegan(Arc<Exchange>),
    /// An exchange has ended.
    ExchangeEnded(Box<ExchangeEnd>),
    /// A question has been asked.
    QuestionAsked(Arc<QuestionEvent>),
    /// A question has been answered, or will not be.
    QuestionEnded(Box<QuestionEnd>),
    /// A policy has rejected something.
    Refused {
        /// Time of the decision.
        at: SystemTime,
        /// Rejected message.
        refusal: Box<PolicyRefusal>,
    },
    /// An agent was restarted or has ended.
    Agent {
        /// Time of the event.
        at: SystemTime,
        /// Event.
        event: Box<AgentEvent>,
    },
    /// An upstream was connected or lost.
    Upstream {
        /// Time of the change.
        at: SystemTime,
        /// Change.
        change: Box<UpstreamChange>,
    },
    /// A stored task has changed its state.
    Task {
        /// Time of the change.
        at: SystemTime,
        /// Change.
        change: Box<TaskStateChange>,
    },
    /// A mail message was accepted.
    Mail {
        /// Time of acceptance.
        at: SystemTime,
        /// Member that sent it.
        from: Box<str>,
        /// Number of recipients.
        recipients: usize,
    },
}
