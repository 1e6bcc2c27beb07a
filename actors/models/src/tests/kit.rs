//! Test server with fixed answers, models that use it, and access to the received requests.

use std::time::Duration;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{Failure, SamplingAnswer};
use callboard_runtime::{AgentRef, System, testkit};
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::{LanguageModel, ModelConfig, ModelRetries, RemoteModelConfig};

/// Runs a test in real time and shuts the system down after it.
pub fn real(test: impl AsyncFnOnce(&System)) {
    testkit::run_with_real_time(async |system| {
        test(system).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// API key of every model in these tests.
pub const KEY: &str = "sk-test-7f3a";

/// Starts a server with these answers in sequence; the last one repeats.
pub async fn server(answers: impl IntoIterator<Item = ResponseTemplate>) -> MockServer {
    let server = MockServer::start().await;
    let mut answers = answers.into_iter().peekable();
    while let Some(answer) = answers.next() {
        let mock = Mock::given(any()).respond_with(answer);
        match answers.peek() {
            Some(_) => mock.up_to_n_times(1).mount(&server).await,
            None => mock.mount(&server).await,
        }
    }
    server
}

pub fn whole(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

/// Builds an event stream with one event per piece of data.
pub fn events(data: &[&str]) -> ResponseTemplate {
    let text: String = data
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    ResponseTemplate::new(200).set_body_raw(text, "text/event-stream")
}

/// Configures a model at this server, with retries after 1 ms.
pub fn at(server: &MockServer) -> RemoteModelConfig {
    let url = Some(format!("{}/v1", server.uri()));
    RemoteModelConfig {
        url,
        retries: ModelRetries {
            pause_ms: 1,
            ..ModelRetries::default()
        },
        ..RemoteModelConfig::new("m-1")
    }
}

pub fn open(config: ModelConfig) -> LanguageModel {
    LanguageModel::open_with(config, &|_| Some(SecretString::from(KEY))).unwrap()
}

pub fn spawn(system: &System, config: ModelConfig) -> AgentRef {
    system.spawn(open(config))
}

/// Builds the params of a request.
pub fn params(params: &Value) -> CreateMessage {
    serde_json::from_str(&params.to_string()).unwrap()
}

/// Builds a request with one user turn.
pub fn said(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }], "maxTokens": 100 })
}

pub async fn sample(agent: &AgentRef, request: &Value) -> Result<Value, Failure> {
    let answer: SamplingAnswer = agent.ask(params(request)).await.map_err(Failure::from)??;
    Ok(serde_json::from_str(answer.0.to_raw().get()).unwrap())
}

/// Returns the body of the last request that the server received.
pub async fn asked(server: &MockServer) -> Value {
    let requests = server.received_requests().await.unwrap();
    serde_json::from_slice(&requests.last().unwrap().body).unwrap()
}

pub async fn times_asked(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

/// Builds a conversation with an image, a tool call and its result.
pub fn rich() -> Value {
    json!({
        "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": "What is on it?" },
                { "type": "image", "data": "aGk=", "mimeType": "image/png" },
            ] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "t1", "name": "look", "input": { "zoom": 2 } },
            ] },
            { "role": "user", "content": { "type": "tool_result", "toolUseId": "t1", "content": [
                { "type": "text", "text": "a cat" },
            ] } },
        ],
        "systemPrompt": "Be short.",
        "maxTokens": 50,
        "temperature": 0.5,
        "stopSequences": ["END"],
        "tools": [{ "name": "look", "description": "Looks.", "inputSchema": { "type": "object", "properties": {} } }],
        "toolChoice": { "mode": "auto" },
    })
}

/// Returns an answer's text, stop reason, model and token counts.
pub fn gist(answer: &Value) -> (&str, &str, &str, (u64, u64)) {
    let usage = &answer["_meta"]["callboard/usage"];
    (
        answer["content"]["text"].as_str().unwrap(),
        answer["stopReason"].as_str().unwrap(),
        answer["model"].as_str().unwrap(),
        (
            usage["inputTokens"].as_u64().unwrap(),
            usage["outputTokens"].as_u64().unwrap(),
        ),
    )
}
