//! Push notifications: events of a task, posted to a URL that its client registered.
//!
//! A configuration is an entry of a key-value store ([`config`]). As long as its task is active, a
//! worker of the dispatcher ([`dispatcher`]) follows the task's events and has each one posted
//! ([`sender`]), one after the other. The number of the last event is stored, so that another
//! process can continue.

mod config;
mod dispatcher;
#[cfg(test)]
mod frozen_tests;
mod sender;

pub(crate) use dispatcher::PushDispatcher;

pub use config::{PUSH_CONFIGS_MAX, PUSH_ID_BYTES_MAX, PUSH_SECRET_BYTES_MAX, PUSH_URL_BYTES_MAX};
pub use dispatcher::{PUSH_CONSECUTIVE_DROPS_MAX, PUSH_WORKERS_MAX};
pub use sender::{PUSH_RETRIES_MAX, PUSH_RETRY_AFTER_MAX, PUSH_TIMEOUT};
