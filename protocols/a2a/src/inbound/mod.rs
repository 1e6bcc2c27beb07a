//! The server: an agent under an A2A address.

mod admit;
pub(crate) mod calls;
mod cards;
#[cfg(feature = "grpc")]
mod direct;
mod operations;
pub(crate) mod options;
mod push;
mod reply;
mod rest;
mod server;

pub use callboard_rpc::serve::{ListenOptions, ServeError, Serving};
pub use options::{
    A2aOptions, BODY_TIMEOUT_DEFAULT, CALL_DEADLINE_DEFAULT, Info, KEEP_ALIVE_COMMENT_DEFAULT,
    OWNER_TASKS_MAX_DEFAULT, PRINCIPAL_STREAMS_MAX_DEFAULT, PUSH_RETRY_AFTER_DEFAULT, PushOptions,
    STREAMS_MAX_DEFAULT, TASK_TTL_DEFAULT, TASKS_MAX_DEFAULT, TaskOptions,
};
pub use push::{
    PUSH_CONFIGS_MAX, PUSH_DROPPED_IN_A_ROW_MAX, PUSH_ID_BYTES_MAX, PUSH_RETRIES_MAX,
    PUSH_RETRY_AFTER_MAX, PUSH_SECRET_BYTES_MAX, PUSH_TIMEOUT, PUSH_URL_BYTES_MAX,
    PUSH_WORKERS_MAX,
};
#[cfg(feature = "grpc")]
pub(crate) use server::Front;
pub use server::{A2aServer, NAMED_PATH, NamedAgents, PATH, serve, serve_with};
