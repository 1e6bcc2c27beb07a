use secrecy::SecretString;
use serde_json::value::RawValue;

use crate::wire::macros::{quiet, wire};
use crate::wire::{At, Members, ReadError, Wire, Writer};

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
            scheme: members.optional("scheme", &[])?.or_else(|| schemes.into_iter().next()).unwrap_or_default(),
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
