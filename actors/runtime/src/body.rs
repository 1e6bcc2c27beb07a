//! The ticket of an agent, and what it carries: the agent itself, and all that only its runner touches.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::agent::Agent;
use crate::cell::Cell;
use crate::cx::Cx;
use crate::ids::AgentId;
use crate::lane::Queue;
use crate::mailbox::HasBatch;
use crate::supervision::{ExitReason, History};

/// An agent's ticket: it has the agent in it.
pub(crate) struct Runner<A: Agent> {
    pub(crate) cell: Arc<Cell<A>>,
    pub(crate) body: Body<A>,
}

impl<A: Agent> HasBatch<Queue> for Box<Runner<A>> {
    fn batch(&mut self) -> &mut Queue {
        &mut self.body.batch
    }
}

impl<A: Agent> Drop for Runner<A> {
    /// A ticket that is lost, because its thread has ended, ends its agent: whoever waits for it learns so.
    fn drop(&mut self) {
        if !matches!(self.body.phase, Phase::Ended) {
            let Self { cell, body } = self;
            drop_caught(AssertUnwindSafe(|| {
                cell.end(body, ExitReason::Killed);
            }));
        }
    }
}

/// Runs `f`, which drops values of the user's: one that panics at that must not take the arbiter along.
pub(crate) fn drop_caught(f: impl FnOnce() + std::panic::UnwindSafe) {
    let _ = std::panic::catch_unwind(f);
}

/// What only the holder of the ticket touches.
pub(crate) struct Body<A: Agent> {
    pub(crate) phase: Phase,
    /// Here but while a handler has it, or before it is made.
    pub(crate) agent: Option<A>,
    pub(crate) cx: Option<Cx>,
    pub(crate) batch: Queue,
    /// The handler that has the agent to itself, with the agent in it.
    pub(crate) flight: Option<BoxFuture<'static, (A, bool)>>,
    pub(crate) others: Option<Box<Others>>,
    pub(crate) stash: Option<Box<Queue>>,
    pub(crate) history: Option<Box<History>>,
    pub(crate) draining: bool,
    pub(crate) panicked: Option<&'static str>,
    pub(crate) waker: Option<Waker>,
    /// Watched agents that ended, not yet told.
    pub(crate) ends: Vec<(AgentId, ExitReason)>,
}

/// Handlers that run beside the agent.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) futures: FuturesUnordered<BoxFuture<'static, (u16, bool)>>,
    /// How many of each kind.
    pub(crate) by_lane: Vec<u32>,
}

pub(crate) enum Phase {
    /// To be made, unless it was given, and started.
    New,
    Running,
    /// A pause before a restart.
    Pausing(Pin<Box<tokio::time::Sleep>>),
    Ended,
}

impl<A: Agent> Body<A> {
    pub(crate) fn new(agent: Option<A>) -> Self {
        Self {
            phase: Phase::New,
            agent,
            cx: None,
            batch: Queue::default(),
            flight: None,
            others: None,
            stash: None,
            history: None,
            draining: false,
            panicked: None,
            waker: None,
            ends: Vec::new(),
        }
    }

    pub(crate) fn alive(&mut self) -> Option<(&mut A, &mut Cx)> {
        match (&self.phase, &mut self.agent, &mut self.cx) {
            (Phase::Running, Some(agent), Some(cx)) => Some((agent, cx)),
            _ => None,
        }
    }

    pub(crate) fn note_panic(&mut self, message: &'static str) {
        self.panicked = Some(message);
    }

    /// Whether no handler is suspended.
    pub(crate) fn is_alone(&self) -> bool {
        self.flight.is_none() && self.others.as_ref().is_none_or(|others| others.futures.is_empty())
    }

    pub(crate) fn takes_messages(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.agent.is_some()
    }
}
