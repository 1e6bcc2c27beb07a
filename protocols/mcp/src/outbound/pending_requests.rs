//! Our requests that are under way on one link.

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

use super::exchange::{Heard, Outcome, TransportError};

/// Messages that wait for a call which is slow to take them; past that, notifications are left out and questions refused.
const EVENTS_MAX: usize = 64;

/// Boxed, for a channel makes room for some dozens of them at once, and most requests hear nothing.
type Events = mpsc::Sender<Box<Heard>>;

/// Which of our requests are under way, and where what belongs to them goes.
#[derive(Default)]
pub(crate) struct PendingRequests {
    last: AtomicU64,
    /// Responses that belong to none of them: late ones, foreign ones.
    unknown: AtomicU64,
    open: Mutex<Open>,
    /// A call has begun.
    called: Notify,
}

#[derive(Default)]
struct Open {
    by_number: HashMap<u64, Slot>,
    closed: Option<TransportError>,
}

struct Slot {
    events: Events,
    response: oneshot::Sender<Result<Outcome, TransportError>>,
    is_call: bool,
}

/// One request under way. Dropped, it is forgotten.
pub(crate) struct PendingRequest {
    pub number: u64,
    flights: Arc<PendingRequests>,
    pub events: Events,
    pub response: oneshot::Receiver<Result<Outcome, TransportError>>,
}

/// Why a message couldn't be given to the one call that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// No call is under way.
    NoCall,
    /// Several are: it could be anyone's.
    Several,
    /// The call has too much to read already.
    Full,
}

impl PendingRequests {
    /// Opens one, and its events. `is_call`: an agent waits for it, who may be asked.
    pub fn open(self: &Arc<Self>, is_call: bool) -> (PendingRequest, mpsc::Receiver<Box<Heard>>) {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let (events, heard) = mpsc::channel(EVENTS_MAX);
        let (response, answered) = oneshot::channel();
        let mut open = self.open.lock();
        match &open.closed {
            Some(why) => drop(response.send(Err(why.clone()))),
            None => drop(open.by_number.insert(
                number,
                Slot {
                    events: events.clone(),
                    response,
                    is_call,
                },
            )),
        }
        drop(open);
        if is_call {
            self.called.notify_waiters();
        }
        (
            PendingRequest {
                number,
                flights: self.clone(),
                events,
                response: answered,
            },
            heard,
        )
    }

    /// Ends request `number` with `outcome`, or counts a response that nobody waits for.
    pub fn answer(&self, number: Option<u64>, outcome: Result<Outcome, TransportError>) {
        let slot = number.and_then(|number| self.open.lock().by_number.remove(&number));
        match slot {
            // Whoever gave up in this moment needs it no more.
            Some(slot) => drop(slot.response.send(outcome)),
            None => self.count_unknown(),
        }
    }

    /// Counts a response that belongs to none of our requests.
    pub fn count_unknown(&self) {
        let unknown = self.unknown.fetch_add(1, Relaxed) + 1;
        callboard_message::log::debug!(unknown, "a response that no request waits for is dropped");
    }

    /// How many responses belonged to none of our requests.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Relaxed)
    }

    /// Ends every request, and those to come.
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

    /// Ends the only request under way; nothing where there are several.
    pub fn fail_only(&self, why: TransportError) {
        let slot = {
            let mut open = self.open.lock();
            let number = open
                .by_number
                .keys()
                .next()
                .copied()
                .filter(|_| open.by_number.len() == 1);
            number.and_then(|number| open.by_number.remove(&number))
        };
        if let Some(slot) = slot {
            let _ = slot.response.send(Err(why));
        }
    }

    /// Gives a message to request `number`; left out where that isn't under way or has too much to read.
    pub fn give(&self, number: u64, heard: Heard) {
        let events = self
            .open
            .lock()
            .by_number
            .get(&number)
            .map(|slot| slot.events.clone());
        if let Some(events) = events {
            let _ = events.try_send(Box::new(heard));
        }
    }

    /// Gives a message to every call.
    pub fn give_all(&self, heard: &Heard) {
        let open = self.open.lock();
        for slot in open.by_number.values().filter(|slot| slot.is_call) {
            let _ = slot.events.try_send(Box::new(heard.clone()));
        }
    }

    /// Gives a message to the one call that is under way, or begins in `wait`.
    pub async fn give_next_call(&self, heard: &Heard, wait: Duration) -> Result<(), Unplaced> {
        let placed = timeout(wait, async {
            loop {
                let mut called = pin!(self.called.notified());
                called.as_mut().enable();
                match self.give_only_call(heard.clone()) {
                    Err(Unplaced::NoCall) => called.await,
                    placed => return placed,
                }
            }
        });
        placed.await.unwrap_or(Err(Unplaced::NoCall))
    }

    /// Gives a message to the one call that is under way.
    pub fn give_only_call(&self, heard: Heard) -> Result<(), Unplaced> {
        let open = self.open.lock();
        let mut calls = open.by_number.values().filter(|slot| slot.is_call);
        match (calls.next(), calls.next()) {
            (None, _) => Err(Unplaced::NoCall),
            (Some(_), Some(_)) => Err(Unplaced::Several),
            (Some(only), None) => only
                .events
                .try_send(Box::new(heard))
                .map_err(|why| match why {
                    TrySendError::Full(_) => Unplaced::Full,
                    // It is over, and reads no more.
                    TrySendError::Closed(_) => Unplaced::NoCall,
                }),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.flights.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str) -> Heard {
        Heard::Notification {
            method: method.into(),
            params: None,
        }
    }

    /// Goal: a question is given to a call only where it can be nobody else's. Method: none, one, two calls, and a request
    /// that is no call.
    #[tokio::test]
    async fn only_one_call_can_be_meant() {
        let flights = Arc::new(PendingRequests::default());
        let (_listing, _) = flights.open(false);
        assert_eq!(flights.give_only_call(told("a")), Err(Unplaced::NoCall));
        let (first, mut heard) = flights.open(true);
        assert_eq!(flights.give_only_call(told("b")), Ok(()));
        let heard = heard.recv().await.map(|heard| *heard);
        assert!(matches!(heard, Some(Heard::Notification { method, .. }) if method == "b"));
        let second = flights.open(true);
        assert_eq!(flights.give_only_call(told("c")), Err(Unplaced::Several));
        drop((first, second));
        assert_eq!(flights.give_only_call(told("d")), Err(Unplaced::NoCall));
    }

    /// Goal: what a slow call has to read is bounded. Method: one message more than the bound.
    #[tokio::test]
    async fn events_are_bounded() {
        let flights = Arc::new(PendingRequests::default());
        let (_flight, _heard) = flights.open(true);
        for _ in 0..EVENTS_MAX {
            assert_eq!(flights.give_only_call(told("a")), Ok(()));
        }
        assert_eq!(flights.give_only_call(told("a")), Err(Unplaced::Full));
    }

    /// Goal: late, foreign and second responses are counted and dropped. Method: answer one request twice, and an unknown
    /// one.
    #[tokio::test]
    async fn unknown_responses_are_counted() {
        let flights = Arc::new(PendingRequests::default());
        let (mut flight, _) = flights.open(true);
        let result = || Ok(Ok(Box::default()));
        flights.answer(Some(flight.number), result());
        flights.answer(Some(flight.number), result());
        flights.answer(Some(99), result());
        flights.answer(None, result());
        assert!((&mut flight.response).await.is_ok_and(|r| r.is_ok()));
        assert_eq!(flights.unknown(), 3);
    }

    /// Goal: nobody waits on a link that has closed. Method: one request before, one after.
    #[tokio::test]
    async fn closed_links_answer() {
        let flights = Arc::new(PendingRequests::default());
        let (mut before, _) = flights.open(true);
        flights.close(&TransportError::Broken("gone"));
        let (mut after, _) = flights.open(true);
        for flight in [&mut before, &mut after] {
            assert!(matches!(
                (&mut flight.response).await,
                Ok(Err(TransportError::Broken("gone")))
            ));
        }
    }
}
