//! An agent that does what a round wants.

use std::sync::Arc;
use std::time::Duration;

use a2a::{
    A2AError, AgentCapabilities, AgentCard, AgentInterface, AgentSkill, StreamResponse,
    TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_JSONRPC, TaskState,
};
use a2a_server::agent_card::agent_card_router;
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, HttpPushSender, HttpPushSenderConfig,
    InMemoryPushConfigStore, InMemoryTaskStore, StaticAgentCard,
};
use async_stream::stream;
use axum::Router;
use futures::stream::{BoxStream, StreamExt as _};

use crate::echo::{artifact, status};

/// Longer than anybody waits here.
const LONG: Duration = Duration::from_secs(600);

struct Talking;

/// JSON-RPC at `/`, HTTP+JSON at `/rest`.
pub fn router(port: u16) -> Router {
    // The receivers are on this machine.
    let sender = HttpPushSender::new(Some(HttpPushSenderConfig {
        validate_urls: false,
        ..Default::default()
    }));
    let handler = DefaultRequestHandler::new(Talking, InMemoryTaskStore::new())
        .with_capabilities(capabilities())
        .with_push_notifications(InMemoryPushConfigStore::new(), sender);
    let handler = Arc::new(handler);
    let card = Arc::new(StaticAgentCard::new(card(port)));
    jsonrpc_router(handler.clone())
        .merge(agent_card_router(card))
        .nest("/rest", rest_router(handler))
}

fn capabilities() -> AgentCapabilities {
    AgentCapabilities {
        streaming: Some(true),
        push_notifications: Some(true),
        extensions: None,
        extended_agent_card: None,
    }
}

fn card(port: u16) -> AgentCard {
    let texts = || vec!["text/plain".to_owned()];
    AgentCard {
        name: "rust-peer".to_owned(),
        description: "Talks".to_owned(),
        version: "1".to_owned(),
        supported_interfaces: vec![
            AgentInterface::new(
                format!("http://127.0.0.1:{port}/"),
                TRANSPORT_PROTOCOL_JSONRPC,
            ),
            AgentInterface::new(
                format!("http://127.0.0.1:{port}/rest"),
                TRANSPORT_PROTOCOL_HTTP_JSON,
            ),
        ],
        capabilities: capabilities(),
        default_input_modes: texts(),
        default_output_modes: texts(),
        skills: vec![AgentSkill {
            id: "talk".to_owned(),
            name: "talk".to_owned(),
            description: "Does what a text says".to_owned(),
            tags: vec!["talk".to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        }],
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

impl AgentExecutor for Talking {
    fn execute(
        &self,
        context: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let text = context
            .message
            .as_ref()
            .and_then(|message| message.text())
            .unwrap_or_default()
            .to_owned();
        let is_answer = context
            .stored_task
            .as_ref()
            .is_some_and(|task| task.status.state == TaskState::InputRequired);
        let talk = stream! {
            match text.split_once(' ') {
                _ if is_answer => yield artifact(&context, "result", format!("Hello, {text}!"), None),
                Some(("echo", words)) => yield artifact(&context, "result", words, None),
                _ if text == "count" => {
                    yield status(&context, TaskState::Working, Some("counting"));
                    for (text, piece) in [("1", (false, false)), (" 2", (true, false)), (" 3", (true, true))] {
                        yield artifact(&context, "counted", text, Some(piece));
                    }
                }
                _ if text == "ask" => {
                    yield status(&context, TaskState::InputRequired, Some("What is your name?"));
                    return;
                }
                _ => {
                    yield status(&context, TaskState::Working, Some("waiting"));
                    tokio::time::sleep(LONG).await;
                }
            }
            yield status(&context, TaskState::Completed, None);
        };
        talk.map(Ok).boxed()
    }

    fn cancel(
        &self,
        context: ExecutorContext,
    ) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        futures::stream::iter([Ok(status(&context, TaskState::Canceled, None))]).boxed()
    }
}
