//! Push configurations as stored entries of a key-value store.

use callboard_message::RawObject;
use callboard_runtime::{KvEntry, Task, TaskId};
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use crate::wire::{TaskPushNotificationConfig, WireType};
use crate::{A2aError, Dialect};

/// Maximum number of push configurations of a task.
/// At the limit: `InvalidParams`.
pub const PUSH_CONFIGS_MAX: usize = 16;
/// Maximum length of a push configuration's id, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_ID_BYTES_MAX: usize = 64;
/// Maximum length of a receiver's URL, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_URL_BYTES_MAX: usize = 2 * 1024;
/// Maximum length of a token and of credentials, in bytes.
/// At the limit: `InvalidParams`.
pub const PUSH_SECRET_BYTES_MAX: usize = 4 * 1024;

/// Separator between the task's id and the configuration's id in a key of the store. Neither id can
/// contain it, because control characters aren't allowed in them.
const KEY_SEPARATOR: char = '\u{1}';

/// A push configuration with its delivery state.
#[derive(Clone)]
pub(super) struct StoredPushConfig {
    pub(super) config: TaskPushNotificationConfig,
    /// Dialect of the client that created the configuration. Notifications are written in it. The
    /// two dialects of 0.3 are stored as one, because their notifications are equal.
    pub(super) dialect: Dialect,
    /// Number of the last event that was delivered or dropped.
    pub(super) delivered: u64,
    /// Whether delivery was stopped after too many consecutive failures.
    pub(super) is_abandoned: bool,
    /// Name of the node that delivers notifications while no node is working on the task.
    pub(super) node: String,
}

impl StoredPushConfig {
    /// Parses an entry of the store; `None` if it is invalid or written by an incompatible version
    /// of callboard.
    pub(super) fn from_note(note: &KvEntry) -> Option<Self> {
        let config = TaskPushNotificationConfig::from_raw(note.body.get("config")?).ok()?;
        Some(Self {
            config,
            dialect: Dialect::from_version(&note.body.text("version")?)?,
            delivered: note.body.read("delivered")?,
            is_abandoned: note.body.read("givenUp")?,
            node: note.body.text("node")?,
        })
    }

    pub(super) fn to_body(&self) -> RawObject {
        let mut body = RawObject::new();
        body.set_raw("config", self.config.to_raw());
        let body = body
            .with("version", self.dialect.version())
            .with("delivered", self.delivered);
        body.with("givenUp", self.is_abandoned)
            .with("node", &self.node)
    }
}

/// Returns the namespace in the store for the push configurations of an agent.
pub(super) fn push_namespace(scope: &str) -> String {
    format!("a2a-push/{scope}")
}

/// Returns the store key of a task's push configuration. If `config` is empty, this is the prefix
/// of all keys of the task.
pub(super) fn config_key(task: &TaskId, config: &str) -> String {
    format!("{task}{KEY_SEPARATOR}{config}")
}

/// Parses a store key into the ids of task and configuration.
pub(super) fn parse_config_key(key: &str) -> Option<(TaskId, &str)> {
    let (task, config) = key.split_once(KEY_SEPARATOR)?;
    Some((TaskId::new(task).ok()?, config))
}

/// Checks a push configuration for `task`, and fills in missing ids. The receiver's address is
/// checked separately by [`PushSender`](super::sender::PushSender).
///
/// # Errors
/// `InvalidParams`.
pub(super) fn validate_config(
    mut config: TaskPushNotificationConfig,
    task: &Task,
) -> Result<TaskPushNotificationConfig, A2aError> {
    check_id(&config.id)?;
    if config.id.is_empty() {
        config.id = uuid::Uuid::new_v4().to_string();
    }
    task.id.as_str().clone_into(&mut config.task_id);
    if config.url.len() > PUSH_URL_BYTES_MAX {
        return Err(A2aError::invalid_params(
            "url",
            &format!("is longer than {PUSH_URL_BYTES_MAX} bytes"),
        ));
    }
    check_secret("token", &config.token)?;
    if let Some(authentication) = &config.authentication {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let scheme = &authentication.scheme;
        if scheme.is_empty() || scheme.len() > PUSH_ID_BYTES_MAX || !scheme.bytes().all(is_token) {
            return Err(A2aError::invalid_params(
                "authentication.scheme",
                &format!("must be a token of at most {PUSH_ID_BYTES_MAX} bytes, like Bearer"),
            ));
        }
        check_secret("authentication.credentials", &authentication.credentials)?;
    }
    Ok(config)
}

/// Checks a configuration's id. Fails with `InvalidParams` if it is too long or has control
/// characters.
pub(super) fn check_id(id: &str) -> Result<(), A2aError> {
    match id.len() > PUSH_ID_BYTES_MAX || id.chars().any(char::is_control) {
        true => Err(A2aError::invalid_params(
            "id",
            &format!("is longer than {PUSH_ID_BYTES_MAX} bytes, or has control characters"),
        )),
        false => Ok(()),
    }
}

/// Checks that a secret fits into a header, because a line break would begin another one.
fn check_secret(field: &'static str, secret: &SecretString) -> Result<(), A2aError> {
    let secret = secret.expose_secret();
    let fits = secret.len() <= PUSH_SECRET_BYTES_MAX && HeaderValue::from_str(secret).is_ok();
    if fits {
        Ok(())
    } else {
        Err(A2aError::invalid_params(
            field,
            &format!(
                "is longer than {PUSH_SECRET_BYTES_MAX} bytes, or has characters that a header can't hold"
            ),
        ))
    }
}
