//! The kernel's contracts, a module a promise.

#[path = "it/messages.rs"]
mod messages;

// A message reaches its handler, typed or by name, and its reply comes back.
#[path = "it/asking.rs"]
mod asking;

// The mailbox holds what it says; senders wait in order; nobody starves.
#[path = "it/mailbox.rs"]
mod mailbox;

// First in, first out; exclusive means alone; n in flight and never more.
#[path = "it/order.rs"]
mod order;

// A failure costs one reply; what can't be helped is given up, not retried for ever.
#[path = "it/supervision.rs"]
mod supervision;

// What nobody wants any more stops, and frees its place.
#[path = "it/cancelling.rs"]
mod cancelling;

// Handlers in the tasks of those who ask are the agent's all the same.
#[path = "it/asides.rs"]
mod asides;

// Agents end in order, whoever cares learns it, and nothing leaks.
#[path = "it/lifecycle.rs"]
mod lifecycle;

// Calls carry progress, questions, deadline and principal from agent to agent.
#[path = "it/calls.rs"]
mod calls;

// Directory, events, policy, journal.
#[path = "it/registry.rs"]
mod registry;

// A pool shares the work as it says.
#[path = "it/pool.rs"]
mod pool;

// What a review broke, and must not break again.
#[path = "it/robust.rs"]
mod robust;

// Notes, streams and the audit, in memory.
#[path = "it/keeping.rs"]
mod keeping;

// Tasks in memory: keys, leases, graphs, followers.
#[path = "it/tasks.rs"]
mod tasks;

// A runner works tasks off.
#[path = "it/runner.rs"]
mod runner;
