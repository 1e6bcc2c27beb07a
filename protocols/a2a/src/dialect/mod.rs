//! Differences between protocol versions and bindings, hidden from the rest of the crate.
//!
//! A server reads requests and writes responses; a client writes requests and reads responses.
//! [`Dialect`] has a method for each of these, named after the value that is read or written.

mod card;
mod push;
mod request;
mod response;
mod task;

pub use response::EventWriter;

/// Protocol version that a peer uses, and for 0.3 also the binding, because its JSON differs
/// between bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Version 1.0 over any binding.
    V10,
    /// Version 0.3 over JSON-RPC.
    V03,
    /// Version 0.3 over HTTP+JSON: the ProtoJSON of its schema.
    V03Rest,
    /// Version 0.1 over JSON-RPC, with `tasks/send`.
    V01,
}

/// Operations of A2A, named as in 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sends a message; the response is a task or a message.
    SendMessage,
    /// Sends a message; the response is a stream of events.
    SendStreamingMessage,
    /// Gets the current state of a task.
    GetTask,
    /// Lists tasks, page by page.
    ListTasks,
    /// Cancels a task.
    CancelTask,
    /// Streams a task's current state and its later events.
    SubscribeToTask,
    /// Adds or replaces a push configuration of a task.
    CreateTaskPushNotificationConfig,
    /// Gets a push configuration of a task.
    GetTaskPushNotificationConfig,
    /// Lists the push configurations of a task.
    ListTaskPushNotificationConfigs,
    /// Deletes a push configuration of a task.
    DeleteTaskPushNotificationConfig,
    /// Gets the extended card for authenticated clients.
    GetExtendedAgentCard,
}

impl Operation {
    /// All operations.
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

    /// Returns whether the response is a stream of events.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }

    /// Returns the JSON-RPC methods in 1.0, 0.3 and 0.1; empty if the version lacks the operation.
    const fn rpc_methods(self) -> [&'static str; 3] {
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
    /// Returns the dialect and operation of a JSON-RPC method; `None` if the method is unknown. A
    /// method name that 0.3 and 0.1 share is returned as 0.3; [`Dialect::for_task`] corrects this
    /// once the task is known.
    pub fn from_method(method: &str) -> Option<(Self, Operation)> {
        Operation::ALL.into_iter().find_map(|operation| {
            let nth = operation
                .rpc_methods()
                .iter()
                .position(|name| *name == method && !name.is_empty())?;
            Some((
                [Self::V10, Self::V03, Self::V01].get(nth).copied()?,
                operation,
            ))
        })
    }

    /// Returns the dialect of the response to an operation on a task that was begun in the dialect
    /// `begun`. 0.3 and 0.1 share some methods (`tasks/get`, `tasks/cancel`, `tasks/resubscribe`).
    /// A request by such a method gets its response in 0.1 if the task was begun in 0.1. Any other
    /// request gets its own dialect.
    pub fn for_task(self, operation: Operation, begun: Self) -> Self {
        let is_shared = Self::V03.rpc_method(operation) == Self::V01.rpc_method(operation);
        if (self, begun) == (Self::V03, Self::V01) && is_shared {
            begun
        } else {
            self
        }
    }

    /// Returns the JSON-RPC method of an operation; `None` if this version lacks the operation.
    pub fn rpc_method(self, operation: Operation) -> Option<&'static str> {
        let [v10, v03, v01] = operation.rpc_methods();
        let method = match self {
            Self::V10 => v10,
            Self::V03 | Self::V03Rest => v03,
            Self::V01 => v01,
        };
        (!method.is_empty()).then_some(method)
    }

    /// Returns whether the version in a request's header `A2A-Version` is supported. An empty
    /// version means 0.3 and is supported.
    pub fn is_supported(version: &str) -> bool {
        version.trim().is_empty() || Self::from_version(version).is_some()
    }

    /// Parses a protocol version; `None` if it is empty or unsupported. Of 0.3, it returns the
    /// dialect of JSON-RPC. Only major and minor number count (1.0, section 3.6.1). A leading `v`
    /// is ignored, and `1` means 1.0.
    pub fn from_version(version: &str) -> Option<Self> {
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

    /// Returns the version as sent in the header `A2A-Version`, for example `1.0`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V03 | Self::V03Rest => "0.3",
            Self::V01 => "0.1",
        }
    }
}
