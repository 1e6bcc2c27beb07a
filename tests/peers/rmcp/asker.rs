//! rmcp's server with the tools of a round, in both eras: in sessions it asks live, without them by `input_required`.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequest,
    CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, InputRequest, InputRequests, InputRequiredResult, JsonObject, ListRootsRequest, ListToolsResult,
    LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, PromptMessage,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents, Role,
    SamplingMessage, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};

use crate::round::{ASKS_CAPITAL, ASKS_NAME};

/// Serves it on a free port, as long as the test's runtime lives; its URL.
pub async fn start() -> String {
    let service = StreamableHttpService::new(
        || Ok(Asker),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = axum::Router::new().nest_service("/mcp", service);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[derive(Clone)]
struct Asker;

/// What a tool asks, under one key.
fn question(tool: &str) -> Option<InputRequest> {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    Some(match tool {
        "ask_name" => InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: ASKS_NAME.to_owned(),
            requested_schema: serde_json::from_value(schema).ok()?,
        })),
        "ask_model" => InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(
            vec![SamplingMessage::user_text(ASKS_CAPITAL)],
            100,
        ))),
        "folders" => InputRequest::ListRoots(ListRootsRequest::default()),
        _ => return None,
    })
}

/// What it says to the answer.
fn conclusion(tool: &str, answer: &Value) -> String {
    let text = |at: &str| answer.pointer(at).and_then(Value::as_str).unwrap_or("nothing").to_owned();
    match tool {
        "ask_name" => format!("Hello, {}!", text("/content/name")),
        "ask_model" => text("/content/text"),
        _ => text("/roots/0/uri"),
    }
}

async fn ask_live(asked: InputRequest, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let failed = |e: rmcp::ServiceError| ErrorData::internal_error(e.to_string(), None);
    let answer = match asked {
        InputRequest::Elicitation(asked) => {
            serde_json::to_value(context.peer.create_elicitation(asked.params).await.map_err(failed)?)
        }
        InputRequest::CreateMessage(asked) => {
            serde_json::to_value(context.peer.create_message(asked.params).await.map_err(failed)?)
        }
        _ => serde_json::to_value(context.peer.list_roots().await.map_err(failed)?),
    };
    answer.map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

fn said(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

impl ServerHandler for Asker {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().enable_logging();
        ServerConfig::new(can.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let anything = Arc::new(JsonObject::from_iter([("type".to_owned(), json!("object"))]));
        let tool = |name| Tool::new(name, "A tool of a round", anything.clone());
        let tools = ["ask_model", "ask_name", "count", "echo", "fail", "folders"].map(tool).to_vec();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        if let Some(asked) = question(&call.name) {
            let modern = context.meta.protocol_version() >= Some(ProtocolVersion::V_2026_07_28);
            let answer = match call.input_responses.as_ref().and_then(|answers| answers.get("question")) {
                Some(answer) => serde_json::to_value(answer).unwrap_or_default(),
                None if modern => {
                    let asked = InputRequests::from_iter([("question".to_owned(), asked)]);
                    return Ok(InputRequiredResult::new(Some(asked), Some("state".to_owned())).into());
                }
                None => ask_live(asked, &context).await?,
            };
            return said(conclusion(&call.name, &answer));
        }
        match &*call.name {
            "echo" => said(arguments["text"].as_str().unwrap_or_default()),
            "count" => {
                let to = arguments["to"].as_u64().unwrap_or_default();
                for n in 1..=to {
                    let at = json!(format!("at {n}"));
                    if let Some(token) = context.meta.get_progress_token() {
                        let told = ProgressNotificationParam::new(token, n as f64).with_total(to as f64);
                        context.peer.notify_progress(told).await.map_err(gone)?;
                    }
                    let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, at);
                    context.peer.notify_logging_message(line).await.map_err(gone)?;
                }
                said(to.to_string())
            }
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("on purpose")]).into()),
            other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        }
    }

    async fn read_resource(
        &self,
        wanted: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text("Good morning", wanted.uri)]).into())
    }

    async fn get_prompt(
        &self,
        wanted: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::Object(wanted.arguments.unwrap_or_default());
        let text = format!("Greet {}", arguments["name"].as_str().unwrap_or_default());
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }
}

fn gone(e: rmcp::ServiceError) -> ErrorData {
    ErrorData::internal_error(e.to_string(), None)
}
