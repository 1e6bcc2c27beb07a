//! The ways into an agent's mailbox for one message type.

use std::sync::Arc;
use std::task::Waker;

use callboard_message::Message;

use crate::agent::Agent;
use crate::any_cell::AnyCell;
use crate::call::CallMeta;
use crate::cell::{Cell, OnTheSpot, Pushed};
use crate::lane::{Envelope, Queue};
use crate::mailbox::WaiterId;
use crate::ops::Shortcut;

/// Where an envelope comes from when there is room for it.
pub trait Source<M: Message> {
    #[doc(hidden)]
    fn put(&mut self, queue: &mut Queue, lane: u16);
}

impl<M: Message> Source<M> for Option<Envelope<M>> {
    #[inline]
    fn put(&mut self, queue: &mut Queue, lane: u16) {
        if let Some(envelope) = self.take() {
            queue.push(lane, envelope);
        }
    }
}

/// A message without reply and call.
pub(crate) struct Told<'a, M>(pub(crate) &'a mut Option<M>);

impl<M: Message> Source<M> for Told<'_, M> {
    #[inline]
    fn put(&mut self, queue: &mut Queue, lane: u16) {
        if let Some(message) = self.0.take() {
            queue.push(lane, Envelope { message, reply: None, call: None });
        }
    }
}

/// The way to one agent for one message type.
pub(crate) struct Port<A: Agent, M: Message> {
    pub(crate) cell: Arc<Cell<A>>,
    pub(crate) lane: u16,
    pub(crate) shortcut: Shortcut<A, M>,
}

/// A [`Port`] without its agent's type.
pub(crate) trait Accept<M: Message>: Send + Sync {
    fn admit(&self, source: &mut dyn Source<M>) -> Pushed;
    fn wait(&self, source: &mut dyn Source<M>, place: &mut Option<WaiterId>, waker: &Waker) -> Pushed;
    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply>;
    fn cell(&self) -> &dyn AnyCell;
}

impl<A: Agent, M: Message> Accept<M> for Port<A, M> {
    fn admit(&self, source: &mut dyn Source<M>) -> Pushed {
        self.cell.admit(|queue| source.put(queue, self.lane))
    }

    fn wait(&self, source: &mut dyn Source<M>, place: &mut Option<WaiterId>, waker: &Waker) -> Pushed {
        self.cell.wait(place, waker, |queue| source.put(queue, self.lane))
    }

    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply> {
        self.cell.shortcut(self.shortcut, self.lane, slot, call)
    }

    fn cell(&self) -> &dyn AnyCell {
        &*self.cell
    }
}
