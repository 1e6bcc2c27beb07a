use serde_json::value::RawValue;
use uuid::Uuid;

use crate::v03::{check_kinds, settle_message, write_message, write_push_in};
use crate::wire::*;
use crate::{A2aError, Dialect};

/// `tasks/send` and `tasks/sendSubscribe`: the task's id is the client's, the message has none.
pub(crate) fn read_send(params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
    let root = At::Root;
    let params = params.ok_or_else(|| A2aError::invalid("id", "is missing"))?;
    let members = Members::of(params, &root)?;
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
        history_length: members.optional("historyLength", &[])?.or(Dialect::V01.history_length()),
        ..Default::default()
    };
    let metadata = members.optional("metadata", &[])?;
    Ok(SendMessageRequest { tenant: String::new(), message, configuration: Some(configuration), metadata })
}

pub(crate) fn write_send(request: &SendMessageRequest) -> Box<RawValue> {
    let message = &request.message;
    let made = || Uuid::new_v4().to_string();
    let id = if message.task_id.is_empty() { made() } else { message.task_id.clone() };
    written(|out| {
        let mut object = out.object();
        object.text("id", &id);
        object.words("sessionId", &message.context_id);
        write_message(Dialect::V01, message, &mut object.member("message"));
        if let Some(configuration) = &request.configuration {
            if let Some(push) = &configuration.task_push_notification_config {
                write_push_in(push, &mut object.member("pushNotification"));
            }
            object.optional("historyLength", &configuration.history_length);
        }
        object.optional("metadata", &request.metadata);
        object.end();
    })
}
