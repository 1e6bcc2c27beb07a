//! What differs between versions and bindings, so that nobody else needs to know.
//!
//! A server reads requests and writes responses, a client the other way round; each of these is a method here, named after
//! what is read or written.

mod card;
mod push;
mod request;
mod response;
mod task;

pub use response::EventWriter;

/// In which words a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// 1.0, whatever the binding.
    V10,
    /// 0.3 over JSON-RPC.
    V03,
    /// 0.3 over HTTP+JSON: the ProtoJSON of its schema.
    V03Rest,
    /// 0.1 over JSON-RPC, with `tasks/send`.
    V01,
}

/// What may be asked, under 1.0's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A message, answered by a task or a message.
    SendMessage,
    /// A message, answered by a stream.
    SendStreamingMessage,
    /// A task as it is.
    GetTask,
    /// A page of tasks.
    ListTasks,
    /// The end of a task.
    CancelTask,
    /// What happens to a task from now on.
    SubscribeToTask,
    /// A push configuration is put.
    CreateTaskPushNotificationConfig,
    /// A push configuration is read.
    GetTaskPushNotificationConfig,
    /// A task's push configurations are read.
    ListTaskPushNotificationConfigs,
    /// A push configuration is taken away.
    DeleteTaskPushNotificationConfig,
    /// The card for those who are known.
    GetExtendedAgentCard,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::SendMessage,
        Self::SendStreamingMessage,
        Self::GetTask,
        Self::ListTasks,
        Self::CancelTask,
        Self::SubscribeToTask,
        Self::CreateTaskPushNotificationConfig,
        Self::GetTaskPushNotificationConfig,
        Self::ListTaskPushNotificationConfigs,
        Self::DeleteTaskPushNotificationConfig,
        Self::GetExtendedAgentCard,
    ];

    /// Whether it is answered by a stream.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }

    /// JSON-RPC's methods in 1.0, 0.3 and 0.1; empty where the version has none.
    const fn methods(self) -> [&'static str; 3] {
        match self {
            Self::SendMessage => ["SendMessage", "message/send", "tasks/send"],
            Self::SendStreamingMessage => [
                "SendStreamingMessage",
                "message/stream",
                "tasks/sendSubscribe",
            ],
            Self::GetTask => ["GetTask", "tasks/get", "tasks/get"],
            Self::ListTasks => ["ListTasks", "", ""],
            Self::CancelTask => ["CancelTask", "tasks/cancel", "tasks/cancel"],
            Self::SubscribeToTask => ["SubscribeToTask", "tasks/resubscribe", "tasks/resubscribe"],
            Self::CreateTaskPushNotificationConfig => [
                "CreateTaskPushNotificationConfig",
                "tasks/pushNotificationConfig/set",
                "tasks/pushNotification/set",
            ],
            Self::GetTaskPushNotificationConfig => [
                "GetTaskPushNotificationConfig",
                "tasks/pushNotificationConfig/get",
                "tasks/pushNotification/get",
            ],
            Self::ListTaskPushNotificationConfigs => [
                "ListTaskPushNotificationConfigs",
                "tasks/pushNotificationConfig/list",
                "",
            ],
            Self::DeleteTaskPushNotificationConfig => [
                "DeleteTaskPushNotificationConfig",
                "tasks/pushNotificationConfig/delete",
                "",
            ],
            Self::GetExtendedAgentCard => [
                "GetExtendedAgentCard",
                "agent/getAuthenticatedExtendedCard",
                "",
            ],
        }
    }
}

impl Dialect {
    /// Whose JSON-RPC method that is, and what it asks. Where 0.3 and 0.1 share a name it is 0.3's: see
    /// [`Dialect::as_begun`].
    pub fn of_method(method: &str) -> Option<(Self, Operation)> {
        Operation::ALL.into_iter().find_map(|operation| {
            let nth = operation
                .methods()
                .iter()
                .position(|name| *name == method && !name.is_empty())?;
            Some((
                [Self::V10, Self::V03, Self::V01].get(nth).copied()?,
                operation,
            ))
        })
    }

    /// The words for the answer, where a task that was begun in others is asked for. `tasks/get`, `tasks/cancel` and
    /// `tasks/resubscribe` are both 0.3's and 0.1's and say the same, so the task decides.
    pub fn as_begun(self, operation: Operation, begun: Self) -> Self {
        let is_shared = Self::V03.method(operation) == Self::V01.method(operation);
        if (self, begun) == (Self::V03, Self::V01) && is_shared {
            begun
        } else {
            self
        }
    }

    /// The JSON-RPC method of an operation; `None` where the version has no such operation.
    pub fn method(self, operation: Operation) -> Option<&'static str> {
        let [v10, v03, v01] = operation.methods();
        let method = match self {
            Self::V10 => v10,
            Self::V03 | Self::V03Rest => v03,
            Self::V01 => v01,
        };
        (!method.is_empty()).then_some(method)
    }

    /// Whether the version that a request names (its header `A2A-Version`) is spoken here. None is 0.3.
    pub fn is_served(version: &str) -> bool {
        version.trim().is_empty() || Self::of_version(version).is_some()
    }

    /// The words of a version, of which only major and minor count (1.0, section 3.6.1), with or without a `v` before them:
    /// over JSON-RPC where bindings differ. `1` is 1.0. None is nobody's.
    pub fn of_version(version: &str) -> Option<Self> {
        let version = version.trim();
        let mut numbers = version
            .strip_prefix(['v', 'V'])
            .unwrap_or(version)
            .split('.');
        match (numbers.next()?, numbers.next()) {
            ("1", None | Some("0")) => Some(Self::V10),
            ("0", Some("3" | "2")) => Some(Self::V03),
            ("0", Some("1")) => Some(Self::V01),
            _ => None,
        }
    }

    /// What the header `A2A-Version` says.
    pub fn version(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V03 | Self::V03Rest => "0.3",
            Self::V01 => "0.1",
        }
    }
}
