//! Mailboxes, and what works them off: the queue, its lanes, tickets, turns and hosts.

pub(crate) mod body;
pub(crate) mod host;
pub(crate) mod lane;
#[cfg(test)]
mod model;
pub(crate) mod queue;
#[cfg(test)]
mod tests;
pub(crate) mod turn;

// The lock of `queue`: the model checker has another in its place.
use crate::sync;
