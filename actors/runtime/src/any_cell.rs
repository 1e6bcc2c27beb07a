//! A cell whose agent's type is forgotten: what an [`AgentRef`](crate::AgentRef) holds.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::task::Waker;

use callboard_message::{Failure, MessageSpec, Named};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::agent::Agent;
use crate::call::CallMeta;
use crate::cell::{Cell, Control, Push, Pushed, short_type_name};
use crate::ids::AgentId;
use crate::mailbox::{Gate, WaiterId};
use crate::snapshot::{AgentSnapshot, AgentState};
use crate::supervision::ExitReason;
use crate::system::System;

/// An agent of any type.
pub(crate) trait AnyCell: Send + Sync {
    fn id(&self) -> AgentId;
    fn label(&self) -> Option<&Arc<str>>;
    fn system(&self) -> &System;
    fn handles(&self, message: TypeId) -> bool;
    /// Puts a message in the mailbox, if there is room.
    fn admit(&self, message: TypeId, push: Push<'_>) -> Pushed;
    /// Puts a message in the mailbox, or keeps a place in the line.
    fn wait(&self, message: TypeId, place: &mut Option<WaiterId>, waker: &Waker, push: Push<'_>) -> Pushed;
    /// Does an [`crate::ops::Exchange`] in place, if it can.
    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallMeta>>);
    fn forget(&self, place: WaiterId);
    /// A handler of `lane` that ran elsewhere does so no more.
    fn came_back(self: Arc<Self>, lane: u16);
    fn control(&self, control: Control);
    fn set_gate(&self, gate: Gate);
    fn depth_and_activity(&self) -> (u32, bool);
    /// Messages waiting and handlers suspended.
    fn load(&self) -> u32;
    fn recipient(self: Arc<Self>, message: TypeId) -> Option<Box<dyn Any>>;
    fn specs(&self) -> Vec<MessageSpec>;
    fn ask_named(
        self: Arc<Self>,
        named: Named,
        call: Option<Arc<CallMeta>>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Failure>>;
    fn snapshot(&self) -> AgentSnapshot;
    /// The runtime of its arbiter, once that runs.
    fn runtime(&self) -> Option<tokio::runtime::Handle>;
    /// Why it ended, once it has.
    fn exit(&self) -> Option<ExitReason>;
}

impl<A: Agent> AnyCell for Cell<A> {
    fn id(&self) -> AgentId {
        self.id
    }

    fn label(&self) -> Option<&Arc<str>> {
        self.label.as_ref()
    }

    fn system(&self) -> &System {
        &self.system
    }

    fn handles(&self, message: TypeId) -> bool {
        self.kind.types.contains(&message)
    }

    fn admit(&self, message: TypeId, push: Push<'_>) -> Pushed {
        match self.kind.lane(message) {
            Some(lane) => self.admit(|queue| push(queue, lane)),
            None => Pushed::NotHandled,
        }
    }

    fn wait(&self, message: TypeId, place: &mut Option<WaiterId>, waker: &Waker, push: Push<'_>) -> Pushed {
        match self.kind.lane(message) {
            Some(lane) => self.wait(place, waker, |queue| push(queue, lane)),
            None => Pushed::NotHandled,
        }
    }

    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallMeta>>) {
        if let Some((lane, op)) = self.kind.find(message) {
            op.in_place(self, lane, exchange, call);
        }
    }

    fn forget(&self, place: WaiterId) {
        self.mailbox.forget(place);
        self.note_settled();
    }

    fn came_back(self: Arc<Self>, lane: u16) {
        Cell::came_back(&self, lane);
    }

    fn control(&self, control: Control) {
        if let Some(ticket) = self.mailbox.control(control) {
            self.host.run(ticket);
        }
    }

    fn set_gate(&self, gate: Gate) {
        self.mailbox.set_gate(gate);
    }

    fn depth_and_activity(&self) -> (u32, bool) {
        let (depth, active) = self.mailbox.depth_and_activity();
        (depth, active || self.in_flight() > 0)
    }

    fn load(&self) -> u32 {
        self.mailbox.depth_and_activity().0 + self.in_flight()
    }

    fn recipient(self: Arc<Self>, message: TypeId) -> Option<Box<dyn Any>> {
        let kind = self.kind.clone();
        let (lane, op) = kind.find(message)?;
        Some(op.recipient(self, lane))
    }

    fn specs(&self) -> Vec<MessageSpec> {
        self.kind.handlers.specs()
    }

    fn ask_named(
        self: Arc<Self>,
        named: Named,
        call: Option<Arc<CallMeta>>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, Failure>> {
        let kind = self.kind.clone();
        let agent = crate::agent_ref::AgentRef(self);
        if let Some(op) = kind.handlers.ops.iter().find(|op| op.name() == named.name && op.has_wire()) {
            return op.ask_named(agent, named.payload, call);
        }
        Box::pin(async move {
            if !agent.0.handles(TypeId::of::<Named>()) {
                return Err(Failure::not_found(format!("{agent} doesn't handle {}", named.name)));
            }
            agent.ask(named).within_call(call).await?
        })
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.host.runtime()
    }

    fn exit(&self) -> Option<ExitReason> {
        ExitReason::from_u8(self.stats.exit.load(SeqCst))
    }

    fn snapshot(&self) -> AgentSnapshot {
        AgentSnapshot {
            id: self.id,
            name: self.label.as_deref().map(str::to_owned),
            kind: short_type_name::<A>(),
            state: AgentState::from_u8(self.stats.state.load(Relaxed)),
            mailbox_depth: self.mailbox.depth_and_activity().0,
            mailbox_capacity: self.profile.mailbox_capacity,
            in_flight: self.in_flight(),
            handled: self.stats.handled.load(Relaxed),
            restarts: self.stats.restarts.load(Relaxed),
            last_error: self.stats.last_error.lock().map(|message| format!("panicked in {message}")),
        }
    }
}
