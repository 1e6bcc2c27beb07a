//! Integration tests of the mailroom in one process with an in-memory store, one module for each
//! guarantee.

// Test kit: mailroom and callers.
mod kit;
// Guarantees: nothing is lost, duplicated or unlimited.
mod core;
// Members from the configuration file and from keys.
mod file;
// The documented bodies, texts and events, exactly.
mod golden;
// Identity and visibility.
mod members;
// Several nodes on one store.
mod nodes;
// Impersonation: display names, terminated agents and keys, over time and across nodes.
mod posing;
// Reading: receipts, threads, history, the log and events.
mod reading;
// Sending: keys, limits, expiry, invalid messages.
mod sending;
// Resources and notifications.
mod resources;
// Descriptions of the tools.
mod tools;
// Delivery: order, failures, restarts, many recipients.
mod ways;
