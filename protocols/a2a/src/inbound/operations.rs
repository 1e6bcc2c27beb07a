//! The operations: read in the caller's dialect, done in the canonical model, written in the dialect again.

use callboard_message::Principal;
use serde_json::value::RawValue;

use super::calls::{Events, Who};
use super::query;
use super::rest::Route;
use super::server::Server;
use crate::limits::{EXTENSIONS_MAX, ID_BYTES_MAX, PAGE_SIZE_MAX, PARTS_MAX, REFERENCES_MAX};
use crate::wire::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest,
    Message, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig, Wire,
};
use crate::{A2aError, Dialect, ErrorKind, Operation};

/// What is wanted.
pub(super) enum Asked {
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

/// What it came to.
pub(super) enum Answer {
    Whole(Box<RawValue>),
    /// Done, and nothing to say.
    Nothing,
    Events(Events),
}

impl Asked {
    /// What the params of a JSON-RPC request want.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn read(dialect: Dialect, operation: Operation, params: Option<&RawValue>) -> Result<Self, A2aError> {
        if operation == Operation::GetExtendedAgentCard && params.is_none() {
            return Ok(Self::ExtendedCard(GetExtendedAgentCardRequest::default()));
        }
        let params = match (params, operation) {
            (Some(params), _) => params,
            (None, Operation::ListTasks) => EMPTY,
            (None, _) => return Err(A2aError::invalid("params", "is missing")),
        };
        let asked = match operation {
            Operation::SendMessage => Self::Send(dialect.read_send(params)?),
            Operation::SendStreamingMessage => Self::Stream(dialect.read_send(params)?),
            Operation::GetTask => Self::Get(dialect.read_get(params)?),
            Operation::ListTasks => Self::List(dialect.read_list(params)?),
            Operation::CancelTask => Self::Cancel(dialect.read_cancel(params)?),
            Operation::SubscribeToTask => Self::Subscribe(dialect.read_subscribe(params)?),
            Operation::CreateTaskPushNotificationConfig => Self::CreateConfig(dialect.read_push_config(params)?),
            Operation::GetTaskPushNotificationConfig => Self::GetConfig(dialect.read_push_get(params)?),
            Operation::ListTaskPushNotificationConfigs => Self::ListConfigs(dialect.read_push_list(params)?),
            Operation::DeleteTaskPushNotificationConfig => Self::DeleteConfig(dialect.read_push_delete(params)?),
            Operation::GetExtendedAgentCard => Self::ExtendedCard(GetExtendedAgentCardRequest::from_raw(params)?),
        };
        asked.check()?;
        Ok(asked)
    }

    /// What a path, its query and a body want. The path is taken at its word: a body that names another task is refused.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn of_path(route: Route, query: &str, body: Option<&RawValue>) -> Result<Self, A2aError> {
        let Route { dialect, operation, tenant, task, config } = route;
        let missing = || A2aError::invalid("", "a body is missing");
        let mut asked = match operation {
            Operation::SendMessage => Self::Send(dialect.read_send(body.ok_or_else(missing)?)?),
            Operation::SendStreamingMessage => Self::Stream(dialect.read_send(body.ok_or_else(missing)?)?),
            Operation::GetTask => {
                let query = query::object(query)?.with("id", &task);
                Self::Get(GetTaskRequest::from_raw(&query.to_raw())?)
            }
            Operation::ListTasks => Self::List(ListTasksRequest::from_raw(&query::object(query)?.to_raw())?),
            Operation::CancelTask => {
                // All of it may be left out.
                let said = body.map(callboard_message::RawObject::parse).transpose();
                let said = said.map_err(|_| A2aError::invalid("", "must be an object"))?.unwrap_or_default();
                Self::Cancel(CancelTaskRequest::from_raw(&said.with("id", &task).to_raw())?)
            }
            Operation::SubscribeToTask => Self::Subscribe(SubscribeToTaskRequest { id: task, ..Default::default() }),
            Operation::CreateTaskPushNotificationConfig => {
                let mut read = dialect.read_push_config(body.ok_or_else(missing)?)?;
                if !read.task_id.is_empty() && read.task_id != task {
                    return Err(A2aError::invalid("taskId", "is another than the path's"));
                }
                read.task_id = task;
                Self::CreateConfig(read)
            }
            Operation::GetTaskPushNotificationConfig => Self::GetConfig(GetTaskPushNotificationConfigRequest {
                task_id: task,
                id: config,
                ..Default::default()
            }),
            Operation::ListTaskPushNotificationConfigs => {
                let query = query::object(query)?.with("taskId", &task);
                Self::ListConfigs(ListTaskPushNotificationConfigsRequest::from_raw(&query.to_raw())?)
            }
            Operation::DeleteTaskPushNotificationConfig => {
                Self::DeleteConfig(DeleteTaskPushNotificationConfigRequest {
                    task_id: task,
                    id: config,
                    ..Default::default()
                })
            }
            Operation::GetExtendedAgentCard => Self::ExtendedCard(GetExtendedAgentCardRequest::default()),
        };
        let named = asked.tenant_mut();
        if !tenant.is_empty() {
            if !named.is_empty() && *named != tenant {
                return Err(A2aError::invalid("tenant", "is another than the path's"));
            }
            *named = tenant;
        }
        asked.check()?;
        Ok(asked)
    }

    /// Which of several agents; empty: the one of the address.
    pub(super) fn tenant(&mut self) -> &str {
        self.tenant_mut()
    }

    fn tenant_mut(&mut self) -> &mut String {
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

    /// Whether it keeps to the limits of a request.
    fn check(&self) -> Result<(), A2aError> {
        match self {
            Self::Send(asked) | Self::Stream(asked) => {
                id("tenant", &asked.tenant)?;
                message(&asked.message)?;
                let Some(wanted) = &asked.configuration else { return Ok(()) };
                history("configuration.historyLength", wanted.history_length)?;
                match &wanted.task_push_notification_config {
                    Some(config) => id("configuration.taskPushNotificationConfig.id", &config.id),
                    None => Ok(()),
                }
            }
            Self::Get(asked) => {
                ids([("tenant", &asked.tenant), ("id", &asked.id)])?;
                history("historyLength", asked.history_length)
            }
            Self::List(asked) => {
                ids([("tenant", &asked.tenant), ("contextId", &asked.context_id), ("pageToken", &asked.page_token)])?;
                history("historyLength", asked.history_length)?;
                match asked.page_size {
                    Some(size) if !(1..=PAGE_SIZE_MAX).contains(&size) => {
                        Err(A2aError::invalid("pageSize", "must be between 1 and 100"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Cancel(asked) => ids([("tenant", &asked.tenant), ("id", &asked.id)]),
            Self::Subscribe(asked) => ids([("tenant", &asked.tenant), ("id", &asked.id)]),
            Self::CreateConfig(asked) => {
                ids([("tenant", &asked.tenant), ("taskId", &asked.task_id), ("id", &asked.id)])?;
                match asked.task_id.is_empty() {
                    true => Err(A2aError::invalid("taskId", "is missing")),
                    false => Ok(()),
                }
            }
            Self::GetConfig(asked) => ids([("tenant", &asked.tenant), ("taskId", &asked.task_id), ("id", &asked.id)]),
            Self::ListConfigs(asked) => {
                ids([("tenant", &asked.tenant), ("taskId", &asked.task_id), ("pageToken", &asked.page_token)])
            }
            Self::DeleteConfig(asked) => {
                ids([("tenant", &asked.tenant), ("taskId", &asked.task_id), ("id", &asked.id)])
            }
            Self::ExtendedCard(asked) => id("tenant", &asked.tenant),
        }
    }
}

/// Params that say nothing.
static EMPTY: std::sync::LazyLock<Box<RawValue>> =
    std::sync::LazyLock::new(|| callboard_message::RawObject::new().to_raw());

fn ids<const N: usize>(all: [(&str, &String); N]) -> Result<(), A2aError> {
    all.into_iter().try_for_each(|(name, value)| id(name, value))
}

fn id(name: &str, value: &str) -> Result<(), A2aError> {
    if value.len() > ID_BYTES_MAX || value.chars().any(char::is_control) {
        return Err(A2aError::invalid(name, "is longer than 128 bytes or has control characters"));
    }
    Ok(())
}

fn history(name: &str, length: Option<i32>) -> Result<(), A2aError> {
    if length.is_some_and(|length| length < 0) {
        return Err(A2aError::invalid(name, "must not be negative"));
    }
    Ok(())
}

fn message(message: &Message) -> Result<(), A2aError> {
    id("message.messageId", &message.message_id)?;
    id("message.contextId", &message.context_id)?;
    id("message.taskId", &message.task_id)?;
    let over = |name: &str, count: usize, max: usize| match count > max {
        true => Err(A2aError::invalid(name, "has too many entries")),
        false => Ok(()),
    };
    over("message.parts", message.parts.len(), PARTS_MAX)?;
    over("message.referenceTaskIds", message.reference_task_ids.len(), REFERENCES_MAX)?;
    over("message.extensions", message.extensions.len(), EXTENSIONS_MAX)
}

/// The number of messages, where it was asked for.
fn most(history: Option<i32>) -> Option<u32> {
    history.and_then(|length| u32::try_from(length).ok())
}

/// Does what is wanted.
pub(super) async fn perform(
    server: &Server,
    who: &Who,
    asked: Asked,
    last_event: Option<u64>,
) -> Result<Answer, A2aError> {
    let Server { calls, desk, cards, .. } = server;
    let dialect = who.dialect;
    let written = match asked {
        Asked::Send(asked) => dialect.write_send_response(&calls.send(who, asked).await?),
        Asked::Stream(asked) => return calls.stream(who, asked).await.map(Answer::Events),
        Asked::Subscribe(asked) => return calls.subscribe(who, &asked.id, last_event).await.map(Answer::Events),
        Asked::Get(asked) => dialect.write_task(&calls.get(who, &asked.id, most(asked.history_length)).await?),
        Asked::List(asked) => dialect.write_list(&calls.list(who, asked).await?),
        Asked::Cancel(asked) => dialect.write_task(&calls.cancel(who, &asked.id).await?),
        Asked::CreateConfig(asked) => {
            let task = calls.owned(who, &asked.task_id).await?;
            dialect.write_push_config(&desk.create(who, &task, asked).await?)
        }
        Asked::GetConfig(asked) => {
            let task = calls.owned(who, &asked.task_id).await?;
            dialect.write_push_config(&desk.get(&task, &asked.id).await?)
        }
        Asked::ListConfigs(asked) => {
            let task = calls.owned(who, &asked.task_id).await?;
            dialect.write_push_configs(&desk.list(&task).await?)
        }
        Asked::DeleteConfig(asked) => {
            let task = calls.owned(who, &asked.task_id).await?;
            desk.delete(&task, &asked.id).await?;
            return Ok(Answer::Nothing);
        }
        Asked::ExtendedCard(_) => cards.extended(&who.principal, dialect).await?,
    };
    Ok(Answer::Whole(written))
}
