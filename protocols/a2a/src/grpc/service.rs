//! The gRPC service: converts each call to an operation, its message to ProtoJSON and back, and
//! errors to statuses.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use a2a_pb::proto::a2a_service_server::A2aService;
use a2a_pb::{proto, protojson};
use callboard_message::RawObject;
use callboard_rpc::serve::client_address::{FORWARDED_FOR, TrustedProxies};
use callboard_rpc::serve::{CREDENTIAL_ENDED_MESSAGE, CredentialWatch};
use callboard_rpc::{
    AuthFailureResponse, AuthFailures, CredentialError, PresentedCredential, is_forwarding_header,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value};
use tonic::metadata::{KeyRef, MetadataMap};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::ConnectionInfo;
use crate::error::{BAD_REQUEST, ERROR_DOMAIN};
use crate::inbound::binding_api::{AddressedRequest, negotiate, request_context};
use crate::inbound::calls::{NumberedEvent, RequestContext};
use crate::inbound::{A2aOptions, AddressRouter};
use crate::wire::WireType;
use crate::{A2aError, ErrorKind, Operation};

/// Stream of events for a streaming call.
type ResponseStream = BoxStream<'static, Result<proto::StreamResponse, Status>>;

/// gRPC service for all agents of a listener.
pub(super) struct GrpcService {
    pub(super) router: AddressRouter,
    pub(super) auth_failures: Arc<AuthFailures>,
    /// Reverse proxies whose `X-Forwarded-For` names the client.
    pub(super) proxies: TrustedProxies,
}

impl GrpcService {
    /// Returns the credential of a request, whose value for `Authorization` is `authorization`, with
    /// the data of its connection.
    fn credential<'a, M>(
        &self,
        request: &'a Request<M>,
        authorization: Option<&'a [u8]>,
    ) -> PresentedCredential<'a> {
        let metadata = request.metadata();
        let values = metadata.get_all(FORWARDED_FOR);
        let values = values.iter().map(|value| value.as_bytes());
        let connection = request.extensions().get::<ConnectionInfo>();
        let peer = connection.map(|connection| connection.client_address(&self.proxies, values));
        let local = connection.and_then(|connection| connection.local);
        PresentedCredential {
            peer,
            local: local.map(|local| local.ip()),
            authorization,
            certificate: connection.and_then(|connection| connection.certificate.as_ref()),
            is_forwarded: metadata.keys().any(|key| match key {
                KeyRef::Ascii(name) => is_forwarding_header(name.as_str()),
                KeyRef::Binary(_) => false,
            }),
        }
    }

    /// Authenticates a request by the rules of a server, and checks its protocol version and extensions. A
    /// rejected credential is delayed if its address fails too often.
    async fn admit(
        &self,
        options: &A2aOptions,
        metadata: &MetadataMap,
        shown: &PresentedCredential<'_>,
    ) -> Result<RequestContext, Status> {
        let who = self.authenticate(options, metadata, shown).await?;
        let lists = metadata
            .get_all("a2a-extensions")
            .iter()
            .filter_map(|list| list.to_str().ok());
        let extensions: Vec<_> = lists
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .collect();
        let version = metadata_text(metadata, "a2a-version").unwrap_or_default();
        negotiate(options, version, &extensions).map_err(error_status)?;
        Ok(who.with_extensions(extensions.into_iter()))
    }

    async fn authenticate(
        &self,
        options: &A2aOptions,
        metadata: &MetadataMap,
        shown: &PresentedCredential<'_>,
    ) -> Result<RequestContext, Status> {
        options.access.prepare(shown).await;
        let trace = metadata_text(metadata, "traceparent").and_then(|parent| parent.parse().ok());
        let error = match request_context(options, shown, trace) {
            Ok(who) => return Ok(who),
            Err(error) => error,
        };
        Err(match self.auth_failures.penalize(shown.peer, error).await {
            AuthFailureResponse::Reject => credential_status(error),
            AuthFailureResponse::TooMany => Status::resource_exhausted(
                "too many requests with a wrong key: send a valid one, later",
            ),
        })
    }

    /// Admits a request by the rules of the agent that its tenant names; of an unknown tenant, by those of
    /// the address. Returns its context and what it asks for. `J` is the message's type that implements the
    /// mapping to ProtoJSON.
    async fn accept_request<J, M>(
        &self,
        request: &Request<M>,
        operation: Operation,
    ) -> Result<(RequestContext, AddressedRequest), Status>
    where
        J: Message + Default + Serialize,
        M: Message,
    {
        let metadata = request.metadata();
        let authorization = authorization(metadata)?;
        let shown = self.credential(request, authorization.as_deref());
        let params = to_json::<J>(request.get_ref()).ok_or_else(unreadable_request);
        let asked = params.and_then(|params| {
            let asked = self.router.address(operation, &params);
            asked.map_err(error_status)
        });
        let options = match &asked {
            Ok(asked) => asked.options(),
            // Whoever isn't admitted learns nothing of what is wrong.
            Err(_) => self.router.options(),
        };
        let who = self.admit(options, metadata, &shown).await?;
        Ok((who, asked?))
    }

    /// Performs an operation with a single response. `J` and `K` are the types of request and
    /// response that implement the mapping to ProtoJSON.
    async fn call_unary<J, K, Q>(
        &self,
        request: Request<impl Message>,
        operation: Operation,
    ) -> Result<Response<Q>, Status>
    where
        J: Message + Default + Serialize,
        K: Message + DeserializeOwned,
        Q: Message + Default,
    {
        let (who, asked) = self.accept_request::<J, _>(&request, operation).await?;
        let answer = asked.call_unary(who).await.map_err(error_status)?;
        Ok(Response::new(
            from_json::<K, Q>(&answer).ok_or_else(unencodable_response)?,
        ))
    }

    async fn call_streaming<J>(
        &self,
        request: Request<impl Message>,
        operation: Operation,
    ) -> Result<Response<ResponseStream>, Status>
    where
        J: Message + Default + Serialize,
    {
        let (who, asked) = self.accept_request::<J, _>(&request, operation).await?;
        let authorization = authorization(request.metadata())?;
        let shown = self.credential(&request, authorization.as_deref());
        let standing = CredentialWatch::of_credential(&shown, &asked.options().access);
        let events = asked.call_streaming(who).await.map_err(error_status)?;
        let events = events.map(encode_event).boxed();
        Ok(Response::new(end_with_credential(events, standing)))
    }
}

/// Returns the stream, which ends with `UNAUTHENTICATED` once its credential isn't valid any more.
fn end_with_credential(events: ResponseStream, mut standing: CredentialWatch) -> ResponseStream {
    let mut events = Some(events);
    let events = stream::poll_fn(move |cx| {
        let Some(open) = &mut events else {
            return Poll::Ready(None);
        };
        if standing.poll_revoked(cx).is_ready() {
            events = None;
            let ended = Status::unauthenticated(CREDENTIAL_ENDED_MESSAGE);
            return Poll::Ready(Some(Err(ended)));
        }
        open.poll_next_unpin(cx)
    });
    events.boxed()
}

fn encode_event(event: Result<NumberedEvent, A2aError>) -> Result<proto::StreamResponse, Status> {
    let event = event.map_err(error_status)?;
    from_json::<protojson::StreamResponse, _>(&event.event.to_raw())
        .ok_or_else(unencodable_response)
}

fn metadata_text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::trim)
}

/// Returns the credential of a call as a value for `Authorization`: from the metadata
/// `authorization`, or an API key from `x-api-key`. Fails if there is more than one credential.
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

/// Returns the status for a request that can't be converted to JSON, for example because it
/// contains an infinite number or an unknown task state.
fn unreadable_request() -> Status {
    error_status(ErrorKind::InvalidParams.error(
        "the message can't be converted to JSON: send only finite numbers and known task states",
    ))
}

fn unencodable_response() -> Status {
    callboard_message::log::error!("failed to encode a response for gRPC");
    error_status(A2aError::internal())
}

#[tonic::async_trait]
impl A2aService for GrpcService {
    type SendStreamingMessageStream = ResponseStream;
    type SubscribeToTaskStream = ResponseStream;

    async fn send_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<proto::SendMessageResponse>, Status> {
        self.call_unary::<protojson::SendMessageRequest, protojson::SendMessageResponse, _>(
            request,
            Operation::SendMessage,
        )
        .await
    }

    async fn send_streaming_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        self.call_streaming::<protojson::SendMessageRequest>(
            request,
            Operation::SendStreamingMessage,
        )
        .await
    }

    async fn get_task(
        &self,
        request: Request<proto::GetTaskRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        self.call_unary::<protojson::GetTaskRequest, protojson::Task, _>(
            request,
            Operation::GetTask,
        )
        .await
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        self.call_unary::<protojson::ListTasksRequest, protojson::ListTasksResponse, _>(
            request,
            Operation::ListTasks,
        )
        .await
    }

    async fn cancel_task(
        &self,
        request: Request<proto::CancelTaskRequest>,
    ) -> Result<Response<proto::Task>, Status> {
        self.call_unary::<protojson::CancelTaskRequest, protojson::Task, _>(
            request,
            Operation::CancelTask,
        )
        .await
    }

    async fn subscribe_to_task(
        &self,
        request: Request<proto::SubscribeToTaskRequest>,
    ) -> Result<Response<ResponseStream>, Status> {
        self.call_streaming::<protojson::SubscribeToTaskRequest>(
            request,
            Operation::SubscribeToTask,
        )
        .await
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<proto::TaskPushNotificationConfig>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.call_unary::<protojson::TaskPushNotificationConfig, protojson::TaskPushNotificationConfig, _>(
            request,
            Operation::CreateTaskPushNotificationConfig,
        )
        .await
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<proto::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.call_unary::<protojson::GetTaskPushNotificationConfigRequest, protojson::TaskPushNotificationConfig, _>(
            request,
            Operation::GetTaskPushNotificationConfig,
        )
        .await
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<proto::ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<proto::ListTaskPushNotificationConfigsResponse>, Status> {
        type ListRequest = protojson::ListTaskPushNotificationConfigsRequest;
        type ListResponse = protojson::ListTaskPushNotificationConfigsResponse;
        self.call_unary::<ListRequest, ListResponse, _>(
            request,
            Operation::ListTaskPushNotificationConfigs,
        )
        .await
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<proto::GetExtendedAgentCardRequest>,
    ) -> Result<Response<proto::AgentCard>, Status> {
        self.call_unary::<protojson::GetExtendedAgentCardRequest, protojson::AgentCard, _>(
            request,
            Operation::GetExtendedAgentCard,
        )
        .await
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<proto::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let operation = Operation::DeleteTaskPushNotificationConfig;
        let (who, asked) = self
            .accept_request::<protojson::DeleteTaskPushNotificationConfigRequest, _>(
                &request, operation,
            )
            .await?;
        asked.call_unary(who).await.map_err(error_status)?;
        Ok(Response::new(()))
    }
}

/// Converts a message to JSON; `None` if it has no JSON form. `J` is the message's type that
/// implements the mapping to ProtoJSON.
fn to_json<J: Message + Default + Serialize>(message: &impl Message) -> Option<Box<RawValue>> {
    let mapped = J::decode(&*message.encode_to_vec()).ok()?;
    let mut json = serde_json::to_value(&mapped).ok()?;
    normalize_integers(&mut json);
    to_raw_value(&json).ok()
}

/// Replaces floats with integer values by integers. Protobuf's `Value` has only doubles, so `20`
/// arrives as `20.0`, which integer fields reject. Recursion is bounded, because the message's
/// decoder limits its depth.
fn normalize_integers(json: &mut Value) {
    match json {
        Value::Array(entries) => entries.iter_mut().for_each(normalize_integers),
        Value::Object(members) => members.values_mut().for_each(normalize_integers),
        Value::Number(number) => {
            if let Some(whole) = number
                .as_f64()
                .filter(|n| n.fract() == 0.0 && n.abs() <= EXACT_INTEGER_MAX)
            {
                *number = Number::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Largest magnitude up to which a double represents every integer exactly.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Converts JSON to a message; `None` if the JSON doesn't fit. `J` is the message's type that
/// implements the mapping to ProtoJSON.
fn from_json<J: Message + DeserializeOwned, P: Message + Default>(json: &RawValue) -> Option<P> {
    let mapped: J = serde_json::from_str(json.get()).ok()?;
    P::decode(&*mapped.encode_to_vec()).ok()
}

/// Converts an error of an A2A operation to a gRPC status with details.
fn error_status(error: A2aError) -> Status {
    let metadata: HashMap<_, _> = error
        .task
        .into_iter()
        .map(|task| ("taskId".to_owned(), task))
        .collect();
    let mut details = ErrorDetails::with_error_info(error.kind.reason(), ERROR_DOMAIN, metadata);
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
    if let Some(seconds) = error.retry_after_s {
        details.set_retry_info(Some(Duration::from_secs(seconds)));
    }
    Status::with_error_details(grpc_code(error.kind), error.message, details)
}

/// Converts an authentication error to a gRPC status.
fn credential_status(error: CredentialError) -> Status {
    let code = match error {
        CredentialError::Unavailable => Code::Unavailable,
        CredentialError::Forwarded | CredentialError::InsufficientScope => Code::PermissionDenied,
        _ => Code::Unauthenticated,
    };
    Status::new(code, error.to_string())
}

fn grpc_code(kind: ErrorKind) -> Code {
    match kind.grpc_status() {
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

    /// Goal: a refused client hears when it may come again. Method: an error with a time and one without.
    #[test]
    fn details_have_the_time_to_wait() {
        for retry_after_s in [Some(7), None] {
            let error = A2aError {
                retry_after_s,
                ..ErrorKind::Overloaded.error("later")
            };
            let details = error_status(error).get_error_details();
            let delay = details.retry_info().and_then(|info| info.retry_delay);
            assert_eq!(delay, retry_after_s.map(Duration::from_secs));
        }
    }

    /// Goal: every kind has the gRPC code of its status name. Method: all kinds.
    #[test]
    fn codes_are_those_of_their_names() {
        for kind in ErrorKind::ALL {
            let name = format!("{:?}", grpc_code(kind)).to_uppercase();
            assert_eq!(name, kind.grpc_status().replace('_', ""), "{kind:?}");
        }
    }
}
