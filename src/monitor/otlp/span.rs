//! Spans of ended exchanges and questions, by the semantic conventions.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use callboard_message::text::cut_chars;
use callboard_message::{FailureKind, TraceContext};
use callboard_runtime::{Exchange, ExchangeEnd, ExchangeKind, NodeEvent, QuestionEnd};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::monitor::names::{self, otel};

/// Maximum length of an agent's or tool's name in a span, in characters. Longer ones are cut. Fixed.
const NAME_CHARS_MAX: usize = 256;

/// Returns the span of what has ended; `None` if it is neither an exchange nor a question, or isn't sampled.
pub(super) fn span_of_event(event: &NodeEvent, scope: &InstrumentationScope) -> Option<SpanData> {
    match event {
        NodeEvent::ExchangeEnded(end) => exchange_span(end, scope),
        NodeEvent::QuestionEnded(end) => question_span(end, scope),
        _ => None,
    }
}

fn exchange_span(end: &ExchangeEnd, scope: &InstrumentationScope) -> Option<SpanData> {
    let exchange = &*end.exchange;
    let mut span = new_span(&exchange.trace, exchange.began_at, end.duration, scope)?;
    span.span_kind = match exchange.kind {
        ExchangeKind::Inbound => SpanKind::Server,
        ExchangeKind::Outbound => SpanKind::Client,
        ExchangeKind::Local => SpanKind::Internal,
    };
    span.parent_span_is_remote = exchange.kind == ExchangeKind::Inbound;
    (span.name, span.attributes) = match exchange.origin.protocol {
        names::PROTOCOL_MCP => mcp_request(exchange),
        names::PROTOCOL_A2A => a2a_request(exchange),
        _ => agent_operation(exchange),
    };
    if !exchange.agent.is_empty() {
        span.attributes.push(KeyValue::new(
            otel::GEN_AI_AGENT_NAME,
            short(&exchange.agent),
        ));
    }
    push_known(
        &mut span,
        otel::NETWORK_TRANSPORT,
        exchange.origin.transport,
    );
    span.attributes
        .push(KeyValue::new(otel::CALL_ID, exchange.call.to_string()));
    if let Some(kind) = names::error_type(end.failure, end.is_tool_error) {
        span.attributes.push(KeyValue::new(otel::ERROR_TYPE, kind));
        // A server's span is an error only if the server is at fault.
        let is_error = match exchange.kind {
            ExchangeKind::Inbound => end.failure == Some(FailureKind::Internal),
            ExchangeKind::Outbound | ExchangeKind::Local => true,
        };
        if is_error {
            span.status = Status::error(kind);
        }
    }
    Some(span)
}

fn question_span(end: &QuestionEnd, scope: &InstrumentationScope) -> Option<SpanData> {
    let question = &*end.question;
    let mut span = new_span(&question.trace, question.asked_at, end.duration, scope)?;
    let method = names::question_method(&question.kind);
    span.name = method.into();
    span.span_kind = SpanKind::Client;
    if question.origin.protocol == names::PROTOCOL_MCP {
        span.attributes
            .push(KeyValue::new(otel::MCP_METHOD_NAME, method));
        push_known(
            &mut span,
            otel::MCP_PROTOCOL_VERSION,
            question.origin.version,
        );
    }
    if !question.agent.is_empty() {
        span.attributes.push(KeyValue::new(
            otel::GEN_AI_AGENT_NAME,
            short(&question.agent),
        ));
    }
    push_known(
        &mut span,
        otel::NETWORK_TRANSPORT,
        question.origin.transport,
    );
    push_known(&mut span, otel::QUESTION_ACTION, end.action);
    span.attributes
        .push(KeyValue::new(otel::CALL_ID, question.call.to_string()));
    if let Some(failure) = end.failure {
        let kind = names::failure_name(failure);
        span.attributes.push(KeyValue::new(otel::ERROR_TYPE, kind));
        span.status = Status::error(kind);
    }
    Some(span)
}

/// Name and attributes of a span.
type NameAndAttributes = (Cow<'static, str>, Vec<KeyValue>);

fn mcp_request(exchange: &Exchange) -> NameAndAttributes {
    let method = names::method(&exchange.origin, &exchange.message, exchange.tool.is_some());
    let mut attributes = vec![KeyValue::new(otel::MCP_METHOD_NAME, method)];
    if !exchange.origin.version.is_empty() {
        let version = exchange.origin.version;
        attributes.push(KeyValue::new(otel::MCP_PROTOCOL_VERSION, version));
    }
    if method != names::TOOLS_CALL {
        return (method.into(), attributes);
    }
    attributes.push(KeyValue::new(
        otel::GEN_AI_OPERATION_NAME,
        otel::EXECUTE_TOOL,
    ));
    // An agent's own message is a tool by its name.
    let tool = short(exchange.tool.as_deref().unwrap_or(&exchange.message));
    let name = format!("{method} {tool}").into();
    attributes.push(KeyValue::new(otel::GEN_AI_TOOL_NAME, tool));
    (name, attributes)
}

fn a2a_request(exchange: &Exchange) -> NameAndAttributes {
    let method = names::method(&exchange.origin, &exchange.message, exchange.tool.is_some());
    let mut attributes = vec![KeyValue::new(otel::A2A_METHOD_NAME, method)];
    if !exchange.origin.version.is_empty() {
        let version = exchange.origin.version;
        attributes.push(KeyValue::new(otel::A2A_PROTOCOL_VERSION, version));
    }
    (method.into(), attributes)
}

/// Returns name and attributes of a message within the node, or by a protocol without conventions.
fn agent_operation(exchange: &Exchange) -> NameAndAttributes {
    let (operation, target) = match &exchange.tool {
        Some(tool) => (otel::EXECUTE_TOOL, short(tool)),
        None => (otel::INVOKE_AGENT, short(&exchange.agent)),
    };
    let mut attributes = vec![KeyValue::new(otel::GEN_AI_OPERATION_NAME, operation)];
    let name = match &*target {
        "" => operation.into(),
        target => format!("{operation} {target}").into(),
    };
    if exchange.tool.is_some() {
        attributes.push(KeyValue::new(otel::GEN_AI_TOOL_NAME, target));
    }
    (name, attributes)
}

fn push_known(span: &mut SpanData, name: &'static str, value: &'static str) {
    if !value.is_empty() {
        span.attributes.push(KeyValue::new(name, value));
    }
}

fn short(name: &str) -> String {
    cut_chars(name, NAME_CHARS_MAX).to_owned()
}

/// Returns a span with the ids of `trace`, without name and attributes; `None` if it isn't sampled.
fn new_span(
    trace: &TraceContext,
    began_at: SystemTime,
    duration: Duration,
    scope: &InstrumentationScope,
) -> Option<SpanData> {
    if !trace.is_sampled() {
        return None;
    }
    Some(SpanData {
        span_context: SpanContext::new(
            TraceId::from(trace.trace_id()),
            SpanId::from(trace.span_id()),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: trace.parent_id().map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "".into(),
        start_time: began_at,
        end_time: began_at.checked_add(duration).unwrap_or(began_at),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callboard_message::capabilities::CallTool;
    use callboard_message::{CallId, Message, Principal};
    use callboard_runtime::{CallOrigin, QuestionEvent};

    use super::*;

    fn exchange(kind: ExchangeKind, origin: CallOrigin, tool: Option<&str>) -> ExchangeEnd {
        ExchangeEnd {
            exchange: Arc::new(Exchange {
                kind,
                call: CallId::generate(),
                trace: TraceContext::root().child(),
                principal: Arc::new(Principal::agent("alice")),
                agent: "jira".into(),
                message: CallTool::NAME.into(),
                tool: tool.map(Into::into),
                origin,
                began_at: SystemTime::UNIX_EPOCH,
                request_bytes: 2,
                content: Some("s3cret".into()),
            }),
            duration: Duration::from_secs(1),
            failure: None,
            is_tool_error: false,
            reply_bytes: 2,
            content: Some("s3cret".into()),
        }
    }

    fn span_of(end: &ExchangeEnd) -> SpanData {
        exchange_span(end, &InstrumentationScope::default()).unwrap()
    }

    fn attribute(span: &SpanData, name: &str) -> Option<String> {
        let found = span
            .attributes
            .iter()
            .find(|pair| pair.key.as_str() == name);
        found.map(|pair| pair.value.to_string())
    }

    /// Goal: names, kinds and ids are those of the conventions and of our own trace; no principal and no content is in a span.
    /// Method: each kind of exchange.
    #[test]
    fn spans_have_names_and_kinds_of_the_conventions() {
        let of_mcp = CallOrigin {
            version: "2025-11-25",
            transport: "tcp",
            ..CallOrigin::MCP
        };
        for (kind, origin, tool, name, expected) in [
            (
                ExchangeKind::Inbound,
                of_mcp,
                Some("create"),
                "tools/call create",
                SpanKind::Server,
            ),
            (
                ExchangeKind::Outbound,
                of_mcp,
                Some("create"),
                "tools/call create",
                SpanKind::Client,
            ),
            (
                ExchangeKind::Outbound,
                CallOrigin::A2A,
                None,
                "SendMessage",
                SpanKind::Client,
            ),
            (
                ExchangeKind::Local,
                CallOrigin::default(),
                None,
                "invoke_agent jira",
                SpanKind::Internal,
            ),
            (
                ExchangeKind::Local,
                CallOrigin::default(),
                Some("a"),
                "execute_tool a",
                SpanKind::Internal,
            ),
        ] {
            let end = exchange(kind, origin, tool);
            let span = span_of(&end);
            assert_eq!((&*span.name, &span.span_kind), (name, &expected));
            let trace = end.exchange.trace;
            assert_eq!(
                span.span_context.trace_id(),
                TraceId::from(trace.trace_id())
            );
            assert_eq!(span.span_context.span_id(), SpanId::from(trace.span_id()));
            let parent = trace.parent_id().unwrap();
            assert_eq!(span.parent_span_id, SpanId::from(parent));
            assert_eq!(
                span.end_time,
                SystemTime::UNIX_EPOCH + Duration::from_secs(1)
            );
            assert_eq!(
                attribute(&span, "gen_ai.agent.name").as_deref(),
                Some("jira")
            );
            let all = format!("{span:?}");
            assert!(!all.contains("alice") && !all.contains("s3cret"), "{all}");
        }
        let span = span_of(&exchange(ExchangeKind::Inbound, of_mcp, Some("create")));
        for (name, value) in [
            ("mcp.method.name", "tools/call"),
            ("mcp.protocol.version", "2025-11-25"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "create"),
            ("network.transport", "tcp"),
        ] {
            assert_eq!(attribute(&span, name).as_deref(), Some(value), "{name}");
        }
    }

    /// Goal: a server's span is an error only for its own fault, a client's for every failure; each has its type. Method: rows.
    #[test]
    fn status_depends_on_the_side() {
        for (failure, is_tool_error, error_type, at_server) in [
            (Some(FailureKind::Internal), false, "internal", true),
            (
                Some(FailureKind::InvalidInput),
                false,
                "invalid_input",
                false,
            ),
            (None, true, "tool_error", false),
        ] {
            for (kind, is_error) in [
                (ExchangeKind::Inbound, at_server),
                (ExchangeKind::Outbound, true),
            ] {
                let mut end = exchange(kind, CallOrigin::MCP, Some("t"));
                (end.failure, end.is_tool_error) = (failure, is_tool_error);
                let span = span_of(&end);
                assert_eq!(attribute(&span, "error.type").as_deref(), Some(error_type));
                assert_eq!(
                    matches!(span.status, Status::Error { .. }),
                    is_error,
                    "{error_type}"
                );
            }
        }
        let end = exchange(ExchangeKind::Outbound, CallOrigin::MCP, Some("t"));
        assert_eq!(span_of(&end).status, Status::Unset);
    }

    /// Goal: a name in a span has at most its limit. Method: a tool's name of one character more.
    #[test]
    fn names_are_cut() {
        let tool = "é".repeat(NAME_CHARS_MAX + 1);
        let end = exchange(ExchangeKind::Inbound, CallOrigin::MCP, Some(&tool));
        let name = attribute(&span_of(&end), "gen_ai.tool.name").unwrap();
        assert_eq!(name.chars().count(), NAME_CHARS_MAX);
    }

    /// Goal: a question is a client's span by its method, with the person's action; a trace that isn't sampled has no spans.
    #[test]
    fn questions_are_spans() {
        let question = |trace: TraceContext| QuestionEnd {
            question: Arc::new(QuestionEvent {
                id: CallId::generate(),
                call: CallId::generate(),
                trace,
                principal: Arc::new(Principal::agent("alice")),
                agent: "jira".into(),
                kind: "elicit".into(),
                origin: CallOrigin::MCP,
                asked_at: SystemTime::UNIX_EPOCH,
            }),
            duration: Duration::from_secs(1),
            failure: None,
            action: "accept",
            answered_by: Some(Arc::new(Principal::agent("bob"))),
        };
        let scope = InstrumentationScope::default();
        let span = question_span(&question(TraceContext::root()), &scope).unwrap();
        assert_eq!(
            (&*span.name, &span.span_kind),
            ("elicitation/create", &SpanKind::Client)
        );
        assert_eq!(span.parent_span_id, SpanId::INVALID);
        assert_eq!(
            attribute(&span, "callboard.question.action").as_deref(),
            Some("accept")
        );
        let all = format!("{span:?}");
        assert!(!all.contains("alice") && !all.contains("bob"), "{all}");
        let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert!(question_span(&question(unsampled.parse().unwrap()), &scope).is_none());
    }
}
