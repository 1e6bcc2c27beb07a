//! The bare dialect: one JSON-RPC `tools/call` a POST, no handshake, no session, no version header.
//!
//! What the clinics speak. Any client that can POST JSON is served; nothing but the envelope is required of it. The server is
//! [`McpServer`](crate::inbound::McpServer) with [`Compat::bare`](crate::inbound::Compat::bare), on loopback addresses only:
//! the dialect has no credentials.
//!
//! # Inbound
//!
//! | sent | HTTP status | code |
//! |---|---|---|
//! | `tools/call` that succeeds | 200 | the reply as `result`, and `"error":null` |
//! | another method | 200 | -32601 |
//! | `params` of the wrong shape, an unknown tool, arguments that don't fit or name nothing (say, an unknown patient) | 200 | -32602 |
//! | anything that the agent can't or won't do | 200 | -32000 |
//! | no JSON | 200 | -32700 |
//! | JSON that is no request, a batch, an id that is neither string nor integer, `tools/call` without id, a response | 200 | -32600 |
//! | another notification | 202, empty | |
//! | a body over the limit | 413 | -32600 |
//! | a body that doesn't arrive in time, or whole | 408, 400 | -32600 |
//! | another content type or encoding | 415 | -32600 |
//! | GET, DELETE, anything but POST | 405 with `Allow` | -32600 |
//! | an `Origin` or `Host` that isn't this machine's | 403 | -32600 |
//! | a credential that nobody verifies | 401 | -32600 |
//!
//! Errors of the call have status 200 because the dialect's clients read the code from the body and take any other
//! status for a transport failure; where the request never became a call, the status says so, and the body says it
//! again. A reply has the document's shape: both `result` and `error`, one of them `null`. An error's `data.kind` is
//! the [`FailureKind`](callboard_message::FailureKind), which tells an unknown patient from a malformed argument.
//!
//! # What travels with a call
//!
//! Optional members of `params._meta`, ignored by servers that don't know them: `callboard/purpose` (why the principal
//! asks), `callboard/deadline-ms` (how long the caller will wait), `callboard/hops` (how many agents the call passed),
//! `traceparent` (W3C Trace Context). Who the principal is never comes from the body.

use std::time::Duration;

pub use self::client::{
    BareClientError, BareClientOptions, BareMcpClient, CALL_TIMEOUT_DEFAULT, CALLS_IN_FLIGHT_MAX,
    CONNECT_TIMEOUT_DEFAULT,
};
pub use self::params::TOOL_NAME_BYTES_MAX;

mod client;
pub(crate) mod error_map;
pub(crate) mod params;

/// How long a call may take at a server, by default; the caller may want less.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// The only method of the dialect.
pub(crate) const METHOD: &str = "tools/call";
