//! Integration tests of the runtime, one module for each guarantee.

#[path = "it/messages.rs"]
mod messages;

// Authors of agents: the attribute of tests, and the answers to mistakes.
#[path = "it/authoring.rs"]
mod authoring;

// Messages reach their handler, typed or by name, and replies come back.
#[path = "it/asking.rs"]
mod asking;

// The mailbox respects its capacity, waiting senders are served in order, and no agent starves.
#[path = "it/mailbox.rs"]
mod mailbox;

// Messages are handled first in, first out; exclusive handlers run alone; concurrent ones respect
// their limit.
#[path = "it/order.rs"]
mod order;

// A panic costs one reply; an agent that keeps failing is ended.
#[path = "it/supervision.rs"]
mod supervision;

// Cancelled work stops and frees its place.
#[path = "it/cancelling.rs"]
mod cancelling;

// Handlers in callers' tasks behave as those on the agent's arbiter.
#[path = "it/asides.rs"]
mod asides;

// Agents end in order, watchers are notified, and nothing leaks.
#[path = "it/lifecycle.rs"]
mod lifecycle;

// Calls carry progress, questions, deadline and principal from agent to agent.
#[path = "it/calls.rs"]
mod calls;

// Principals share the handlers of an agent.
#[path = "it/shares.rs"]
mod shares;

// Directory, events, policy and journal.
#[path = "it/registry.rs"]
mod registry;

// Pools distribute messages by their strategy.
#[path = "it/pool.rs"]
mod pool;

// Regressions found in reviews.
#[path = "it/robust.rs"]
mod robust;

// Key-value store, journal and audit log, in memory.
#[path = "it/keeping.rs"]
mod keeping;

// In-memory tasks: keys, leases, graphs and followers.
#[path = "it/tasks.rs"]
mod tasks;

// Task runner.
#[path = "it/runner.rs"]
mod runner;

// The events of a system, and questions that wait for people.
#[path = "it/node_events.rs"]
mod node_events;
