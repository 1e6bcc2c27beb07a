//! Responses: written by servers, read by clients.

use callboard_message::RawObject;
use callboard_rpc::RpcError;
use serde_json::value::{RawValue, to_raw_value};

use super::push::{write_push_list, write_task_push};
use super::{card, task};
use crate::error::ERROR_INFO;
use crate::wire::*;
use crate::{A2aError, Dialect, ErrorKind};

impl Dialect {
    /// Writes the response to `SendMessage`. Because 0.1 has no responses without a task, a message
    /// is written as a completed task there.
    pub fn write_send_response(self, response: &SendMessageResponse) -> Box<RawValue> {
        match (self, response) {
            (Self::V10, _) => response.to_raw(),
            (Self::V01, SendMessageResponse::Task(task)) => self.write_task(task),
            (Self::V01, SendMessageResponse::Message(message)) => {
                self.write_task(&task::message_as_task(message))
            }
            (Self::V03 | Self::V03Rest, _) => {
                self.event_writer().write(&response.clone().into(), false)
            }
        }
    }

    /// Writes a task, as the response to `GetTask` and `CancelTask`.
    pub fn write_task(self, task: &A2aTask) -> Box<RawValue> {
        self.write(task, |out| task::write_task(self, task, None, out))
    }

    /// Writes a page of tasks, as the response to `ListTasks`.
    pub fn write_task_list(self, list: &ListTasksResponse) -> Box<RawValue> {
        self.write(list, |out| task::write_task_list(self, list, out))
    }

    /// Writes a value in the format of 1.0 if this dialect is 1.0; otherwise `older` writes it.
    fn write(
        self,
        value: &impl WireType,
        older: impl FnOnce(&mut JsonWriter<'_>),
    ) -> Box<RawValue> {
        if self == Self::V10 {
            value.to_raw()
        } else {
            write_json(older)
        }
    }

    /// Creates a writer for the events of one stream.
    pub fn event_writer(self) -> EventWriter {
        EventWriter {
            dialect: self,
            artifacts: Vec::new(),
        }
    }

    /// Writes a push configuration with its task's id.
    pub fn write_push_config(self, config: &TaskPushNotificationConfig) -> Box<RawValue> {
        self.write(config, |out| write_task_push(self, config, out))
    }

    /// Writes a page of a task's push configurations.
    pub fn write_push_configs(
        self,
        configs: &ListTaskPushNotificationConfigsResponse,
    ) -> Box<RawValue> {
        self.write(configs, |out| write_push_list(self, configs, out))
    }

    /// Writes the response to `DeleteTaskPushNotificationConfig`: an empty object, or `null` over
    /// JSON-RPC before 1.0.
    pub fn write_deleted(self) -> Box<RawValue> {
        match self {
            Self::V10 | Self::V03Rest => RawObject::new().to_raw(),
            Self::V03 | Self::V01 => RawValue::NULL.to_owned(),
        }
    }

    /// Writes a card in the format of this version only. See also [`Dialect::write_hybrid_card`].
    pub fn write_card(self, card: &AgentCard) -> Box<RawValue> {
        match self {
            Self::V10 => card.to_raw(),
            Self::V03 | Self::V03Rest => card::write_card_03(card).to_raw(),
            Self::V01 => card::write_card_01(card).to_raw(),
        }
    }

    /// Writes a card that readers of all versions understand, for clients that don't state their
    /// version.
    pub fn write_hybrid_card(card: &AgentCard) -> Box<RawValue> {
        card::write_hybrid(card)
    }

    /// Writes an error as a JSON-RPC error object. An A2A error code that this version doesn't
    /// define is replaced by that of `UnsupportedOperation`.
    pub fn write_error(self, error: &A2aError) -> RpcError {
        let details = error.all_details();
        let data = match self {
            Self::V10 => (!details.is_empty()).then(|| to_raw_value(&details).unwrap_or_default()),
            _ => details.first().map(RawObject::to_raw),
        };
        RpcError {
            data,
            ..RpcError::new(self.error_code(error.kind), error.message.clone())
        }
    }

    /// Writes an error as the body of an HTTP+JSON response. The response's status is
    /// [`ErrorKind::http_status`].
    pub fn write_http_error(self, error: &A2aError) -> Box<RawValue> {
        if self != Self::V10 {
            let RpcError {
                code,
                message,
                data,
                ..
            } = self.write_error(error);
            let mut object = RawObject::single("code", code).with("message", message);
            if let Some(data) = data {
                object.set_raw("data", data);
            }
            return object.to_raw();
        }
        let status = RawObject::single("code", error.kind.http_status())
            .with("status", error.kind.grpc_status())
            .with("message", &error.message)
            .with("details", error.all_details());
        RawObject::single("error", status).to_raw()
    }

    /// Returns the JSON-RPC code of an error kind. An A2A error code that this version doesn't
    /// define is replaced by that of `UnsupportedOperation`.
    fn error_code(self, kind: ErrorKind) -> i64 {
        const LAST_OF_03: i64 = -32_007;
        const LAST_OF_01: i64 = -32_004;
        let last = match self {
            Self::V10 => return kind.code(),
            Self::V03 | Self::V03Rest => LAST_OF_03,
            Self::V01 => LAST_OF_01,
        };
        let is_ours = (-32_099..=-32_000).contains(&kind.code());
        if is_ours && kind.code() < last {
            ErrorKind::UnsupportedOperation.code()
        } else {
            kind.code()
        }
    }

    /// Reads the response to `SendMessage`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidAgentResponse`], which names the field.
    pub fn read_send_response(self, result: &RawValue) -> Result<SendMessageResponse, A2aError> {
        if self == Self::V01 {
            return self.read_task(result).map(SendMessageResponse::Task);
        }
        let mut response = agent_response(SendMessageResponse::from_raw(result))?;
        match &mut response {
            SendMessageResponse::Task(task) => task::upgrade_task(self, task),
            SendMessageResponse::Message(message) => task::upgrade_message(self, message),
        }
        Ok(response)
    }

    /// Reads a task, as the response to `GetTask` and `CancelTask`.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_task(self, result: &RawValue) -> Result<A2aTask, A2aError> {
        let mut task = agent_response(A2aTask::from_raw(result))?;
        task::upgrade_task(self, &mut task);
        Ok(task)
    }

    /// Reads a page of tasks, as the response to `ListTasks`.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_task_list(self, result: &RawValue) -> Result<ListTasksResponse, A2aError> {
        let mut list = agent_response(ListTasksResponse::from_raw(result))?;
        list.tasks
            .iter_mut()
            .for_each(|task| task::upgrade_task(self, task));
        Ok(list)
    }

    /// Reads an event of a stream, or the body of a push notification.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_event(self, event: &RawValue) -> Result<StreamResponse, A2aError> {
        let mut read = agent_response(StreamResponse::from_raw(event))?;
        task::upgrade_event(self, &mut read, event);
        Ok(read)
    }

    /// Reads a card that is written in any version or a mix of versions. Interfaces and security
    /// schemes in older formats are converted to 1.0, and are placed after those in the format of
    /// 1.0.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_card(card: &RawValue) -> Result<AgentCard, A2aError> {
        agent_response(card::read_card(card))
    }

    /// Reads a JSON-RPC error of any version. Its kind is determined by the `reason` in its
    /// details, else by its code. An unknown error is of kind [`ErrorKind::Internal`].
    pub fn read_error(error: &RpcError) -> A2aError {
        let details = error.data.as_deref().map(parse_details).unwrap_or_default();
        build_error(
            ErrorKind::from_code(error.code),
            error.message.clone(),
            details,
        )
    }

    /// Reads an error from the body of an HTTP+JSON response; `None` if the body isn't an A2A
    /// error. Its kind is determined by the `reason` in its details, else by its code or the HTTP
    /// `status`.
    pub fn read_http_error(status: u16, body: &RawValue) -> Option<A2aError> {
        let object = RawObject::parse(body).ok()?;
        let object = object.object("error").unwrap_or(object);
        let details = object
            .get("details")
            .or_else(|| object.get("data"))
            .map(parse_details)
            .unwrap_or_default();
        let of_code = object.read::<i64>("code").and_then(ErrorKind::from_code);
        let grpc = object.text("status").unwrap_or_default();
        let mut fitting = ErrorKind::ALL
            .into_iter()
            .rev()
            .filter(|kind| kind.http_status() == status);
        let of_status = || match status {
            400 => Some(ErrorKind::InvalidParams),
            _ => fitting
                .clone()
                .find(|kind| kind.grpc_status() == grpc)
                .or_else(|| fitting.next()),
        };
        let message = object.text("message").or_else(|| object.text("detail"))?;
        Some(build_error(of_code.or_else(of_status), message, details))
    }
}

fn agent_response<T>(read: Result<T, ReadError>) -> Result<T, A2aError> {
    read.map_err(|error| A2aError {
        kind: ErrorKind::InvalidAgentResponse,
        ..error.into()
    })
}

/// Returns the details of an error, which are a list or a single object.
fn parse_details(data: &RawValue) -> Vec<RawObject> {
    serde_json::from_str(data.get())
        .or_else(|_| RawObject::parse(data).map(|one| vec![one]))
        .unwrap_or_default()
}

fn build_error(kind: Option<ErrorKind>, message: String, mut details: Vec<RawObject>) -> A2aError {
    let is_info = |object: &RawObject| object.text("@type").as_deref() == Some(ERROR_INFO);
    let info = details
        .iter()
        .position(is_info)
        .map(|at| details.remove(at))
        .unwrap_or_default();
    let of_reason = info
        .text("reason")
        .and_then(|reason| ErrorKind::from_reason(&reason));
    let task = info
        .object("metadata")
        .and_then(|metadata| metadata.text("taskId"));
    A2aError {
        kind: of_reason.or(kind).unwrap_or(ErrorKind::Internal),
        message,
        details,
        task,
        retry_after_s: None,
    }
}

/// Writer for the events of one stream, in order. Its state is the numbering of artifacts, which
/// 0.1 requires.
#[derive(Debug)]
pub struct EventWriter {
    dialect: Dialect,
    /// Ids of the stream's artifacts in the order of their first event.
    artifacts: Vec<String>,
}

impl EventWriter {
    /// Writes the next event. `ends` tells whether it is the stream's last.
    pub fn write(&mut self, event: &StreamResponse, ends: bool) -> Box<RawValue> {
        let Self { dialect, artifacts } = self;
        let written = dialect.write(event, |out| {
            task::write_event(*dialect, event, ends, artifacts, out)
        });
        // 0.3 over HTTP+JSON wraps the object under its name, as 1.0 does.
        let name = match event {
            _ if *dialect != Dialect::V03Rest => return written,
            StreamResponse::Task(_) => "task",
            StreamResponse::Message(_) => "message",
            StreamResponse::StatusUpdate(_) => "statusUpdate",
            StreamResponse::ArtifactUpdate(_) => "artifactUpdate",
        };
        RawObject::single(name, written).to_raw()
    }
}
