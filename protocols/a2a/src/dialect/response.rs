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
    /// The answer to `SendMessage`.
    pub fn write_send_response(self, response: &SendMessageResponse) -> Box<RawValue> {
        match (self, response) {
            (Self::V10, _) => response.to_raw(),
            (Self::V01, SendMessageResponse::Task(task)) => self.write_task(task),
            (Self::V01, SendMessageResponse::Message(message)) => {
                self.write_task(&task::task_of_message(message))
            }
            (Self::V03 | Self::V03Rest, _) => self.events().write(&response.clone().into(), false),
        }
    }

    /// A task by itself.
    pub fn write_task(self, task: &Task) -> Box<RawValue> {
        self.write(task, |out| task::write_task(self, task, None, out))
    }

    /// A page of tasks.
    pub fn write_task_list(self, list: &ListTasksResponse) -> Box<RawValue> {
        self.write(list, |out| task::write_task_list(self, list, out))
    }

    /// 1.0's words for a value, or what `older` writes.
    fn write(self, value: &impl Wire, older: impl FnOnce(&mut Writer<'_>)) -> Box<RawValue> {
        if self == Self::V10 {
            value.to_raw()
        } else {
            written(older)
        }
    }

    /// Writes the events of one stream.
    pub fn events(self) -> EventWriter {
        EventWriter {
            dialect: self,
            artifacts: Vec::new(),
        }
    }

    /// A push configuration.
    pub fn write_push_config(self, config: &TaskPushNotificationConfig) -> Box<RawValue> {
        self.write(config, |out| write_task_push(self, config, out))
    }

    /// The push configurations of a task.
    pub fn write_push_configs(
        self,
        configs: &ListTaskPushNotificationConfigsResponse,
    ) -> Box<RawValue> {
        self.write(configs, |out| write_push_list(self, configs, out))
    }

    /// What answers `DeleteTaskPushNotificationConfig`.
    pub fn write_deleted(self) -> Box<RawValue> {
        match self {
            Self::V10 | Self::V03Rest => RawObject::new().to_raw(),
            Self::V03 | Self::V01 => RawValue::NULL.to_owned(),
        }
    }

    /// A card of one version. (One of all is [`Dialect::write_hybrid_card`]'s.)
    pub fn write_card(self, card: &AgentCard) -> Box<RawValue> {
        match self {
            Self::V10 => card.to_raw(),
            Self::V03 | Self::V03Rest => card::write_card_03(card).to_raw(),
            Self::V01 => card::write_card_01(card).to_raw(),
        }
    }

    /// A card in the words of all versions at once: for who didn't say which it reads.
    pub fn write_hybrid_card(card: &AgentCard) -> Box<RawValue> {
        card::write_hybrid(card)
    }

    /// An error over JSON-RPC.
    pub fn write_error(self, error: &A2aError) -> RpcError {
        let details = error.all_details();
        let data = match self {
            Self::V10 => (!details.is_empty()).then(|| to_raw_value(&details).unwrap_or_default()),
            _ => details.first().map(RawObject::to_raw),
        };
        RpcError {
            code: self.code(error.kind),
            message: error.message.clone(),
            data,
        }
    }

    /// An error over HTTP+JSON, whose status is [`ErrorKind::http`].
    pub fn write_http_error(self, error: &A2aError) -> Box<RawValue> {
        if self != Self::V10 {
            let RpcError {
                code,
                message,
                data,
            } = self.write_error(error);
            let mut object = RawObject::of("code", code).with("message", message);
            if let Some(data) = data {
                object.set_raw("data", data);
            }
            return object.to_raw();
        }
        let status = RawObject::of("code", error.kind.http())
            .with("status", error.kind.grpc())
            .with("message", &error.message)
            .with("details", error.all_details());
        RawObject::of("error", status).to_raw()
    }

    /// Codes that a version lacks are `UnsupportedOperation` in it.
    fn code(self, kind: ErrorKind) -> i64 {
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

    /// What answers `SendMessage`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidAgentResponse`] names the field; so with all that read responses.
    pub fn read_send_response(self, result: &RawValue) -> Result<SendMessageResponse, A2aError> {
        if self == Self::V01 {
            return self.read_task(result).map(SendMessageResponse::Task);
        }
        let mut response = answer(SendMessageResponse::from_raw(result))?;
        match &mut response {
            SendMessageResponse::Task(task) => task::settle_task(self, task),
            SendMessageResponse::Message(message) => task::settle_message(self, message),
        }
        Ok(response)
    }

    /// A task by itself.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_task(self, result: &RawValue) -> Result<Task, A2aError> {
        let mut task = answer(Task::from_raw(result))?;
        task::settle_task(self, &mut task);
        Ok(task)
    }

    /// A page of tasks.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_task_list(self, result: &RawValue) -> Result<ListTasksResponse, A2aError> {
        let mut list = answer(ListTasksResponse::from_raw(result))?;
        list.tasks
            .iter_mut()
            .for_each(|task| task::settle_task(self, task));
        Ok(list)
    }

    /// An event of a stream, or the body of a push.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_event(self, event: &RawValue) -> Result<StreamResponse, A2aError> {
        let mut read = answer(StreamResponse::from_raw(event))?;
        task::settle_event(self, &mut read, event);
        Ok(read)
    }

    /// A card of any version, or of several: what older ones say becomes interfaces and schemes of 1.0, after those that
    /// the card has itself.
    ///
    /// # Errors
    /// As [`Dialect::read_send_response`].
    pub fn read_card(card: &RawValue) -> Result<AgentCard, A2aError> {
        answer(card::read_card(card))
    }

    /// An error of any version: of its reason, else of its code.
    pub fn read_error(error: &RpcError) -> A2aError {
        let details = error.data.as_deref().map(details).unwrap_or_default();
        read_error(
            ErrorKind::of_code(error.code),
            error.message.clone(),
            details,
        )
    }

    /// The same from an HTTP+JSON response. `None` where the body is no error of A2A's: then its status decides.
    pub fn read_http_error(status: u16, body: &RawValue) -> Option<A2aError> {
        let object = RawObject::parse(body).ok()?;
        let object = object.object("error").unwrap_or(object);
        let details = object
            .get("details")
            .or_else(|| object.get("data"))
            .map(details)
            .unwrap_or_default();
        let of_code = object.read::<i64>("code").and_then(ErrorKind::of_code);
        let grpc = object.text("status").unwrap_or_default();
        let mut fitting = ErrorKind::ALL
            .into_iter()
            .rev()
            .filter(|kind| kind.http() == status);
        let of_status = || match status {
            400 => Some(ErrorKind::InvalidParams),
            _ => fitting
                .clone()
                .find(|kind| kind.grpc() == grpc)
                .or_else(|| fitting.next()),
        };
        let message = object.text("message").or_else(|| object.text("detail"))?;
        Some(read_error(of_code.or_else(of_status), message, details))
    }
}

fn answer<T>(read: Result<T, ReadError>) -> Result<T, A2aError> {
    read.map_err(|error| A2aError {
        kind: ErrorKind::InvalidAgentResponse,
        ..error.into()
    })
}

/// A list of details, or one.
fn details(data: &RawValue) -> Vec<RawObject> {
    serde_json::from_str(data.get())
        .or_else(|_| RawObject::parse(data).map(|one| vec![one]))
        .unwrap_or_default()
}

fn read_error(kind: Option<ErrorKind>, message: String, mut details: Vec<RawObject>) -> A2aError {
    let is_info = |object: &RawObject| object.text("@type").as_deref() == Some(ERROR_INFO);
    let info = details
        .iter()
        .position(is_info)
        .map(|at| details.remove(at))
        .unwrap_or_default();
    let of_reason = info
        .text("reason")
        .and_then(|reason| ErrorKind::of_reason(&reason));
    let task = info
        .object("metadata")
        .and_then(|metadata| metadata.text("taskId"));
    A2aError {
        kind: of_reason.or(kind).unwrap_or(ErrorKind::Internal),
        message,
        details,
        task,
    }
}

/// Writes the events of one stream, in order: 0.1 counts artifacts.
#[derive(Debug)]
pub struct EventWriter {
    dialect: Dialect,
    /// Ids of the artifacts so far, in the order of first sight.
    artifacts: Vec<String>,
}

impl EventWriter {
    /// An event. `ends` says whether it is the stream's last.
    pub fn write(&mut self, event: &StreamResponse, ends: bool) -> Box<RawValue> {
        let Self { dialect, artifacts } = self;
        let written = dialect.write(event, |out| {
            task::write_event(*dialect, event, ends, artifacts, out)
        });
        // 0.3 over HTTP+JSON has the object under its name, as 1.0 does.
        let name = match event {
            _ if *dialect != Dialect::V03Rest => return written,
            StreamResponse::Task(_) => "task",
            StreamResponse::Message(_) => "message",
            StreamResponse::StatusUpdate(_) => "statusUpdate",
            StreamResponse::ArtifactUpdate(_) => "artifactUpdate",
        };
        RawObject::of(name, written).to_raw()
    }
}
