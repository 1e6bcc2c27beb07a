//! The guardrail: rules with ids against text that tries to steer whoever reads it.
//!
//! A text is made plain (one letter for each disguise of it), read in every way that hides text (decoded, turned round,
//! closed up), and each reading is held against scored rules. Nothing is learned and nothing is asked: the same text
//! gets the same answer, in time linear in its length. What can't be read is blocked.

mod concept;
mod guard;
mod normal;
mod policy;
mod rule;
mod screen;
mod texts;
mod view;

#[cfg(test)]
mod tests;

use callboard_runtime::{Agent, Cx, Handlers, Profile, SyncHandler};

pub use guard::{GUARD_ABSENT, GUARD_REASON, GUARD_TIMEOUT_DEFAULT, GUARD_UNREADABLE, Guard, rules_of};
pub use policy::GuardPolicy;
pub use rule::SCORE_BLOCKED;
pub use screen::{Origin, SCREEN_BYTES_MAX, Screen, Screening, blocked, screen};

/// The guardrail as an agent: ask it to [`Screen`].
#[derive(Debug, Default)]
pub struct Guardrail {
    screened: u64,
    stopped: u64,
}

impl Agent for Guardrail {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Screen>();
    }

    /// It may think for long: not on the thread of whoever asks.
    fn profile() -> Profile {
        Profile::default().pinned()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({"screened": self.screened, "blocked": self.stopped})
    }
}

impl SyncHandler<Screen> for Guardrail {
    fn handle(&mut self, message: Screen, _cx: &mut Cx) -> Screening {
        let screening = screen(&message.text, message.origin);
        self.screened += 1;
        self.stopped += u64::from(screening.blocked);
        screening
    }
}
