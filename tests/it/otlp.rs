use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, metric};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use serde_json::{Value, json};

use crate::kit::gateway::{MCP, end, is_refused, modern, said, server, started};
use crate::kit::{Home, soon};

/// Trace and span of a client of this test.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";
/// Text of the question, and of the answer to it.
const QUESTION: &str = "Which room?";
const ANSWER: &str = "blue-room";

/// Receiver of traces and metrics over OTLP/HTTP.
struct OtlpReceiver {
    url: String,
    exports: Arc<Exports>,
    handle: ServerHandle,
}

/// All that nodes have exported.
#[derive(Default)]
struct Exports {
    traces: Mutex<Vec<ResourceSpans>>,
    metrics: Mutex<Vec<ResourceMetrics>>,
    keys: Mutex<HashSet<String>>,
}

impl OtlpReceiver {
    fn start() -> Self {
        let exports = Arc::<Exports>::default();
        let shared = web::Data::from(exports.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = move || {
            App::new()
                .app_data(shared.clone())
                .route("/v1/traces", web::post().to(receive_traces))
                .route("/v1/metrics", web::post().to(receive_metrics))
        };
        let server = HttpServer::new(app).workers(1).disable_signals();
        let server = server.listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self {
            url,
            exports,
            handle,
        }
    }

    /// Returns all spans, each with the name of its node.
    fn spans(&self) -> Vec<(String, Span)> {
        let traces = self.exports.traces.lock().unwrap();
        let of_resource = |resource: &ResourceSpans| {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let node = text_of(attributes, "callboard.node").unwrap();
            let spans = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
            spans
                .map(|span| (node.clone(), span.clone()))
                .collect::<Vec<_>>()
        };
        traces.iter().flat_map(of_resource).collect()
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

async fn receive_traces(
    request: HttpRequest,
    body: web::Bytes,
    exports: web::Data<Exports>,
) -> HttpResponse {
    let export = ExportTraceServiceRequest::decode(body).unwrap();
    exports.traces.lock().unwrap().extend(export.resource_spans);
    received(&request, &exports)
}

async fn receive_metrics(
    request: HttpRequest,
    body: web::Bytes,
    exports: web::Data<Exports>,
) -> HttpResponse {
    let export = ExportMetricsServiceRequest::decode(body).unwrap();
    exports
        .metrics
        .lock()
        .unwrap()
        .extend(export.resource_metrics);
    received(&request, &exports)
}

fn received(request: &HttpRequest, exports: &Exports) -> HttpResponse {
    let key = request.headers().get("authorization");
    let key = key.map_or_else(String::new, |key| key.to_str().unwrap().to_owned());
    exports.keys.lock().unwrap().insert(key);
    // An empty message is an empty body.
    HttpResponse::Ok()
        .content_type("application/x-protobuf")
        .finish()
}

fn text_of(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An MCP client of 2025-11-25 with a person who answers questions.
struct Client {
    url: String,
    session: String,
}

impl Client {
    async fn connect(url: &str) -> Self {
        let mut client = Self {
            url: url.to_owned(),
            session: String::new(),
        };
        let info = json!({ "name": "test", "version": "1" });
        let capabilities = json!({ "elicitation": {} });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let response = client.post(&body).await;
        client.session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        client
            .post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await;
        client
    }

    async fn post(&self, body: &Value) -> reqwest::Response {
        let request = reqwest::Client::new()
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let request = match &*self.session {
            "" => request,
            session => request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25"),
        };
        soon("a response", request.body(body.to_string()).send())
            .await
            .unwrap()
    }

    /// Sends a request and answers what is asked until the response.
    async fn ask(&self, id: u32, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut response = self.post(&body).await;
        let mut text = String::new();
        while let Some(chunk) = soon("an event", response.chunk()).await.unwrap() {
            text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((line, rest)) = text.split_once('\n') {
                let message = line.strip_prefix("data:").map(str::trim).map(str::to_owned);
                text = rest.to_owned();
                let message: Value = match message {
                    Some(data) => serde_json::from_str(&data).unwrap_or_default(),
                    None => continue,
                };
                if message["id"] == id {
                    return message;
                }
                if message["method"] == "elicitation/create" {
                    assert_eq!(message["params"]["message"], QUESTION);
                    let result = json!({ "action": "accept", "content": { "room": ANSWER } });
                    self.post(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
                        .await;
                }
            }
        }
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
    }
}

/// Cases of a server whose tool asks a person.
const CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"book","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"book"'*)
      printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which room?","requestedSchema":{"type":"object","properties":{"room":{"type":"string"}},"required":["room"]}}}\n'
      IFS= read -r answer
      text "$id" ;;"#;

fn node(home: &Home, name: &str, receiver: &OtlpReceiver, rest: &str) -> String {
    let headers = home.write("headers", "authorization=Bearer s3cret\n");
    format!(
        "[node]\nname = \"{name}\"\n\
         [telemetry]\notlp_endpoint = \"{}\"\nheaders_env = \"file:{headers}\"\nservice_name = \"it\"\n{rest}",
        receiver.url
    )
}

fn listener(protocol: &str) -> String {
    let dialect = match protocol {
        "mcp" => "dialect = \"mcp\"\n",
        _ => "",
    };
    format!(
        "[[listener]]\nprotocol = \"{protocol}\"\n{dialect}bind = \"127.0.0.1:0\"\nanonymous = \"operator\"\n"
    )
}

/// Names of spans as `NODE KIND NAME`.
fn names(spans: &[&(String, Span)]) -> HashSet<String> {
    let name = |(node, span): &&(String, Span)| {
        format!("{node} {} {}", span.kind().as_str_name(), span.name)
    };
    spans.iter().map(name).collect()
}

/// Goal: a question that crosses MCP, callboard, A2A and callboard again is one connected trace, with the names of the
/// conventions; the parent that the client sent is its parent; metrics have their names and buckets; no text, no principal and
/// no secret leaves in a span or is logged. Method: two nodes and a receiver; a call with a `traceparent` and one without; both
/// nodes end, so that all has been sent.
#[actix_web::test]
async fn question_across_protocols_is_one_trace() {
    let receiver = OtlpReceiver::start();
    let (hotel_home, front_home) = (Home::new(), Home::new());
    let script = hotel_home.write("server.sh", &server(CASES));
    let upstream = format!(
        "[[upstream]]\nid = \"rooms\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\nsupports_elicitation = true\n\
         env = {{ NAME = \"booked\" }}\n"
    );
    let file = node(
        &hotel_home,
        "hotel",
        &receiver,
        &(upstream + &listener("a2a")),
    );
    let (hotel, listening) = started(&hotel_home, &file).await;
    let hotel_url = listening[0].1.strip_suffix("/a2a").unwrap();
    let agent = format!("[[agent]]\nkind = \"a2a\"\nid = \"hotel\"\nurl = \"{hotel_url}\"\n");
    let file = node(&front_home, "front", &receiver, &(agent + &listener("mcp")));
    let (front, listening) = started(&front_home, &file).await;

    let client = Client::connect(&listening[0].1).await;
    let listed = client.ask(2, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .find(|name| name.contains("book"))
        .unwrap_or_else(|| panic!("{listed}"));
    let parent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    for (id, meta) in [(3, json!({ "traceparent": parent })), (4, json!({}))] {
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        let answer = client.ask(id, "tools/call", params).await;
        assert!(said(&answer).contains("booked"), "{answer}");
    }
    end(front, &front_home).await;
    end(hotel, &hotel_home).await;

    let spans = receiver.spans();
    let mut traces: BTreeMap<String, Vec<&(String, Span)>> = BTreeMap::new();
    for span in &spans {
        traces.entry(hex(&span.1.trace_id)).or_default().push(span);
    }
    traces.retain(|_, spans| {
        spans
            .iter()
            .any(|(_, span)| span.name == "elicitation/create")
    });
    assert_eq!(traces.len(), 2, "{spans:#?}");
    assert!(
        traces.contains_key(TRACE),
        "the client's trace isn't continued"
    );
    for (trace, spans) in &traces {
        expect_connected(spans, if trace == TRACE { CLIENT_SPAN } else { "" });
        expect_names(spans, tool);
    }
    expect_metrics(&receiver.exports.metrics.lock().unwrap());
    let keys = receiver.exports.keys.lock().unwrap();
    assert_eq!(*keys, HashSet::from(["Bearer s3cret".to_owned()]));
    let exported = format!("{spans:?} {:?}", receiver.exports.metrics.lock().unwrap());
    for text in [QUESTION, ANSWER, "s3cret", "operator"] {
        assert!(!exported.contains(text), "{text} is exported");
    }
    for home in [&front_home, &hotel_home] {
        let log = fs::read_to_string(home.path("stderr")).unwrap();
        assert!(!log.contains("s3cret"), "{log}");
    }
}

/// Cases of a server with one tool, which answers.
const PLAIN_CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"who","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"who"'*) text "$id" ;;"#;

/// Goal: each span has an id of its own, also if the node lists tools in the course of a call; the span of a call that a policy
/// stops on its way out has that failure, not a cancellation. Method: calls without a list before them: of a tool behind
/// one address of two upstreams, and of one that isn't approved.
#[actix_web::test]
async fn unlisted_and_refused_calls_have_spans() {
    let receiver = OtlpReceiver::start();
    let home = Home::new();
    let script = home.write("server.sh", &server(PLAIN_CASES));
    let upstream = |id: &str, more: &str| {
        format!(
            "[[upstream]]\nid = \"{id}\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\nenv = {{ NAME = \"done\" }}\n{more}"
        )
    };
    let (plain, checked) = (
        upstream("plain", ""),
        upstream("checked", "pin = \"review\"\n"),
    );
    let rest = format!("[store]\n{plain}{checked}{MCP}agents = [\"plain\", \"checked\"]\n");
    let file = node(&home, "front", &receiver, &rest);
    let (front, listening) = started(&home, &file).await;
    let call = async |place: usize, tool: &str| {
        let params = json!({ "name": tool, "arguments": {} });
        modern(&listening[place].1, "tools/call", params).await.1
    };
    assert_eq!(said(&call(0, "plain__who").await), "done");
    let refused = call(2, "who").await;
    assert!(is_refused(&refused), "{refused}");
    end(front, &home).await;

    let spans = receiver.spans();
    let ids: HashSet<_> = spans.iter().map(|(_, span)| hex(&span.span_id)).collect();
    assert_eq!(ids.len(), spans.len(), "two spans have one id: {spans:#?}");
    // Of a span of a request to an upstream: trace and kind of failure.
    let sent = |agent: &str| {
        let is_sent = |span: &&Span| {
            let name = text_of(&span.attributes, "gen_ai.agent.name");
            span.kind() == SpanKind::Client
                && span.name == "tools/call who"
                && name.as_deref() == Some(agent)
        };
        let mut found = spans.iter().map(|(_, span)| span).filter(is_sent);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("{agent}: {spans:#?}"));
        assert!(
            found.next().is_none(),
            "two requests to {agent}: {spans:#?}"
        );
        (hex(&span.trace_id), text_of(&span.attributes, "error.type"))
    };
    let (trace, error) = sent("plain");
    assert_eq!(error, None);
    let answered: Vec<_> = spans
        .iter()
        .filter(|(_, span)| hex(&span.trace_id) == trace)
        .collect();
    expect_connected(&answered, "");
    assert_eq!(sent("checked").1.as_deref(), Some("denied"));
}

/// Each span's parent is another span, but for one whose parent is `root_parent`.
fn expect_connected(spans: &[&(String, Span)], root_parent: &str) {
    let ids: HashSet<_> = spans.iter().map(|(_, span)| hex(&span.span_id)).collect();
    assert_eq!(ids.len(), spans.len(), "two spans have one id: {spans:#?}");
    let parents = spans.iter().map(|(_, span)| hex(&span.parent_span_id));
    let outside: Vec<_> = parents.filter(|parent| !ids.contains(parent)).collect();
    assert_eq!(outside, [root_parent], "{spans:#?}");
    for (_, span) in spans {
        assert!(
            span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano
        );
        let status = span
            .status
            .as_ref()
            .map_or(StatusCode::Unset, |status| status.code());
        assert_eq!(status, StatusCode::Unset, "{span:?}");
    }
}

/// The hops of a call are there, on both nodes, by the names of the conventions.
fn expect_names(spans: &[&(String, Span)], tool: &str) {
    let names = names(spans);
    for expected in [
        &*format!("front SPAN_KIND_SERVER tools/call {tool}"),
        "front SPAN_KIND_CLIENT elicitation/create",
        "hotel SPAN_KIND_CLIENT tools/call book",
        "hotel SPAN_KIND_CLIENT elicitation/create",
    ] {
        assert!(names.contains(expected), "{expected} isn't in {names:#?}");
    }
    for side in ["front SPAN_KIND_CLIENT", "hotel SPAN_KIND_SERVER"] {
        let methods = ["SendMessage", "SendStreamingMessage"];
        let is_there = methods.map(|method| names.contains(&format!("{side} {method}")));
        assert!(
            is_there.contains(&true),
            "{side} has no A2A request: {names:#?}"
        );
    }
    let is_first = |(node, span): &&&(String, Span)| {
        node == "front" && span.kind() == SpanKind::Server && span.name.starts_with("tools/call ")
    };
    let (_, first) = spans.iter().find(is_first).unwrap();
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", tool),
    ] {
        assert_eq!(
            text_of(&first.attributes, name).as_deref(),
            Some(value),
            "{first:?}"
        );
    }
}

fn expect_metrics(metrics: &[ResourceMetrics]) {
    let scopes = metrics.iter().flat_map(|resource| &resource.scope_metrics);
    let all: Vec<_> = scopes.flat_map(|scope| &scope.metrics).collect();
    for name in [
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
    ] {
        let found = all.iter().find(|metric| metric.name == name);
        let found = found.unwrap_or_else(|| panic!("{name} isn't in {all:?}"));
        assert_eq!(found.unit, "s");
        let Some(metric::Data::Histogram(histogram)) = &found.data else {
            panic!("{name} is no histogram: {found:?}");
        };
        let bounds = &histogram.data_points[0].explicit_bounds;
        assert_eq!((bounds.first(), bounds.last()), (Some(&0.01), Some(&300.0)));
    }
}
