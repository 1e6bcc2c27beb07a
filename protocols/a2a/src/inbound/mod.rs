//! The server: agents served over A2A.

#[cfg(feature = "grpc")]
pub(crate) mod binding_api;
pub(crate) mod calls;
mod cards;
mod http_reply;
mod operations;
pub(crate) mod options;
mod push;
mod request_head;
mod rest;
mod server;

pub use callboard_rpc::serve::{BoundServer, ListenOptions, ServeError};
pub use calls::RelatedAgents;
pub use options::{
    A2aOptions, A2aTaskOptions, AgentDescription, BODY_TIMEOUT_DEFAULT, CALL_DEADLINE_DEFAULT,
    KEEP_ALIVE_INTERVAL_DEFAULT, OWNER_TASKS_MAX_DEFAULT, PUSH_RETRY_DELAY_DEFAULT, PushOptions,
    STREAMS_MAX_DEFAULT, TASK_TTL_DEFAULT, TASKS_MAX_DEFAULT,
};
pub use push::{
    PUSH_CONFIGS_MAX, PUSH_CONSECUTIVE_DROPS_MAX, PUSH_ID_BYTES_MAX, PUSH_RETRIES_MAX,
    PUSH_RETRY_AFTER_MAX, PUSH_SECRET_BYTES_MAX, PUSH_TIMEOUT, PUSH_URL_BYTES_MAX,
    PUSH_WORKERS_MAX,
};
pub use rest::rest_routes;
#[cfg(feature = "grpc")]
pub(crate) use server::AddressRouter;
#[cfg(feature = "tower")]
pub use server::a2a_service;
pub use server::{
    A2A_PATH, A2aServer, NAMED_AGENT_PATH, NamedAgents, document_names, resource_paths, serve,
    serve_with,
};
