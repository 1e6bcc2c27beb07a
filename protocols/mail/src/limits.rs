//! Every bound of agent mail at its edge, with its unit. Those of letters are in [`callboard_message::mail`].

use std::time::Duration;

/// Most bytes of a request's body, by default: a letter of 64 KiB, each byte of it escaped, and its members.
pub const BODY_BYTES_MAX_DEFAULT: usize = 512 * 1024;
/// How long a body may take to arrive, by default.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long the mailroom may take for a request, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(10);
/// Most event sockets at once, by default; more are refused with 503.
pub const SOCKETS_MAX_DEFAULT: usize = 256;
/// How long an event socket may take for a frame, by default; one that takes longer is closed.
pub const FRAME_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How often an event socket is asked whether it is there, by default; one that is asked three times in a row
/// without a word is closed.
pub const PING_EVERY_DEFAULT: Duration = Duration::from_secs(15);
/// Most bytes of a message, and so of a frame, that a client sends to an event socket.
pub const INCOMING_FRAME_BYTES_MAX: usize = 1_024;
/// Most messages that a client may send to an event socket, which reads none of them.
pub const INCOMING_MESSAGES_MAX: u32 = 64;
/// Most parameters of a query.
pub const PARAMETERS_MAX: usize = 32;
/// Most events that are asked for at once.
pub const EVENTS_PAGE: u32 = 64;
/// Most records of events that are kept for those who see every event, so that they read them once for all.
pub const RECORDS_KEPT: usize = 1_024;
/// The same for those who see what one agent sees: mostly one socket.
pub const OWN_RECORDS_KEPT: usize = 64;
/// Most bytes of an answer that the client reads: a page of 100 whole letters, each byte escaped.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
