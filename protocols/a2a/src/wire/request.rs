use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};
use secrecy::SecretString;
use serde_json::value::RawValue;

use super::macros::{quiet, wire};
use super::{At, Members, Message, ReadError, Task, Wire, Writer};

/// What a push shows, so that its receiver knows who pushes.
#[derive(Clone, Default)]
pub struct AuthenticationInfo {
    /// For example `Bearer`.
    pub scheme: String,
    /// What follows the scheme in the header.
    pub credentials: SecretString,
}

impl Wire for AuthenticationInfo {
    // Older versions have a list of schemes: the first is taken.
    fn read(raw: &RawValue, at: &At<'_>) -> Result<Self, ReadError> {
        let members = Members::of(raw, at)?;
        let schemes: Vec<String> = members.default("schemes", &[])?;
        Ok(Self {
            scheme: members
                .optional("scheme", &[])?
                .or_else(|| schemes.into_iter().next())
                .unwrap_or_default(),
            credentials: members.default("credentials", &[])?,
        })
    }

    fn write(&self, out: &mut Writer<'_>) {
        let mut object = out.object();
        object.always("scheme", &self.scheme);
        object.default("credentials", &self.credentials);
        object.end();
    }
}

quiet!(AuthenticationInfo);

wire! {
    /// Where to push what happens to a task.
    #[derive(Default)]
    pub struct TaskPushNotificationConfig {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Unique within its task; empty: the server makes one.
        id: String = default "id",
        /// Which task; empty in a message's configuration.
        task_id: String = default "taskId",
        /// Where to.
        url: String = required "url",
        /// Sent along, so that the receiver knows its own.
        token: SecretString = default "token",
        /// Shown to the receiver.
        authentication: Option<AuthenticationInfo> = optional "authentication",
    }
}

wire! {
    /// How a message is to be answered.
    #[derive(Default)]
    pub struct SendMessageConfiguration {
        /// Media types that the client can do something with.
        accepted_output_modes: Vec<String> = default "acceptedOutputModes",
        /// Where to push what happens to the task.
        task_push_notification_config: Option<TaskPushNotificationConfig> = optional "taskPushNotificationConfig" | "pushNotificationConfig" | "pushNotification",
        /// At most so many messages of its history; `None`: all.
        history_length: Option<i32> = optional "historyLength",
        /// Whether to answer as soon as there is a task.
        return_immediately: bool = default "returnImmediately",
    }

    /// A message to an agent.
    #[derive(Default)]
    pub struct SendMessageRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// What is said.
        message: Message = required "message" | "request",
        /// How it is to be answered.
        configuration: Option<SendMessageConfiguration> = optional "configuration",
        /// Whatever the client put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// Asks for a task.
    #[derive(Default)]
    pub struct GetTaskRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Which task.
        id: String = required "id",
        /// At most so many messages of its history; `None`: all.
        history_length: Option<i32> = optional "historyLength",
    }

    /// Asks for tasks, those that changed last first.
    #[derive(Default)]
    pub struct ListTasksRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Of that conversation only; empty: of any.
        context_id: String = default "contextId",
        /// In that state only.
        status: Option<TaskState> = filter "status",
        /// At most so many; `None`: [`PAGE_SIZE_DEFAULT`](crate::limits::PAGE_SIZE_DEFAULT).
        page_size: Option<i32> = optional "pageSize",
        /// Of the answer before; empty: from the beginning.
        page_token: String = default "pageToken",
        /// At most so many messages of each one's history; `None`: all.
        history_length: Option<i32> = optional "historyLength",
        /// Changed then or later only.
        status_timestamp_after: Option<SystemTime> = optional "statusTimestampAfter",
        /// Whether with artifacts.
        include_artifacts: Option<bool> = optional "includeArtifacts",
    }

    /// A page of tasks.
    #[derive(Default)]
    pub struct ListTasksResponse {
        /// Those of this page.
        tasks: Vec<Task> = always "tasks",
        /// For the next one; empty: this was the last.
        next_page_token: String = always "nextPageToken",
        /// How many a page has.
        page_size: i32 = always "pageSize",
        /// How many there are on all pages.
        total_size: i32 = always "totalSize",
    }

    /// Asks a task to end.
    #[derive(Default)]
    pub struct CancelTaskRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Which task.
        id: String = required "id",
        /// Whatever the client put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// Asks for what happens to a task from now on.
    #[derive(Default)]
    pub struct SubscribeToTaskRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Which task.
        id: String = required "id",
    }

    /// Asks for a push configuration.
    #[derive(Default)]
    pub struct GetTaskPushNotificationConfigRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Of which task.
        task_id: String = required "taskId",
        /// Which one.
        id: String = required "id",
    }

    /// Asks for the push configurations of a task.
    #[derive(Default)]
    pub struct ListTaskPushNotificationConfigsRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
        /// Of which task.
        task_id: String = required "taskId",
        /// At most so many; 0: as the server likes.
        page_size: i32 = default "pageSize",
        /// Of the answer before; empty: from the beginning.
        page_token: String = default "pageToken",
    }

    /// The push configurations of a task.
    #[derive(Default)]
    pub struct ListTaskPushNotificationConfigsResponse {
        /// Those of this page.
        configs: Vec<TaskPushNotificationConfig> = always "configs",
        /// For the next one; empty: this was the last.
        next_page_token: String = default "nextPageToken",
    }

    /// Asks for the card that is shown to those who are known.
    #[derive(Default)]
    pub struct GetExtendedAgentCardRequest {
        /// Which of several agents; empty: the one of this address.
        tenant: String = default "tenant",
    }
}

/// Takes a push configuration away.
pub type DeleteTaskPushNotificationConfigRequest = GetTaskPushNotificationConfigRequest;
