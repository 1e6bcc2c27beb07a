//! Whether a server that asks for roots has got them.

use std::sync::OnceLock;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::options::{ROOTS_GIVEN_WITHIN, ROOTS_TAKEN_UP_WITHIN};

/// How far a server's question for roots has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    NotAsked,
    Asked,
    /// With an error, or by another client than the one that the call waits for.
    Refused,
    Given,
}

/// A round of questions, and how far it has come. What is left of an earlier round changes nothing.
#[derive(Clone, Copy, Default)]
struct Round {
    number: u64,
    state: State,
}

/// A server's questions for roots on one connection.
#[derive(Default)]
pub(super) struct Roots {
    /// When the connection was made.
    connected: OnceLock<Instant>,
    /// Whether the server has asked, as far as that is known, once the first call has waited for that. Locked while one waits, so that
    /// other calls wait too.
    pub(super) settled: Mutex<Option<bool>>,
    round: watch::Sender<Round>,
}

/// A question for roots that isn't answered yet. Dropped, it is: with an answer or an error, or because nobody can be asked.
pub(super) struct RootsAsked {
    round: watch::Sender<Round>,
    number: u64,
    given: bool,
}

impl RootsAsked {
    /// Notes whether the server gets the roots of the client that the call waits for.
    pub(super) fn set_given(&mut self, given: bool) {
        self.given = given;
    }
}

impl Drop for RootsAsked {
    fn drop(&mut self) {
        let state = if self.given { State::Given } else { State::Refused };
        self.round.send_if_modified(|round| {
            let is_current = round.number == self.number;
            if is_current {
                round.state = state;
            }
            is_current
        });
    }
}

impl Roots {
    /// Returns when the connection was made: now, where that wasn't noted before.
    pub(super) fn connected(&self) -> Instant {
        *self.connected.get_or_init(Instant::now)
    }

    /// Notes that the server asks, where `method` is its question for roots.
    pub(super) fn asked(&self, method: &str) -> Option<RootsAsked> {
        if method != "roots/list" {
            return None;
        }
        self.round.send_modify(|round| round.state = State::Asked);
        let number = self.round.borrow().number;
        Some(RootsAsked { round: self.round.clone(), number, given: false })
    }

    pub(super) fn was_asked(&self) -> bool {
        self.round.borrow().state != State::NotAsked
    }

    /// Whether the server has the roots of the client that the call waits for.
    pub(super) fn are_given(&self) -> bool {
        self.round.borrow().state == State::Given
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        self.round.send_modify(|round| *round = Round { number: round.number + 1, state: State::NotAsked });
    }

    /// Ends when the server has been answered and had time to take that up, or hasn't asked by `deadline`.
    pub(super) async fn given(&self, deadline: Instant) {
        let mut round = self.round.subscribe();
        loop {
            let now = round.borrow_and_update().state;
            let limit = match now {
                State::NotAsked => deadline,
                State::Asked => deadline + ROOTS_GIVEN_WITHIN,
                State::Refused | State::Given => return sleep(ROOTS_TAKEN_UP_WITHIN).await,
            };
            if timeout_at(limit, round.changed()).await.is_err() {
                return;
            }
        }
    }
}
