use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};
use secrecy::SecretString;
use serde_json::value::RawValue;

use super::macros::{quiet, wire};
use super::{A2aMessage, A2aTask, FieldPath, JsonWriter, ObjectReader, ReadError, WireType};

/// Credentials that a push notification carries, so that its receiver can authenticate the sender.
#[derive(Clone, Default)]
pub struct AuthenticationInfo {
    /// Authentication scheme, for example `Bearer`.
    pub scheme: String,
    /// Credentials after the scheme in the header `Authorization`.
    pub credentials: SecretString,
}

impl WireType for AuthenticationInfo {
    // Older versions have a list of schemes, of which the first is used.
    fn read(raw: &RawValue, at: &FieldPath<'_>) -> Result<Self, ReadError> {
        let members = ObjectReader::parse(raw, at)?;
        let schemes: Vec<String> = members.default("schemes", &[])?;
        Ok(Self {
            scheme: members
                .optional("scheme", &[])?
                .or_else(|| schemes.into_iter().next())
                .unwrap_or_default(),
            credentials: members.default("credentials", &[])?,
        })
    }

    fn write(&self, out: &mut JsonWriter<'_>) {
        let mut object = out.object();
        object.always("scheme", &self.scheme);
        object.default("credentials", &self.credentials);
        object.end();
    }
}

quiet!(AuthenticationInfo);

wire! {
    /// Destination of push notifications about a task.
    #[derive(Default)]
    pub struct TaskPushNotificationConfig {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the configuration, unique within its task; if empty, the server assigns one.
        id: String = default "id",
        /// Id of the task; empty in the configuration of a message.
        task_id: String = default "taskId",
        /// URL of the receiver.
        url: String = required "url",
        /// Token that is sent with each notification, so that the receiver can recognise it.
        token: SecretString = default "token",
        /// Credentials that are sent to the receiver.
        authentication: Option<AuthenticationInfo> = optional "authentication",
    }
}

wire! {
    /// Options for the response to a message.
    #[derive(Default)]
    pub struct SendMessageConfiguration {
        /// Media types of output that the client accepts.
        accepted_output_modes: Vec<String> = default "acceptedOutputModes",
        /// Destination of push notifications about the task.
        task_push_notification_config: Option<TaskPushNotificationConfig> = optional "taskPushNotificationConfig" | "pushNotificationConfig" | "pushNotification",
        /// Maximum number of history messages in the response; `None` for all.
        history_length: Option<i32> = optional "historyLength",
        /// Whether to respond as soon as the task exists. Otherwise the response waits until it has
        /// ended or needs input.
        return_immediately: bool = default "returnImmediately",
    }

    /// Parameters of `SendMessage` and `SendStreamingMessage`.
    #[derive(Default)]
    pub struct SendMessageRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// The message to send.
        message: A2aMessage = required "message" | "request",
        /// Options for the response.
        configuration: Option<SendMessageConfiguration> = optional "configuration",
        /// Metadata from the client.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// Parameters of `GetTask`.
    #[derive(Default)]
    pub struct GetTaskRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the task.
        id: String = required "id",
        /// Maximum number of history messages in the response; `None` for all.
        history_length: Option<i32> = optional "historyLength",
    }

    /// Parameters of `ListTasks`. Tasks are listed by their latest change, newest first.
    #[derive(Default)]
    pub struct ListTasksRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Only tasks of this conversation; empty for all.
        context_id: String = default "contextId",
        /// Only tasks in this state.
        status: Option<TaskState> = filter "status",
        /// Maximum number of tasks on the page; `None` for
        /// [`PAGE_SIZE_DEFAULT`](crate::limits::PAGE_SIZE_DEFAULT).
        page_size: Option<i32> = optional "pageSize",
        /// Token from the previous page; empty for the first page.
        page_token: String = default "pageToken",
        /// Maximum number of history messages of each task; `None` for all.
        history_length: Option<i32> = optional "historyLength",
        /// Only tasks whose status changed at this time or later.
        status_timestamp_after: Option<SystemTime> = optional "statusTimestampAfter",
        /// Whether to include artifacts.
        include_artifacts: Option<bool> = optional "includeArtifacts",
    }

    /// A page of tasks.
    #[derive(Default)]
    pub struct ListTasksResponse {
        /// Tasks on this page.
        tasks: Vec<A2aTask> = always "tasks",
        /// Token for the next page; empty on the last one.
        next_page_token: String = always "nextPageToken",
        /// Page size that was applied.
        page_size: i32 = always "pageSize",
        /// Number of tasks on all pages together.
        total_size: i32 = always "totalSize",
    }

    /// Parameters of `CancelTask`.
    #[derive(Default)]
    pub struct CancelTaskRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the task.
        id: String = required "id",
        /// Metadata from the client.
        metadata: Option<RawObject> = optional "metadata",
    }

    /// Parameters of `SubscribeToTask`, which streams a task: first its current state, then its
    /// events until it ends.
    #[derive(Default)]
    pub struct SubscribeToTaskRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the task.
        id: String = required "id",
    }

    /// Parameters of `GetTaskPushNotificationConfig`.
    #[derive(Default)]
    pub struct GetTaskPushNotificationConfigRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the task.
        task_id: String = required "taskId",
        /// Id of the push configuration.
        id: String = required "id",
    }

    /// Parameters of `ListTaskPushNotificationConfigs`.
    #[derive(Default)]
    pub struct ListTaskPushNotificationConfigsRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
        /// Id of the task.
        task_id: String = required "taskId",
        /// Maximum number of configurations on the page; 0 lets the server choose.
        page_size: i32 = default "pageSize",
        /// Token from the previous page; empty for the first page.
        page_token: String = default "pageToken",
    }

    /// A page of a task's push configurations.
    #[derive(Default)]
    pub struct ListTaskPushNotificationConfigsResponse {
        /// Configurations on this page.
        configs: Vec<TaskPushNotificationConfig> = always "configs",
        /// Token for the next page; empty on the last one.
        next_page_token: String = default "nextPageToken",
    }

    /// Parameters of `GetExtendedAgentCard`.
    #[derive(Default)]
    pub struct GetExtendedAgentCardRequest {
        /// Tenant: the name of an agent, at a URL that serves several agents; empty for the URL's
        /// own agent.
        tenant: String = default "tenant",
    }
}

/// Parameters of `DeleteTaskPushNotificationConfig`.
pub type DeleteTaskPushNotificationConfigRequest = GetTaskPushNotificationConfigRequest;
