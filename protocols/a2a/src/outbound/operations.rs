//! Operations as a client uses them: what goes out, in which words, and what comes back.

use callboard_message::RawObject;
use reqwest::Method;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::choose::Candidate;
use super::options::Version;
use crate::dialect::Operation;
use crate::wire::{
    AgentCard, CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    SendMessageRequest, SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
    Wire,
};
use crate::{A2aError, Dialect};

/// Something that is asked of an agent.
pub(super) trait Ask: Send + Sync {
    /// What comes back, once or as a stream's events.
    type Reply;
    const OPERATION: Operation;
    /// Writes down what the interface wants: its tenant.
    fn fit(&mut self, to: &Candidate);
    /// JSON-RPC's params, and the body over HTTP+JSON.
    fn write(&self, dialect: Dialect) -> Box<RawValue>;
    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError>;
    /// Over HTTP+JSON: the method, and the path behind version and tenant.
    fn place(&self) -> (Method, String);
}

/// Whether the interface as a whole fails with this operation: every agent answers messages.
pub(super) fn is_essential(operation: Operation) -> bool {
    operation == Operation::SendMessage
}

impl Ask for SendMessageRequest {
    type Reply = SendMessageResponse;
    const OPERATION: Operation = Operation::SendMessage;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
        // In 0.1 the client names the task.
        if to.version == Version::V01 && self.message.task_id.is_empty() {
            self.message.task_id = Uuid::new_v4().to_string();
        }
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_send(self)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_send_response(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::POST, "/message:send".into())
    }
}

/// A message whose answer is a stream.
#[derive(Clone)]
pub(super) struct Streamed(pub(super) SendMessageRequest);

impl Ask for Streamed {
    type Reply = StreamResponse;
    const OPERATION: Operation = Operation::SendStreamingMessage;

    fn fit(&mut self, to: &Candidate) {
        self.0.fit(to);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_send(&self.0)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_event(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::POST, "/message:stream".into())
    }
}

impl Ask for SubscribeToTaskRequest {
    type Reply = StreamResponse;
    const OPERATION: Operation = Operation::SubscribeToTask;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_request(self)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_event(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::GET, format!("/tasks/{}:subscribe", segment(&self.id)))
    }
}

impl Ask for GetTaskRequest {
    type Reply = Task;
    const OPERATION: Operation = Operation::GetTask;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_request(self)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_task(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::GET, format!("/tasks/{}{}", segment(&self.id), query(self, &["id"])))
    }
}

impl Ask for ListTasksRequest {
    type Reply = ListTasksResponse;
    const OPERATION: Operation = Operation::ListTasks;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_request(self)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_task_list(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::GET, format!("/tasks{}", query(self, &[])))
    }
}

impl Ask for CancelTaskRequest {
    type Reply = Task;
    const OPERATION: Operation = Operation::CancelTask;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_request(self)
    }

    fn read(dialect: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        dialect.read_task(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::POST, format!("/tasks/{}:cancel", segment(&self.id)))
    }
}

impl Ask for TaskPushNotificationConfig {
    type Reply = ();
    const OPERATION: Operation = Operation::CreateTaskPushNotificationConfig;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_push_config(self)
    }

    // The agent repeats it: nothing to learn.
    fn read(_: Dialect, _: &RawValue) -> Result<Self::Reply, A2aError> {
        Ok(())
    }

    fn place(&self) -> (Method, String) {
        (Method::POST, format!("/tasks/{}/pushNotificationConfigs", segment(&self.task_id)))
    }
}

impl Ask for GetExtendedAgentCardRequest {
    type Reply = AgentCard;
    const OPERATION: Operation = Operation::GetExtendedAgentCard;

    fn fit(&mut self, to: &Candidate) {
        self.tenant.clone_from(&to.tenant);
    }

    fn write(&self, dialect: Dialect) -> Box<RawValue> {
        dialect.write_request(self)
    }

    fn read(_: Dialect, raw: &RawValue) -> Result<Self::Reply, A2aError> {
        Dialect::read_card(raw)
    }

    fn place(&self) -> (Method, String) {
        (Method::GET, "/extendedAgentCard".into())
    }
}

/// An id as one segment of a path: nothing in it ends the segment or names a method.
pub(super) fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let mut written = String::with_capacity(id.len());
    for byte in id.bytes() {
        match plain(byte) {
            true => written.push(char::from(byte)),
            false => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

/// What a request says, but for its `path` members and its tenant, as a query; empty where that is nothing.
fn query(request: &impl Wire, path: &[&str]) -> String {
    let said = RawObject::parse(&request.to_raw()).unwrap_or_default();
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in said.iter().filter(|(name, _)| *name != "tenant" && !path.contains(name)) {
        let text = serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned());
        query.append_pair(name, &text);
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an id stays one segment whatever is in it, and a query says what the request says. Method: rows.
    #[test]
    fn places_hold_ids() {
        for (id, path) in
            [("a-1", "/tasks/a-1"), ("a/../b", "/tasks/a%2F%2E%2E%2Fb"), ("x:cancel?", "/tasks/x%3Acancel%3F")]
        {
            let request = GetTaskRequest { id: id.into(), ..GetTaskRequest::default() };
            assert_eq!(request.place(), (Method::GET, path.to_owned()));
        }
        let list = ListTasksRequest {
            tenant: "t".into(),
            context_id: "c d".into(),
            page_size: Some(5),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        assert_eq!(list.place().1, "/tasks?contextId=c+d&pageSize=5&includeArtifacts=true");
    }
}
