//! Names of OpenTelemetry and Prometheus, and the methods that messages stand for.
//!
//! The semantic conventions for GenAI, MCP and A2A (open-telemetry/semantic-conventions-genai) have the status
//! Development, so all names from them are in this file.

use callboard_message::capabilities::{
    CallTool, CompleteArgument, Converse, CreateMessage, DescribeAgent, GetPrompt, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, RESERVED_PREFIX, ReadResource,
    SubscribeResource, UnsubscribeResource,
};
use callboard_message::{FailureKind, Message as _};
use callboard_runtime::{CallOrigin, OTHER_SERIES};

/// Protocol name of MCP in [`CallOrigin::protocol`].
pub(crate) const PROTOCOL_MCP: &str = CallOrigin::MCP.protocol;
/// Protocol name of A2A in [`CallOrigin::protocol`].
pub(crate) const PROTOCOL_A2A: &str = CallOrigin::A2A.protocol;

/// Value for a method that isn't known, and of a label that has too many values.
pub(crate) const OTHER: &str = OTHER_SERIES;
/// Method of a call of a tool.
pub(crate) const TOOLS_CALL: &str = "tools/call";
/// Outcome of an exchange that was answered.
pub(crate) const OK: &str = "ok";
/// `error.type`, and outcome, of a tool result with `isError`.
pub(crate) const TOOL_ERROR: &str = "tool_error";
/// Outcome of an exchange or question that hasn't ended.
pub(crate) const RUNNING: &str = "running";
/// Outcome of an exchange or question whose end may have been lost with other events.
pub(crate) const UNKNOWN: &str = "unknown";
/// Outcome of a call with a question that waits for its answer.
pub(crate) const ASKS: &str = "asks";
/// Outcome of a question that was answered and isn't an elicitation.
pub(crate) const ANSWERED: &str = "answered";

/// Names of metrics, as they are registered for Prometheus: the unit and `_total` are appended.
pub(crate) mod metric {
    pub(crate) const MCP_SERVER_DURATION: &str = "mcp_server_operation_duration";
    pub(crate) const MCP_CLIENT_DURATION: &str = "mcp_client_operation_duration";
    pub(crate) const A2A_SERVER_DURATION: &str = "a2a_server_operation_duration";
    pub(crate) const A2A_CLIENT_DURATION: &str = "a2a_client_operation_duration";
    pub(crate) const EXCHANGE_DURATION: &str = "callboard_exchange_duration";
    pub(crate) const MAILBOX_DEPTH: &str = "callboard_mailbox_depth";
    pub(crate) const MAILBOX_CAPACITY: &str = "callboard_mailbox_capacity";
    pub(crate) const DEAD_LETTERS: &str = "callboard_dead_letters";
    pub(crate) const RESTARTS: &str = "callboard_restarts";
    pub(crate) const QUESTIONS_WAITING: &str = "callboard_questions_waiting";
    pub(crate) const UPSTREAM_UP: &str = "callboard_upstream_up";
    pub(crate) const GUARD_DECISIONS: &str = "callboard_guard_decisions";
    pub(crate) const POLICY_REFUSALS: &str = "callboard_policy_refusals";
    pub(crate) const EVENTS_DROPPED: &str = "callboard_events_dropped";
    pub(crate) const EXCHANGES_UNRECORDED: &str = "callboard_exchanges_unrecorded";
    pub(crate) const TASKS: &str = "callboard_tasks";
    pub(crate) const MAIL_ACCEPTED: &str = "callboard_mail_accepted";
    pub(crate) const PROCESS_START_TIME: &str = "process_start_time";
    pub(crate) const PROCESS_RESIDENT_MEMORY: &str = "process_resident_memory";
}

/// Labels of metrics. Each has a bounded number of values; none is an id or a principal.
pub(crate) mod label {
    pub(crate) const MCP_METHOD: &str = "mcp_method_name";
    pub(crate) const A2A_METHOD: &str = "a2a_method_name";
    pub(crate) const TOOL: &str = "gen_ai_tool_name";
    pub(crate) const ERROR_TYPE: &str = "error_type";
    pub(crate) const AGENT: &str = "agent";
    /// Kind of an agent, for those without a name.
    pub(crate) const AGENT_KIND: &str = "kind";
    /// `inbound`, `outbound` or `local`.
    pub(crate) const DIRECTION: &str = "direction";
    pub(crate) const PROTOCOL: &str = "protocol";
    pub(crate) const UPSTREAM: &str = "upstream";
    pub(crate) const DECISION: &str = "decision";
    pub(crate) const RULE: &str = "rule";
    pub(crate) const STATE: &str = "state";
}

/// Attributes of spans, metrics of OpenTelemetry, and their values.
#[cfg(feature = "otlp")]
pub(crate) mod otel {
    pub(crate) const MCP_METHOD_NAME: &str = "mcp.method.name";
    pub(crate) const MCP_PROTOCOL_VERSION: &str = "mcp.protocol.version";
    pub(crate) const A2A_METHOD_NAME: &str = "a2a.method.name";
    pub(crate) const A2A_PROTOCOL_VERSION: &str = "a2a.protocol.version";
    pub(crate) const GEN_AI_AGENT_NAME: &str = "gen_ai.agent.name";
    pub(crate) const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
    pub(crate) const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
    pub(crate) const ERROR_TYPE: &str = "error.type";
    pub(crate) const NETWORK_TRANSPORT: &str = "network.transport";
    pub(crate) const SERVICE_NAME: &str = "service.name";
    pub(crate) const SERVICE_VERSION: &str = "service.version";
    /// Id of the call that a span belongs to.
    pub(crate) const CALL_ID: &str = "callboard.call.id";
    /// Name of the node.
    pub(crate) const NODE: &str = "callboard.node";
    /// `accept`, `decline` or `cancel` of an elicitation.
    pub(crate) const QUESTION_ACTION: &str = "callboard.question.action";

    /// [`GEN_AI_OPERATION_NAME`] of a call of a tool.
    pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
    /// [`GEN_AI_OPERATION_NAME`] of another message to an agent.
    pub(crate) const INVOKE_AGENT: &str = "invoke_agent";

    /// Histogram of requests from MCP clients, in seconds.
    pub(crate) const MCP_SERVER_OPERATION_DURATION: &str = "mcp.server.operation.duration";
    /// Histogram of requests to MCP servers and clients, in seconds.
    pub(crate) const MCP_CLIENT_OPERATION_DURATION: &str = "mcp.client.operation.duration";
}

/// Returns the MCP method that a message stands for; [`OTHER`] if it is none of those.
pub(crate) fn mcp_method(message: &str, is_tool: bool) -> &'static str {
    match message {
        // A conversation with an agent is one of its tools.
        CallTool::NAME | Converse::NAME => TOOLS_CALL,
        ListTools::NAME => "tools/list",
        DescribeAgent::NAME => "server/discover",
        ListResources::NAME => "resources/list",
        ListResourceTemplates::NAME => "resources/templates/list",
        ReadResource::NAME => "resources/read",
        SubscribeResource::NAME => "resources/subscribe",
        UnsubscribeResource::NAME => "resources/unsubscribe",
        ListPrompts::NAME => "prompts/list",
        GetPrompt::NAME => "prompts/get",
        CompleteArgument::NAME => "completion/complete",
        CreateMessage::NAME => "sampling/createMessage",
        // A message type of its own is a tool.
        message if is_tool || !message.starts_with(RESERVED_PREFIX) => TOOLS_CALL,
        _ => OTHER,
    }
}

/// Returns the A2A operation, in the words of 1.0, of a method in the words of any version; if it is empty, of the
/// message.
pub(crate) fn a2a_method(method: &str, message: &str) -> &'static str {
    match method {
        "SendMessage" | "message/send" | "tasks/send" => "SendMessage",
        "SendStreamingMessage" | "message/stream" | "tasks/sendSubscribe" => "SendStreamingMessage",
        "GetTask" | "tasks/get" => "GetTask",
        "ListTasks" => "ListTasks",
        "CancelTask" | "tasks/cancel" => "CancelTask",
        "SubscribeToTask" | "tasks/resubscribe" => "SubscribeToTask",
        "CreateTaskPushNotificationConfig"
        | "tasks/pushNotificationConfig/set"
        | "tasks/pushNotification/set" => "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig"
        | "tasks/pushNotificationConfig/get"
        | "tasks/pushNotification/get" => "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs" | "tasks/pushNotificationConfig/list" => {
            "ListTaskPushNotificationConfigs"
        }
        "DeleteTaskPushNotificationConfig" | "tasks/pushNotificationConfig/delete" => {
            "DeleteTaskPushNotificationConfig"
        }
        "GetExtendedAgentCard" | "agent/getAuthenticatedExtendedCard" => "GetExtendedAgentCard",
        // Skills and descriptions of an agent come from its card.
        "" if matches!(message, DescribeAgent::NAME | ListTools::NAME) => "GetExtendedAgentCard",
        "" => "SendMessage",
        _ => OTHER,
    }
}

/// Returns the method of a protocol by which a message came or goes: that of `origin` if it is known, else the one
/// that the message stands for. [`OTHER`] for protocols without methods.
pub(crate) fn method(origin: &CallOrigin, message: &str, is_tool: bool) -> &'static str {
    match (origin.protocol, origin.method) {
        (PROTOCOL_A2A, method) => a2a_method(method, message),
        (PROTOCOL_MCP, "") => mcp_method(message, is_tool),
        (PROTOCOL_MCP, method) => method,
        _ => OTHER,
    }
}

/// Returns the MCP method of a kind of question; [`OTHER`] for a forwarded request, whose kind is its method.
pub(crate) fn question_method(kind: &str) -> &'static str {
    match kind {
        "sample" => "sampling/createMessage",
        "elicit" => "elicitation/create",
        "roots" => "roots/list",
        _ => OTHER,
    }
}

/// Returns the name of a kind of failure, as in JSON.
pub(crate) fn failure_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::InvalidInput => "invalid_input",
        FailureKind::NotFound => "not_found",
        FailureKind::Denied => "denied",
        FailureKind::Blocked => "blocked",
        FailureKind::Rejected => "rejected",
        FailureKind::Overloaded => "overloaded",
        FailureKind::Unavailable => "unavailable",
        FailureKind::TimedOut => "timed_out",
        FailureKind::Cancelled => "cancelled",
        FailureKind::NoResponder => "nobody_to_ask",
        _ => "internal",
    }
}

/// Returns the `error.type` of an exchange; `None` if it succeeded.
pub(crate) fn error_type(
    failure: Option<FailureKind>,
    is_tool_error: bool,
) -> Option<&'static str> {
    failure
        .map(failure_name)
        .or(is_tool_error.then_some(TOOL_ERROR))
}
