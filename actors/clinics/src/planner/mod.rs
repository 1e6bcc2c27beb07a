//! Planner agent: turns a question into a graph of steps.
//!
//! Planning is a typed message, [`MakePlan`]. The [`Planner`] answers it by rules with a fixed
//! vocabulary and the registry's words, without a model or network. Any agent that handles the same
//! message can replace it.

mod fragment;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{ClinicRegistry, Plan, STEPS_MAX, Step};

use fragment::{
    Fragment, PlanRefusal, RegistryPhrases, SearchTopic, extend_unique, split_fragments,
};

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

    /// Returns the plan for a question; none of its steps depends on another. If a rule refuses the
    /// question or none matches, the plan is a `raw_response` with a sentence for the user.
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
        let mut steps = match self.steps(query) {
            Ok(steps) => steps,
            Err(refusal) => return Plan::raw_response(query, refusal.to_string()),
        };
        (1..)
            .zip(&mut steps)
            .for_each(|(step_id, step)| step.step_id = step_id);
        let plan = Plan { steps };
        // The text of a condition comes from the user: it may be too long, or contain another
        // clinic's id.
        match plan.clone().check(&self.registry) {
            Ok(_) => plan,
            Err(e) => Plan::raw_response(query, format!("Ask differently: {e}.")),
        }
    }

    /// Returns the different steps for a question, all with the number 0. If one clause can't be
    /// planned, the whole question is refused, because a plan without that clause would answer
    /// another question. A question that requests nothing or needs more than [`STEPS_MAX`] steps is
    /// refused too.
    fn steps(&self, query: &str) -> Result<Vec<Step>, PlanRefusal> {
        let clauses = share_between(split_fragments(query, &self.registry, &self.names)?);
        if clauses.is_empty() {
            return Err(PlanRefusal::Empty);
        }
        let mut steps = Vec::new();
        for clause in &clauses {
            extend_unique(&mut steps, &self.plan_clause(clause)?);
        }
        if steps.len() > STEPS_MAX {
            Err(PlanRefusal::TooManySteps { steps: steps.len() })
        } else {
            Ok(steps)
        }
    }

    fn plan_clause(&self, clause: &Fragment) -> Result<Vec<Step>, PlanRefusal> {
        if !clause.ids.is_empty() {
            return self.plan_patients(clause);
        }
        let needs_id = || PlanRefusal::NeedsId {
            example: self.example_id(clause.clinics.first()),
        };
        match &clause.topic {
            // Medications and records belong to a single patient. With a condition, the question is
            // a search for patients.
            Some(_) if clause.medication && !clause.patients && !clause.taking => Err(needs_id()),
            Some(topic)
                if clause.record
                    && !clause.patients
                    && clause.clinics.is_empty()
                    && topic.seen_at.is_empty() =>
            {
                Err(needs_id())
            }
            Some(topic) => self.plan_search(clause, topic),
            None if clause.medication => Err(needs_id()),
            None => self.plan_list(clause),
        }
    }

    fn plan_patients(&self, clause: &Fragment) -> Result<Vec<Step>, PlanRefusal> {
        let mut steps = Vec::new();
        for (at, id) in &clause.ids {
            if !clause.clinics.is_empty() && !clause.clinics.contains(at) {
                let owner = &self.registry.clinics()[*at];
                let owner = format!("{} ({})", owner.id, owner.specialty);
                return Err(PlanRefusal::WrongClinic {
                    id: id.clone(),
                    owner,
                });
            }
            let medications = clause.medication || clause.taking;
            if clause.record || !medications {
                steps.push(self.step(*at, "get_patient", Some(("patient_id", id))));
            }
            if medications {
                steps.push(self.step(*at, "check_medications", Some(("patient_id", id))));
            }
        }
        Ok(steps)
    }

    /// Plans a search for `topic`: at the named clinics; else at those that list a condition in it;
    /// else at all clinics, if the clause mentions patients or taking a medicine. Otherwise the
    /// clause is refused with [`PlanRefusal::NotUnderstood`].
    fn plan_search(
        &self,
        clause: &Fragment,
        topic: &SearchTopic,
    ) -> Result<Vec<Step>, PlanRefusal> {
        let at = match [&clause.clinics, &topic.seen_at]
            .into_iter()
            .find(|clinics| !clinics.is_empty())
        {
            Some(clinics) => clinics,
            None if clause.patients || clause.taking => &self.all_clinics(),
            None => {
                return Err(PlanRefusal::NotUnderstood {
                    specialties: self.registry.specialties(),
                });
            }
        };
        Ok(at
            .iter()
            .map(|at| self.step(*at, "query", Some(("query", &topic.text))))
            .collect())
    }

    fn plan_list(&self, clause: &Fragment) -> Result<Vec<Step>, PlanRefusal> {
        let asked = clause.verb || clause.all;
        let lists = |at: &[usize]| {
            Ok(at
                .iter()
                .map(|at| self.step(*at, "list_patients", None))
                .collect())
        };
        if !clause.clinics.is_empty() && (asked || clause.patients || clause.record) {
            return lists(&clause.clinics);
        }
        if clause.patients && asked {
            return lists(&self.all_clinics());
        }
        if clause.record {
            return Err(PlanRefusal::NeedsId {
                example: self.example_id(None),
            });
        }
        Err(PlanRefusal::SayWhat)
    }

    fn all_clinics(&self) -> Vec<usize> {
        (0..self.registry.clinics().len()).collect()
    }

    fn example_id(&self, at: Option<&usize>) -> String {
        let clinics = self.registry.clinics();
        let named = at.and_then(|at| clinics.get(*at));
        let prefix = named
            .into_iter()
            .chain(clinics)
            .map(|c| &c.id_prefix)
            .find(|p| !p.is_empty());
        prefix.map_or_else(|| "one from a list".to_owned(), |p| format!("{p}-001"))
    }

    /// Returns a step with the number 0. `at` is the index of its clinic in the registry, and
    /// `parameter` the name and value of its only parameter.
    fn step(&self, at: usize, action: &str, parameter: Option<(&str, &String)>) -> Step {
        let parameters = parameter
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.clone().into()))
            .collect();
        let clinic = self.registry.clinics()[at].id.clone();
        Step {
            step_id: 0,
            clinic,
            action: action.to_owned(),
            parameters,
            depends_on: Vec::new(),
        }
    }
}

/// Turns the fragments of a query into clauses: each takes parts that it lacks from the next
/// fragment of its sentence, or from the clause before it, which may be in an earlier sentence.
/// Some fragments are merged with the next. A clause may still lack parts.
fn share_between(mut fragments: Vec<Fragment>) -> Vec<Fragment> {
    let mut clauses: Vec<Fragment> = Vec::new();
    for at in 0..fragments.len() {
        let mut fragment = fragments[at].clone();
        let next = fragments
            .get_mut(at + 1)
            .filter(|n| n.sentence == fragment.sentence);
        if next.is_some_and(|next| carry_forward(&mut fragment, next)) {
            continue;
        }
        if let Some(before) = clauses.last() {
            inherit_from(&mut fragment, before);
        }
        clauses.push(fragment);
    }
    clauses
}

/// Copies parts of a fragment to the next fragment, or from it, if they belong together. Returns
/// `true` if the fragment was merged into the next one, and the caller must drop it.
fn carry_forward(fragment: &mut Fragment, next: &mut Fragment) -> bool {
    // "cardiology and dermatology patients"; "in dermatology, list patients"
    let wants_clinics = match next.verb {
        true => next.clinics.is_empty() && next.ids.is_empty() && !fragment.verb,
        false => (next.patients || next.topic.is_some()) && next.ids.is_empty(),
    };
    if fragment.has_only_clinics() && wants_clinics && (next.patients || next.topic.is_some()) {
        let mut clinics = fragment.clinics.clone();
        extend_unique(&mut clinics, &next.clinics);
        next.clinics = clinics;
        next.verb |= fragment.verb;
        next.all |= fragment.all;
        return true;
    }
    // "patients with both psoriasis and eczema": one search for both, because clinics match all
    // words
    let only_topic =
        !next.verb && !next.has_subject() && next.clinics.is_empty() && next.ids.is_empty();
    if let (true, true, Some(topic), Some(more)) =
        (fragment.both, only_topic, &mut fragment.topic, &next.topic)
    {
        topic.text = format!("{} {}", topic.text, more.text);
        extend_unique(&mut topic.seen_at, &more.seen_at);
        *next = fragment.clone();
        return true;
    }
    // "for CARD-001, check medications"
    let bare_ids = !fragment.ids.is_empty() && !fragment.verb && !fragment.has_subject();
    if bare_ids && next.verb && next.ids.is_empty() && (next.record || next.medication) {
        next.ids = fragment.ids.clone();
        return true;
    }
    // "the record and the medications of CARD-001"
    if (fragment.record || fragment.medication)
        && fragment.ids.is_empty()
        && !fragment.pronoun
        && !next.verb
    {
        fragment.ids = next.ids.clone();
    }
    // "vitiligo and eczema patients of dermatology"
    let unplaced = fragment.clinics.is_empty()
        && fragment
            .topic
            .as_ref()
            .is_some_and(|t| t.seen_at.is_empty());
    if unplaced && !fragment.patients && !next.verb {
        fragment.clinics = next.clinics.clone();
        fragment.patients |= next.patients;
    }
    false
}

/// Copies parts that a fragment lacks from the clause before it.
fn inherit_from(fragment: &mut Fragment, before: &Fragment) {
    // "CARD-001 and their medications"
    let points_back = fragment.pronoun
        || (fragment.clinics.is_empty() && fragment.topic.is_none() && !fragment.patients);
    if fragment.ids.is_empty() && (fragment.medication || fragment.record) && points_back {
        fragment.ids = before.ids.clone();
        return;
    }
    let says_only_what = !fragment.verb && !fragment.has_subject();
    if !fragment.ids.is_empty() {
        // "the medications of CARD-001 and CARD-002"
        if says_only_what {
            (fragment.record, fragment.medication, fragment.taking) =
                (before.record, before.medication, before.taking);
        }
    } else if fragment.topic.is_some() {
        // "dermatology patients with psoriasis and eczema"; "… and who take methotrexate"; but not
        // "list cardiology patients and check psoriasis"
        let registered = fragment
            .topic
            .as_ref()
            .is_some_and(|t| !t.seen_at.is_empty());
        let goes_on = !registered || (!fragment.verb && before.topic.is_some());
        if fragment.clinics.is_empty() && !fragment.patients && goes_on {
            fragment.clinics = before.clinics.clone();
            fragment.patients = before.patients;
        }
    } else if fragment.has_only_clinics() && says_only_what {
        // "list patients with psoriasis in dermatology and in cardiology"
        fragment.topic = before.topic.clone();
        fragment.patients = before.patients || before.verb;
    }
}
