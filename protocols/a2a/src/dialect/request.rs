//! Requests: read by servers, written by clients.

use callboard_message::json::raw_ref;
use callboard_message::{RawMembers, RawObject};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::push::{read_push, read_push_id, write_push};
use super::task::{upgrade_message, write_message};
use crate::wire::*;
use crate::{A2aError, Dialect, limits};

/// Id of a push configuration that a client of a version before 1.0 creates without an id.
const DEFAULT_CONFIG_ID: &str = "default";

/// Reads parameters. Absent parameters count as an empty object.
fn read_params<T: WireType>(params: Option<&RawValue>) -> Result<T, A2aError> {
    Ok(T::from_raw(params.unwrap_or(raw_ref("{}")))?)
}

impl Dialect {
    /// Reads the parameters of `SendMessage` and `SendStreamingMessage`. The message has an id, a
    /// role and at least one part.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidParams`](crate::ErrorKind::InvalidParams), which names the field.
    pub fn read_send(self, params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
        let request = match self {
            Self::V10 => read_params(params)?,
            Self::V03 | Self::V03Rest => read_send_03(self, params)?,
            Self::V01 => read_send_01(params)?,
        };
        check_send(&request)?;
        Ok(request)
    }

    /// Reads the parameters of `GetTask`.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_get(self, params: Option<&RawValue>) -> Result<GetTaskRequest, A2aError> {
        let request: GetTaskRequest = read_params(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        check_history("historyLength", request.history_length)?;
        Ok(request)
    }

    /// Reads the parameters of `ListTasks`. The page size must be between 1 and
    /// [`limits::PAGE_SIZE_MAX`].
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_list(self, params: Option<&RawValue>) -> Result<ListTasksRequest, A2aError> {
        let request: ListTasksRequest = read_params(params)?;
        check_id("contextId", &request.context_id)?;
        check_id("tenant", &request.tenant)?;
        check_history("historyLength", request.history_length)?;
        if request
            .page_size
            .is_some_and(|size| !(1..=limits::PAGE_SIZE_MAX).contains(&size))
        {
            return Err(A2aError::invalid_params(
                "pageSize",
                "must be between 1 and 100",
            ));
        }
        Ok(request)
    }

    /// Reads the parameters of `CancelTask`.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_cancel(self, params: Option<&RawValue>) -> Result<CancelTaskRequest, A2aError> {
        let request: CancelTaskRequest = read_params(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// Reads the parameters of `SubscribeToTask`.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_subscribe(
        self,
        params: Option<&RawValue>,
    ) -> Result<SubscribeToTaskRequest, A2aError> {
        let request: SubscribeToTaskRequest = read_params(params)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// Reads the parameters of `CreateTaskPushNotificationConfig`. `task` is the task's id in the
    /// path over HTTP+JSON; the parameters must name the same task or none.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_create(
        self,
        params: Option<&RawValue>,
        task: Option<&str>,
    ) -> Result<TaskPushNotificationConfig, A2aError> {
        let mut config: TaskPushNotificationConfig = match self {
            Self::V10 => read_params(params)?,
            _ => read_push(self, params)?,
        };
        match task {
            Some(task) if config.task_id.is_empty() => config.task_id = task.to_owned(),
            Some(task) if config.task_id != task => {
                return Err(A2aError::invalid_params(
                    "taskId",
                    "must be the id in the path, or be left out",
                ));
            }
            _ if config.task_id.is_empty() => {
                return Err(A2aError::invalid_params("taskId", "is missing"));
            }
            _ => {}
        }
        check_id("taskId", &config.task_id)?;
        check_id("id", &config.id)?;
        check_id("tenant", &config.tenant)?;
        Ok(config)
    }

    /// Reads the parameters of `GetTaskPushNotificationConfig`. In 0.3 and 0.1 the configuration's
    /// id may be absent: then it is empty.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_get(
        self,
        params: Option<&RawValue>,
    ) -> Result<GetTaskPushNotificationConfigRequest, A2aError> {
        let request: GetTaskPushNotificationConfigRequest = match self {
            Self::V10 => read_params(params)?,
            _ => read_push_id(params)?,
        };
        check_id("taskId", &request.task_id)?;
        check_id("id", &request.id)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// Reads the parameters of `ListTaskPushNotificationConfigs`.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_list(
        self,
        params: Option<&RawValue>,
    ) -> Result<ListTaskPushNotificationConfigsRequest, A2aError> {
        let request: ListTaskPushNotificationConfigsRequest = match self {
            Self::V10 => read_params(params)?,
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

    /// Reads the parameters of `DeleteTaskPushNotificationConfig`, which must name a configuration.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_push_delete(
        self,
        params: Option<&RawValue>,
    ) -> Result<DeleteTaskPushNotificationConfigRequest, A2aError> {
        let request = self.read_push_get(params)?;
        match request.id.is_empty() {
            true => Err(A2aError::invalid_params(
                "pushNotificationConfigId",
                "is missing",
            )),
            false => Ok(request),
        }
    }

    /// Reads the parameters of `GetExtendedAgentCard`, which may be absent.
    ///
    /// # Errors
    /// As [`Dialect::read_send`].
    pub fn read_extended_card(
        self,
        params: Option<&RawValue>,
    ) -> Result<GetExtendedAgentCardRequest, A2aError> {
        let request: GetExtendedAgentCardRequest = read_params(params)?;
        check_id("tenant", &request.tenant)?;
        Ok(request)
    }

    /// Writes the parameters of `SendMessage` and `SendStreamingMessage`. In 0.1 the client assigns
    /// the task's id: the message's `task_id`, or a new UUID if that is empty.
    pub fn write_send(self, request: &SendMessageRequest) -> Box<RawValue> {
        match self {
            Self::V10 => request.to_raw(),
            Self::V03 | Self::V03Rest => write_json(|out| write_send_03(self, request, out)),
            Self::V01 => write_json(|out| write_send_01(request, out)),
        }
    }

    /// Writes the parameters of a request that is the same in all versions. Versions before 1.0
    /// have no tenant, so it is omitted for them.
    pub fn write_request(self, request: &impl WireType) -> Box<RawValue> {
        let params = request.to_raw();
        match (self, RawObject::parse(&params)) {
            (Self::V10, _) | (_, Err(_)) => params,
            (_, Ok(mut object)) => {
                object.remove("tenant");
                object.to_raw()
            }
        }
    }

    /// Default maximum number of history messages in a response, for clients that request none;
    /// `None` for all. In 0.1 the default is 0.
    pub(crate) const fn default_history_length(self) -> Option<i32> {
        match self {
            Self::V10 | Self::V03 | Self::V03Rest => None,
            Self::V01 => Some(0),
        }
    }

    /// Corrects a received request for known deviations of older clients. A context id that 0.3
    /// clients over HTTP+JSON may have invented is dropped if the message names a task. The push
    /// configuration is corrected by [`Dialect::normalize_push`].
    pub(crate) fn normalize_send(self, request: &mut SendMessageRequest) {
        if self == Self::V03Rest && !request.message.task_id.is_empty() {
            // Some of these clients look for the context under its name in the schema and invent
            // one if they don't find it. The task's context is meant.
            request.message.context_id.clear();
        }
        if let Some(push) = request
            .configuration
            .as_mut()
            .and_then(|c| c.task_push_notification_config.as_mut())
        {
            self.normalize_push(push);
        }
    }

    /// Corrects a push configuration received from a client before 1.0. Without an id it gets the
    /// id `default`, because tasks in those versions had one configuration at first. An empty
    /// `authentication` is removed.
    pub(crate) fn normalize_push(self, config: &mut TaskPushNotificationConfig) {
        if self == Self::V10 {
            return;
        }
        if config.id.is_empty() {
            DEFAULT_CONFIG_ID.clone_into(&mut config.id);
        }
        let shows =
            |shown: &AuthenticationInfo| !shown.scheme.is_empty() || !shown.credentials.is_blank();
        config.authentication = config.authentication.take().filter(shows);
    }
}

fn check_send(request: &SendMessageRequest) -> Result<(), A2aError> {
    let message = &request.message;
    let missing = |field| Err(A2aError::invalid_params(field, "is missing"));
    if message.message_id.is_empty() {
        return missing("message.messageId");
    }
    match message.role {
        Role::User => {}
        Role::Unspecified => return missing("message.role"),
        // The sender is always the user. A message in the agent's name would falsify the task's
        // history.
        Role::Agent => {
            return Err(A2aError::invalid_params(
                "message.role",
                "must be the user's: clients can't write messages of the agent",
            ));
        }
    }
    if message.parts.is_empty() {
        return missing("message.parts");
    }
    check_at_most(
        "message.parts",
        message.parts.len(),
        limits::PARTS_MAX,
        "has more than 256 parts",
    )?;
    check_at_most(
        "message.referenceTaskIds",
        message.reference_task_ids.len(),
        limits::REFERENCES_MAX,
        "has more than 64 entries",
    )?;
    check_at_most(
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

fn check_at_most(field: &str, count: usize, max: usize, why: &str) -> Result<(), A2aError> {
    if count > max {
        Err(A2aError::invalid_params(field, why))
    } else {
        Ok(())
    }
}

/// Checks that an id has at most 128 bytes ([`limits::ID_BYTES_MAX`]) and no control characters,
/// because ids are used in keys, headers and paths. Empty ids pass.
///
/// # Errors
/// `InvalidParams`, which names `field`.
fn check_id(field: &str, id: &str) -> Result<(), A2aError> {
    check_at_most(
        field,
        id.len(),
        limits::ID_BYTES_MAX,
        "is longer than 128 bytes",
    )?;
    if id.contains(char::is_control) {
        Err(A2aError::invalid_params(field, "has control characters"))
    } else {
        Ok(())
    }
}

fn check_history(field: &str, length: Option<i32>) -> Result<(), A2aError> {
    if length.is_some_and(i32::is_negative) {
        Err(A2aError::invalid_params(field, "must not be negative"))
    } else {
        Ok(())
    }
}

/// Reads the parameters of a message in 0.3.
fn read_send_03(
    dialect: Dialect,
    params: Option<&RawValue>,
) -> Result<SendMessageRequest, A2aError> {
    let params = params.ok_or_else(|| A2aError::invalid_params("message", "is missing"))?;
    let mut request = SendMessageRequest::from_raw(params)?;
    check_part_kinds(&ObjectReader::parse(params, &FieldPath::Root)?)?;
    upgrade_message(dialect, &mut request.message);
    if let Some(configuration) = &mut request.configuration {
        // Absent means blocking.
        let of_configuration = RawMembers::parse(params)
            .ok()
            .and_then(|all| all.read("configuration"));
        configuration.return_immediately = of_configuration
            .and_then(|raw| RawMembers::parse(raw).ok()?.read::<bool>("blocking"))
            .is_some_and(|blocking| !blocking);
    }
    Ok(request)
}

/// Reads the parameters of `tasks/send` and `tasks/sendSubscribe` of 0.1. In this version the
/// client assigns the task's id, and messages have no ids.
fn read_send_01(params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
    let params = params.ok_or_else(|| A2aError::invalid_params("id", "is missing"))?;
    let members = ObjectReader::parse(params, &FieldPath::Root)?;
    let mut message: A2aMessage = members.required("message", &[])?;
    check_part_kinds(&members)?;
    upgrade_message(Dialect::V01, &mut message);
    message.task_id = members.required("id", &[])?;
    message.context_id = members.default("sessionId", &[])?;
    if message.message_id.is_empty() {
        message.message_id = Uuid::new_v4().to_string();
    }
    let configuration = SendMessageConfiguration {
        task_push_notification_config: members.optional("pushNotification", &[])?,
        history_length: members
            .optional("historyLength", &[])?
            .or(Dialect::V01.default_history_length()),
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

/// Checks the `kind` of each part, if present. Rejecting unknown kinds ensures that a part of a
/// future kind isn't read as another one.
fn check_part_kinds(request: &ObjectReader<'_>) -> Result<(), ReadError> {
    let message_at = request.at("message");
    let Some(message) = request.find("message", &["request"])? else {
        return Ok(());
    };
    let message = ObjectReader::parse(message, &message_at)?;
    let parts_at = message.at("parts");
    let parts = message
        .find("parts", &["content"])?
        .map(|raw| list_entries(raw, &parts_at))
        .transpose()?;
    parts
        .iter()
        .flatten()
        .enumerate()
        .try_for_each(|(nth, part)| {
            let at = FieldPath::Entry(&parts_at, nth);
            let kind: String = ObjectReader::parse(part, &at)?.default("kind", &["type"])?;
            match &*kind {
                "" | "text" | "file" | "data" => Ok(()),
                _ => Err(at.error("is of an unknown kind: use text, file or data")),
            }
        })
}

fn write_send_03(dialect: Dialect, request: &SendMessageRequest, out: &mut JsonWriter<'_>) {
    let mut object = out.object();
    write_message(dialect, &request.message, &mut object.member("message"));
    if let Some(configuration) = &request.configuration {
        let mut object = object.member("configuration").into_object();
        // Servers of 0.2 require it. An empty list excludes nothing.
        object.always("acceptedOutputModes", &configuration.accepted_output_modes);
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

fn write_send_01(request: &SendMessageRequest, out: &mut JsonWriter<'_>) {
    let message = &request.message;
    let mut object = out.object();
    match message.task_id.is_empty() {
        true => object.text("id", &Uuid::new_v4().to_string()),
        false => object.text("id", &message.task_id),
    }
    object.non_empty_text("sessionId", &message.context_id);
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
