//! Dispatch of operations: requests are read in the caller's dialect, performed on the canonical
//! model, and their results written in the dialect.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_rpc::serve::guard::HttpRejection;
use callboard_runtime::{PrincipalShares, SharePermit};
use serde_json::value::RawValue;

use super::calls::{A2aTaskService, RequestContext, TaskEventStream, history_limit, task_dialect};
use super::cards::AgentCards;
use super::http_reply::stream_rejection;
use super::options::A2aOptions;
use super::push::PushDispatcher;
use super::rest::{self, RestRoute};
use crate::convert::HOPS_METADATA;
use crate::wire::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use crate::{A2aError, Dialect, Operation};

/// State of a server, shared by all HTTP workers.
pub(super) struct ServerState {
    pub(super) options: Arc<A2aOptions>,
    pub(super) tasks: Arc<A2aTaskService>,
    pub(super) push: PushDispatcher,
    pub(super) cards: AgentCards,
    pub(super) streams: Arc<PrincipalShares>,
}

impl ServerState {
    /// Acquires a permit if the request opens a stream; `None` if it doesn't.
    ///
    /// # Errors
    /// 429 if the principal has too many open streams; 503 if the server has too many.
    pub(super) fn stream_permit(
        &self,
        who: &RequestContext,
        asked: &A2aRequest,
    ) -> Result<Option<SharePermit>, HttpRejection> {
        match asked {
            A2aRequest::Stream(_) | A2aRequest::Subscribe(_) => {
                let permit = self.streams.try_acquire(&*who.principal);
                permit.map(Some).map_err(stream_rejection)
            }
            _ => Ok(None),
        }
    }
}

/// A parsed request, by operation.
pub(super) enum A2aRequest {
    Send(SendMessageRequest),
    Stream(SendMessageRequest),
    Get(GetTaskRequest),
    List(ListTasksRequest),
    Cancel(CancelTaskRequest),
    Subscribe(SubscribeToTaskRequest),
    CreateConfig(TaskPushNotificationConfig),
    GetConfig(GetTaskPushNotificationConfigRequest),
    ListConfigs(ListTaskPushNotificationConfigsRequest),
    DeleteConfig(DeleteTaskPushNotificationConfigRequest),
    ExtendedCard(GetExtendedAgentCardRequest),
}

/// Result of an operation.
pub(super) enum OperationResult {
    SingleResult(Box<RawValue>),
    EventStream(TaskEventStream),
}

impl A2aRequest {
    /// Parses the params of a JSON-RPC request.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn from_params(
        dialect: Dialect,
        operation: Operation,
        params: Option<&RawValue>,
    ) -> Result<Self, A2aError> {
        let mut asked = Self::parse_params(dialect, operation, params)?;
        match &mut asked {
            Self::Send(asked) | Self::Stream(asked) => dialect.normalize_send(asked),
            Self::CreateConfig(asked) => dialect.normalize_push(asked),
            _ => {}
        }
        Ok(asked)
    }

    fn parse_params(
        dialect: Dialect,
        operation: Operation,
        params: Option<&RawValue>,
    ) -> Result<Self, A2aError> {
        Ok(match operation {
            Operation::SendMessage => Self::Send(dialect.read_send(params)?),
            Operation::SendStreamingMessage => Self::Stream(dialect.read_send(params)?),
            Operation::GetTask => Self::Get(dialect.read_get(params)?),
            Operation::ListTasks => Self::List(dialect.read_list(params)?),
            Operation::CancelTask => Self::Cancel(dialect.read_cancel(params)?),
            Operation::SubscribeToTask => Self::Subscribe(dialect.read_subscribe(params)?),
            Operation::CreateTaskPushNotificationConfig => {
                Self::CreateConfig(dialect.read_push_create(params, None)?)
            }
            Operation::GetTaskPushNotificationConfig => {
                Self::GetConfig(dialect.read_push_get(params)?)
            }
            Operation::ListTaskPushNotificationConfigs => {
                Self::ListConfigs(dialect.read_push_list(params)?)
            }
            Operation::DeleteTaskPushNotificationConfig => {
                Self::DeleteConfig(dialect.read_push_delete(params)?)
            }
            Operation::GetExtendedAgentCard => {
                Self::ExtendedCard(dialect.read_extended_card(params)?)
            }
        })
    }

    /// Parses a request of HTTP+JSON from its path, query and body. A body that names another task
    /// or tenant than the path is rejected.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn from_path(
        route: &RestRoute,
        query: &str,
        body: Option<&RawValue>,
    ) -> Result<Self, A2aError> {
        let RestRoute {
            dialect,
            operation,
            tenant,
            task_id: task,
            config_id: config,
        } = route;
        // Parameters of path and query have the same names in both versions.
        let ids: &[(&str, &String)] = match operation {
            Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => {
                &[("id", task)]
            }
            Operation::GetTaskPushNotificationConfig
            | Operation::DeleteTaskPushNotificationConfig => &[("taskId", task), ("id", config)],
            Operation::ListTaskPushNotificationConfigs => &[("taskId", task)],
            _ => &[],
        };
        let mut asked = match operation {
            Operation::CreateTaskPushNotificationConfig => {
                let mut config = dialect.read_push_create(body, Some(task))?;
                dialect.normalize_push(&mut config);
                Self::CreateConfig(config)
            }
            Operation::SendMessage | Operation::SendStreamingMessage => {
                Self::from_params(*dialect, *operation, body)?
            }
            _ => {
                let mut said = match (operation, body) {
                    // The body is optional, and doesn't contain the id.
                    (Operation::CancelTask, None) => RawObject::new(),
                    (Operation::CancelTask, Some(body)) => RawObject::parse(body)
                        .map_err(|_| A2aError::invalid_params("", "must be an object"))?,
                    _ => rest::query_object(query)?,
                };
                ids.iter().for_each(|(name, id)| said.set(name, id));
                Self::from_params(*dialect, *operation, Some(&said.to_raw()))?
            }
        };
        let named = asked.tenant_mut();
        if !tenant.is_empty() {
            if !named.is_empty() && named != tenant {
                return Err(A2aError::invalid_params(
                    "tenant",
                    "differs from the one in the path",
                ));
            }
            named.clone_from(tenant);
        }
        Ok(asked)
    }

    /// Returns a mutable reference to the request's tenant, which is empty for the agent at the
    /// request's own address.
    pub(super) fn tenant_mut(&mut self) -> &mut String {
        match self {
            Self::Send(asked) | Self::Stream(asked) => &mut asked.tenant,
            Self::Get(asked) => &mut asked.tenant,
            Self::List(asked) => &mut asked.tenant,
            Self::Cancel(asked) => &mut asked.tenant,
            Self::Subscribe(asked) => &mut asked.tenant,
            Self::CreateConfig(asked) => &mut asked.tenant,
            Self::GetConfig(asked) => &mut asked.tenant,
            Self::ListConfigs(asked) => &mut asked.tenant,
            Self::DeleteConfig(asked) => &mut asked.tenant,
            Self::ExtendedCard(asked) => &mut asked.tenant,
        }
    }
}

/// Completes a request's context from its parameters: the number of hops, from a message's
/// metadata, and the dialect. 0.3 and 0.1 share methods that name a task. Their responses are
/// written in the version in which the task was begun.
pub(super) async fn complete_context(
    server: &ServerState,
    who: RequestContext,
    asked: &A2aRequest,
) -> RequestContext {
    let (operation, id) = match asked {
        A2aRequest::Send(SendMessageRequest { message, .. })
        | A2aRequest::Stream(SendMessageRequest { message, .. }) => {
            let hops = message
                .metadata
                .as_ref()
                .and_then(|metadata| metadata.read::<u64>(HOPS_METADATA))
                .unwrap_or_default();
            return RequestContext {
                hops: u16::try_from(hops).unwrap_or(u16::MAX),
                ..who
            };
        }
        A2aRequest::Get(asked) => (Operation::GetTask, &asked.id),
        A2aRequest::Cancel(asked) => (Operation::CancelTask, &asked.id),
        A2aRequest::Subscribe(asked) => (Operation::SubscribeToTask, &asked.id),
        _ => return who,
    };
    if who.dialect != Dialect::V03 {
        return who;
    }
    let task = server.tasks.owned_task(&who, id).await.ok();
    let begun = task
        .and_then(|task| task_dialect(&task))
        .unwrap_or(who.dialect);
    RequestContext {
        dialect: who.dialect.for_task(operation, begun),
        ..who
    }
}

/// Performs an operation. `last_event` is the number of the event after which a subscription
/// resumes.
pub(super) async fn perform_operation(
    server: &ServerState,
    who: &RequestContext,
    asked: A2aRequest,
    last_event: Option<u64>,
) -> Result<OperationResult, A2aError> {
    let ServerState {
        tasks: calls,
        push,
        cards,
        ..
    } = server;
    let dialect = who.dialect;
    Ok(OperationResult::SingleResult(match asked {
        A2aRequest::Send(asked) => calls.send(who, asked).await?,
        A2aRequest::Stream(asked) => {
            return calls
                .stream(who, asked)
                .await
                .map(OperationResult::EventStream);
        }
        A2aRequest::Subscribe(asked) => {
            return calls
                .subscribe(who, &asked.id, last_event)
                .await
                .map(OperationResult::EventStream);
        }
        A2aRequest::Get(asked) => {
            let messages_max =
                history_limit(asked.history_length.or(dialect.default_history_length()));
            dialect.write_task(&calls.get_task(who, &asked.id, messages_max).await?)
        }
        A2aRequest::List(asked) => dialect.write_task_list(&calls.list_tasks(who, asked).await?),
        A2aRequest::Cancel(asked) => dialect.write_task(&calls.cancel_task(who, &asked.id).await?),
        A2aRequest::CreateConfig(asked) => {
            let task = calls.owned_task(who, &asked.task_id).await?;
            dialect.write_push_config(&push.create(who, &task, asked).await?)
        }
        A2aRequest::GetConfig(asked) => {
            let task = calls.owned_task(who, &asked.task_id).await?;
            dialect.write_push_config(&push.get(&task, &asked.id).await?)
        }
        A2aRequest::ListConfigs(asked) => {
            let task = calls.owned_task(who, &asked.task_id).await?;
            dialect.write_push_configs(&push.list(&task, &asked).await?)
        }
        A2aRequest::DeleteConfig(asked) => {
            let task = calls.owned_task(who, &asked.task_id).await?;
            push.delete(&task, &asked.id).await?;
            dialect.write_deleted()
        }
        A2aRequest::ExtendedCard(_) => dialect.write_card(&cards.extended_card(who).await?),
    }))
}
