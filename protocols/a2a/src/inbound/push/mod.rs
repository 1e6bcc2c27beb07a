//! Push notifications: what happens to a task, posted to where its client wants it.
//!
//! A configuration is a note ([`config`]). As long as its task lives, a worker of the desk's ([`desk`]) follows
//! the task's events and has each one posted ([`sender`]), one after the other; how far it came is kept, so that another
//! process goes on from there.

mod config;
mod desk;
#[cfg(test)]
mod frozen_tests;
mod sender;

pub(crate) use desk::PushDesk;

pub use config::{PUSH_CONFIGS_MAX, PUSH_ID_BYTES_MAX, PUSH_SECRET_BYTES_MAX, PUSH_URL_BYTES_MAX};
pub use desk::{PUSH_DROPPED_IN_A_ROW_MAX, PUSH_WORKERS_MAX};
pub use sender::{PUSH_RETRIES_MAX, PUSH_RETRY_AFTER_MAX, PUSH_TIMEOUT};
