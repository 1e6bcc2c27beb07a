//! The planner: a query in, a step graph out.
//!
//! Planning is a typed message, [`MakePlan`]. The [`Planner`] here answers it by rules from the registry's words, so
//! that all runs with no key and no network; any agent that answers the same message can stand in its place.

mod fragment;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, Registry, STEPS_MAX, Step};

use fragment::{Fragment, Names, Refusal, Topic, add_all, fragments};

/// Maximum characters of a question. A longer one is refused with `InvalidInput`; the command line exits with 2. Fixed.
pub const QUERY_CHARS_MAX: usize = 2_000;

/// Makes a step graph for a question about patients: which tool to call at which clinic. Nothing is called yet.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// A question may name a patient.
#[debug("MakePlan({} bytes)", query.len())]
#[message(name = "make_plan", reply = Plan, fallible)]
#[serde(deny_unknown_fields)]
pub struct MakePlan {
    /// The question, English or Portuguese, at most [`QUERY_CHARS_MAX`] characters.
    pub query: String,
}

/// The agent that plans by rules.
#[derive(Debug, Clone)]
pub struct Planner {
    registry: Arc<Registry>,
    names: Arc<Names>,
}

impl Planner {
    /// A planner for the clinics of `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        let names = Arc::new(Names::new(&registry));
        Self { registry, names }
    }

    /// The plan for a query; the `raw_response` plan, with a sentence for the user, if no rule fits.
    ///
    /// Fails with [`callboard_message::FailureKind::InvalidInput`] if the query is longer than [`QUERY_CHARS_MAX`].
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
    fn handle(&mut self, message: MakePlan, cx: &mut Cx) -> Result<Plan, Failure> {
        let plan = self.plan(&message.query)?;
        callboard_message::log::info!(
            call = cx.call().map(|c| tracing::field::display(c.id)),
            steps = plan.steps.len(),
            refused = plan.refusal().is_some(),
            "planned"
        );
        Ok(plan)
    }
}

impl Planner {
    /// The plan for a query, or the `raw_response` plan that says what to ask instead.
    fn plan_or_refusal(&self, query: &str) -> Plan {
        let mut steps = match self.steps(query) {
            Ok(steps) => steps,
            Err(refusal) => return Plan::raw_response(query, refusal.to_string()),
        };
        (1..)
            .zip(&mut steps)
            .for_each(|(step_id, step)| step.step_id = step_id);
        let plan = Plan { steps };
        // A condition's text is the user's: it can be too long, or hold another clinic's id in a spelling unknown here.
        match plan.clone().check(&self.registry) {
            Ok(_) => plan,
            Err(e) => Plan::raw_response(query, format!("Ask differently: {e}.")),
        }
    }

    /// The steps, without numbers yet. One clause that can't be planned refuses them all: to leave a part out silently
    /// would answer another question.
    fn steps(&self, query: &str) -> Result<Vec<Step>, Refusal> {
        let clauses = share(fragments(query, &self.registry, &self.names)?);
        if clauses.is_empty() {
            return Err(Refusal::Empty);
        }
        let mut steps = Vec::new();
        for clause in &clauses {
            add_all(&mut steps, &self.resolve(clause)?);
        }
        if steps.len() > STEPS_MAX {
            Err(Refusal::TooManySteps { steps: steps.len() })
        } else {
            Ok(steps)
        }
    }

    fn resolve(&self, clause: &Fragment) -> Result<Vec<Step>, Refusal> {
        if !clause.ids.is_empty() {
            return self.about_patients(clause);
        }
        let needs_id = || Refusal::NeedsId {
            example: self.example_id(clause.clinics.first()),
        };
        match &clause.topic {
            // Medicines and records are one patient's: with a condition beside them, patients are looked for.
            Some(_) if clause.medication && !clause.patients && !clause.taking => Err(needs_id()),
            Some(topic)
                if clause.record
                    && !clause.patients
                    && clause.clinics.is_empty()
                    && topic.seen_at.is_empty() =>
            {
                Err(needs_id())
            }
            Some(topic) => self.search(clause, topic),
            None if clause.medication => Err(needs_id()),
            None => self.list(clause),
        }
    }

    fn about_patients(&self, clause: &Fragment) -> Result<Vec<Step>, Refusal> {
        let mut steps = Vec::new();
        for (at, id) in &clause.ids {
            if !clause.clinics.is_empty() && !clause.clinics.contains(at) {
                let owner = &self.registry.clinics()[*at];
                let owner = format!("{} ({})", owner.id, owner.specialty);
                return Err(Refusal::WrongClinic {
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

    /// At the clinics that are named, else at those that list the condition, else at all if patients are meant.
    fn search(&self, clause: &Fragment, topic: &Topic) -> Result<Vec<Step>, Refusal> {
        let at = match [&clause.clinics, &topic.seen_at]
            .into_iter()
            .find(|clinics| !clinics.is_empty())
        {
            Some(clinics) => clinics,
            None if clause.patients || clause.taking => &self.everywhere(),
            None => {
                return Err(Refusal::NotUnderstood {
                    specialties: self.registry.specialties(),
                });
            }
        };
        Ok(at
            .iter()
            .map(|at| self.step(*at, "query", Some(("query", &topic.text))))
            .collect())
    }

    fn list(&self, clause: &Fragment) -> Result<Vec<Step>, Refusal> {
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
            return lists(&self.everywhere());
        }
        if clause.record {
            return Err(Refusal::NeedsId {
                example: self.example_id(None),
            });
        }
        Err(Refusal::SayWhat)
    }

    fn everywhere(&self) -> Vec<usize> {
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

    /// A tool call without a number. `at` is the clinic's place in the registry.
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

/// Makes clauses of fragments: what one leaves unsaid, its neighbours have said.
fn share(mut fragments: Vec<Fragment>) -> Vec<Fragment> {
    let mut clauses: Vec<Fragment> = Vec::new();
    for at in 0..fragments.len() {
        let mut fragment = fragments[at].clone();
        let next = fragments
            .get_mut(at + 1)
            .filter(|n| n.sentence == fragment.sentence);
        if next.is_some_and(|next| lend_forward(&mut fragment, next)) {
            continue;
        }
        if let Some(before) = clauses.last() {
            take_back(&mut fragment, before);
        }
        clauses.push(fragment);
    }
    clauses
}

/// Gives what `fragment` says to the next one, or takes what that one says; true if nothing else is left in it.
fn lend_forward(fragment: &mut Fragment, next: &mut Fragment) -> bool {
    // "cardiology and dermatology patients"; "in dermatology, list patients"
    let wants_clinics = match next.verb {
        true => next.clinics.is_empty() && next.ids.is_empty() && !fragment.verb,
        false => (next.patients || next.topic.is_some()) && next.ids.is_empty(),
    };
    if fragment.only_clinics() && wants_clinics && (next.patients || next.topic.is_some()) {
        let mut clinics = fragment.clinics.clone();
        add_all(&mut clinics, &next.clinics);
        next.clinics = clinics;
        next.verb |= fragment.verb;
        next.all |= fragment.all;
        return true;
    }
    // "patients with both psoriasis and eczema": one search for the two, for clinics look for all words
    let only_topic = !next.verb && !next.noun() && next.clinics.is_empty() && next.ids.is_empty();
    if let (true, true, Some(topic), Some(more)) =
        (fragment.both, only_topic, &mut fragment.topic, &next.topic)
    {
        topic.text = format!("{} {}", topic.text, more.text);
        add_all(&mut topic.seen_at, &more.seen_at);
        *next = fragment.clone();
        return true;
    }
    // "for CARD-001, check medications"
    let bare_ids = !fragment.ids.is_empty() && !fragment.verb && !fragment.noun();
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

/// Takes what `fragment` leaves unsaid from the clause before it.
fn take_back(fragment: &mut Fragment, before: &Fragment) {
    // "CARD-001 and their medications"
    let points_back = fragment.pronoun
        || (fragment.clinics.is_empty() && fragment.topic.is_none() && !fragment.patients);
    if fragment.ids.is_empty() && (fragment.medication || fragment.record) && points_back {
        fragment.ids = before.ids.clone();
        return;
    }
    let says_only_what = !fragment.verb && !fragment.noun();
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
    } else if fragment.only_clinics() && says_only_what {
        // "list patients with psoriasis in dermatology and in cardiology"
        fragment.topic = before.topic.clone();
        fragment.patients = before.patients || before.verb;
    }
}
