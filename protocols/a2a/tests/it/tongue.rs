//! The operations in the format of each version and binding.

use callboard_a2a::Operation as Op;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::kit::{Peer, soon};

/// A version with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tongue {
    Rpc10,
    Rest10,
    Rpc03,
    Rest03,
    Rpc01,
}

/// Subject of a request, as far as its operation needs it.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// Id of the task; for a message, the task that it continues, if any.
    pub task: &'a str,
    pub config: &'a str,
    pub message: &'a str,
    pub text: &'a str,
    pub skill: &'a str,
    /// Whether a message waits for the end of its task.
    pub waits: bool,
}

impl Default for About<'_> {
    fn default() -> Self {
        Self {
            task: "",
            config: "c-1",
            message: "m-1",
            text: "hello",
            skill: "echo",
            waits: true,
        }
    }
}

/// URL of push configurations; no server listens there.
pub const HOOK: &str = "http://127.0.0.1:9/hook";

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl Tongue {
    pub const ALL: [Self; 5] = [
        Self::Rpc10,
        Self::Rest10,
        Self::Rpc03,
        Self::Rest03,
        Self::Rpc01,
    ];

    /// Returns whether the version has the operation.
    pub fn has(self, op: Op) -> bool {
        match self {
            Self::Rpc10 | Self::Rest10 | Self::Rest03 => true,
            Self::Rpc03 => op != Op::ListTasks,
            Self::Rpc01 => !matches!(
                op,
                Op::ListTasks
                    | Op::ListTaskPushNotificationConfigs
                    | Op::DeleteTaskPushNotificationConfig
                    | Op::GetExtendedAgentCard
            ),
        }
    }

    /// Sends a request and returns the response.
    pub async fn ask(self, peer: &Peer, op: Op, about: About<'_>) -> Reply {
        let response = soon(self.request(peer, op, about).send()).await.unwrap();
        let status = response.status().as_u16();
        Reply {
            status,
            text: soon(response.text()).await.unwrap(),
        }
    }

    /// Sends a request that must succeed and returns its result.
    pub async fn result(self, peer: &Peer, op: Op, about: About<'_>) -> Value {
        let reply = self.ask(peer, op, about).await;
        assert_eq!(self.code(&reply), None, "{self:?} {op:?}: {reply:?}");
        let body = reply.json();
        if self.is_rpc() {
            body["result"].clone()
        } else {
            body
        }
    }

    /// Returns the task in the result of a message.
    pub fn task(self, result: &Value) -> Value {
        match self {
            Self::Rpc10 | Self::Rest10 | Self::Rest03 => result["task"].clone(),
            Self::Rpc03 | Self::Rpc01 => result.clone(),
        }
    }

    /// Returns the JSON-RPC code of an error.
    pub fn code(self, reply: &Reply) -> Option<i64> {
        let body = reply.json();
        match self {
            Self::Rest10 if reply.status >= 400 => {
                let reason = body["error"]["details"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find_map(|d| d["reason"].as_str());
                let kind = reason.and_then(callboard_a2a::ErrorKind::from_reason);
                Some(kind.map_or(-32_602, callboard_a2a::ErrorKind::code))
            }
            Self::Rest03 if reply.status >= 400 => body["code"].as_i64().or(Some(0)),
            Self::Rest10 | Self::Rest03 => None,
            _ => body["error"]["code"].as_i64(),
        }
    }

    pub fn is_rpc(self) -> bool {
        !matches!(self, Self::Rest10 | Self::Rest03)
    }

    pub fn request(self, peer: &Peer, op: Op, about: About<'_>) -> RequestBuilder {
        let peer = match self {
            Self::Rpc10 | Self::Rest10 => peer.with("A2A-Version", "1.0"),
            Self::Rpc03 | Self::Rest03 => peer.clone(),
            // It shares method names with 0.3.
            Self::Rpc01 => peer.with("A2A-Version", "0.1"),
        };
        match self {
            Self::Rpc10 => rpc(&peer, &format!("{op:?}"), self.params(op, about)),
            Self::Rpc03 => rpc(&peer, method_03(op), self.params(op, about)),
            Self::Rpc01 => rpc(&peer, method_01(op), self.params(op, about)),
            Self::Rest10 => self.rest(&peer, "", op, about),
            Self::Rest03 => self.rest(&peer, "/v1", op, about),
        }
    }

    fn rest(self, peer: &Peer, root: &str, op: Op, about: About<'_>) -> RequestBuilder {
        let About { task, config, .. } = about;
        let configs = format!("{root}/tasks/{task}/pushNotificationConfigs");
        let (method, tail) = match op {
            Op::SendMessage => (Method::POST, format!("{root}/message:send")),
            Op::SendStreamingMessage => (Method::POST, format!("{root}/message:stream")),
            Op::GetTask => (Method::GET, format!("{root}/tasks/{task}")),
            Op::ListTasks => (Method::GET, format!("{root}/tasks")),
            Op::CancelTask => (Method::POST, format!("{root}/tasks/{task}:cancel")),
            Op::SubscribeToTask => (Method::GET, format!("{root}/tasks/{task}:subscribe")),
            Op::CreateTaskPushNotificationConfig => (Method::POST, configs),
            Op::ListTaskPushNotificationConfigs => (Method::GET, configs),
            Op::GetTaskPushNotificationConfig => (Method::GET, format!("{configs}/{config}")),
            Op::DeleteTaskPushNotificationConfig => (Method::DELETE, format!("{configs}/{config}")),
            Op::GetExtendedAgentCard if self == Self::Rest03 => {
                (Method::GET, format!("{root}/card"))
            }
            Op::GetExtendedAgentCard => (Method::GET, format!("{root}/extendedAgentCard")),
        };
        let has_body = method == Method::POST && op != Op::CancelTask;
        let request = peer.request(method, &tail);
        match has_body {
            true => request
                .header("Content-Type", "application/json")
                .body(self.params(op, about).to_string()),
            false => request,
        }
    }

    /// Returns the parameters of an operation.
    pub fn params(self, op: Op, about: About<'_>) -> Value {
        let About { task, config, .. } = about;
        match op {
            Op::SendMessage | Op::SendStreamingMessage => self.message(about),
            Op::GetTask | Op::CancelTask | Op::SubscribeToTask => json!({ "id": task }),
            Op::ListTasks | Op::GetExtendedAgentCard => json!({}),
            Op::CreateTaskPushNotificationConfig => match self {
                Self::Rpc10 | Self::Rest10 => json!({ "taskId": task, "id": config, "url": HOOK }),
                Self::Rpc03 => {
                    json!({ "taskId": task, "pushNotificationConfig": { "id": config, "url": HOOK } })
                }
                Self::Rest03 => json!({
                    "parent": format!("tasks/{task}"),
                    "configId": config,
                    "config": { "pushNotificationConfig": { "id": config, "url": HOOK } },
                }),
                Self::Rpc01 => json!({ "id": task, "pushNotificationConfig": { "url": HOOK } }),
            },
            Op::GetTaskPushNotificationConfig | Op::DeleteTaskPushNotificationConfig => {
                match self {
                    Self::Rpc03 => json!({ "id": task, "pushNotificationConfigId": config }),
                    Self::Rpc01 => json!({ "id": task }),
                    _ => json!({ "taskId": task, "id": config }),
                }
            }
            Op::ListTaskPushNotificationConfigs => match self {
                Self::Rpc03 => json!({ "id": task }),
                _ => json!({ "taskId": task }),
            },
        }
    }

    fn message(self, about: About<'_>) -> Value {
        let About {
            task,
            message,
            text,
            skill,
            waits,
            ..
        } = about;
        let metadata = json!({ "skill": skill });
        let mut said = match self {
            Self::Rpc10 | Self::Rest10 => json!({
                "messageId": message, "role": "ROLE_USER", "parts": [{ "text": text }], "metadata": metadata,
            }),
            Self::Rpc03 => json!({
                "kind": "message", "messageId": message, "role": "user", "metadata": metadata,
                "parts": [{ "kind": "text", "text": text }],
            }),
            Self::Rest03 => json!({
                "messageId": message, "role": "ROLE_USER", "content": [{ "text": text }], "metadata": metadata,
            }),
            Self::Rpc01 => {
                json!({ "role": "user", "parts": [{ "type": "text", "text": text }], "metadata": metadata })
            }
        };
        if self == Self::Rpc01 {
            return json!({ "id": if task.is_empty() { message } else { task }, "message": said });
        }
        if !task.is_empty() {
            said["taskId"] = json!(task);
        }
        let configuration = match self {
            Self::Rpc10 | Self::Rest10 => json!({ "returnImmediately": !waits }),
            _ => json!({ "blocking": waits }),
        };
        let name = if self == Self::Rest03 {
            "request"
        } else {
            "message"
        };
        json!({ name: said, "configuration": configuration })
    }
}

fn rpc(peer: &Peer, method: &str, params: Value) -> RequestBuilder {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    peer.request(Method::POST, "")
        .header("Content-Type", "application/json")
        .body(body)
}

fn method_03(op: Op) -> &'static str {
    match op {
        Op::SendMessage => "message/send",
        Op::SendStreamingMessage => "message/stream",
        Op::GetTask => "tasks/get",
        Op::CancelTask => "tasks/cancel",
        Op::SubscribeToTask => "tasks/resubscribe",
        Op::CreateTaskPushNotificationConfig => "tasks/pushNotificationConfig/set",
        Op::GetTaskPushNotificationConfig => "tasks/pushNotificationConfig/get",
        Op::ListTaskPushNotificationConfigs => "tasks/pushNotificationConfig/list",
        Op::DeleteTaskPushNotificationConfig => "tasks/pushNotificationConfig/delete",
        Op::GetExtendedAgentCard => "agent/getAuthenticatedExtendedCard",
        _ => panic!("0.3 has no {op:?}"),
    }
}

fn method_01(op: Op) -> &'static str {
    match op {
        Op::SendMessage => "tasks/send",
        Op::SendStreamingMessage => "tasks/sendSubscribe",
        Op::GetTask => "tasks/get",
        Op::CancelTask => "tasks/cancel",
        Op::SubscribeToTask => "tasks/resubscribe",
        Op::CreateTaskPushNotificationConfig => "tasks/pushNotification/set",
        Op::GetTaskPushNotificationConfig => "tasks/pushNotification/get",
        _ => panic!("0.1 has no {op:?}"),
    }
}
