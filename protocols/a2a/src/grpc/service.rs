//! The gRPC service: each call as the operation of its name, messages as ProtoJSON and back, errors as statuses.

use std::collections::HashMap;

use a2a_pb::proto::a2a_service_server::A2aService;
use a2a_pb::{proto, protojson};
use callboard_message::RawObject;
use callboard_rpc::{Credential, CredentialError, is_forwarding_header};
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value};
use tonic::metadata::{KeyRef, MetadataMap};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::{BAD_REQUEST, DOMAIN};
use crate::inbound::Front;
use crate::inbound::calls::{Numbered, Who};
use crate::wire::Wire;
use crate::{A2aError, ErrorKind, Operation};

/// What a stream carries.
type Told = BoxStream<'static, Result<proto::StreamResponse, Status>>;

/// A listener's agents as a service.
pub(super) struct Service(pub(super) Front);

impl Service {
    /// Who sends a request, where what it says beside its message can be served, and its message; `J` is the message's type
    /// with the mapping to JSON.
    fn admit<J>(&self, request: &Request<impl Message>) -> Result<(Who, Box<RawValue>), Status>
    where
        J: Message + Default + Serialize,
    {
        let metadata = request.metadata();
        let authorization = authorization(metadata)?;
        let shown = Credential {
            peer: request.remote_addr().map(|address| address.ip()),
            local: request.local_addr().map(|address| address.ip()),
            authorization: authorization.as_deref(),
            is_forwarded: metadata.keys().any(|key| match key {
                KeyRef::Ascii(name) => is_forwarding_header(name.as_str()),
                KeyRef::Binary(_) => false,
            }),
        };
        let trace = text(metadata, "traceparent").and_then(|parent| parent.parse().ok());
        let who = self.0.who(&shown, trace).map_err(of_credential)?;
        let lists = metadata
            .get_all("a2a-extensions")
            .iter()
            .filter_map(|list| list.to_str().ok());
        let extensions: Vec<_> = lists
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .collect();
        let version = text(metadata, "a2a-version").unwrap_or_default();
        self.0.agree(version, &extensions).map_err(of_error)?;
        Ok((who, to_json::<J>(request.get_ref()).ok_or_else(unread)?))
    }

    /// An operation with one answer; `J` and `K` are the types of request and answer that have a mapping to JSON.
    async fn whole<J, K, Q>(
        &self,
        request: Request<impl Message>,
        operation: Operation,
    ) -> Result<Response<Q>, Status>
    where
        J: Message + Default + Serialize,
        K: Message + DeserializeOwned,
        Q: Message + Default,
    {
        let (who, params) = self.admit::<J>(&request)?;
        let answer = self
            .0
            .answer(who, operation, &params)
            .await
            .map_err(of_error)?;
        Ok(Response::new(
            from_json::<K, Q>(&answer).ok_or_else(unwritten)?,
        ))
    }

    async fn events<J>(
        &self,
        request: Request<impl Message>,
        operation: Operation,
    ) -> Result<Response<Told>, Status>
    where
        J: Message + Default + Serialize,
    {
        let (who, params) = self.admit::<J>(&request)?;
        let events = self
            .0
            .events(who, operation, &params)
            .await
            .map_err(of_error)?;
        Ok(Response::new(events.map(told).boxed()))
    }
}

fn told(event: Result<Numbered, A2aError>) -> Result<proto::StreamResponse, Status> {
    let event = event.map_err(of_error)?;
    from_json::<protojson::StreamResponse, _>(&event.event.to_raw()).ok_or_else(unwritten)
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::trim)
}

/// The one credential that a call shows: `authorization`, or a key as `x-api-key`.
fn authorization(metadata: &MetadataMap) -> Result<Option<Vec<u8>>, Status> {
    let of = |name| {
        metadata
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes().to_vec())
            .collect::<Vec<_>>()
    };
    match (&*of("authorization"), &*of("x-api-key")) {
        ([], []) => Ok(None),
        ([shown], []) => Ok(Some(shown.clone())),
        ([], [key]) => Ok(Some([b"Bearer ", &**key].concat())),
        _ => Err(Status::invalid_argument(
            "send one credential: `authorization` or `x-api-key`",
        )),
    }
}

/// What a client sent is no JSON: a number that isn't finite, a state that nobody knows.
fn unread() -> Status {
    of_error(ErrorKind::InvalidParams.error("the message has no meaning as JSON"))
}

fn unwritten() -> Status {
    callboard_message::log::error!("an answer can't be told over gRPC");
    of_error(A2aError::internal())
}

#[tonic::async_trait]
impl A2aService for Service {
    type SendStreamingMessageStream = Told;
    type SubscribeToTaskStream = Told;

    async fn send_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<proto::SendMessageResponse>, Status> {
        self.whole::<protojson::SendMessageRequest, protojson::SendMessageResponse, _>(
            request,
            Operation::SendMessage,
        )
        .await
    }

    async fn send_streaming_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<Told>, Status> {
        self.events::<protojson::SendMessageRequest>(request, Operation::SendStreamingMessage)
            .await
    }

    async fn get_task(
        &self,
        request: Request<proto::GetTaskRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        self.whole::<protojson::GetTaskRequest, protojson::Task, _>(request, Operation::GetTask)
            .await
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        self.whole::<protojson::ListTasksRequest, protojson::ListTasksResponse, _>(
            request,
            Operation::ListTasks,
        )
        .await
    }

    async fn cancel_task(
        &self,
        request: Request<proto::CancelTaskRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        self.whole::<protojson::CancelTaskRequest, protojson::Task, _>(
            request,
            Operation::CancelTask,
        )
        .await
    }

    async fn subscribe_to_task(
        &self,
        request: Request<proto::SubscribeToTaskRequest>,
    ) -> Result<Response<Told>, Status> {
        self.events::<protojson::SubscribeToTaskRequest>(request, Operation::SubscribeToTask)
            .await
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<proto::TaskPushNotificationConfig>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.whole::<protojson::TaskPushNotificationConfig, protojson::TaskPushNotificationConfig, _>(
            request,
            Operation::CreateTaskPushNotificationConfig,
        )
        .await
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<proto::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.whole::<protojson::GetTaskPushNotificationConfigRequest, protojson::TaskPushNotificationConfig, _>(
            request,
            Operation::GetTaskPushNotificationConfig,
        )
        .await
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<proto::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<proto::ListTaskPushNotificationConfigsResponse>, Status> {
        type Asked = protojson::ListTaskPushNotificationConfigsRequest;
        type Listed = protojson::ListTaskPushNotificationConfigsResponse;
        self.whole::<Asked, Listed, _>(request, Operation::ListTaskPushNotificationConfigs)
            .await
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<proto::GetExtendedAgentCardRequest>,
    ) -> Result<Response<proto::AgentCard>, Status> {
        self.whole::<protojson::GetExtendedAgentCardRequest, protojson::AgentCard, _>(
            request,
            Operation::GetExtendedAgentCard,
        )
        .await
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<proto::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let (who, params) =
            self.admit::<protojson::DeleteTaskPushNotificationConfigRequest>(&request)?;
        self.0
            .answer(who, Operation::DeleteTaskPushNotificationConfig, &params)
            .await
            .map_err(of_error)?;
        Ok(Response::new(()))
    }
}

/// The JSON of a message; `J` is its type with the mapping. `None` where JSON has no words for it.
fn to_json<J: Message + Default + Serialize>(message: &impl Message) -> Option<Box<RawValue>> {
    let mapped = J::decode(&*message.encode_to_vec()).ok()?;
    let mut json = serde_json::to_value(&mapped).ok()?;
    whole_numbers(&mut json);
    to_raw_value(&json).ok()
}

/// Protobuf's values have no integers: `20` comes as `20.0`, which no integer of ours would read. (How deep a message goes is
/// bounded by its decoder.)
fn whole_numbers(json: &mut Value) {
    match json {
        Value::Array(entries) => entries.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = number
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() <= EXACT_MAX)
            {
                // It is exact there.
                *number = Number::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Up to here every integer is a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The message of a JSON; `J` is its type with the mapping. `None` where Protobuf has no words for it.
fn from_json<J: Message + DeserializeOwned, P: Message + Default>(json: &RawValue) -> Option<P> {
    let mapped: J = serde_json::from_str(json.get()).ok()?;
    P::decode(&*mapped.encode_to_vec()).ok()
}

/// An error of an operation.
fn of_error(error: A2aError) -> Status {
    let metadata: HashMap<_, _> = error
        .task
        .into_iter()
        .map(|task| ("taskId".to_owned(), task))
        .collect();
    let mut details = ErrorDetails::with_error_info(error.kind.reason(), DOMAIN, metadata);
    let violations = error
        .details
        .iter()
        .filter(|detail| detail.text("@type").as_deref() == Some(BAD_REQUEST));
    for violation in violations.flat_map(|detail| {
        detail
            .read::<Vec<RawObject>>("fieldViolations")
            .unwrap_or_default()
    }) {
        let text = |name| violation.text(name).unwrap_or_default();
        details.add_bad_request_violation(text("field"), text("description"));
    }
    Status::with_error_details(code(error.kind), error.message, details)
}

/// Nobody knows who asks.
fn of_credential(error: CredentialError) -> Status {
    let code = match error {
        CredentialError::Unavailable => Code::Unavailable,
        CredentialError::Forwarded => Code::PermissionDenied,
        _ => Code::Unauthenticated,
    };
    Status::new(code, error.to_string())
}

fn code(kind: ErrorKind) -> Code {
    match kind.grpc() {
        "NOT_FOUND" => Code::NotFound,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "UNIMPLEMENTED" => Code::Unimplemented,
        "UNAVAILABLE" => Code::Unavailable,
        "PERMISSION_DENIED" => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind has the gRPC code of its name. Method: the table.
    #[test]
    fn codes_are_those_of_their_names() {
        for kind in ErrorKind::ALL {
            let name = format!("{:?}", code(kind)).to_uppercase();
            assert_eq!(name, kind.grpc().replace('_', ""), "{kind:?}");
        }
    }
}
