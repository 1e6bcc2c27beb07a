//! Mailboxes and their scheduling: queue, lanes, run tokens, turns and scheduler threads.

pub(crate) mod agent_slot;
pub(crate) mod lane;
#[cfg(test)]
mod model;
pub(crate) mod queue;
pub(crate) mod scheduler;
#[cfg(test)]
mod tests;
pub(crate) mod turn;

// Imported here because the model checker replaces the lock of `queue`.
use crate::sync;
