//! What the store promises: a module a promise.

/// Stores to try it on.
mod kit;

/// Tasks in memory and in a store go the same way.
mod alike;
/// The audit's chain: without gaps, over restarts, found again.
mod audit;
/// A copy while others write is whole, and a store.
mod backup;
/// Clinical tasks: no word of them reaches the disk.
mod clinical;
/// kill -9.
mod crash;
/// A disk that is full, and a store at its limit: nothing is acknowledged that isn't kept, and it goes on.
mod disk;
/// A task is one worker's at a time, over restarts and nodes.
mod fencing;
/// What others read of a store, and earlier versions wrote: tables, columns and rows.
mod frozen;
/// Graphs of tasks: each part once, in order, over kills.
mod graph;
/// Streams: numbers without gaps, keys once, limits.
mod journal;
/// Mail: letters, copies, events; after a restart too.
mod mail;
/// Notes, and the directory as a file.
mod notes;
/// Files that are no store, or not whole, or another's.
mod open;
/// What is old enough goes, and nothing else.
mod retention;
/// One of everything that a store keeps.
mod samples;
/// Tasks: the same in memory, in a file and in a database.
mod tasks;
/// What earlier versions wrote is read, verified and gone on with.
mod upgrade;
/// Somebody who changes the audit is found out.
mod verify;
