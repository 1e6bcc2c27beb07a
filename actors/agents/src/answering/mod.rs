//! Who answers what a server asks in mid-call: the client, a model of ours, another server, nobody.
//!
//! [`Answerers`] stands between a server that asks and everyone who could answer. What a server may ask is granted by
//! name ([`ServerGrants`]); who answers is chosen by a [`Strategy`]; how much it may cost is capped ([`Caps`]). A
//! question never goes to a server that waits for an answer in the same call, and only a person answers an elicitation.
//! `docs/questions.md` tells the whole of it.

mod approval;
mod asker;
mod candidate;
mod chain;
mod choice;
mod ledger;
mod options;
mod route;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callboard_runtime::{Answering, CallMeta, Caller, System};

use asker::Asker;
use chain::Chains;
use choice::Facts;
use ledger::Ledger;

pub use asker::REFUSAL_PAUSE;
pub use options::{
    AnswerError, AnswerOptions, Answerer, Caps, DEPTH_MAX_DEFAULT, REQUESTS_PER_CALL_MAX_DEFAULT,
    REQUESTS_PER_MINUTE_MAX_DEFAULT, Routing, SAMPLE_TIMEOUT_S_DEFAULT, ServerGrants, Strategy,
    TOKENS_PER_ANSWER_DEFAULT, TOKENS_PER_ANSWER_MAX_DEFAULT, TOKENS_PER_CALL_MAX_DEFAULT,
    TOKENS_PER_MINUTE_MAX_DEFAULT, UnknownAnswerer,
};

/// Member of an answer's `_meta`: `{"by": …, "strategy": …}`. `by` is `client`, `model:NAME` or `server:NAME`.
pub const ANSWERED: &str = "callboard/answered";
/// Member of an answer's `_meta`: `{"inputTokens": …, "outputTokens": …}`, and `microUsd` where the cost is known.
pub const USAGE: &str = "callboard/usage";

/// Answers what servers ask in mid-call, or has it answered.
///
/// Agents are looked up in the directory by name whenever they are needed, so they may come and go. Cheap to clone; the
/// clones share what servers have used up of their caps.
#[derive(derive_more::Debug, Clone)]
#[debug("Answerers({:?})", _0.options)]
pub struct Answerers(Arc<Core>);

struct Core {
    system: System,
    options: AnswerOptions,
    chains: Arc<Chains>,
    /// What each granted server has used up.
    ledgers: HashMap<String, Arc<Ledger>>,
    /// What our models said of themselves, by name.
    facts: Mutex<HashMap<String, Arc<Facts>>>,
}

impl Answerers {
    /// Answers so in `system`.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn new(system: System, options: AnswerOptions) -> Result<Self, AnswerError> {
        options.check()?;
        let ledgers = options.servers.iter().map(|(name, grants)| (name.clone(), Ledger::new(grants.caps.clone())));
        let ledgers = ledgers.collect();
        Ok(Self(Arc::new(Core { system, options, chains: Arc::default(), ledgers, facts: Mutex::default() })))
    }

    /// What it does.
    pub fn options(&self) -> &AnswerOptions {
        &self.0.options
    }
}

impl Answering for Answerers {
    fn caller(&self, source: &str, call: &CallMeta) -> Option<Arc<dyn Caller>> {
        let asker = Asker::new(self.0.clone(), source, call);
        (call.caller.is_some() || !asker.abilities().0.is_empty()).then(|| Arc::new(asker) as Arc<dyn Caller>)
    }
}

/// Locks; nothing here panics in between, so what a panic left behind is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
