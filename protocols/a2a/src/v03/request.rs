use callboard_message::RawMembers;
use serde_json::value::RawValue;

use super::{settle_message, write_message, write_push_in};
use crate::wire::*;
use crate::{A2aError, Dialect};

pub(crate) fn read_send(dialect: Dialect, params: Option<&RawValue>) -> Result<SendMessageRequest, A2aError> {
    let params = params.ok_or_else(|| A2aError::invalid("message", "is missing"))?;
    let mut request = SendMessageRequest::from_raw(params)?;
    check_kinds(&Members::of(params, &At::Root)?)?;
    settle_message(dialect, &mut request.message);
    if let Some(configuration) = &mut request.configuration {
        // Left out is blocking.
        let of_configuration = RawMembers::parse(params).ok().and_then(|all| all.read("configuration"));
        configuration.return_immediately = of_configuration
            .and_then(|raw| RawMembers::parse(raw).ok()?.read::<bool>("blocking"))
            .is_some_and(|blocking| !blocking);
    }
    Ok(request)
}

/// A part says what it is. What is of a kind that is yet to come isn't taken for something else.
pub(crate) fn check_kinds(request: &Members<'_>) -> Result<(), ReadError> {
    let message_at = request.at("message");
    let Some(message) = request.find("message", &["request"])? else { return Ok(()) };
    let message = Members::of(message, &message_at)?;
    let parts_at = message.at("parts");
    let parts = message.find("parts", &["content"])?.map(|raw| entries(raw, &parts_at)).transpose()?;
    parts.iter().flatten().enumerate().try_for_each(|(nth, part)| {
        let at = At::Entry(&parts_at, nth);
        let kind: String = Members::of(part, &at)?.default("kind", &["type"])?;
        match &*kind {
            "" | "text" | "file" | "data" => Ok(()),
            _ => Err(at.error("is of a kind that nobody knows: not text, file or data")),
        }
    })
}

pub(crate) fn write_send(dialect: Dialect, request: &SendMessageRequest) -> Box<RawValue> {
    written(|out| {
        let mut object = out.object();
        write_message(dialect, &request.message, &mut object.member("message"));
        if let Some(configuration) = &request.configuration {
            write_configuration(dialect, configuration, &mut object.member("configuration"));
        }
        object.optional("metadata", &request.metadata);
        object.end();
    })
}

fn write_configuration(dialect: Dialect, configuration: &SendMessageConfiguration, out: &mut Writer<'_>) {
    let mut object = out.object();
    object.default("acceptedOutputModes", &configuration.accepted_output_modes);
    if let Some(push) = &configuration.task_push_notification_config {
        let name = if dialect == Dialect::V03Rest { "pushNotification" } else { "pushNotificationConfig" };
        write_push_in(push, &mut object.member(name));
    }
    object.optional("historyLength", &configuration.history_length);
    object.always("blocking", &!configuration.return_immediately);
    object.end();
}
