//! Pending requests of one connection.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::exchange::{RpcResult, ServerMessage, TransportError};

/// Maximum number of a request's messages that wait to be handled. Beyond it, notifications are
/// dropped and questions rejected.
const EVENTS_MAX: usize = 64;

/// Sender of a request's messages. Messages are boxed, because a channel allocates several slots at
/// once and most requests receive none.
type EventSender = mpsc::Sender<Box<ServerMessage>>;

/// Table of a connection's pending requests, with the channels for their messages and responses.
#[derive(Default)]
pub(crate) struct PendingRequests {
    last: AtomicU64,
    /// Number of responses received without a pending request, because they were late or had an
    /// unknown id.
    unknown: AtomicU64,
    open: Mutex<PendingTable>,
    /// Notified when a call is registered.
    call_started: Notify,
}

#[derive(Default)]
struct PendingTable {
    by_number: HashMap<u64, PendingSlot>,
    closed: Option<TransportError>,
}

struct PendingSlot {
    events: EventSender,
    response: oneshot::Sender<Result<RpcResult, TransportError>>,
    is_call: bool,
}

/// Handle of one pending request. Dropping it removes the request from the table.
pub(crate) struct PendingRequest {
    pub number: u64,
    pending_requests: Arc<PendingRequests>,
    pub events: EventSender,
    pub response: oneshot::Receiver<Result<RpcResult, TransportError>>,
}

/// Errors of delivering a server's message to the only pending call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    /// No call is pending.
    NoCall,
    /// Several calls are pending, so the message could belong to any of them.
    Ambiguous,
    /// The call's queue of messages is full.
    Full,
}

impl PendingRequests {
    /// Registers a request. Returns its handle and the receiver of the server's messages for it.
    /// `is_call` is true if a caller waits for the response, who can be asked the server's
    /// questions.
    pub fn register(
        self: &Arc<Self>,
        is_call: bool,
    ) -> (PendingRequest, mpsc::Receiver<Box<ServerMessage>>) {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let (events, messages) = mpsc::channel(EVENTS_MAX);
        let (response, answered) = oneshot::channel();
        let mut open = self.open.lock();
        match &open.closed {
            Some(why) => drop(response.send(Err(why.clone()))),
            None => drop(open.by_number.insert(
                number,
                PendingSlot {
                    events: events.clone(),
                    response,
                    is_call,
                },
            )),
        }
        drop(open);
        if is_call {
            self.call_started.notify_waiters();
        }
        (
            PendingRequest {
                number,
                pending_requests: self.clone(),
                events,
                response: answered,
            },
            messages,
        )
    }

    /// Completes request `number` with `outcome`. If that request isn't pending, the response is
    /// dropped and counted as unknown. Returns whether it was pending.
    pub fn complete(
        &self,
        number: Option<u64>,
        outcome: Result<RpcResult, TransportError>,
    ) -> bool {
        let slot = number.and_then(|number| self.open.lock().by_number.remove(&number));
        let Some(slot) = slot else {
            self.count_unknown();
            return false;
        };
        // The request may just have been cancelled.
        let _ = slot.response.send(outcome);
        true
    }

    pub fn count_unknown(&self) {
        let unknown = self.unknown.fetch_add(1, Relaxed) + 1;
        callboard_message::log::debug!(unknown, "dropped a response without a pending request");
    }

    /// Returns the number of responses without a pending request.
    pub fn unknown_responses(&self) -> u64 {
        self.unknown.load(Relaxed)
    }

    /// Fails all pending and future requests with `why`.
    pub fn close(&self, why: &TransportError) {
        let slots = {
            let mut open = self.open.lock();
            open.closed.get_or_insert_with(|| why.clone());
            std::mem::take(&mut open.by_number)
        };
        for slot in slots.into_values() {
            let _ = slot.response.send(Err(why.clone()));
        }
    }

    /// Delivers a message to request `number`. The message is dropped if the request isn't pending
    /// or its queue is full.
    pub fn deliver(&self, number: u64, message: ServerMessage) {
        let events = self
            .open
            .lock()
            .by_number
            .get(&number)
            .map(|slot| slot.events.clone());
        if let Some(events) = events {
            let _ = events.try_send(Box::new(message));
        }
    }

    /// Delivers a message to every pending call whose queue isn't full.
    pub fn deliver_to_calls(&self, message: &ServerMessage) {
        let open = self.open.lock();
        for slot in open.by_number.values().filter(|slot| slot.is_call) {
            let _ = slot.events.try_send(Box::new(message.clone()));
        }
    }

    /// Delivers a message to the pending call if there is exactly one. If there is none, waits up
    /// to `wait` for one to begin.
    pub async fn deliver_to_next_call(
        &self,
        message: &ServerMessage,
        wait: Duration,
    ) -> Result<(), DeliveryError> {
        let placed = timeout(wait, async {
            loop {
                let mut called = pin!(self.call_started.notified());
                called.as_mut().enable();
                match self.deliver_to_sole_call(message.clone()) {
                    Err(DeliveryError::NoCall) => called.await,
                    placed => return placed,
                }
            }
        });
        placed.await.unwrap_or(Err(DeliveryError::NoCall))
    }

    /// Delivers a message to the pending call if there is exactly one.
    pub fn deliver_to_sole_call(&self, message: ServerMessage) -> Result<(), DeliveryError> {
        let open = self.open.lock();
        let mut calls = open.by_number.values().filter(|slot| slot.is_call);
        match (calls.next(), calls.next()) {
            (None, _) => Err(DeliveryError::NoCall),
            (Some(_), Some(_)) => Err(DeliveryError::Ambiguous),
            (Some(only), None) => {
                only.events
                    .try_send(Box::new(message))
                    .map_err(|why| match why {
                        TrySendError::Full(_) => DeliveryError::Full,
                        // The call has just ended.
                        TrySendError::Closed(_) => DeliveryError::NoCall,
                    })
            }
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.pending_requests
            .open
            .lock()
            .by_number
            .remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(method: &str) -> ServerMessage {
        ServerMessage::Notification {
            method: method.into(),
            params: None,
        }
    }

    /// Goal: a question is delivered only to the one call that it can belong to. Method: none, one,
    /// two calls, and a request that is no call.
    /// Rows: M-52.
    #[tokio::test]
    async fn only_one_call_can_be_meant() {
        let pending_requests = Arc::new(PendingRequests::default());
        let (_listing, _) = pending_requests.register(false);
        assert_eq!(
            pending_requests.deliver_to_sole_call(notification("a")),
            Err(DeliveryError::NoCall)
        );
        let (first, mut messages) = pending_requests.register(true);
        assert_eq!(
            pending_requests.deliver_to_sole_call(notification("b")),
            Ok(())
        );
        let message = messages.recv().await.map(|message| *message);
        assert!(
            matches!(message, Some(ServerMessage::Notification { method, .. }) if method == "b")
        );
        let second = pending_requests.register(true);
        assert_eq!(
            pending_requests.deliver_to_sole_call(notification("c")),
            Err(DeliveryError::Ambiguous)
        );
        drop((first, second));
        assert_eq!(
            pending_requests.deliver_to_sole_call(notification("d")),
            Err(DeliveryError::NoCall)
        );
    }

    /// Goal: the queue of a slow call is bounded. Method: one message more than the limit.
    #[tokio::test]
    async fn events_are_bounded() {
        let pending_requests = Arc::new(PendingRequests::default());
        let (_flight, _heard) = pending_requests.register(true);
        for _ in 0..EVENTS_MAX {
            assert_eq!(
                pending_requests.deliver_to_sole_call(notification("a")),
                Ok(())
            );
        }
        assert_eq!(
            pending_requests.deliver_to_sole_call(notification("a")),
            Err(DeliveryError::Full)
        );
    }

    /// Goal: late, foreign and second responses are counted and dropped. Method: answer one request
    /// twice, and an unknown one.
    /// Rows: M-17.
    #[tokio::test]
    async fn unknown_responses_are_counted() {
        let pending_requests = Arc::new(PendingRequests::default());
        let (mut pending, _) = pending_requests.register(true);
        let result = || Ok(Ok(Box::default()));
        pending_requests.complete(Some(pending.number), result());
        pending_requests.complete(Some(pending.number), result());
        pending_requests.complete(Some(99), result());
        pending_requests.complete(None, result());
        assert!((&mut pending.response).await.is_ok_and(|r| r.is_ok()));
        assert_eq!(pending_requests.unknown_responses(), 3);
    }

    /// Goal: no request waits on a closed connection. Method: one request before, one after.
    #[tokio::test]
    async fn closed_links_answer() {
        let pending_requests = Arc::new(PendingRequests::default());
        let (mut before, _) = pending_requests.register(true);
        pending_requests.close(&TransportError::Broken("gone".into()));
        let (mut after, _) = pending_requests.register(true);
        for pending in [&mut before, &mut after] {
            assert!(matches!(
                (&mut pending.response).await,
                Ok(Err(TransportError::Broken(_)))
            ));
        }
    }
}
