//! Rules that turn clauses into steps.

use super::fragment::Fragment;
use super::phrases::RegistryPhrases;
use super::refusal::PlanRefusal;
use super::term::{TOPIC_WORDS_MAX, TopicTerm};
use super::topic::SearchTopic;
use crate::plan::{ClinicRegistry, Plan, ReplyOptions, STEPS_MAX, Step};

/// Planning rules for the clinics of a registry.
pub(super) struct PlanRules<'a> {
    registry: &'a ClinicRegistry,
    names: &'a RegistryPhrases,
}

impl<'a> PlanRules<'a> {
    pub fn new(registry: &'a ClinicRegistry, names: &'a RegistryPhrases) -> Self {
        Self { registry, names }
    }

    /// Returns the plan for the clauses, without notes.
    pub fn plan(&self, clauses: &[Fragment]) -> Result<Plan, PlanRefusal> {
        let mut graph = StepGraph::default();
        for clause in clauses {
            // Before any work that grows with it.
            let searches = 1 + clause.excluded.len();
            if searches > STEPS_MAX {
                return Err(PlanRefusal::TooManySteps { steps: searches });
            }
            self.plan_clause(clause, &mut graph)?;
            graph.check_count()?;
        }
        let mut plan = Plan::from(graph.into_steps());
        let foreign = clauses.iter().map(|clause| self.foreign_topic(clause));
        if let Some(mut topics) = foreign.collect::<Option<Vec<_>>>() {
            topics.dedup();
            plan.reply.if_none = Some(format!(
                "No clinic here treats \"{}\", and no record here has it. Registered are: {}.",
                topics.join("\" or \""),
                self.registry.specialties()
            ));
        }
        plan.reply.if_none = plan.reply.if_none.or_else(|| ask_without_unlisted(clauses));
        Ok(plan)
    }

    /// Returns whether the clause asks which clinics there are.
    pub fn asks_for_clinics(&self, clause: &Fragment) -> bool {
        clause.clinic_words && clause.asks() && clause.has_only_clinics() && !clause.all
    }

    /// Returns the answer to which clinics there are, as a plan without a step at a clinic.
    pub fn clinics_answer(&self) -> Plan {
        let clinics = self.registry.clinics().iter();
        let named: Vec<String> = clinics
            .map(|c| format!("{} ({})", c.id, c.specialty))
            .collect();
        Plan {
            reply: ReplyOptions {
                is_answer: true,
                ..ReplyOptions::default()
            },
            ..Plan::raw_response("", format!("Registered are: {}.", named.join(", ")))
        }
    }

    fn plan_clause(&self, clause: &Fragment, graph: &mut StepGraph) -> Result<(), PlanRefusal> {
        if !clause.ids.is_empty() {
            return self.plan_patients(clause, graph);
        }
        let tools = self.tools_for_each(clause)?;
        let bases = match &clause.topic {
            Some(topic) => self.plan_search(clause, topic, graph)?,
            None => self.plan_list(clause, !tools.is_empty(), graph)?,
        };
        for tool in tools {
            for (at, base) in &bases {
                graph.add_for_each(&self.registry.clinics()[*at].id, tool, *base);
            }
        }
        Ok(())
    }

    fn plan_patients(&self, clause: &Fragment, graph: &mut StepGraph) -> Result<(), PlanRefusal> {
        for (at, id) in &clause.ids {
            if !clause.clinics.is_empty() && !clause.clinics.contains(at) {
                let owner = &self.registry.clinics()[*at];
                let owner = format!("{} ({})", owner.id, owner.specialty);
                return Err(PlanRefusal::WrongClinic {
                    id: id.clone(),
                    owner,
                });
            }
            let clinic = &self.registry.clinics()[*at].id;
            let medications = clause.medication || clause.taking;
            if clause.record || !medications {
                graph.add(clinic, "get_patient", Some(("patient_id", id)), &[]);
            }
            if medications {
                graph.add(clinic, "check_medications", Some(("patient_id", id)), &[]);
            }
        }
        Ok(())
    }

    /// Returns the tools to call for each patient that the clause finds: none for a list or search.
    ///
    /// # Errors
    /// [`PlanRefusal::NeedsId`], if the clause asks for medications or a record, and doesn't say whose.
    fn tools_for_each(&self, clause: &Fragment) -> Result<Vec<&'static str>, PlanRefusal> {
        let has_medicine = clause.topic.as_ref().is_some_and(SearchTopic::has_medicine);
        // "which patients take the drug amiodarone" is a search; "what do migraine patients take" isn't
        let names_medicine = clause.taking && has_medicine && !clause.dose;
        let asks_treatment = clause.what && clause.taking && !has_medicine;
        let medications = (clause.medication || asks_treatment) && !names_medicine;
        let whose = match &clause.topic {
            Some(topic) => {
                clause.patients
                    || clause.who
                    || clause.taking
                    || clause.all
                    || !clause.clinics.is_empty()
                    || (clause.record && !topic.seen_at().is_empty())
            }
            None => {
                !clause.clinics.is_empty() || (clause.patients && !clause.one_patient && clause.all)
            }
        };
        if (medications || (clause.record && !clause.patients)) && !whose {
            return Err(PlanRefusal::NeedsId {
                example: self.example_id(clause.clinics.first()),
            });
        }
        let one_place = clause.topic.is_some() || clause.clinics.len() == 1;
        let records = clause.record && one_place && (clause.patients || clause.all);
        let mut tools = Vec::new();
        tools.extend(records.then_some("get_patient"));
        tools.extend(medications.then_some("check_medications"));
        Ok(tools)
    }

    /// Plans a search for `topic`: at the named clinics; else at those that list a condition in it;
    /// else at all clinics. Returns the clinics and numbers of the steps.
    fn plan_search(
        &self,
        clause: &Fragment,
        topic: &SearchTopic,
        graph: &mut StepGraph,
    ) -> Result<Vec<(usize, u32)>, PlanRefusal> {
        let seen_at = topic.seen_at();
        let at = match [&clause.clinics, &seen_at]
            .into_iter()
            .find(|clinics| !clinics.is_empty())
        {
            Some(clinics) => clinics,
            None => &self.all_clinics(),
        };
        let words: Vec<&str> = topic.shown.split(' ').collect();
        if words.len() > TOPIC_WORDS_MAX {
            return Err(PlanRefusal::LongTopic {
                start: words[..3].join(" "),
            });
        }
        let texts = topic.query_texts();
        let searches = texts
            .iter()
            .flat_map(|text| self.add_each(at, clause, graph, ("query", Some(("query", text)))));
        Ok(searches.collect())
    }

    /// Plans lists of patients; `is_source` tells that they are only the source of other steps.
    /// Returns the clinics and numbers of the steps.
    fn plan_list(
        &self,
        clause: &Fragment,
        is_source: bool,
        graph: &mut StepGraph,
    ) -> Result<Vec<(usize, u32)>, PlanRefusal> {
        let asked = clause.asks()
            || clause.compare
            || clause.all
            || is_source
            || !clause.excluded.is_empty();
        let list = ("list_patients", None);
        if !clause.clinics.is_empty() && (asked || clause.patients || clause.record) {
            return Ok(self.add_each(&clause.clinics, clause, graph, list));
        }
        // "all patients taking it", of nothing that was named
        let takes_unnamed = clause.taking && clause.pronoun && !clause.medication;
        if takes_unnamed && clause.clinics.is_empty() {
            return Err(self.say_what());
        }
        if clause.one_patient {
            return Err(PlanRefusal::NeedsId {
                example: self.example_id(None),
            });
        }
        // "list the patients of the clinic"
        if clause.one_clinic && !clause.compare {
            return Err(self.say_what());
        }
        if clause.patients && (asked || clause.compare) {
            return Ok(self.add_each(&self.all_clinics(), clause, graph, list));
        }
        Err(self.say_what())
    }

    /// Adds a step at each of the clinics, and steps that find what it leaves out.
    fn add_each(
        &self,
        clinics: &[usize],
        clause: &Fragment,
        graph: &mut StepGraph,
        (action, parameter): (&str, Option<(&str, &String)>),
    ) -> Vec<(usize, u32)> {
        let add = |at: &usize| {
            let clinic = &self.registry.clinics()[*at].id;
            let texts = clause.excluded.iter().flat_map(SearchTopic::query_texts);
            let except: Vec<u32> = texts.map(|text| graph.add_helper(clinic, &text)).collect();
            (*at, graph.add(clinic, action, parameter, &except))
        };
        clinics.iter().map(add).collect()
    }

    /// Returns the topic that the clause searches if it belongs to no specialty here; `None` if it does,
    /// or the clause names a clinic.
    fn foreign_topic(&self, clause: &Fragment) -> Option<String> {
        let topic = clause.topic.as_ref()?;
        let is_foreign = clause.clinics.is_empty()
            && topic.seen_at().is_empty()
            && self.names.is_foreign(&topic.chapters());
        is_foreign.then(|| topic.shown.clone())
    }

    fn say_what(&self) -> PlanRefusal {
        PlanRefusal::SayWhat {
            specialties: self.registry.specialties(),
        }
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
}

/// Returns the sentence for a search of a medicine or listed condition and further medical words, if nobody matches
/// all of them: "thyroid bloods for the amiodarone people". `None` if there is no such search.
fn ask_without_unlisted(clauses: &[Fragment]) -> Option<String> {
    let is_listed = |term: &&TopicTerm| term.is_medicine || !term.clinics.is_empty();
    let topics = clauses.iter().filter_map(|clause| clause.topic.as_ref());
    let mixed = { topics }.find(|topic| topic.terms.iter().any(|term| is_listed(&term)));
    let unlisted = { mixed?.terms.iter() }.filter(|term| !is_listed(term));
    let words: Vec<&str> = unlisted
        .filter_map(|term| term.alternatives.first().map(String::as_str))
        .collect();
    (!words.is_empty()).then(|| {
        format!(
            "No record has \"{}\" beside the rest. Ask again without it, or for it alone.",
            words.join(" ")
        )
    })
}

/// Steps of a plan while it is made, numbered from 1. Equal ones are added once.
#[derive(Debug, Default)]
struct StepGraph {
    steps: Vec<Step>,
    /// Numbers of the steps that find patients to leave out; they are never shown themselves.
    helpers: Vec<u32>,
    /// Steps to repeat for each patient, without numbers. They come last.
    repeated: Vec<Step>,
}

impl StepGraph {
    fn add(
        &mut self,
        clinic: &str,
        action: &str,
        parameter: Option<(&str, &String)>,
        except: &[u32],
    ) -> u32 {
        let parameter = parameter.map(|(name, value)| (name, value.as_str()));
        let step = Step {
            except: except.to_vec(),
            ..Step::new(0, clinic, action, parameter)
        };
        self.add_unless_equal(step, false)
    }

    /// Adds a step that finds patients to leave out, and returns its number.
    fn add_helper(&mut self, clinic: &str, text: &str) -> u32 {
        let id = self.add_unless_equal(Step::new(0, clinic, "query", Some(("query", text))), true);
        if !self.helpers.contains(&id) {
            self.helpers.push(id);
        }
        id
    }

    fn add_unless_equal(&mut self, step: Step, is_helper: bool) -> u32 {
        let equal = self.steps.iter().find(|other| {
            let numbered = Step {
                step_id: other.step_id,
                ..step.clone()
            };
            self.helpers.contains(&other.step_id) == is_helper && **other == numbered
        });
        if let Some(equal) = equal {
            return equal.step_id;
        }
        let id = u32::try_from(self.steps.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        self.steps.push(Step {
            step_id: id,
            ..step
        });
        id
    }

    fn add_for_each(&mut self, clinic: &str, action: &str, source: u32) {
        let step = Step {
            for_each: Some(source),
            ..Step::new(0, clinic, action, None)
        };
        if !self.repeated.contains(&step) {
            self.repeated.push(step);
        }
    }

    fn check_count(&self) -> Result<(), PlanRefusal> {
        match self.steps.len() + self.repeated.len() {
            steps if steps > STEPS_MAX => Err(PlanRefusal::TooManySteps { steps }),
            _ => Ok(()),
        }
    }

    fn into_steps(self) -> Vec<Step> {
        let mut steps = self.steps;
        let first = steps.len() as u32 + 1;
        let repeated = (first..).zip(self.repeated);
        steps.extend(repeated.map(|(step_id, step)| Step { step_id, ..step }));
        steps
    }
}
