//! Telling: sending without waiting for the handler.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use callboard_message::{Failure, Message, Named};
use futures::future::BoxFuture;

use crate::agent_ref::{AgentRef, Target, sealed};
use crate::cell::Pushed;
use crate::error::SendError;
use crate::mailbox::WaiterId;
use crate::port::Told;

pub(crate) fn try_tell<M: Message, T: Target<M>>(to: &T, message: M) -> Result<(), SendError<M>> {
    let mut slot = Some(message);
    match to.admit(&mut Told(&mut slot)) {
        Pushed::In => Ok(()),
        Pushed::NotHandled => match named(to, slot.as_ref())? {
            Some((agent, name)) => tell_named(&agent, name, slot),
            None => refused(to, Pushed::NotHandled, slot).map_or(Ok(()), Err),
        },
        pushed => refused(to, pushed, slot).map_or(Ok(()), Err),
    }
}

fn tell_named<M: Message>(agent: &AgentRef, named: Named, message: Option<M>) -> Result<(), SendError<M>> {
    match <AgentRef as sealed::Target<Named>>::admit(agent, &mut Told(&mut Some(named))) {
        Pushed::In => Ok(()),
        pushed => refused(agent, pushed, message).map_or(Ok(()), Err),
    }
}

/// The message as JSON, where the agent takes those.
fn named<M: Message, T: Target<M>>(to: &T, message: Option<&M>) -> Result<Option<(AgentRef, Named)>, SendError<M>> {
    let (Some(agent), Some(wire), Some(message)) = (to.outside(), M::wire(), message) else { return Ok(None) };
    let payload = (wire.encode)(message).map_err(|e| SendError::Failed(Failure::internal(e.to_string())))?;
    Ok(Some((agent, Named { name: M::NAME.to_owned(), payload })))
}

/// The error, where the message came back.
pub(crate) fn refused<M: Message, T: Target<M>>(to: &T, pushed: Pushed, message: Option<M>) -> Option<SendError<M>> {
    let message = message?;
    Some(match pushed {
        Pushed::Full(capacity) => SendError::Full { message, capacity },
        Pushed::NotHandled => {
            let cell = to.cell();
            let agent = cell.label().map_or_else(|| cell.id().to_string(), |label| label.to_string());
            SendError::NotHandled { message, agent, name: M::NAME }
        }
        Pushed::In | Pushed::Waiting | Pushed::Closed => SendError::Closed { message },
    })
}

/// Sends a message and waits for room. See [`AgentRef::tell`].
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, M: Message, T: Target<M>> {
    to: &'a T,
    message: Option<M>,
    place: Option<WaiterId>,
    /// To an agent that takes messages as JSON.
    outside: Option<BoxFuture<'static, Result<(), SendError<Named>>>>,
}

impl<'a, M: Message, T: Target<M>> Tell<'a, M, T> {
    #[inline]
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self { to, message: Some(message), place: None, outside: None }
    }

    /// No room at once, or something is wrong.
    #[cold]
    fn refused_or_waiting(&mut self, pushed: Pushed, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let pushed = match pushed {
            Pushed::Full(_) | Pushed::Waiting => {
                self.to.wait(&mut Told(&mut self.message), &mut self.place, cx.waker())
            }
            other => other,
        };
        match pushed {
            Pushed::In => Poll::Ready(Ok(())),
            Pushed::Waiting => Poll::Pending,
            Pushed::NotHandled => match named(self.to, self.message.as_ref())? {
                Some((agent, named)) => {
                    let outside = self.outside.insert(Box::pin(async move { agent.tell(named).await }));
                    Self::poll_outside(outside, &mut self.message, cx)
                }
                None => Poll::Ready(refused(self.to, pushed, self.message.take()).map_or(Ok(()), Err)),
            },
            other => Poll::Ready(refused(self.to, other, self.message.take()).map_or(Ok(()), Err)),
        }
    }

    fn poll_outside(
        outside: &mut BoxFuture<'static, Result<(), SendError<Named>>>,
        message: &mut Option<M>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let told = ready!(outside.as_mut().poll(cx));
        // The agent can only have ended: it takes such messages, and the tell waited for room.
        Poll::Ready(match (told, message.take()) {
            (Err(_), Some(message)) => Err(SendError::Closed { message }),
            _ => Ok(()),
        })
    }
}

impl<M: Message, T: Target<M>> Unpin for Tell<'_, M, T> {}

impl<M: Message, T: Target<M>> Future for Tell<'_, M, T> {
    type Output = Result<(), SendError<M>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(outside) = &mut this.outside {
            return Self::poll_outside(outside, &mut this.message, cx);
        }
        if this.message.is_none() {
            // Polled after its end.
            return Poll::Pending;
        }
        let pushed = match this.place {
            None => this.to.admit(&mut Told(&mut this.message)),
            Some(_) => Pushed::Waiting,
        };
        match pushed {
            Pushed::In => Poll::Ready(Ok(())),
            other => this.refused_or_waiting(other, cx),
        }
    }
}

impl<M: Message, T: Target<M>> Drop for Tell<'_, M, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.to.forget(place);
        }
    }
}
