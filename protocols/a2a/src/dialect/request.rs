//! Requests: read by servers, written by clients.

use callboard_message::json::raw_ref;
use callboard_message::{RawMembers, RawObject};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::push::{read_push, read_push_id, write_push};
use super::task::{settle_message, write_message};
use crate::wire::*;
use crate::{A2aError, Dialect, limits};

/// The push configuration of clients that name none.
const ONLY_CONFIG: &str = "default";

/// What stands in for parameters that were left out.
fn read<T: Wire>(params: Option<&RawValue>) -> Result<T, A2aError> {
    Ok(T::from_raw(params.unwrap_or(raw_ref("{}")))?)
}

impl Dialect {
    /// What `SendMessage` and `SendStreamingMessage` ask. The message has an id, a role and a part at least.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParams`](crate::ErrorKind::InvalidParams) names the field; so with all that read requests.
    pub fn read_send(self, params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
        let request = match self {
            Self::V10 => read(params)?,
            Self::V03 | Self::V03Rest => read_send_03(self, params)?,
            Self::V01 => read_send_01(params)?,
        };
        check_send(&request)?;
        Ok(request)
    }

    /// What `GetTask` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_get(self, params: Option<&RawValue>) -> Result<GetTaskRequest, A2aError> {
        let request: GetTaskRequest = read(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        check_history("historyLength", request.history_length)?;
        Ok(request)
    }

    /// What `ListTasks` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_list(self, params: Option<&RawValue>) -> Result<ListTasksRequest, A2aError> {
        let request: ListTasksRequest = read(params)?;
        check_id("contextId", &request.context_id)?;
        check_id("tenant", &request.tenant)?;
        check_history("historyLength", request.history_length)?;
        if request
            .page_size
            .is_some_and(|size| !(1..=limits::PAGE_SIZE_MAX).contains(&size))
        {
            return Err(A2aError::invalid("pageSize", "must be between 1 and 100"));
        }
        Ok(request)
    }

    /// What `CancelTask` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_cancel(self, params: Option<&RawValue>) -> Result<CancelTaskRequest, A2aError> {
        let request: CancelTaskRequest = read(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// What `SubscribeToTask` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_subscribe(
        self,
        params: Option<&RawValue>,
    ) -> Result<SubscribeToTaskRequest, A2aError> {
        let request: SubscribeToTaskRequest = read(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// What `CreateTaskPushNotificationConfig` asks. `task` is the one of the path over HTTP+JSON.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_create(
        self,
        params: Option<&RawValue>,
        task: Option<&str>,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let mut config: TaskPushNotificationConfig = match self {
            Self::V10 => read(params)?,
            _ => read_push(self, params)?,
        };
        match task {
            Some(task) if config.task_id.is_empty() => config.task_id = task.to_owned(),
            Some(task) if config.task_id != task => {
                return Err(A2aError::invalid("taskId", "must be the one of the path"));
            }
            _ if config.task_id.is_empty() => {
                return Err(A2aError::invalid("taskId", "is missing"));
            }
            _ => {}
        }
        check_id("taskId", &config.task_id)?;
        check_id("id", &config.id)?;
        check_id("tenant", &config.tenant)?;
        Ok(config)
    }

    /// What `GetTaskPushNotificationConfig` asks. In 0.3 and 0.1 its id may be left out: then it is empty.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_get(
        self,
        params: Option<&RawValue>,
    ) -> Result<GetTaskPushNotificationConfigRequest, A2aError> {
        let request: GetTaskPushNotificationConfigRequest = match self {
            Self::V10 => read(params)?,
            _ => read_push_id(params)?,
        };
        check_id("taskId", &request.task_id)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// What `ListTaskPushNotificationConfigs` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_list(
        self,
        params: Option<&RawValue>,
    ) -> Result<ListTaskPushNotificationConfigsRequest, A2aError> {
        let request: ListTaskPushNotificationConfigsRequest = match self {
            Self::V10 => read(params)?,
            _ => {
                let GetTaskPushNotificationConfigRequest {
                    tenant, task_id, ..
                } = read_push_id(params)?;
                ListTaskPushNotificationConfigsRequest {
                    tenant,
                    task_id,
                    ..Default::default()
                }
            }
        };
        check_id("taskId", &request.task_id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// What `DeleteTaskPushNotificationConfig` asks.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_delete(
        self,
        params: Option<&RawValue>,
    ) -> Result<DeleteTaskPushNotificationConfigRequest, A2aError> {
        let request = self.read_push_get(params)?;
        match request.id.is_empty() {
            true => Err(A2aError::invalid("pushNotificationConfigId", "is missing")),
            false => Ok(request),
        }
    }

    /// What `GetExtendedAgentCard` asks; 0.3 has no parameters.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_extended_card(
        self,
        params: Option<&RawValue>,
    ) -> Result<GetExtendedAgentCardRequest, A2aError> {
        let request: GetExtendedAgentCardRequest = read(params)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// Parameters of a message. In 0.1 the message's `task_id` names the task, which is the client's to name.
    pub fn write_send(self, request: &SendMessageRequest) -> Box<RawValue> {
        match self {
            Self::V10 => request.to_raw(),
            Self::V03 | Self::V03Rest => written(|out| write_send_03(self, request, out)),
            Self::V01 => written(|out| write_send_01(request, out)),
        }
    }

    /// Parameters of a request that all versions write alike but for its tenant, which is 1.0's.
    pub fn write_request(self, request: &impl Wire) -> Box<RawValue> {
        let params = request.to_raw();
        match (self, RawObject::parse(&params)) {
            (Self::V10, _) | (_, Err(_)) => params,
            (_, Ok(mut object)) => {
                object.remove("tenant");
                object.to_raw()
            }
        }
    }

    /// How many messages of a task's history are told who doesn't say; `None`: all. Clients of 0.1 get those that they ask for.
    pub(crate) const fn history_length(self) -> Option<i32> {
        match self {
            Self::V10 | Self::V03 | Self::V03Rest => None,
            Self::V01 => Some(0),
        }
    }

    /// What a client means by what it leaves out or makes up, for servers: see [`Dialect::mean_push`].
    pub(crate) fn mean_send(self, request: &mut SendMessageRequest) {
        if self == Self::V03Rest && !request.message.task_id.is_empty() {
            // These clients may look for the context under its name in the schema, and make one up where they don't find it: the
            // task's is meant.
            request.message.context_id.clear();
        }
        if let Some(push) = request
            .configuration
            .as_mut()
            .and_then(|c| c.task_push_notification_config.as_mut())
        {
            self.mean_push(push);
        }
    }

    /// Before 1.0 a task had one push configuration at first, which had no name: the one without is still the same. An empty
    /// `authentication` is none.
    pub(crate) fn mean_push(self, config: &mut TaskPushNotificationConfig) {
        if self == Self::V10 {
            return;
        }
        if config.id.is_empty() {
            ONLY_CONFIG.clone_into(&mut config.id);
        }
        let shows =
            |shown: &AuthenticationInfo| !shown.scheme.is_empty() || !shown.credentials.is_blank();
        config.authentication = config.authentication.take().filter(shows);
    }
}

fn check_send(request: &SendMessageRequest) -> Result<(), A2aError> {
    let message = &request.message;
    let missing = |field| Err(A2aError::invalid(field, "is missing"));
    if message.message_id.is_empty() {
        return missing("message.messageId");
    }
    match message.role {
        Role::User => {}
        Role::Unspecified => return missing("message.role"),
        // Whoever sends is the user; words in the agent's mouth would stand in the task's history.
        Role::Agent => {
            return Err(A2aError::invalid(
                "message.role",
                "must be the user's: what the agent says it says itself",
            ));
        }
    }
    if message.parts.is_empty() {
        return missing("message.parts");
    }
    at_most(
        "message.parts",
        message.parts.len(),
        limits::PARTS_MAX,
        "has more than 256 parts",
    )?;
    at_most(
        "message.referenceTaskIds",
        message.reference_task_ids.len(),
        limits::REFERENCES_MAX,
        "has more than 64 entries",
    )?;
    at_most(
        "message.extensions",
        message.extensions.len(),
        limits::EXTENSIONS_MAX,
        "has more than 32 entries",
    )?;
    check_id("tenant", &request.tenant)?;
    check_id("message.messageId", &message.message_id)?;
    check_id("message.taskId", &message.task_id)?;
    check_id("message.contextId", &message.context_id)?;
    message
        .reference_task_ids
        .iter()
        .try_for_each(|id| check_id("message.referenceTaskIds", id))?;
    let Some(configuration) = &request.configuration else {
        return Ok(());
    };
    check_history("configuration.historyLength", configuration.history_length)?;
    let Some(push) = &configuration.task_push_notification_config else {
        return Ok(());
    };
    check_id("configuration.taskPushNotificationConfig.id", &push.id)
}

fn at_most(field: &str, count: usize, max: usize, why: &str) -> Result<(), A2aError> {
    if count > max {
        Err(A2aError::invalid(field, why))
    } else {
        Ok(())
    }
}

/// Ids go into keys, headers and paths.
fn check_id(field: &str, id: &str) -> Result<(), A2aError> {
    at_most(
        field,
        id.len(),
        limits::ID_BYTES_MAX,
        "is longer than 128 bytes",
    )?;
    if id.contains(char::is_control) {
        Err(A2aError::invalid(field, "has control characters"))
    } else {
        Ok(())
    }
}

fn check_history(field: &str, length: Option<i32>) -> Result<(), A2aError> {
    if length.is_some_and(i32::is_negative) {
        Err(A2aError::invalid(field, "must not be negative"))
    } else {
        Ok(())
    }
}

/// A request of 0.3's.
fn read_send_03(
    dialect: Dialect,
    params: Option<&RawValue>,
) -> Result<SendMessageRequest, A2aError> {
    let params = params.ok_or_else(|| A2aError::invalid("message", "is missing"))?;
    let mut request = SendMessageRequest::from_raw(params)?;
    check_kinds(&Members::of(params, &At::Root)?)?;
    settle_message(dialect, &mut request.message);
    if let Some(configuration) = &mut request.configuration {
        // Left out is blocking.
        let of_configuration = RawMembers::parse(params)
            .ok()
            .and_then(|all| all.read("configuration"));
        configuration.return_immediately = of_configuration
            .and_then(|raw| RawMembers::parse(raw).ok()?.read::<bool>("blocking"))
            .is_some_and(|blocking| !blocking);
    }
    Ok(request)
}

/// `tasks/send` and `tasks/sendSubscribe` of 0.1: the task's id is the client's, the message has none.
fn read_send_01(params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
    let params = params.ok_or_else(|| A2aError::invalid("id", "is missing"))?;
    let members = Members::of(params, &At::Root)?;
    let mut message: Message = members.required("message", &[])?;
    check_kinds(&members)?;
    settle_message(Dialect::V01, &mut message);
    message.task_id = members.required("id", &[])?;
    message.context_id = members.default("sessionId", &[])?;
    if message.message_id.is_empty() {
        message.message_id = Uuid::new_v4().to_string();
    }
    let configuration = SendMessageConfiguration {
        task_push_notification_config: members.optional("pushNotification", &[])?,
        history_length: members
            .optional("historyLength", &[])?
            .or(Dialect::V01.history_length()),
        ..Default::default()
    };
    let metadata = members.optional("metadata", &[])?;
    Ok(SendMessageRequest {
        tenant: String::new(),
        message,
        configuration: Some(configuration),
        metadata,
    })
}

/// A part says what it is. What is of a kind that is yet to come isn't taken for something else.
fn check_kinds(request: &Members<'_>) -> Result<(), ReadError> {
    let message_at = request.at("message");
    let Some(message) = request.find("message", &["request"])? else {
        return Ok(());
    };
    let message = Members::of(message, &message_at)?;
    let parts_at = message.at("parts");
    let parts = message
        .find("parts", &["content"])?
        .map(|raw| entries(raw, &parts_at))
        .transpose()?;
    parts
        .iter()
        .flatten()
        .enumerate()
        .try_for_each(|(nth, part)| {
            let at = At::Entry(&parts_at, nth);
            let kind: String = Members::of(part, &at)?.default("kind", &["type"])?;
            match &*kind {
                "" | "text" | "file" | "data" => Ok(()),
                _ => Err(at.error("is of a kind that nobody knows: not text, file or data")),
            }
        })
}

fn write_send_03(dialect: Dialect, request: &SendMessageRequest, out: &mut Writer<'_>) {
    let mut object = out.object();
    write_message(dialect, &request.message, &mut object.member("message"));
    if let Some(configuration) = &request.configuration {
        let mut object = object.member("configuration").into_object();
        object.default("acceptedOutputModes", &configuration.accepted_output_modes);
        if let Some(push) = &configuration.task_push_notification_config {
            let name = if dialect == Dialect::V03Rest {
                "pushNotification"
            } else {
                "pushNotificationConfig"
            };
            write_push(push, &mut object.member(name));
        }
        object.optional("historyLength", &configuration.history_length);
        object.always("blocking", &!configuration.return_immediately);
        object.end();
    }
    object.optional("metadata", &request.metadata);
    object.end();
}

fn write_send_01(request: &SendMessageRequest, out: &mut Writer<'_>) {
    let message = &request.message;
    let mut object = out.object();
    match message.task_id.is_empty() {
        true => object.text("id", &Uuid::new_v4().to_string()),
        false => object.text("id", &message.task_id),
    }
    object.words("sessionId", &message.context_id);
    write_message(Dialect::V01, message, &mut object.member("message"));
    if let Some(configuration) = &request.configuration {
        if let Some(push) = &configuration.task_push_notification_config {
            write_push(push, &mut object.member("pushNotification"));
        }
        object.optional("historyLength", &configuration.history_length);
    }
    object.optional("metadata", &request.metadata);
    object.end();
}
