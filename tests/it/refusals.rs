//! A client of rmcp's, whose person refuses what a server behind a bridge asks.

#![expect(
    deprecated,
    reason = "rmcp deprecates sampling and roots, which clients of 2025 still use"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use callboard_gateway::question_router::{QuestionRouterOptions, StrategyQuestionRouter};
use callboard_mcp::bridge::BridgeOptions;
use callboard_mcp::inbound::McpServerOptions;
use callboard_message::capabilities::CreateMessage;
use callboard_message::{Failure, SamplingAnswer};
use callboard_runtime::{Agent, ConcurrentHandler, Context, Handlers, System};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorCode, Implementation, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleClient};
use rmcp::{ClientHandler, ClientLifecycleMode, ErrorData, ServiceError};
use serde_json::{Value, json};

use crate::kit::mcp::{self, stateless};
use crate::kit::soon;

/// A server that asks what stands in the variable `ASKS`, and whose tool answers with what it heard.
const SCRIPT: &str = r#"
hear() { IFS= read -r line || exit 0; id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/'); }
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
hear
say "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'
hear
while :; do
    hear; call=$id; printf '%s\n' "$ASKS"; hear
    say "$call" "{\"content\":[],\"structuredContent\":{\"heard\":$line}}"
done
"#;

/// A model that counts what it is asked, and answers unless it hangs.
struct Model {
    asked: Arc<AtomicUsize>,
    hangs: bool,
}

impl Agent for Model {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(16);
    }
}

impl ConcurrentHandler<CreateMessage> for Model {
    fn handle(
        &mut self,
        _: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        self.asked.fetch_add(1, SeqCst);
        let hangs = self.hangs;
        async move {
            if hangs {
                cx.cancelled().await;
            }
            Ok(SamplingAnswer::text("model", "an answer", None))
        }
    }
}

/// A person who says no: to a sample by this error, to a form by this action.
#[derive(Clone)]
struct Person {
    error: ErrorData,
    action: ElicitationAction,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let can = ClientCapabilities::builder()
            .enable_sampling()
            .enable_elicitation()
            .build();
        ClientConfig::new(can, Implementation::new("person", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(self.error.clone())
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(self.action.clone()))
    }
}

/// Result of one call.
struct Outcome {
    result: Result<CallToolResult, ServiceError>,
    /// Number of models and servers that were asked.
    asked: usize,
}

impl Outcome {
    /// Answer that the server received.
    fn heard(self) -> Value {
        self.result.unwrap().structured_content.unwrap()["heard"].clone()
    }
}

/// Has `person` call the tool of a server that asks `asks`, where samples go by `strategy`.
async fn call(
    person: Person,
    lifecycle: ClientLifecycleMode,
    asks: &Value,
    strategy: &str,
    hangs: bool,
) -> Outcome {
    let system = System::start(1).unwrap();
    let asked: Arc<AtomicUsize> = Arc::default();
    for name in ["model", "other-server"] {
        let agent = system.spawn(Model {
            asked: asked.clone(),
            hangs,
        });
        system.directory().register(name, &agent).unwrap();
    }
    let options: QuestionRouterOptions = serde_json::from_value(json!({
        "models": ["model"], "sampling": { "default_strategy": strategy },
        "elicitation": { "default_strategy": if strategy == "client_first" { strategy } else { "client_forwarded" } },
        "servers": {
            "far": { "supports_sampling": true, "supports_elicitation": true },
            "other-server": { "answers_sampling": true }
        }
    }))
    .unwrap();
    let answerers = StrategyQuestionRouter::new(system.clone(), options).unwrap();
    let options = BridgeOptions {
        question_router: Some(Arc::new(answerers)),
        ..BridgeOptions::default()
    };
    let bridge = mcp::bridge("far", SCRIPT, &asks.to_string(), options);
    let listening = mcp::serve(system.spawn(bridge.clone()), McpServerOptions::default());

    let client = mcp::connect(&person, lifecycle, &listening.url).await;
    let result = soon(
        "an answer",
        client.call_tool(CallToolRequestParams::new("ask")),
    )
    .await;
    let asked = asked.load(SeqCst);
    let _ = client.cancel().await;
    system.shutdown(Duration::ZERO).await;
    bridge.drained().await;
    Outcome { result, asked }
}

fn person(code: i32, message: &'static str) -> Person {
    let data = Some(json!({ "by": "person" }));
    Person {
        error: ErrorData::new(ErrorCode(code), message, data),
        action: ElicitationAction::Decline,
    }
}

fn sample() -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": "private" } });
    json!({ "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 9 } })
}

/// Goal: whoever refuses a sample in an SDK's words ends it: no model and no server hears it, and the server that asked gets
/// the refusal as it was given. Method: an SDK's client under every strategy that asks the client, in the code for a refusal
/// and in one that a thrown exception has; where a model is asked at the same time, it never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_sample_ends_it() {
    for strategy in ["client_forwarded", "client_first", "hybrid", "parallel"] {
        for code in [-1, -32603] {
            let at_once = strategy == "parallel";
            let refusal = "User rejected sampling request";
            let outcome = call(
                person(code, refusal),
                ClientLifecycleMode::Initialize,
                &sample(),
                strategy,
                at_once,
            )
            .await;
            assert!(
                at_once || outcome.asked == 0,
                "{strategy} {code}: {} others were asked",
                outcome.asked
            );
            let expected = json!({ "code": code, "message": refusal, "data": { "by": "person" } });
            assert_eq!(outcome.heard()["error"], expected, "{strategy}");
        }
        // In the stateless era there is no such answer: the client gives up the call.
        if strategy != "parallel" {
            let outcome = call(person(-1, "no"), stateless(), &sample(), strategy, false).await;
            assert!(outcome.result.is_err() && outcome.asked == 0, "{strategy}");
        }
    }
}

/// Goal: a client that can't answer makes room for others. Method: the same client without a handler, as SDKs tell that.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_not_answer_makes_room() {
    for (code, told) in [
        (-32601, "Method not found"),
        (-32600, "Sampling not supported"),
    ] {
        let outcome = call(
            person(code, told),
            ClientLifecycleMode::Initialize,
            &sample(),
            "client_first",
            false,
        )
        .await;
        assert_eq!(outcome.asked, 1);
        assert_eq!(outcome.heard()["result"]["model"], "model");
    }
}

/// Goal: a form that a person declines or closes stays so, under every strategy and in both eras. Method: both answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_form_ends_it() {
    let schema = json!({ "type": "object", "properties": {} });
    let asks = json!({
        "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": { "message": "m", "requestedSchema": schema }
    });
    for strategy in ["client_forwarded", "client_first", "hybrid", "parallel"] {
        for (action, word) in [
            (ElicitationAction::Decline, "decline"),
            (ElicitationAction::Cancel, "cancel"),
        ] {
            for lifecycle in [ClientLifecycleMode::Initialize, stateless()] {
                let person = Person {
                    action: action.clone(),
                    ..person(-1, "no")
                };
                let outcome = call(person, lifecycle, &asks, strategy, false).await;
                assert_eq!(outcome.asked, 0);
                assert_eq!(outcome.heard()["result"]["action"], word, "{strategy}");
            }
        }
    }
}
