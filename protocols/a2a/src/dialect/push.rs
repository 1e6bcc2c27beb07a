//! Push configurations in versions before 1.0.

use serde_json::value::RawValue;

use crate::wire::*;
use crate::{A2aError, Dialect};

/// Parses a resource name `tasks/TASK/pushNotificationConfigs/CONFIG` into the ids of task and
/// configuration. In `tasks/TASK` the configuration's id is empty. `None` for any other name.
fn parse_config_name(name: &str) -> Option<(&str, &str)> {
    let mut segments = name.strip_prefix("tasks/")?.split('/');
    let task = segments.next()?;
    match (segments.next(), segments.next(), segments.next()) {
        (None, ..) => Some((task, "")),
        (Some("pushNotificationConfigs"), config, None) => Some((task, config.unwrap_or_default())),
        _ => None,
    }
}

/// Reads the parameters that create a push configuration, and returns the configuration with its
/// task's id. Over HTTP+JSON the configuration is either in the member `config` or the whole body.
/// There a resource name (`name`, `parent`) may contain the ids.
pub(super) fn read_push(
    dialect: Dialect,
    raw: Option<&RawValue>,
) -> Result<TaskPushNotificationConfig, A2aError> {
    let raw =
        raw.ok_or_else(|| A2aError::invalid_params("pushNotificationConfig", "is missing"))?;
    let root = FieldPath::Root;
    let outer = ObjectReader::parse(raw, &root)?;
    let parent: String = outer.default("parent", &[])?;
    let id: String = outer.default("configId", &[])?;
    let config_at = outer.at("config");
    let inner = outer
        .find("config", &[])?
        .map(|raw| ObjectReader::parse(raw, &config_at))
        .transpose()?;
    let members = inner.as_ref().unwrap_or(&outer);
    let mut config: TaskPushNotificationConfig =
        members.required("pushNotificationConfig", &["pushNotification"])?;
    let name: String = members.default("name", &[])?;
    let (task_of_name, id_of_name) = parse_config_name(&name)
        .or_else(|| parse_config_name(&parent))
        .unwrap_or_default();
    let or = |first: &str, second: &str| if first.is_empty() { second } else { first }.to_owned();
    config.task_id = match dialect {
        Dialect::V03Rest => or(&members.default::<String>("taskId", &[])?, task_of_name),
        _ => members.default("taskId", &["id"])?,
    };
    config.id = or(&config.id, &or(&id, id_of_name));
    Ok(config)
}

/// Reads the id of a task and the id of one of its push configurations.
pub(super) fn read_push_id(
    raw: Option<&RawValue>,
) -> Result<GetTaskPushNotificationConfigRequest, A2aError> {
    let missing = || A2aError::invalid_params("id", "is missing");
    let root = FieldPath::Root;
    let members = ObjectReader::parse(raw.ok_or_else(missing)?, &root)?;
    let name: String = members.default("name", &["parent"])?;
    if let Some((task, id)) = parse_config_name(&name) {
        let (task_id, id) = (task.to_owned(), id.to_owned());
        return Ok(GetTaskPushNotificationConfigRequest {
            task_id,
            id,
            ..Default::default()
        });
    }
    // Over HTTP+JSON the ids come from the path, under the names of 1.0.
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

/// Writes a push configuration without its task's id.
pub(super) fn write_push(config: &TaskPushNotificationConfig, out: &mut JsonWriter<'_>) {
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

/// Writes a push configuration together with its task's id.
pub(super) fn write_task_push(
    dialect: Dialect,
    config: &TaskPushNotificationConfig,
    out: &mut JsonWriter<'_>,
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
    out: &mut JsonWriter<'_>,
) {
    let write = |config, out: &mut JsonWriter<'_>| write_task_push(dialect, config, out);
    if dialect != Dialect::V03Rest {
        return out.list(&list.configs, write);
    }
    let mut object = out.object();
    object.list("configs", &list.configs, write);
    object.end();
}
