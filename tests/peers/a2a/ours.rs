use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use callboard::a2a::outbound::{
    A2aClient, ProtocolBinding, ProtocolVersion, RemoteA2aAgent, RemoteOptions,
};
use callboard::a2a::wire::{
    A2aMessage, A2aTask, AuthenticationInfo, Part, Role, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, TaskPushNotificationConfig,
};
use callboard::message::capabilities::CallTool;
use callboard::message::{Answer, ElicitationAnswer, Question, RawObject};
use callboard::{AgentRef, CallEvent, System};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::CREDENTIALS;
use crate::kit::{SOON, soon};
use crate::round::{ECHOED, NAME};

/// A round with the agent at `url`.
pub async fn round(url: &str, version: ProtocolVersion, binding: ProtocolBinding) -> Value {
    let system = System::start(1).unwrap();
    let options = RemoteOptions {
        versions: vec![version],
        bindings: vec![binding],
        ..RemoteOptions::default()
    };
    let remote = RemoteA2aAgent::new(url.parse().unwrap(), options).unwrap();
    let (peer, agent) = (remote.client().clone(), system.spawn(remote));
    let echoed = call(&agent, &format!("echo {ECHOED}")).await;
    let counted = call(&agent, "count").await;
    let asked = call(&agent, "ask").await;
    json!({
        "send": echoed.text,
        "stream": { "said": counted.said, "text": counted.pieces },
        "ask": asked.asked,
        "answer": asked.text,
        "cancel": cancelled(&peer).await,
        "push": pushed(&peer).await,
    })
}

/// Result of a call.
#[derive(Default)]
struct Heard {
    said: Vec<String>,
    pieces: String,
    asked: String,
    text: String,
}

async fn call(agent: &AgentRef, text: &str) -> Heard {
    let params = RawObject::new()
        .with("name", "talk")
        .with("arguments", json!({ "text": text }));
    let mut call = agent.call(CallTool(params)).within(SOON).start();
    let mut heard = Heard::default();
    while let Some(event) = soon("what a call says", call.next()).await {
        match event {
            CallEvent::Progress(progress) => heard.said.extend(progress.message),
            CallEvent::Artifact(artifact) => {
                heard.pieces.extend(
                    artifact
                        .content()
                        .iter()
                        .filter_map(|block| block.as_text()),
                );
            }
            CallEvent::Question(pending) => {
                let Question::Elicit(form) = &pending.question else {
                    panic!("{:?}", pending.question)
                };
                heard.asked = form.message();
                pending.answer(Answer::Elicit(ElicitationAnswer::accept(
                    json!({ "text": NAME }),
                )));
            }
            _ => {}
        }
    }
    let result = call.reply().await.unwrap().unwrap();
    assert!(!result.is_error(), "{text}: {}", result.texts());
    heard.text = result.texts();
    heard
}

fn saying(text: &str, push: Option<TaskPushNotificationConfig>) -> SendMessageRequest {
    let message = A2aMessage {
        message_id: format!("of {text}"),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..A2aMessage::default()
    };
    let configuration = SendMessageConfiguration {
        return_immediately: true,
        task_push_notification_config: push,
        ..SendMessageConfiguration::default()
    };
    SendMessageRequest {
        message,
        configuration: Some(configuration),
        ..SendMessageRequest::default()
    }
}

async fn begun(peer: &A2aClient, request: SendMessageRequest) -> A2aTask {
    match peer.send(request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(_) => panic!("a message came in place of a task"),
    }
}

async fn cancelled(peer: &A2aClient) -> String {
    let task = begun(peer, saying("wait", None)).await;
    let state = peer.cancel_task(&task.id).await.unwrap().status.state;
    format!("{state:?}")
        .to_lowercase()
        .replace("cancelled", "canceled")
}

/// More than one task has news.
const NEWS_MAX: usize = 64;

/// The `Authorization` that came with the news that a task is completed.
async fn pushed(peer: &A2aClient) -> String {
    let (tell, mut told) = mpsc::channel(NEWS_MAX);
    let hook = HttpServer::new(move || {
        let tell = tell.clone();
        let receive = move |request: HttpRequest, body: Bytes| {
            let shown = request
                .headers()
                .get("authorization")
                .and_then(|value| value.to_str().ok());
            let _ = tell.try_send((
                shown.unwrap_or_default().to_owned(),
                serde_json::from_slice(&body).unwrap_or_default(),
            ));
            std::future::ready(HttpResponse::Ok())
        };
        App::new().route("/hook", web::post().to(receive))
    });
    let hook = hook
        .workers(1)
        .disable_signals()
        .bind(("127.0.0.1", 0))
        .unwrap();
    let url = format!("http://{}/hook", hook.addrs()[0]);
    let server = hook.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    let config = TaskPushNotificationConfig {
        id: "hook".to_owned(),
        url,
        token: "t0ken".into(),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: CREDENTIALS.into(),
        }),
        ..TaskPushNotificationConfig::default()
    };
    begun(peer, saying("echo pushed", Some(config))).await;
    let completed = async {
        loop {
            let (shown, body): (String, Value) = told.recv().await.unwrap();
            let task = [&body["task"], &body["statusUpdate"], &body]
                .into_iter()
                .find(|task| task.is_object());
            let state = task
                .and_then(|task| task["status"]["state"].as_str())
                .unwrap_or_default();
            if matches!(state, "completed" | "TASK_STATE_COMPLETED") {
                return shown;
            }
        }
    };
    let shown = soon("a push", completed).await;
    handle.stop(false).await;
    shown
}
