//! A server asks in mid-call over its standard output, by the words of either dialect; the document's own flow.

use std::sync::Arc;
use std::time::Duration;

use callboard_gateway::question_router::{QuestionRouterOptions, StrategyQuestionRouter};
use callboard_mcp::bridge::{Bridge, BridgeOptions};
use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::{McpClientOptions, ServerDialect};
use callboard_message::capabilities::CreateMessage;
use callboard_message::{
    Answer, ElicitationAnswer, Failure, FailureKind, Principal, Question, RawMessage, RawObject,
    SamplingAnswer, SamplingRequest,
};
use callboard_runtime::{
    Agent, AgentRef, AuditEntry, AuditLog, CallEvent, Context, Handlers, MemoryAuditStore,
    PendingQuestion, SyncHandler, System,
};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::kit::{SOON, gateway, mcp, until};

const SERVER: &str = "ai-analysis-server";
const CLIENT: &str = "claude-desktop-abc123";
const WRITTEN: &str = "Based on the dataset pattern analysis, I recommend using a transformer-based approach with attention mechanisms focused on temporal dependencies...";

/// A server that asks what stands in the variable `ASKS`, and whose tool answers with what it heard.
const SCRIPT: &str = r#"
hear() { IFS= read -r line || exit 0; id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/'); }
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
hear; initialized=$line
say "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'
hear
while hear; do
    case "$line" in
    *'"method":"tools/call"'*)
        call=$id; called=$line; printf '%s\n' "$ASKS"; hear
        say "$call" "{\"content\":[],\"called\":$called,\"heard\":$line,\"initialized\":$initialized}" ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"complex_analysis_tool","inputSchema":{"type":"object"}}]}' ;;
    esac
done
"#;

/// Returns the external server's request from the source document.
fn asked() -> Value {
    let metadata = json!({ "original_client_id": CLIENT, "tool_execution_context": "complex_analysis_tool",
        "external_server_id": SERVER });
    let message = json!({ "role": "user", "content": "Analyze this complex dataset pattern: ..." });
    let preferences = json!({ "preferred_models": ["gpt-4", "claude-3-opus"] });
    let params =
        json!({ "messages": [message], "model_preferences": preferences, "metadata": metadata });
    ask(json!("sampling-req-456"), SAMPLE, params)
}

const SAMPLE: &str = "sampling/createMessage";

/// A request of a server's.
fn ask(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Returns the client's call from the source document.
fn called(client: &str) -> Value {
    json!({
        "name": "complex_analysis_tool",
        "arguments": { "data": "complex dataset", "analysis_type": "deep_learning" },
        "metadata": { "client_id": client, "session_id": "session-xyz789" }
    })
}

/// A model that has one thing to say, or is away.
struct Model {
    away: bool,
    heard: Arc<std::sync::Mutex<Vec<RawObject>>>,
}

impl Agent for Model {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CreateMessage>();
    }
}

impl SyncHandler<CreateMessage> for Model {
    fn handle(
        &mut self,
        message: CreateMessage,
        _: &mut Context,
    ) -> Result<SamplingAnswer, Failure> {
        self.heard.lock().unwrap().push(message.0);
        if self.away {
            return Err(Failure::unavailable("the model is away"));
        }
        let usage = json!({ "inputTokens": 150, "outputTokens": 75 });
        let meta = RawObject::new()
            .with("callboard/usage", usage)
            .with("callboard/provider", "openai");
        Ok(SamplingAnswer(
            SamplingAnswer::text("gpt-4", WRITTEN, Some("endTurn"))
                .0
                .with("_meta", meta),
        ))
    }
}

/// A server of the document's, bridged, with a model and another server beside it.
struct Stage {
    system: System,
    server: AgentRef,
    bridge: Bridge,
    kept: Arc<MemoryAuditStore>,
    heard: Arc<std::sync::Mutex<Vec<RawObject>>>,
}

impl Stage {
    fn set(dialect: ServerDialect, asks: &Value, routing: Value) -> Self {
        Self::with_model(dialect, asks, routing, false)
    }

    fn with_model(dialect: ServerDialect, asks: &Value, routing: Value, away: bool) -> Self {
        let system = System::start(1).unwrap();
        let heard: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
        for name in ["gpt", "local-llm-server"] {
            let model = system.spawn(Model {
                away,
                heard: heard.clone(),
            });
            system.directory().register(name, &model).unwrap();
        }
        let granted = json!({ "supports_sampling": true, "supports_elicitation": true, "answers_sampling": true });
        let options: QuestionRouterOptions = serde_json::from_value(json!({
            "models": ["gpt"], "sampling": routing,
            "servers": { SERVER: granted, "local-llm-server": { "answers_sampling": true } }
        }))
        .unwrap();
        let answerers = StrategyQuestionRouter::new(system.clone(), options).unwrap();
        let kept = Arc::new(MemoryAuditStore::default());
        let audit = AuditLog::new(kept.clone());
        let client = McpClientOptions {
            dialect,
            ..McpClientOptions::default()
        };
        let options = BridgeOptions {
            client,
            question_router: Some(Arc::new(answerers)),
            audit: Some(audit),
            ..Default::default()
        };
        let bridge = mcp::bridge(SERVER, SCRIPT, &asks.to_string(), options);
        let server = system.spawn(bridge.clone());
        system.directory().register(SERVER, &server).unwrap();
        Self {
            system,
            server,
            bridge,
            kept,
            heard,
        }
    }

    /// Calls the server's tool as `client`, who answers questions so. Gives the tool's result.
    async fn call(&self, client: &str, answer: impl FnMut(PendingQuestion)) -> Value {
        self.call_as(client, client, answer).await
    }

    /// Calls as [`Self::call`] does, with the credential of `principal`.
    async fn call_as(
        &self,
        principal: &str,
        client: &str,
        mut answer: impl FnMut(PendingQuestion),
    ) -> Value {
        let payload = to_raw_value(&called(client)).unwrap();
        let named = RawMessage {
            name: "callboard.tools.call".to_owned(),
            payload,
        };
        let mut call = self
            .server
            .call(named)
            .principal(Principal::agent(principal))
            .within(SOON)
            .start();
        while let Some(event) = call.next().await {
            if let CallEvent::Question(question) = event {
                answer(question);
            }
        }
        serde_json::from_str(call.reply().await.unwrap().unwrap().get()).unwrap()
    }

    /// Returns the recorded audit entries.
    fn recorded(&self) -> Vec<AuditEntry> {
        self.kept.entries()
    }

    async fn end(self) {
        self.system.shutdown(Duration::ZERO).await;
        self.bridge.drained().await;
    }
}

fn nobody_is_asked(question: PendingQuestion) {
    panic!("the client is asked: {question:?}");
}

/// Returns the document's reply to [`asked`].
fn replied() -> Value {
    json!({
        "jsonrpc": "2.0", "id": "sampling-req-456",
        "result": {
            "message": { "role": "assistant", "content": WRITTEN },
            "model": "gpt-4",
            "usage": { "input_tokens": 150, "output_tokens": 75 },
            "metadata": {
                "processed_by": "magictunnel", "llm_provider": "openai",
                "strategy": "magictunnel_handled", "original_client_id": CLIENT
            }
        }
    })
}

fn handled() -> Value {
    json!({ "default_strategy": "magictunnel_handled" })
}

/// Goal: the document's server gets, on its own id, the document's reply (T-M1). Method: its question over a child's
/// standard output, by its own dialect; the model says the document's words.
/// Rows: M-3, M-6, M-9, M-10, M-11, M-12, M-15, M-22, M-27, M-29, X-6, X-7.
#[tokio::test]
async fn the_document_s_question_is_answered_in_its_words() {
    let stage = Stage::set(ServerDialect::MagicTunnel, &asked(), handled());
    // The credential has another name than the client gives itself.
    let result = stage.call_as("tunnel-key-7", CLIENT, nobody_is_asked).await;
    assert_eq!(result["heard"], replied());
    let told = &result["initialized"]["params"]["capabilities"];
    assert_eq!(
        *told,
        json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} } })
    );
    let heard = stage.heard.lock().unwrap()[0].clone();
    let text = json!({ "type": "text", "text": "Analyze this complex dataset pattern: ..." });
    assert_eq!(
        heard.read::<Value>("messages"),
        Some(json!([{ "role": "user", "content": text }]))
    );
    let hints = json!({ "hints": [{ "name": "gpt-4" }, { "name": "claude-3-opus" }] });
    assert_eq!(heard.read::<Value>("modelPreferences"), Some(hints));
    assert_eq!(heard.read::<u32>("maxTokens"), Some(1_024));
    let meta = heard.object("_meta").unwrap();
    assert_eq!(meta.text("original_client_id").unwrap(), "tunnel-key-7");
    assert_eq!(stage.recorded(), []);
    stage.end().await;
}

/// Goal: the `metadata` of a client's call reaches the server, and the client is named by it, not by its session or
/// credential. Method: the document's call over a listener, in both eras.
/// Rows: M-4, M-5, M-6.
#[actix_web::test]
async fn the_document_s_call_crosses_a_listener() {
    let stage = Stage::set(ServerDialect::MagicTunnel, &asked(), handled());
    let listening = mcp::serve(stage.server.clone(), McpServerOptions::default());
    let session = gateway::Session::begin(&listening.url).await;
    let (_, legacy) = session.ask("tools/call", called(CLIENT)).await;
    let request = mcp::request(&listening.url, &json!({}), "tools/call", called(CLIENT));
    let modern = mcp::response(request).await;
    for response in [legacy, modern] {
        let result = &response["result"];
        assert_eq!(result["heard"], replied(), "{response}");
        let metadata = &result["called"]["params"]["metadata"];
        assert_eq!(*metadata, called(CLIENT)["metadata"], "{response}");
    }
    drop(listening);
    stage.end().await;
}

/// Goal: the same in MCP's own words (T-M2). Method: T-M1's question as MCP has it, dialect `mcp`.
/// Rows: X-6.
#[tokio::test]
async fn the_same_is_answered_in_mcp_s_words() {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "Analyze this" } });
    let params = json!({ "messages": [message], "modelPreferences": { "hints": [{ "name": "gpt-4" }] }, "maxTokens": 100 });
    let stage = Stage::set(
        ServerDialect::Mcp,
        &ask(json!("sampling-req-456"), SAMPLE, params),
        handled(),
    );
    let heard = stage.call(CLIENT, nobody_is_asked).await["heard"].clone();
    assert_eq!(heard["id"], "sampling-req-456");
    assert_eq!(heard["result"]["role"], "assistant");
    assert_eq!(
        heard["result"]["content"],
        json!({ "type": "text", "text": WRITTEN })
    );
    assert_eq!(heard["result"]["model"], "gpt-4");
    let answered = json!({ "by": "model:gpt", "strategy": "magictunnel_handled" });
    assert_eq!(heard["result"]["_meta"]["callboard/answered"], answered);
    stage.end().await;
}

/// Goal: an id comes back with its type and value (T-M3), and whatever a server asks is answered: a method that nobody knows
/// by -32601 (T-M5), params that can't be read by -32602. Method: rows, in both dialects.
/// Rows: M-13, M-28, M-31, X-14.
#[tokio::test]
async fn every_question_is_answered_on_its_id() {
    let messages = json!({ "messages": [] });
    for dialect in [ServerDialect::MagicTunnel, ServerDialect::Mcp] {
        for (asks, code) in [
            (ask(json!(7), SAMPLE, messages.clone()), None),
            (ask(json!("7"), SAMPLE, messages.clone()), None),
            (ask(json!("u1"), "foo/bar", json!({})), Some(-32601)),
            (
                ask(
                    json!(-1),
                    "elicitation/request",
                    json!({ "requested_schema": {} }),
                ),
                Some(-32602),
            ),
            (ask(json!("p"), SAMPLE, json!([])), Some(-32602)),
            (
                json!({ "jsonrpc": "2.0", "id": 7, "method": SAMPLE }),
                matches!(dialect, ServerDialect::MagicTunnel).then_some(-32602),
            ),
        ] {
            let stage = Stage::set(dialect, &asks, handled());
            let heard = stage.call(CLIENT, nobody_is_asked).await["heard"].clone();
            assert_eq!(heard["id"], asks["id"], "{heard}");
            match code {
                Some(code) => assert_eq!(heard["error"]["code"], code, "{heard}"),
                None => assert_eq!(heard["result"]["model"], "gpt-4", "{heard}"),
            }
            stage.end().await;
        }
    }
}

/// Goal: `elicitation/request` is `elicitation/create` to the client, in both dialects, and what the person did comes back
/// in the server's words; only they accept (T-M4). Method: the document's request; a person who declines, one who accepts.
/// Rows: M-13, M-15, X-5, X-13.
#[tokio::test]
async fn the_elicitation_alias_reaches_a_person() {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let asks = ask(
        json!("e1"),
        "elicitation/request",
        json!({ "message": "m", "requested_schema": schema }),
    );
    for (dialect, content) in [
        (ServerDialect::MagicTunnel, "data"),
        (ServerDialect::Mcp, "content"),
    ] {
        let stage = Stage::set(dialect, &asks, handled());
        for accepts in [false, true] {
            let mut forwarded = Vec::new();
            let (done, result) = match accepts {
                true => (
                    ElicitationAnswer::accept(json!({ "name": "n" })),
                    json!({ "action": "accept", content: { "name": "n" } }),
                ),
                false => (ElicitationAnswer::decline(), json!({ "action": "decline" })),
            };
            let answer = |question: PendingQuestion| {
                forwarded.push(question.question.clone());
                question.answer(Answer::Elicit(done.clone()));
            };
            let heard = stage.call(CLIENT, answer).await["heard"].clone();
            assert_eq!(
                heard,
                json!({ "jsonrpc": "2.0", "id": "e1", "result": result })
            );
            assert_eq!(forwarded, [Question::elicit("m", schema.clone())]);
        }
        assert!(stage.heard.lock().unwrap().is_empty(), "a model is asked");
        stage.end().await;
    }
}

/// Goal: another server answers, never the one that asks (T-M6). Method: two that may; then only the one that asks.
/// Rows: M-24.
#[tokio::test]
async fn the_requester_is_excluded() {
    for (order, by) in [
        (json!(["servers"]), Some("server:local-llm-server")),
        (json!([format!("server:{SERVER}")]), None),
    ] {
        let routing = json!({ "default_strategy": "external_server", "order": order, "fallback_to_models": false });
        let message = json!({ "role": "user", "content": { "type": "text", "text": "t" } });
        let asks = ask(
            json!(1),
            SAMPLE,
            json!({ "messages": [message], "maxTokens": 9 }),
        );
        let stage = Stage::set(ServerDialect::Mcp, &asks, routing);
        let result = stage.call(CLIENT, nobody_is_asked).await;
        match by {
            Some(by) => assert_eq!(
                result["heard"]["result"]["_meta"]["callboard/answered"]["by"],
                by
            ),
            None => {
                assert_eq!(result["heard"]["error"]["code"], -7);
                assert!(
                    result["initialized"]["params"]["capabilities"]
                        .get("sampling")
                        .is_none()
                );
            }
        }
        stage.end().await;
    }
}

/// Goal: a question reaches the client whose call caused it, whomever it names; the client is told the true origin, and the
/// forgery is recorded (T-M7). Method: two clients call one server at once, whose questions always name the second; each
/// answers with its own name.
/// Rows: M-23, M-53, X-8.
#[tokio::test]
async fn a_forged_origin_is_ignored() {
    let mut asks = asked();
    asks["params"]["metadata"]["original_client_id"] = json!("B");
    let stage = Stage::set(
        ServerDialect::MagicTunnel,
        &asks,
        json!({ "default_strategy": "client_forwarded" }),
    );
    let answer = |name: &'static str| {
        move |question: PendingQuestion| {
            let Question::Sample(SamplingRequest(body)) = &question.question else {
                panic!("not a sample")
            };
            let meta = body.object("_meta").unwrap_or_default();
            assert_eq!(meta.text("original_client_id").as_deref(), Some(name));
            question.answer(Answer::Sample(SamplingAnswer::text(name, name, None)));
        }
    };
    let (a, b) = tokio::join!(stage.call("A", answer("A")), stage.call("B", answer("B")));
    for (result, name) in [(a, "A"), (b, "B")] {
        let expected = json!({
            "message": { "role": "assistant", "content": name }, "model": name,
            "metadata": { "processed_by": "client", "strategy": "client_forwarded", "original_client_id": name }
        });
        assert_eq!(result["heard"]["result"], expected);
    }
    // It is written beside the call.
    until("a record", || !stage.recorded().is_empty()).await;
    let records = stage.recorded();
    let told: Vec<_> = records
        .iter()
        .map(|entry| {
            (
                &*entry.event,
                entry.principal.as_ref().map(|(_, id)| id.as_str()),
            )
        })
        .collect();
    assert_eq!(told, [("origin_mismatch", Some("A"))]);
    stage.end().await;
}

/// Goal: where no model answers the server gets an error on its own id, and its tool goes on. Method: a model that is away,
/// and a client that has none.
/// Rows: M-30, M-55, M-58.
#[tokio::test]
async fn failures_leave_the_tool_going() {
    let routing = json!({ "default_strategy": "magictunnel_first" });
    let stage = Stage::with_model(ServerDialect::MagicTunnel, &asked(), routing, true);
    let refuse = |question: PendingQuestion| {
        question.refuse(Failure::new(FailureKind::Overloaded, "not now"))
    };
    let result = stage.call(CLIENT, refuse).await;
    assert_eq!(result["heard"]["id"], "sampling-req-456");
    assert_eq!(result["heard"]["error"]["code"], -3);
    let why = "nobody answered (model:gpt: unavailable, client: overloaded)";
    assert_eq!(result["heard"]["error"]["message"], why);
    assert_eq!(result["content"], json!([]));
    stage.end().await;
}
