//! Push configurations in the words of versions before 1.0.

use serde_json::value::RawValue;

use crate::wire::*;
use crate::{A2aError, Dialect};

/// `tasks/T/pushNotificationConfigs/C`, where C may be left out.
fn ids_of(name: &str) -> Option<(&str, &str)> {
    let mut segments = name.strip_prefix("tasks/")?.split('/');
    let task = segments.next()?;
    match (segments.next(), segments.next(), segments.next()) {
        (None, ..) => Some((task, "")),
        (Some("pushNotificationConfigs"), config, None) => Some((task, config.unwrap_or_default())),
        _ => None,
    }
}

/// A configuration with its task. Over HTTP+JSON it stands in `config`, or is the body, and its name is its path.
pub(super) fn read_push(
    dialect: Dialect,
    raw: Option<&RawValue>,
) -> Result<TaskPushNotificationConfig, A2aError> {
    let raw = raw.ok_or_else(|| A2aError::invalid("pushNotificationConfig", "is missing"))?;
    let root = At::Root;
    let outer = Members::of(raw, &root)?;
    let parent: String = outer.default("parent", &[])?;
    let id: String = outer.default("configId", &[])?;
    let config_at = outer.at("config");
    let inner = outer
        .find("config", &[])?
        .map(|raw| Members::of(raw, &config_at))
        .transpose()?;
    let members = inner.as_ref().unwrap_or(&outer);
    let mut config: TaskPushNotificationConfig =
        members.required("pushNotificationConfig", &["pushNotification"])?;
    let name: String = members.default("name", &[])?;
    let (task_of_name, id_of_name) = ids_of(&name)
        .or_else(|| ids_of(&parent))
        .unwrap_or_default();
    let or = |first: &str, second: &str| if first.is_empty() { second } else { first }.to_owned();
    config.task_id = match dialect {
        Dialect::V03Rest => or(&members.default::<String>("taskId", &[])?, task_of_name),
        _ => members.default("taskId", &["id"])?,
    };
    config.id = or(&config.id, &or(&id, id_of_name));
    Ok(config)
}

/// Which configuration of which task is meant.
pub(super) fn read_push_id(
    raw: Option<&RawValue>,
) -> Result<GetTaskPushNotificationConfigRequest, A2aError> {
    let missing = || A2aError::invalid("id", "is missing");
    let root = At::Root;
    let members = Members::of(raw.ok_or_else(missing)?, &root)?;
    let name: String = members.default("name", &["parent"])?;
    if let Some((task, id)) = ids_of(&name) {
        let (task_id, id) = (task.to_owned(), id.to_owned());
        return Ok(GetTaskPushNotificationConfigRequest {
            task_id,
            id,
            ..Default::default()
        });
    }
    // Over HTTP+JSON the path says it in 1.0's words.
    let task_id: String = members.default("taskId", &[])?;
    let (task_id, id) = match task_id.is_empty() {
        true => (
            members.required("id", &[])?,
            members.default("pushNotificationConfigId", &[])?,
        ),
        false => (
            task_id,
            members.default("pushNotificationConfigId", &["id"])?,
        ),
    };
    Ok(GetTaskPushNotificationConfigRequest {
        task_id,
        id,
        ..Default::default()
    })
}

/// The configuration without its task.
pub(super) fn write_push(config: &TaskPushNotificationConfig, out: &mut Writer<'_>) {
    let mut object = out.object();
    object.default("id", &config.id);
    object.text("url", &config.url);
    object.default("token", &config.token);
    if let Some(authentication) = &config.authentication {
        let mut object = object.member("authentication").into_object();
        object.list("schemes", [&authentication.scheme], String::write);
        object.default("credentials", &authentication.credentials);
        object.end();
    }
    object.end();
}

/// The configuration with its task.
pub(super) fn write_task_push(
    dialect: Dialect,
    config: &TaskPushNotificationConfig,
    out: &mut Writer<'_>,
) {
    let mut object = out.object();
    match dialect {
        Dialect::V03Rest => {
            object.text(
                "name",
                &format!(
                    "tasks/{}/pushNotificationConfigs/{}",
                    config.task_id, config.id
                ),
            );
        }
        Dialect::V01 => object.text("id", &config.task_id),
        Dialect::V10 | Dialect::V03 => object.text("taskId", &config.task_id),
    }
    write_push(config, &mut object.member("pushNotificationConfig"));
    object.end();
}

pub(super) fn write_push_list(
    dialect: Dialect,
    list: &ListTaskPushNotificationConfigsResponse,
    out: &mut Writer<'_>,
) {
    let write = |config, out: &mut Writer<'_>| write_task_push(dialect, config, out);
    if dialect != Dialect::V03Rest {
        return out.list(&list.configs, write);
    }
    let mut object = out.object();
    object.list("configs", &list.configs, write);
    object.end();
}
