//! The operations: read in the caller's dialect, done in the canonical model, written in the dialect again.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_rpc::serve::guard::Refused;
use serde_json::value::RawValue;

use super::calls::{Calls, Events, Who, dialect_of, most};
use super::cards::Cards;
use super::options::A2aOptions;
use super::push::PushDesk;
use super::reply::{Room, Streams};
use super::rest::{self, Route};
use crate::convert::HOPS;
use crate::wire::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use crate::{A2aError, Dialect, Operation};

/// What the workers share.
pub(super) struct Server {
    pub(super) options: Arc<A2aOptions>,
    pub(super) calls: Arc<Calls>,
    pub(super) desk: PushDesk,
    pub(super) cards: Cards,
    pub(super) streams: Streams,
}

impl Server {
    /// Room for the stream that is wanted, if one is.
    ///
    /// # Errors
    /// As [`Streams::room`].
    pub(super) fn room(&self, who: &Who, asked: &Asked) -> Result<Option<Room>, Refused> {
        match asked {
            Asked::Stream(_) | Asked::Subscribe(_) => {
                self.streams.room(who.owner(), &self.options).map(Some)
            }
            _ => Ok(None),
        }
    }
}

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
    Events(Events),
}

impl Asked {
    /// What the params of a JSON-RPC request want.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn read(
        dialect: Dialect,
        operation: Operation,
        params: Option<&RawValue>,
    ) -> Result<Self, A2aError> {
        let mut asked = Self::read_as_written(dialect, operation, params)?;
        match &mut asked {
            Self::Send(asked) | Self::Stream(asked) => dialect.mean_send(asked),
            Self::CreateConfig(asked) => dialect.mean_push(asked),
            _ => {}
        }
        Ok(asked)
    }

    fn read_as_written(
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

    /// What a path, its query and a body want. A body that names another task or tenant than the path is refused.
    ///
    /// # Errors
    /// `InvalidParams`.
    pub(super) fn of_path(
        route: &Route,
        query: &str,
        body: Option<&RawValue>,
    ) -> Result<Self, A2aError> {
        let Route {
            dialect,
            operation,
            tenant,
            task,
            config,
        } = route;
        // What a path and a query say stands under the same names in both versions.
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
                dialect.mean_push(&mut config);
                Self::CreateConfig(config)
            }
            Operation::SendMessage | Operation::SendStreamingMessage => {
                Self::read(*dialect, *operation, body)?
            }
            _ => {
                let mut said = match (operation, body) {
                    // Its body may be left out, and has no id.
                    (Operation::CancelTask, None) => RawObject::new(),
                    (Operation::CancelTask, Some(body)) => RawObject::parse(body)
                        .map_err(|_| A2aError::invalid("", "must be an object"))?,
                    _ => rest::query_object(query)?,
                };
                ids.iter().for_each(|(name, id)| said.set(name, id));
                Self::read(*dialect, *operation, Some(&said.to_raw()))?
            }
        };
        let named = asked.tenant();
        if !tenant.is_empty() {
            if !named.is_empty() && named != tenant {
                return Err(A2aError::invalid("tenant", "is another than the path's"));
            }
            named.clone_from(tenant);
        }
        Ok(asked)
    }

    /// Which of several agents; empty: the one of the address.
    pub(super) fn tenant(&mut self) -> &mut String {
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

/// What is known of who asks once it is known what. 0.1 and 0.3 share methods that name a task: the task decides which
/// words the answer has.
pub(super) async fn known(server: &Server, who: Who, asked: &Asked) -> Who {
    let (operation, id) = match asked {
        Asked::Send(SendMessageRequest { message, .. })
        | Asked::Stream(SendMessageRequest { message, .. }) => {
            let hops = message
                .metadata
                .as_ref()
                .and_then(|metadata| metadata.read::<u64>(HOPS))
                .unwrap_or_default();
            return Who {
                hops: u16::try_from(hops).unwrap_or(u16::MAX),
                ..who
            };
        }
        Asked::Get(asked) => (Operation::GetTask, &asked.id),
        Asked::Cancel(asked) => (Operation::CancelTask, &asked.id),
        Asked::Subscribe(asked) => (Operation::SubscribeToTask, &asked.id),
        _ => return who,
    };
    if who.dialect != Dialect::V03 {
        return who;
    }
    let task = server.calls.owned(&who, id).await.ok();
    let begun = task
        .and_then(|task| dialect_of(&task))
        .unwrap_or(who.dialect);
    Who {
        dialect: who.dialect.as_begun(operation, begun),
        ..who
    }
}

/// Does what is wanted.
pub(super) async fn perform(
    server: &Server,
    who: &Who,
    asked: Asked,
    last_event: Option<u64>,
) -> Result<Answer, A2aError> {
    let Server {
        calls, desk, cards, ..
    } = server;
    let dialect = who.dialect;
    Ok(Answer::Whole(match asked {
        Asked::Send(asked) => calls.send(who, asked).await?,
        Asked::Stream(asked) => return calls.stream(who, asked).await.map(Answer::Events),
        Asked::Subscribe(asked) => {
            return calls
                .subscribe(who, &asked.id, last_event)
                .await
                .map(Answer::Events);
        }
        Asked::Get(asked) => {
            let messages_max = most(asked.history_length.or(dialect.history_length()));
            dialect.write_task(&calls.get(who, &asked.id, messages_max).await?)
        }
        Asked::List(asked) => dialect.write_task_list(&calls.list(who, asked).await?),
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
            dialect.write_push_configs(&desk.list(&task, &asked).await?)
        }
        Asked::DeleteConfig(asked) => {
            let task = calls.owned(who, &asked.task_id).await?;
            desk.delete(&task, &asked.id).await?;
            dialect.write_deleted()
        }
        Asked::ExtendedCard(_) => dialect.write_card(&cards.extended(who).await?),
    }))
}
