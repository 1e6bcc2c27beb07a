//! rmcp's client, driven through a round.

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientInfo, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, JsonObject, ListRootsResult,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, Request, RequestMetaObject, Root, SamplingMessage,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RoleClient, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, ServiceError};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::kit::soon;
use crate::round::{CAPITAL, FOLDER, Heard, Kind, NAME, Round, Step};

/// Answers what it is asked, and keeps what it is told.
#[derive(Clone, Default)]
struct Caller {
    seen: Arc<Mutex<Seen>>,
    /// Whenever progress was told.
    told: Arc<Notify>,
}

#[derive(Default)]
struct Seen {
    step: Heard,
    logs: Vec<String>,
}

impl Caller {
    fn asked(&self, what: String) {
        self.seen.lock().unwrap().step.asked.push(what);
    }
}

impl ClientHandler for Caller {
    fn get_info(&self) -> ClientInfo {
        let can = ClientCapabilities::builder()
            .enable_sampling()
            .enable_elicitation()
            .enable_roots()
            .build();
        ClientInfo::new(can, Implementation::new("rmcp-peer", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = serde_json::to_value(asked).unwrap_or_default();
        self.asked(asked["message"].as_str().unwrap_or_default().to_owned());
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": NAME })))
    }

    async fn create_message(
        &self,
        asked: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let asked = serde_json::to_value(asked).unwrap_or_default();
        let content = &asked["messages"][0]["content"];
        let text = content.get(0).unwrap_or(content)["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.asked(text);
        Ok(CreateMessageResult::new(
            SamplingMessage::assistant_text(CAPITAL),
            "peer".to_owned(),
        ))
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.asked("roots".to_owned());
        Ok(ListRootsResult::new(vec![
            Root::new(FOLDER).with_name("lent"),
        ]))
    }

    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.seen
            .lock()
            .unwrap()
            .step
            .progress
            .push((told.progress, told.total.unwrap_or_default()));
        self.told.notify_one();
    }

    async fn on_logging_message(
        &self,
        told: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.seen
            .lock()
            .unwrap()
            .logs
            .push(told.data.as_str().unwrap_or_default().to_owned());
    }
}

type Client = RunningService<RoleClient, Caller>;

/// Takes the steps at the server at `url`.
pub async fn round(
    url: &str,
    lifecycle: ClientLifecycleMode,
    steps: impl IntoIterator<Item = &Step>,
) -> Round {
    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    drive(
        StreamableHttpClientTransport::from_config(config),
        lifecycle,
        steps,
    )
    .await
}

/// Takes the steps at the server that `command` starts.
pub async fn round_of_child(
    command: tokio::process::Command,
    lifecycle: ClientLifecycleMode,
    steps: impl IntoIterator<Item = &Step>,
) -> Round {
    drive(TokioChildProcess::new(command).unwrap(), lifecycle, steps).await
}

async fn drive<T, E, A>(
    transport: T,
    lifecycle: ClientLifecycleMode,
    steps: impl IntoIterator<Item = &Step>,
) -> Round
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (caller, mut round) = (Caller::default(), Round::default());
    let client = match soon(
        "a connection",
        caller.clone().serve_with_lifecycle(transport, lifecycle),
    )
    .await
    {
        Ok(client) => client,
        Err(why) => {
            return Round {
                broken: Some(why.to_string()),
                ..round
            };
        }
    };
    for step in steps {
        let said = soon(step.label, take(&client, &caller, step)).await;
        let mut heard = std::mem::take(&mut caller.seen.lock().unwrap().step);
        heard.asked.sort();
        match said {
            Ok(said) => drop(
                round
                    .steps
                    .insert(step.label.to_owned(), Heard { said, ..heard }),
            ),
            Err(why) => {
                round.broken = Some(format!("{}: {why}; {heard:?}", step.label));
                break;
            }
        }
    }
    let _ = client.cancel().await;
    round.logs = std::mem::take(&mut caller.seen.lock().unwrap().logs);
    round
}

async fn take(client: &Client, caller: &Caller, step: &Step) -> Result<String, ServiceError> {
    let arguments = object(step.arguments.clone());
    let text = |value: Value, at: &str| {
        value
            .pointer(at)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Ok(match step.kind {
        Kind::Tools => {
            let mut names: Vec<_> = client
                .list_all_tools()
                .await?
                .into_iter()
                .map(|tool| tool.name)
                .collect();
            names.sort();
            names.join(" ")
        }
        Kind::Tool => {
            let result = client.call_tool(call(step.name, arguments)).await?;
            let text: Vec<_> = result
                .content
                .iter()
                .filter_map(|block| Some(block.as_text()?.text.as_str()))
                .collect();
            if result.is_error == Some(true) {
                format!("error: {}", text.join("\n"))
            } else {
                text.join("\n")
            }
        }
        Kind::GiveUp => {
            let request = ClientRequest::CallToolRequest(Request::new(call(step.name, arguments)));
            let begun = client
                .send_cancellable_request(request, PeerRequestOptions::no_options())
                .await?;
            while caller.seen.lock().unwrap().step.progress.is_empty() {
                caller.told.notified().await;
            }
            begun.cancel(Some("enough".to_owned())).await?;
            "given up".to_owned()
        }
        Kind::Resource => {
            let read = client
                .read_resource(ReadResourceRequestParams::new(step.name))
                .await?;
            text(
                serde_json::to_value(read).unwrap_or_default(),
                "/contents/0/text",
            )
        }
        Kind::Prompt => {
            let prompt = client
                .get_prompt(GetPromptRequestParams::new(step.name).with_arguments(arguments))
                .await?;
            text(
                serde_json::to_value(prompt).unwrap_or_default(),
                "/messages/0/content/text",
            )
        }
    })
}

fn call(name: &'static str, arguments: JsonObject) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
    let mut meta = RequestMetaObject::new();
    meta.set_log_level(LoggingLevel::Info);
    params.meta = Some(meta);
    params
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        _ => JsonObject::new(),
    }
}
