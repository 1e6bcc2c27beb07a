use secrecy::SecretString;

use crate::wire::macros::wire;

wire! {
    /// What a push shows, so that its receiver knows who pushes.
    #[derive(Default)]
    pub struct AuthenticationInfo {
        /// For example `Bearer`.
        scheme: String = always "scheme",
        /// What follows the scheme in the header.
        credentials: SecretString = default "credentials",
    }

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
