//! The mailroom, in one process and on a store in memory: a module a promise.

// What a mailroom and its callers are in these tests.
mod kit;
// What is never lost, never doubled, and never without a limit.
mod core;
// Who is in the file, by itself or with a key, and who no more.
mod file;
// The document's bodies, texts and events, exactly.
mod golden;
// Who somebody is, and whom it sees.
mod members;
// Several nodes on one store.
mod nodes;
// Names that pose as others, the terminated and keys, over time and nodes.
mod posing;
// Reading, receipts, threads, history, the log and events.
mod reading;
// Keys, limits, expiry, what can't be said.
mod sending;
// What shows as resources, and who is told of mail.
mod resources;
// What models read of the tools.
mod tools;
// Deliveries: order, failures, restarts, many at once.
mod ways;
