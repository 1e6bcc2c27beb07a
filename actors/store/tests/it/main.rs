//! Integration tests of the store: a module for each guarantee.

/// Stores to test on: SQLite, and Postgres if there is a server.
mod kit;

/// Tasks behave the same in memory and in a store.
mod alike;
/// Audit chain: no gaps, also across restarts; entries are found by filters.
mod audit;
/// A backup made during writes is consistent, and is a store itself.
mod backup;
/// Lines about calls: a chain of their own, which is bounded.
mod calls;
/// Bodies of clinical tasks are never written to disk.
mod clinical;
/// Crashes by SIGKILL.
mod crash;
/// Full disks and stores at their size limit: no lost acknowledgement, and recovery.
mod disk;
/// Leases: a task has one worker at a time, across restarts and nodes.
mod fencing;
/// Reading the audit onward from a position: each entry once, across restarts and removals.
mod follow;
/// Snapshots of the schema and of stored rows, on which other programs and later versions rely.
mod frozen;
/// Task graphs: each task runs once, in order, across kills.
mod graph;
/// Journal streams: numbers without gaps, idempotency keys, limits.
mod journal;
/// Mail: messages, copies and events, also after a restart.
mod mail;
/// Key-value store, and import and export of the agent directory.
mod notes;
/// Opening of files that are foreign, damaged, locked or not writable.
mod open;
/// Large requests of tasks.
mod requests;
/// Cleanup removes data past its retention, and nothing else.
mod retention;
/// Sample data: one of every kind of stored item.
mod samples;
/// Task store contract: in memory, on SQLite and on Postgres.
mod tasks;
/// Stores written by earlier versions can be read, verified and continued.
mod upgrade;
/// Tampering with the audit log is detected.
mod verify;
