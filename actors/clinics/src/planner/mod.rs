//! Planner agent: turns a question into a graph of steps.
//!
//! Planning is a typed message, [`MakePlan`]. The [`Planner`] answers it by rules with the registry's
//! words and a clinical vocabulary, without a model or network: it corrects spellings (`reading`),
//! splits the question into fragments and shares parts between these (`splitter`, `clause`), and
//! plans each (`rules`). The [`ModelPlanner`] asks a language model. Any agent that handles the same
//! message can replace them.

mod asides;
mod clause;
mod corrections;
mod fragment;
mod fragment_roles;
mod leaving_out;
mod lexicon;
mod model;
mod orders;
mod phrases;
mod places;
mod qualities;
mod reading;
mod refusal;
mod refused_parts;
mod rules;
mod spelling;
mod splitter;
mod tags;
mod term;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_binding;
#[cfg(test)]
mod tests_parts;
mod tokens;
mod topic;
mod vocabulary;

use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::plan::STEPS_MAX;
#[cfg(test)]
use crate::plan::Step;
use crate::plan::{ClinicRegistry, Counting, Plan};

use asides::without_asides;
use clause::share_between;
use phrases::RegistryPhrases;
use reading::SpelledQuery;
use refusal::PlanRefusal;
use rules::PlanRules;
use splitter::split_fragments;

pub use model::{MODEL_PLANS_AT_ONCE_MAX, ModelPlanner};

/// Maximum characters of a question. A longer one is refused with `InvalidInput`; the command line
/// exits with 2. Fixed.
pub const QUERY_CHARS_MAX: usize = 2_000;

/// Makes a graph of steps for a question about patients: which tool to call at which clinic. Calls
/// nothing itself.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// A question may name a patient.
#[debug("MakePlan({} bytes)", query.len())]
#[message(name = "make_plan", reply = Plan, fallible)]
#[serde(deny_unknown_fields)]
pub struct MakePlan {
    /// The question, in English or Portuguese, at most [`QUERY_CHARS_MAX`] characters.
    pub query: String,
}

/// Planner agent that makes plans by fixed rules, without a model. Handles [`MakePlan`].
#[derive(Debug, Clone)]
pub struct Planner {
    registry: Arc<ClinicRegistry>,
    names: Arc<RegistryPhrases>,
}

impl Planner {
    /// Creates a planner for the clinics of `registry`.
    pub fn new(registry: Arc<ClinicRegistry>) -> Self {
        let names = Arc::new(RegistryPhrases::new(&registry));
        Self { registry, names }
    }

    /// Returns the plan for a question. If a rule refuses the question or none matches, the plan is a
    /// `raw_response` with a sentence for the user.
    ///
    /// # Errors
    /// [`callboard_message::FailureKind::InvalidInput`], if the question is longer than
    /// [`QUERY_CHARS_MAX`].
    pub fn plan(&self, query: &str) -> Result<Plan, Failure> {
        check_length(query)?;
        Ok(self.plan_or_refusal(query))
    }
}

/// Fails with `InvalidInput` if the query is longer than [`QUERY_CHARS_MAX`].
pub(crate) fn check_length(query: &str) -> Result<(), Failure> {
    match query.chars().count() {
        chars if chars > QUERY_CHARS_MAX => Err(Failure::invalid(format!(
            "the question has {chars} characters, more than {QUERY_CHARS_MAX}: ask a shorter one"
        ))),
        _ => Ok(()),
    }
}

impl Agent for Planner {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<MakePlan>();
    }
}

impl SyncHandler<MakePlan> for Planner {
    fn handle(&mut self, message: MakePlan, cx: &mut Context) -> Result<Plan, Failure> {
        let plan = self.plan(&message.query)?;
        callboard_message::log::info!(
            call = cx.call().map(|c| tracing::field::display(c.id)),
            principal = cx.call().map(|c| &*c.principal.id),
            steps = plan.steps.len(),
            refused = plan.refusal().is_some(),
            "planned"
        );
        Ok(plan)
    }
}

impl Planner {
    /// Returns the plan for a question, or a `raw_response` plan whose sentence suggests another
    /// question.
    fn plan_or_refusal(&self, query: &str) -> Plan {
        let plan = match self.rules_plan(query) {
            Ok(plan) => plan,
            Err(refusal) => return Plan::raw_response(query, refusal.to_string()),
        };
        if plan.reply.is_answer {
            return plan;
        }
        // The text of a condition comes from the user: it may be too long, or contain another
        // clinic's id.
        match plan.clone().check(&self.registry) {
            Ok(_) => plan,
            Err(e) => Plan::raw_response(query, format!("Ask differently: {e}.")),
        }
    }

    /// Returns the plan for a question. If one clause can't be planned, the whole question is
    /// refused, because a plan without that clause would answer another question. A question that
    /// requests nothing or needs more than [`STEPS_MAX`] steps is refused too.
    ///
    /// If a word that may stand in an aside is the reason, it is planned without what may be an aside.
    fn rules_plan(&self, query: &str) -> Result<Plan, PlanRefusal> {
        let spelled = SpelledQuery::read(query, &self.registry, &self.names);
        let refusal = match self.plan_of(&spelled) {
            Err(refusal) => refusal,
            Ok(plan) => return Ok(plan),
        };
        // What is refused for another reason stays refused.
        if !refusal.may_be_of_aside() {
            return Err(refusal);
        }
        let readings = without_asides(&spelled, &self.registry, &self.names);
        let mut plans = readings.into_iter().filter_map(|reading| {
            let mut plan = self.plan_of(&reading.rest).ok()?;
            plan.reply
                .notes
                .extend(notes(Vec::new(), &reading.left_out, &[]));
            let note = || "I did not use a remark beside the question.".to_owned();
            plan.reply.notes.extend(reading.has_unquoted.then(note));
            Some(plan)
        });
        plans.next().ok_or(refusal)
    }

    fn plan_of(&self, spelled: &SpelledQuery) -> Result<Plan, PlanRefusal> {
        let found = split_fragments(spelled, &self.registry, &self.names)?;
        let clauses = share_between(found.fragments, self.registry.clinics().len())?;
        let rules = PlanRules::new(&self.registry, &self.names);
        if clauses.is_empty() {
            return Err(match found.unused.first() {
                Some(word) => PlanRefusal::UnknownWord {
                    word: word.clone(),
                    suggestions: spelled.suggestions_for(word),
                    specialties: self.registry.specialties(),
                },
                None => PlanRefusal::Empty,
            });
        }
        if let [clause] = &clauses[..]
            && rules.asks_for_clinics(clause)
        {
            return Ok(rules.clinics_answer());
        }
        let mut plan = rules.plan(&clauses)?;
        plan.reply.notes = notes(spelled.notes.clone(), &found.unused, &found.qualifiers);
        plan.reply.counting = match (found.compare, found.count) {
            (true, _) => Some(Counting::Compare),
            (false, true) => Some(Counting::Count),
            (false, false) => None,
        };
        Ok(plan)
    }
}

/// Returns the sentences for the reader about how the question was read: corrections, then words that
/// weren't searched.
fn notes(corrections: Vec<String>, unused: &[String], qualifiers: &[String]) -> Vec<String> {
    /// Maximum words that one sentence quotes.
    const WORDS_MAX: usize = 8;
    let quote = |words: &[String]| {
        let shown = words
            .iter()
            .take(WORDS_MAX)
            .map(|word| format!("\"{word}\""));
        let more = if words.len() > WORDS_MAX { " …" } else { "" };
        shown.collect::<Vec<_>>().join(", ") + more
    };
    let mut notes = corrections;
    if !unused.is_empty() {
        notes.push(format!("I did not use {}.", quote(unused)));
    }
    if !qualifiers.is_empty() {
        notes.push(format!("The clinics don't record {}.", quote(qualifiers)));
    }
    notes
}
