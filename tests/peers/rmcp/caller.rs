//! rmcp's client, driven through a round.

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientInfo, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, GetPromptRequestParams, Implementation, JsonObject,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, RequestMetaObject, Root, SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::{Value, json};

use crate::kit::soon;
use crate::round::{CAPITAL, ECHOED, FOLDER, NAME, Round};

/// Answers what it is asked, and keeps what it is told.
#[derive(Clone, Default)]
struct Caller {
    round: Arc<Mutex<Round>>,
}

impl Caller {
    fn seen(&self, see: impl FnOnce(&mut Round)) {
        see(&mut self.round.lock().unwrap());
    }
}

impl ClientHandler for Caller {
    fn get_info(&self) -> ClientInfo {
        let can = ClientCapabilities::builder().enable_sampling().enable_elicitation().enable_roots().build();
        ClientInfo::new(can, Implementation::new("rmcp-peer", "1")).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = serde_json::to_value(asked).unwrap_or_default();
        self.seen(|round| round.asked.push(asked["message"].as_str().unwrap_or_default().to_owned()));
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": NAME })))
    }

    async fn create_message(
        &self,
        asked: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let asked = serde_json::to_value(asked).unwrap_or_default();
        let content = &asked["messages"][0]["content"];
        let text = content.get(0).unwrap_or(content)["text"].as_str().unwrap_or_default().to_owned();
        self.seen(|round| round.asked.push(text));
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text(CAPITAL), "peer".to_owned()))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.seen(|round| round.asked.push("roots".to_owned()));
        Ok(ListRootsResult::new(vec![Root::new(FOLDER).with_name("lent")]))
    }

    async fn on_progress(&self, told: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.seen(|round| round.progress.push((told.progress, told.total.unwrap_or_default())));
    }

    async fn on_logging_message(&self, told: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.seen(|round| round.logs.push(told.data.as_str().unwrap_or_default().to_owned()));
    }
}

type Client = RunningService<RoleClient, Caller>;

/// A whole round of the server at `url`.
pub async fn round(url: &str, lifecycle: ClientLifecycleMode) -> Round {
    let caller = Caller::default();
    let transport =
        StreamableHttpClientTransport::from_config(StreamableHttpClientTransportConfig::with_uri(url.to_owned()));
    let client = soon("a connection", caller.clone().serve_with_lifecycle(transport, lifecycle)).await.unwrap();
    let mut tools: Vec<String> =
        client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.to_string()).collect();
    tools.sort();
    caller.seen(|round| round.tools = tools);

    let echo = tool(&client, "echo", json!({ "text": ECHOED })).await;
    let ask_name = tool(&client, "ask_name", json!({})).await;
    let ask_model = tool(&client, "ask_model", json!({})).await;
    let folders = tool(&client, "folders", json!({})).await;
    let count = tool(&client, "count", json!({ "to": 3 })).await;
    let fail = tool(&client, "fail", json!({})).await;
    let read = client.read_resource(ReadResourceRequestParams::new("peer://greeting")).await.unwrap();
    let greet = GetPromptRequestParams::new("greet").with_arguments(object(json!({ "name": NAME })));
    let prompt = client.get_prompt(greet).await.unwrap();
    client.cancel().await.unwrap();

    let mut round = std::mem::take(&mut *caller.round.lock().unwrap());
    let text = |value: Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    round.resource = text(serde_json::to_value(read).unwrap(), "/contents/0/text");
    round.prompt = text(serde_json::to_value(prompt).unwrap(), "/messages/0/content/text");
    Round { echo, ask_name, ask_model, folders, count, fail, ..round }
}

async fn tool(client: &Client, name: &'static str, arguments: Value) -> String {
    let mut params = CallToolRequestParams::new(name).with_arguments(object(arguments));
    let mut meta = RequestMetaObject::new();
    meta.set_log_level(LoggingLevel::Info);
    params.meta = Some(meta);
    let result = soon(name, client.call_tool(params)).await.unwrap();
    let text: Vec<_> = result.content.iter().filter_map(|block| Some(block.as_text()?.text.as_str())).collect();
    if result.is_error == Some(true) { format!("error: {}", text.join("\n")) } else { text.join("\n") }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        _ => JsonObject::new(),
    }
}
