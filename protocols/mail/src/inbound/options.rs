//! What a mail listener is made with.

use std::time::Duration;

use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, Limits};

use crate::limits::{
    BODY_BYTES_MAX_DEFAULT, BODY_TIMEOUT_DEFAULT, CALL_DEADLINE_DEFAULT, FRAME_TIMEOUT_DEFAULT, PING_EVERY_DEFAULT,
    SOCKETS_MAX_DEFAULT,
};

/// How a mailroom is served. Without keys only this machine's operator can be known, so `access` is to be set.
#[derive(Debug, Clone)]
pub struct MailServerOptions {
    /// How it is known who is behind a request.
    pub access: Access,
    /// Names (`Host`) beside this machine's own.
    pub hosts: AllowedHosts,
    /// Web pages (`Origin`) beside this machine's own.
    pub origins: AllowedOrigins,
    /// What a body may measure.
    pub limits: Limits,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long the mailroom may take for a request.
    pub call_deadline: Duration,
    /// Most event sockets at once; more are refused with 503.
    pub sockets_max: usize,
    /// How long an event socket may take for a frame; one that takes longer is closed.
    pub frame_timeout: Duration,
    /// How often an event socket is asked whether it is there; after two silent periods it is closed.
    pub ping_every: Duration,
}

impl Default for MailServerOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            limits: Limits { body_bytes_max: BODY_BYTES_MAX_DEFAULT, ..Limits::default() },
            body_timeout: BODY_TIMEOUT_DEFAULT,
            call_deadline: CALL_DEADLINE_DEFAULT,
            sockets_max: SOCKETS_MAX_DEFAULT,
            frame_timeout: FRAME_TIMEOUT_DEFAULT,
            ping_every: PING_EVERY_DEFAULT,
        }
    }
}
