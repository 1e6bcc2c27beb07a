//! Whether a server that asks for roots has got them.

use std::sync::OnceLock;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::options::{ROOTS_GIVEN_WITHIN, ROOTS_TAKEN_UP_WITHIN};

/// How far a server's first question for roots has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    NotAsked,
    Asked,
    Answered,
}

/// A server's first question for roots on one connection.
#[derive(Default)]
pub(super) struct Roots {
    /// When the connection was made.
    connected: OnceLock<Instant>,
    /// Whether the server asked without being called, once the first call has waited for that. Locked while one waits, so that
    /// other calls wait too.
    pub(super) settled: Mutex<Option<bool>>,
    state: watch::Sender<State>,
}

/// A question for roots that isn't answered yet. Dropped, it is: with an answer or an error, or because nobody can be asked.
pub(super) struct RootsAsked(watch::Sender<State>);

impl Drop for RootsAsked {
    fn drop(&mut self) {
        self.0.send_replace(State::Answered);
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
        self.state.send_replace(State::Asked);
        Some(RootsAsked(self.state.clone()))
    }

    pub(super) fn was_asked(&self) -> bool {
        *self.state.borrow() != State::NotAsked
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        self.state.send_replace(State::NotAsked);
    }

    /// Ends when the server has been answered and had time to take that up, or hasn't asked by `deadline`.
    pub(super) async fn given(&self, deadline: Instant) {
        let mut state = self.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            let limit = match now {
                State::NotAsked => deadline,
                State::Asked => deadline + ROOTS_GIVEN_WITHIN,
                State::Answered => return sleep(ROOTS_TAKEN_UP_WITHIN).await,
            };
            if timeout_at(limit, state.changed()).await.is_err() {
                return;
            }
        }
    }
}
