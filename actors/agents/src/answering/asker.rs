//! The caller as a server sees it that may ask only what it was granted.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::{Abilities, Answer, ElicitAction, ElicitAnswer, Failure, Question, RawObject};
use callboard_runtime::{AuditEntry, CallMeta, Caller, JournalError};
use futures::future::BoxFuture;

use super::Core;
use super::chain::Chain;
use super::ledger::Account;
use super::options::{Answerer, ServerGrants, Strategy};
use super::route::answers;

/// How long a question that isn't let pass waits for its refusal.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// Whom one server gets to ask in one call.
pub(super) struct Asker {
    pub(super) core: Arc<Core>,
    /// The server that asks.
    pub(super) source: Arc<str>,
    pub(super) call: CallMeta,
    /// Whose call it is.
    pub(super) client: Option<Arc<dyn Caller>>,
    /// Who waits for an answer that this server is to help with.
    pub(super) chain: Chain,
    /// What its questions cost; `None` where it was granted nothing.
    account: OnceLock<Option<Account>>,
}

impl Asker {
    pub(super) fn new(core: Arc<Core>, source: &str, call: &CallMeta) -> Self {
        let chain = core.chains.of(call.id);
        Self {
            core,
            source: source.into(),
            client: call.caller.clone(),
            call: call.clone(),
            chain,
            account: OnceLock::new(),
        }
    }

    fn grants(&self) -> Option<&ServerGrants> {
        self.core.options.servers.get(&*self.source)
    }

    /// What the server's questions cost.
    ///
    /// # Errors
    /// `Denied` where it was granted nothing.
    pub(super) fn account(&self) -> Result<&Account, Failure> {
        // Most calls ask nothing: theirs is never opened.
        let open = || Some(self.core.ledgers.get(&*self.source)?.account(self.call.id, self.call.budget));
        self.account.get_or_init(open).as_ref().ok_or_else(|| denied("ask anything"))
    }

    /// How its samples are answered.
    pub(super) fn strategy(&self) -> Strategy {
        self.core.options.sampling.strategy(&self.source)
    }

    pub(super) fn needs_approval(&self) -> bool {
        self.grants().is_none_or(|grants| grants.approval)
    }

    /// Whether questions nest no deeper than they may.
    fn is_shallow(&self, grants: &ServerGrants) -> bool {
        self.chain.len() < usize::from(grants.caps.depth_max)
    }

    /// Lets a question pass that was granted, and counts it.
    fn admit(&self, question: &Question) -> Result<(), Failure> {
        let grants = self.grants().ok_or_else(|| denied("ask anything"))?;
        let (granted, what) = match question {
            Question::Sample(_) => (grants.supports_sampling, "ask a model"),
            Question::Elicit(_) => (grants.supports_elicitation, "ask a person"),
            Question::Roots(_) => (grants.supports_roots, "ask for roots"),
            _ => (false, "ask that"),
        };
        if !granted {
            return Err(denied(what));
        }
        if !self.is_shallow(grants) {
            return Err(Failure::rejected("questions nest too deep"));
        }
        self.account()?.admit()
    }

    async fn answer(&self, question: Question) -> Result<Answer, Failure> {
        if let Err(refused) = self.admit(&question) {
            // One who asks on and on, whatever it is told, would keep both processes and the log busy with nothing else.
            tokio::time::sleep(REFUSAL_PAUSE).await;
            return Err(refused);
        }
        match question {
            Question::Sample(sample) => self.sample(sample).await.map(Answer::Sample),
            other => self.client.as_ref().ok_or_else(nobody)?.ask(other).await,
        }
    }

    /// What the client's and our own models can do for a sample of this server's.
    fn sampling(&self, client: &Abilities) -> Option<RawObject> {
        let may_lead_elsewhere = !self.needs_approval() || client.elicitation_form();
        let known = |name: &String| self.core.system.directory().get(name).is_some_and(|agent| answers(&agent));
        let mut can: Option<RawObject> = None;
        let mut add = |more: RawObject| {
            let sum = can.get_or_insert_default();
            more.iter().for_each(|(name, value)| sum.set_raw(name, value.to_owned()));
        };
        for step in self.core.options.steps(self.strategy()) {
            let model = || RawObject::of("tools", RawObject::new());
            match step {
                Answerer::Client => client.0.object("sampling").into_iter().for_each(&mut add),
                _ if !may_lead_elsewhere => {}
                Answerer::Models if self.core.options.models.iter().any(known) => add(model()),
                Answerer::Model(name) if known(&name) => add(model()),
                Answerer::Servers if !self.servers().is_empty() => add(RawObject::new()),
                Answerer::Server(name) if self.server(&name).is_some() => add(RawObject::new()),
                _ => {}
            }
        }
        can
    }
}

impl Caller for Asker {
    fn behind(&self) -> Option<&dyn Caller> {
        self.client.as_deref()
    }

    fn abilities(&self) -> Abilities {
        let mut abilities = self.client.as_ref().map(|client| client.abilities()).unwrap_or_default();
        let grants = self.grants().filter(|grants| self.is_shallow(grants)).cloned().unwrap_or_default();
        // Who could answer a sample is looked up only for a server that may ask for one.
        match grants.supports_sampling.then(|| self.sampling(&abilities)).flatten() {
            Some(sampling) => abilities.0.set("sampling", sampling),
            None => drop(abilities.0.remove("sampling")),
        }
        for (name, granted) in [("elicitation", grants.supports_elicitation), ("roots", grants.supports_roots)] {
            if !granted {
                abilities.0.remove(name);
            }
        }
        abilities
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let asked = what(&question);
            let answer = self.answer(question).await;
            let entry = match &answer {
                // Whoever chose the answerer has said it.
                Ok(Answer::Sample(_)) => return answer,
                Ok(Answer::Elicit(given)) => self.entry(asked, "client", action(given)),
                Ok(_) => self.entry(asked, "client", "answered"),
                Err(why) => self.entry(asked, "nobody", why.kind.to_string()),
            };
            let log = self.core.system.audit();
            match &answer {
                // What a person agreed to must be on record before the server hears of it.
                Ok(Answer::Elicit(given)) if given.action() == ElicitAction::Accept => {
                    log.record(entry).await.map_err(unrecorded)?;
                }
                _ => log.placed(entry).await,
            }
            answer
        })
    }
}

impl Asker {
    /// An entry of the audit. It never says what was asked.
    pub(super) fn entry(&self, asked: &'static str, by: &str, outcome: impl Into<Cow<'static, str>>) -> AuditEntry {
        let strategy = match asked {
            "sample" => self.strategy(),
            "elicitation" => self.core.options.elicitation.strategy(&self.source),
            _ => Strategy::ClientForwarded,
        };
        let entry = AuditEntry::new("question").with_message(asked).with_peer(&*self.source).with_call(self.call.id);
        let entry = entry.with_principal(&self.call.principal).with_outcome(outcome);
        entry.with("by", by).with("strategy", strategy.as_str())
    }
}

fn unrecorded(error: JournalError) -> Failure {
    Failure::unavailable(format!("the consent can't be put on record: {error}"))
}

fn action(answer: &ElicitAnswer) -> &'static str {
    match answer.action() {
        ElicitAction::Accept => "accept",
        ElicitAction::Decline => "decline",
        ElicitAction::Cancel => "cancel",
    }
}

fn what(question: &Question) -> &'static str {
    match question {
        Question::Sample(_) => "sample",
        Question::Elicit(_) => "elicitation",
        Question::Roots(_) => "roots",
        _ => "other",
    }
}

fn denied(what: &str) -> Failure {
    Failure::denied(format!("the server may not {what} here"))
}

pub(super) fn nobody() -> Failure {
    Failure::nobody_to_ask("nobody to ask")
}
