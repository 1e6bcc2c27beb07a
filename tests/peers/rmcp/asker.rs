//! rmcp's server with the tools of a round, in both eras: in sessions it asks live, without them by `input_required`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequest,
    CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, JsonObject, ListRootsRequest, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, PromptMessage, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, Role, SamplingMessage,
    ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};

use crate::round::{ASKS_CAPITAL, ASKS_NAME};

/// Its tools.
pub const TOOLS: [&str; 9] = [
    "ask_all",
    "ask_model",
    "ask_name",
    "ask_twice",
    "count",
    "echo",
    "fail",
    "folders",
    "wait",
];
/// The resource that asks.
const ASKED_RESOURCE: &str = "peer://asked/sea";

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

/// Next turn: questions, or the text for the answers.
enum Turn {
    Ask(InputRequests),
    Say(String),
}

fn ask_name(message: &str) -> InputRequest {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    InputRequest::Elicitation(ElicitRequest::new(
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message.to_owned(),
            requested_schema: serde_json::from_value(schema).unwrap(),
        },
    ))
}

fn ask_capital() -> InputRequest {
    let turns = vec![SamplingMessage::user_text(ASKS_CAPITAL)];
    InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(
        turns, 100,
    )))
}

/// The next turn of a tool, prompt or resource that asks; none of any other.
fn turn(of: &str, answers: &BTreeMap<String, Value>) -> Option<Turn> {
    let asks = |questions: Vec<(&str, InputRequest)>| {
        Turn::Ask(
            questions
                .into_iter()
                .map(|(key, question)| (key.to_owned(), question))
                .collect(),
        )
    };
    let all = || {
        vec![
            ("name", ask_name(ASKS_NAME)),
            ("capital", ask_capital()),
            ("roots", ask_roots()),
        ]
    };
    let wanted = match of {
        "ask_name" | "ask_and_greet" | ASKED_RESOURCE => &all()[..1],
        "ask_model" => &all()[1..2],
        "folders" => &all()[2..],
        "ask_all" => &all()[..],
        "ask_twice" if answers.contains_key("again") => &[],
        "ask_twice" if answers.contains_key("name") => {
            return Some(asks(vec![(
                "again",
                ask_name(&format!("Sure, {}?", text(answers, "name"))),
            )]));
        }
        "ask_twice" => &all()[..1],
        _ => return None,
    };
    if !wanted.iter().all(|(key, _)| answers.contains_key(*key)) {
        return Some(asks(wanted.to_vec()));
    }
    Some(Turn::Say(match of {
        "ask_name" => format!("Hello, {}!", text(answers, "name")),
        "ask_and_greet" => format!("Greet {}", text(answers, "name")),
        ASKED_RESOURCE => format!("sea: {}", text(answers, "name")),
        "ask_twice" => format!("Sure, {}!", text(answers, "again")),
        "ask_model" => text(answers, "capital"),
        "folders" => text(answers, "roots"),
        _ => ["name", "capital", "roots"]
            .map(|key| text(answers, key))
            .join(", "),
    }))
}

fn ask_roots() -> InputRequest {
    InputRequest::ListRoots(ListRootsRequest::default())
}

/// Returns the text of the answer to `key`.
fn text(answers: &BTreeMap<String, Value>, key: &str) -> String {
    let at = match key {
        "capital" => "/content/text",
        "roots" => "/roots/0/uri",
        _ => "/content/name",
    };
    answers
        .get(key)
        .and_then(|answer| answer.pointer(at)?.as_str())
        .unwrap_or("nothing")
        .to_owned()
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.meta.protocol_version() >= Some(ProtocolVersion::V_2026_07_28)
}

/// Goes on until there is something to say; without a session the caller has to call again for that.
async fn converse(
    of: &str,
    answers: Option<&InputResponses>,
    context: &RequestContext<RoleServer>,
) -> Result<Option<Result<String, InputRequiredResult>>, ErrorData> {
    let modern = is_modern(context);
    let mut known = BTreeMap::new();
    for (key, answer) in answers.into_iter().flatten() {
        known.insert(
            key.clone(),
            serde_json::to_value(answer).unwrap_or_default(),
        );
    }
    loop {
        match turn(of, &known) {
            None => return Ok(None),
            Some(Turn::Say(text)) => return Ok(Some(Ok(text))),
            Some(Turn::Ask(questions)) if modern => {
                return Ok(Some(Err(InputRequiredResult::new(
                    Some(questions),
                    Some("state".to_owned()),
                ))));
            }
            Some(Turn::Ask(questions)) => {
                let asking = questions.into_iter().map(|(key, asked)| async move {
                    Ok::<_, ErrorData>((key, ask_live(asked, context).await?))
                });
                known.extend(futures::future::try_join_all(asking).await?);
            }
        }
    }
}

async fn ask_live(
    asked: InputRequest,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let failed = |e: rmcp::ServiceError| ErrorData::internal_error(e.to_string(), None);
    let answer = match asked {
        InputRequest::Elicitation(asked) => serde_json::to_value(
            context
                .peer
                .create_elicitation(asked.params)
                .await
                .map_err(failed)?,
        ),
        InputRequest::CreateMessage(asked) => serde_json::to_value(
            context
                .peer
                .create_message(asked.params)
                .await
                .map_err(failed)?,
        ),
        _ => serde_json::to_value(context.peer.list_roots().await.map_err(failed)?),
    };
    answer.map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

fn said(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

impl ServerHandler for Asker {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_logging();
        ServerConfig::new(can.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let anything = Arc::new(JsonObject::from_iter([(
            "type".to_owned(),
            json!("object"),
        )]));
        let tool = |name| Tool::new(name, "A tool of a round", anything.clone());
        let tools = TOOLS.map(tool).to_vec();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        match converse(&call.name, call.input_responses.as_ref(), &context).await? {
            Some(Ok(text)) => return said(text),
            Some(Err(asks)) => return Ok(asks.into()),
            None => {}
        }
        match &*call.name {
            "echo" => said(arguments["text"].as_str().unwrap_or_default()),
            "count" => {
                let to = arguments["to"].as_u64().unwrap_or_default();
                for n in 1..=to {
                    let at = json!(format!("at {n}"));
                    if let Some(token) = context.meta.get_progress_token() {
                        let told =
                            ProgressNotificationParam::new(token, n as f64).with_total(to as f64);
                        context.peer.notify_progress(told).await.map_err(gone)?;
                    }
                    let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, at);
                    context
                        .peer
                        .notify_logging_message(line)
                        .await
                        .map_err(gone)?;
                }
                // In a session, lines and the answer come on streams of their own. A ping on the lines' stream that is answered shows that
                // they are there; a task of its own, since what this one asks goes on the answer's stream.
                if !is_modern(&context) {
                    let (peer, ping) = (
                        context.peer.clone(),
                        ServerRequest::PingRequest(PingRequest::default()),
                    );
                    let answered = tokio::spawn(async move { peer.send_request(ping).await }).await;
                    answered
                        .map_err(|e| ErrorData::internal_error(e.to_string(), None))?
                        .map_err(gone)?;
                }
                said(to.to_string())
            }
            "wait" => {
                if let Some(token) = context.meta.get_progress_token() {
                    let told = ProgressNotificationParam::new(token, 0.0).with_total(1.0);
                    context.peer.notify_progress(told).await.map_err(gone)?;
                }
                context.ct.cancelled().await;
                std::fs::write(arguments["file"].as_str().unwrap_or_default(), "given up")
                    .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
                said("nobody waits")
            }
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("on purpose")]).into()),
            other => Err(ErrorData::invalid_params(
                format!("there is no tool {other}"),
                None,
            )),
        }
    }

    async fn read_resource(
        &self,
        wanted: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match converse(&wanted.uri, wanted.input_responses.as_ref(), &context).await? {
            Some(Ok(text)) => text,
            Some(Err(asks)) => return Ok(asks.into()),
            None => "Good morning".to_owned(),
        };
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, wanted.uri)]).into())
    }

    async fn get_prompt(
        &self,
        wanted: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let asked = converse(&wanted.name, wanted.input_responses.as_ref(), &context).await?;
        let arguments = Value::Object(wanted.arguments.unwrap_or_default());
        let text = match asked {
            Some(Ok(text)) => text,
            Some(Err(asks)) => return Ok(asks.into()),
            None => format!("Greet {}", arguments["name"].as_str().unwrap_or_default()),
        };
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }
}

fn gone(e: rmcp::ServiceError) -> ErrorData {
    ErrorData::internal_error(e.to_string(), None)
}
