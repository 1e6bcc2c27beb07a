//! The service: each call as the operation of its name.

use a2a_pb::proto::a2a_service_server::A2aService;
use a2a_pb::{proto, protojson};
use callboard_rpc::{Credential, is_forwarding_header};
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::metadata::{KeyRef, MetadataMap};
use tonic::{Request, Response, Status};

use super::convert::{NoWords, from_json, to_json};
use super::status::{of_credential, of_error};
use crate::inbound::calls::{Numbered, Who};
use crate::inbound::direct::Direct;
use crate::wire::Wire;
use crate::{A2aError, ErrorKind, Operation};

/// What a stream carries.
type Told = BoxStream<'static, Result<proto::StreamResponse, Status>>;

/// A listener's agents as a service.
pub(super) struct Service {
    direct: Direct,
}

impl Service {
    pub(super) fn new(direct: Direct) -> Self {
        Self { direct }
    }

    /// Who sends a request, where what it says beside its message can be served.
    fn admit<P>(&self, request: &Request<P>) -> Result<Who, Status> {
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
        let who = self.direct.who(&shown, trace).map_err(of_credential)?;
        let lists = metadata.get_all("a2a-extensions").iter().filter_map(|list| list.to_str().ok());
        let extensions: Vec<_> = lists.flat_map(|list| list.split(',')).map(str::trim).collect();
        let version = text(metadata, "a2a-version").unwrap_or_default();
        self.direct.agree(version, &extensions).map_err(|error| of_error(&error))?;
        Ok(who)
    }

    /// An operation with one answer; `J` and `K` are the types of request and answer that have a mapping to JSON.
    async fn whole<J, K, P, Q>(&self, request: Request<P>, operation: Operation) -> Result<Response<Q>, Status>
    where
        J: Message + Default + Serialize,
        K: Message + DeserializeOwned,
        P: Message,
        Q: Message + Default,
    {
        let who = self.admit(&request)?;
        let params = to_json::<J>(request.get_ref()).map_err(unread)?;
        let answer = self.direct.answer(who, operation, &params).await.map_err(|error| of_error(&error))?;
        Ok(Response::new(from_json::<K, Q>(&answer).map_err(unwritten)?))
    }

    async fn events<J>(&self, request: Request<impl Message>, operation: Operation) -> Result<Response<Told>, Status>
    where
        J: Message + Default + Serialize,
    {
        let who = self.admit(&request)?;
        let params = to_json::<J>(request.get_ref()).map_err(unread)?;
        let events = self.direct.events(who, operation, &params).await.map_err(|error| of_error(&error))?;
        Ok(Response::new(events.map(told).boxed()))
    }
}

fn told(event: Result<Numbered, A2aError>) -> Result<proto::StreamResponse, Status> {
    let event = event.map_err(|error| of_error(&error))?;
    from_json::<protojson::StreamResponse, _>(&event.event.to_raw()).map_err(unwritten)
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// The one credential that a call shows: `authorization`, or a key as `x-api-key`.
fn authorization(metadata: &MetadataMap) -> Result<Option<Vec<u8>>, Status> {
    let of = |name| metadata.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>();
    match (&*of("authorization"), &*of("x-api-key")) {
        ([], []) => Ok(None),
        ([shown], []) => Ok(Some(shown.clone())),
        ([], [key]) => Ok(Some([b"Bearer ", &**key].concat())),
        _ => Err(Status::invalid_argument("send one credential: `authorization` or `x-api-key`")),
    }
}

/// What a client sent is no JSON: a number that isn't finite, a state that nobody knows.
fn unread(_: NoWords) -> Status {
    of_error(&A2aError::new(ErrorKind::InvalidParams, "the message has no meaning as JSON"))
}

fn unwritten(_: NoWords) -> Status {
    callboard_message::log::error!("an answer can't be told over gRPC");
    of_error(&A2aError::internal())
}

#[tonic::async_trait]
impl A2aService for Service {
    type SendStreamingMessageStream = Told;
    type SubscribeToTaskStream = Told;

    async fn send_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<proto::SendMessageResponse>, Status> {
        self.whole::<protojson::SendMessageRequest, protojson::SendMessageResponse, _, _>(
            request,
            Operation::SendMessage,
        )
        .await
    }

    async fn send_streaming_message(
        &self,
        request: Request<proto::SendMessageRequest>,
    ) -> Result<Response<Told>, Status> {
        self.events::<protojson::SendMessageRequest>(request, Operation::SendStreamingMessage).await
    }

    async fn get_task(&self, request: Request<proto::GetTaskRequest>) -> Result<Response<proto::Task>, Status> {
        self.whole::<protojson::GetTaskRequest, protojson::Task, _, _>(request, Operation::GetTask).await
    }

    async fn list_tasks(
        &self,
        request: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::ListTasksResponse>, Status> {
        self.whole::<protojson::ListTasksRequest, protojson::ListTasksResponse, _, _>(request, Operation::ListTasks)
            .await
    }

    async fn cancel_task(&self, request: Request<proto::CancelTaskRequest>) -> Result<Response<proto::Task>, Status> {
        self.whole::<protojson::CancelTaskRequest, protojson::Task, _, _>(request, Operation::CancelTask).await
    }

    async fn subscribe_to_task(
        &self,
        request: Request<proto::SubscribeToTaskRequest>,
    ) -> Result<Response<Told>, Status> {
        self.events::<protojson::SubscribeToTaskRequest>(request, Operation::SubscribeToTask).await
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<proto::TaskPushNotificationConfig>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.whole::<protojson::TaskPushNotificationConfig, protojson::TaskPushNotificationConfig, _, _>(
            request,
            Operation::CreateTaskPushNotificationConfig,
        )
        .await
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<proto::GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<proto::TaskPushNotificationConfig>, Status> {
        self.whole::<protojson::GetTaskPushNotificationConfigRequest, protojson::TaskPushNotificationConfig, _, _>(
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
        self.whole::<Asked, Listed, _, _>(request, Operation::ListTaskPushNotificationConfigs).await
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<proto::GetExtendedAgentCardRequest>,
    ) -> Result<Response<proto::AgentCard>, Status> {
        self.whole::<protojson::GetExtendedAgentCardRequest, protojson::AgentCard, _, _>(
            request,
            Operation::GetExtendedAgentCard,
        )
        .await
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<proto::DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        let who = self.admit(&request)?;
        let params =
            to_json::<protojson::DeleteTaskPushNotificationConfigRequest>(request.get_ref()).map_err(unread)?;
        self.direct
            .answer(who, Operation::DeleteTaskPushNotificationConfig, &params)
            .await
            .map_err(|error| of_error(&error))?;
        Ok(Response::new(()))
    }
}
