//! A push configuration as it is kept: a note.

use callboard_message::RawObject;
use callboard_runtime::{Note, Task, TaskId};
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use crate::wire::{TaskPushNotificationConfig, Wire};
use crate::{A2aError, Dialect};

/// Most push configurations of a task.
/// At the limit: `InvalidParams`.
pub const PUSH_CONFIGS_MAX: usize = 16;
/// Longest id of a push configuration, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_ID_BYTES_MAX: usize = 64;
/// Longest URL of a receiver, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_URL_BYTES_MAX: usize = 2 * 1024;
/// Longest token, and longest credentials, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_SECRET_BYTES_MAX: usize = 4 * 1024;

/// Between a task's id and a configuration's: neither has control characters.
const BETWEEN: char = '\u{1}';

/// What is kept of a configuration.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) config: TaskPushNotificationConfig,
    /// How its client speaks, and so what it is sent. Of the bindings of 0.3 it is no matter which.
    pub(super) dialect: Dialect,
    /// The number of the last event that was posted, or given up.
    pub(super) delivered: u64,
    /// The receiver took nothing for so long that it is sent no more.
    pub(super) given_up: bool,
    /// Which node posts, while nobody works on the task.
    pub(super) node: String,
}

impl Kept {
    /// `None` where the note is of another version of callboard, or broken.
    pub(super) fn of(note: &Note) -> Option<Self> {
        let config = TaskPushNotificationConfig::from_raw(note.body.get("config")?).ok()?;
        Some(Self {
            config,
            dialect: Dialect::of_version(&note.body.text("version")?)?,
            delivered: note.body.read("delivered")?,
            given_up: note.body.read("givenUp")?,
            node: note.body.text("node")?,
        })
    }

    pub(super) fn to_body(&self) -> RawObject {
        let mut body = RawObject::new();
        body.set_raw("config", self.config.to_raw());
        let body = body
            .with("version", self.dialect.version())
            .with("delivered", self.delivered);
        body.with("givenUp", self.given_up).with("node", &self.node)
    }
}

/// Where an agent's configurations are kept.
pub(super) fn space(scope: &str) -> String {
    format!("a2a-push/{scope}")
}

/// The key of a task's configuration; with none, what the keys of all of them begin with.
pub(super) fn key(task: &TaskId, config: &str) -> String {
    format!("{task}{BETWEEN}{config}")
}

/// The task and the configuration that a key is of.
pub(super) fn parts_of(key: &str) -> Option<(TaskId, &str)> {
    let (task, config) = key.split_once(BETWEEN)?;
    Some((TaskId::new(task).ok()?, config))
}

/// A configuration as it may be kept for `task`; its receiver's place is the sender's to judge.
///
/// # Errors
/// `InvalidParams`.
pub(super) fn checked(
    mut config: TaskPushNotificationConfig,
    task: &Task,
) -> Result<TaskPushNotificationConfig, A2aError> {
    check_id(&config.id)?;
    if config.id.is_empty() {
        config.id = uuid::Uuid::new_v4().to_string();
    }
    task.id.as_str().clone_into(&mut config.task_id);
    if config.url.len() > PUSH_URL_BYTES_MAX {
        return Err(A2aError::invalid("url", "is too long"));
    }
    check_secret("token", &config.token)?;
    if let Some(authentication) = &config.authentication {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let scheme = &authentication.scheme;
        if scheme.is_empty() || scheme.len() > PUSH_ID_BYTES_MAX || !scheme.bytes().all(is_token) {
            return Err(A2aError::invalid(
                "authentication.scheme",
                "must be a token, like Bearer",
            ));
        }
        check_secret("authentication.credentials", &authentication.credentials)?;
    }
    Ok(config)
}

/// Refuses ids that no configuration has.
pub(super) fn check_id(id: &str) -> Result<(), A2aError> {
    match id.len() > PUSH_ID_BYTES_MAX || id.chars().any(char::is_control) {
        true => Err(A2aError::invalid(
            "id",
            "is too long, or has control characters",
        )),
        false => Ok(()),
    }
}

/// What goes into a header must fit there: a line break would begin another.
fn check_secret(field: &'static str, secret: &SecretString) -> Result<(), A2aError> {
    let secret = secret.expose_secret();
    let fits = secret.len() <= PUSH_SECRET_BYTES_MAX && HeaderValue::from_str(secret).is_ok();
    if fits {
        Ok(())
    } else {
        Err(A2aError::invalid(field, "is too long, or fits no header"))
    }
}
