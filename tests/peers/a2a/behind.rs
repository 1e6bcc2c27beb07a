//! An agent of another program behind callboard, and a client of ours in front.

use std::time::Duration;

use callboard::a2a::outbound::{A2aClient, RemoteOptions};
use callboard::a2a::wire::{
    A2aMessage, A2aTask, GetTaskRequest, Part, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse,
};
use callboard::message::TaskState;
use serde_json::json;

use crate::gateway::{Gateway, Topology};
use crate::kit::{Peers, Served, soon};

/// Time between two looks at a task.
const LOOK: Duration = Duration::from_millis(50);

/// `callboard serve` in front of an agent.
pub struct Behind {
    client: A2aClient,
    gateway: Gateway,
    _served: Served,
}

/// Answer of the agent.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Conversation, as callboard calls it.
    pub context: String,
    pub text: String,
}

impl Behind {
    /// Starts it in front of the agent whose card is at the root of `served`.
    pub async fn start(peers: &Peers, served: Served) -> Self {
        let listener =
            "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nanonymous = \"operator\"\n";
        let url = json!(served.url("http", ""));
        let agent = format!("[[agent]]\nkind = \"a2a\"\nid = \"peer\"\nurl = {url}\n{listener}");
        let gateway = Gateway::start(peers, Topology::new(&agent)).await;
        let url = gateway.a2a("peer").parse().unwrap();
        Self {
            client: A2aClient::new(url, RemoteOptions::default()).unwrap(),
            gateway,
            _served: served,
        }
    }

    /// Sends a text and polls its task until that has ended. An empty `context` begins a conversation.
    pub async fn say(&self, text: &str, context: &str) -> Answer {
        let message = A2aMessage {
            message_id: format!("{text} in {context:?}"),
            context_id: context.to_owned(),
            role: Role::User,
            parts: vec![Part::text(text)],
            ..A2aMessage::default()
        };
        let configuration = SendMessageConfiguration {
            return_immediately: true,
            ..SendMessageConfiguration::default()
        };
        let request = SendMessageRequest {
            message,
            configuration: Some(configuration),
            ..SendMessageRequest::default()
        };
        soon(text, self.answered(request)).await
    }

    async fn answered(&self, request: SendMessageRequest) -> Answer {
        let mut task = match self.client.send(request).await.unwrap() {
            SendMessageResponse::Task(task) => task,
            SendMessageResponse::Message(message) => panic!("no task, but {message:?}"),
        };
        while !task.status.state.is_terminal() {
            tokio::time::sleep(LOOK).await;
            let wanted = GetTaskRequest {
                id: task.id.clone(),
                ..GetTaskRequest::default()
            };
            task = self.client.get_task(wanted).await.unwrap();
        }
        assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
        Answer {
            text: text(&task),
            context: task.context_id,
        }
    }

    /// Asserts that an agent that answers with all that was said to it in a conversation finds three turns of the caller's in one,
    /// and a fourth, which begins another, in none of them.
    pub async fn assert_remembers(&self) {
        let (mut context, mut said) = (String::new(), Vec::new());
        for text in ["one", "two", "three"] {
            said.push(text);
            let answer = self.say(text, &context).await;
            assert_eq!(answer.text, said.join(", "));
            context = answer.context;
        }
        assert_eq!(self.say("four", "").await.text, "four");
    }

    pub async fn end(self) {
        self.gateway.end().await;
    }
}

/// Text of the artifacts.
fn text(task: &A2aTask) -> String {
    let artifacts = task.artifacts.iter().flatten();
    let parts = artifacts.flat_map(|artifact| &artifact.parts);
    parts.filter_map(Part::as_text).collect()
}
