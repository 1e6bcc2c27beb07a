//! A round with an agent elsewhere, as one JSON object.

use a2a::{
    AgentCard, Artifact, AuthenticationInfo, CancelTaskRequest, GetTaskRequest, Message, Part,
    Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, Task,
    TaskPushNotificationConfig, TaskState,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::{A2AClient, A2AClientFactory, Transport};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::Outcome;
use crate::hook::Hook;

type Client = A2AClient<Box<dyn Transport>>;

/// Goes through all of it with the agent whose card is there.
pub async fn round(url: &str) -> Outcome<Value> {
    let card: AgentCard = AgentCardResolver::new(None).resolve(url).await?;
    let client = A2AClientFactory::builder()
        .build()
        .create_from_card(&card)
        .await?;
    let sent = task(client.send_message(&saying("echo tschüß", None)).await?)?;
    let asked = task(client.send_message(&saying("ask", None)).await?)?;
    let answered = task(client.send_message(&saying("Ada", Some(&asked.id))).await?)?;
    Ok(json!({
        "send": text(&sent),
        "stream": streamed(&client).await?,
        "ask": asked.status.message.as_ref().and_then(|message| message.text()),
        "answer": text(&answered),
        "cancel": cancelled(&client).await?,
        "push": pushed(&client).await?,
    }))
}

fn saying(text: &str, task: Option<&str>) -> SendMessageRequest {
    let mut message = Message::new(Role::User, vec![Part::text(text)]);
    message.task_id = task.map(str::to_owned);
    SendMessageRequest {
        message,
        configuration: None,
        metadata: None,
        tenant: None,
    }
}

fn at_once(text: &str, push: Option<TaskPushNotificationConfig>) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: push,
        history_length: None,
        return_immediately: Some(true),
    };
    SendMessageRequest {
        configuration: Some(configuration),
        ..saying(text, None)
    }
}

fn task(response: SendMessageResponse) -> Outcome<Task> {
    match response {
        SendMessageResponse::Task(task) => Ok(task),
        SendMessageResponse::Message(_) => Err("a message came in place of a task".into()),
    }
}

fn text(task: &Task) -> String {
    task.artifacts.iter().flatten().map(of).collect()
}

fn of(artifact: &Artifact) -> String {
    artifact.parts.iter().filter_map(Part::as_text).collect()
}

/// The states that it went through, and the pieces.
async fn streamed(client: &Client) -> Outcome<Value> {
    let mut events = client
        .send_streaming_message(&saying("count", None))
        .await?;
    let (mut states, mut pieces) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await {
        let state = match event? {
            StreamResponse::Task(task) => task.status.state,
            StreamResponse::StatusUpdate(update) => update.status.state,
            StreamResponse::ArtifactUpdate(update) => {
                pieces.push(of(&update.artifact));
                continue;
            }
            StreamResponse::Message(_) => return Err("a message came in a task's stream".into()),
        };
        let state = name(&state);
        if state != "submitted" && states.last() != Some(&state) {
            states.push(state);
        }
    }
    Ok(json!({ "states": states, "text": pieces.concat() }))
}

async fn cancelled(client: &Client) -> Outcome<&'static str> {
    let begun = task(client.send_message(&at_once("wait", None)).await?)?;
    let cancel = CancelTaskRequest {
        id: begun.id.clone(),
        metadata: None,
        tenant: None,
    };
    client.cancel_task(&cancel).await?;
    let seen = GetTaskRequest {
        id: begun.id,
        history_length: None,
        tenant: None,
    };
    Ok(name(&client.get_task(&seen).await?.status.state))
}

async fn pushed(client: &Client) -> Outcome<String> {
    let mut hook = Hook::open().await?;
    let authentication = AuthenticationInfo {
        scheme: "Bearer".to_owned(),
        credentials: Some("cr3d".to_owned()),
    };
    let push = TaskPushNotificationConfig {
        url: hook.url.clone(),
        id: Some("hook".to_owned()),
        task_id: String::new(),
        token: Some("t0ken".to_owned()),
        authentication: Some(authentication),
        tenant: None,
    };
    task(
        client
            .send_message(&at_once("echo pushed", Some(push)))
            .await?,
    )?;
    hook.completed().await
}

fn name(state: &TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unspecified",
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::InputRequired => "input-required",
        TaskState::Rejected => "rejected",
        TaskState::AuthRequired => "auth-required",
    }
}
