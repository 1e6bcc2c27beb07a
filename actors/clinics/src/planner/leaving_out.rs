//! Leaving out of patients and clinics that a question excludes.

use super::fragment::{Connector, Fragment};
use super::phrases::extend_unique;
use super::refusal::PlanRefusal;
use super::topic::SearchTopic;

/// Leaves a topic out of the last clause, and of those that it is an alternative to: "acne or rosacea, but not on
/// doxycycline".
fn exclude(clauses: &mut [Fragment], topic: &SearchTopic) {
    for clause in clauses.iter_mut().rev() {
        clause.excluded.push(topic.clone());
        if clause.connector != Connector::Or {
            break;
        }
    }
}

/// State of leaving things out.
pub(super) struct LeavingOut {
    clinics_total: usize,
    /// Topics to leave out of the next clause.
    pending: Vec<SearchTopic>,
    /// Clinics to leave out of the next clause.
    pending_clinics: Vec<usize>,
    /// Sentence in which a fragment was left out, and nothing else came since.
    goes_on: Option<usize>,
    /// Negation before any clause.
    unplaced: Option<String>,
    /// Sentence with a request before any clause, of which all was left out so far.
    asked_in: Option<usize>,
}

impl LeavingOut {
    /// Creates the state before any clause, in a registry with this many clinics.
    pub fn new(clinics_total: usize) -> Self {
        Self {
            clinics_total,
            pending: Vec::new(),
            pending_clinics: Vec::new(),
            goes_on: None,
            unplaced: None,
            asked_in: None,
        }
    }

    /// Ends leaving out after the last clause.
    ///
    /// # Errors
    /// [`PlanRefusal::Negation`], if there is no clause to leave anything out of, or one would be left out as a whole.
    pub fn finish(self, clauses: &[Fragment]) -> Result<(), PlanRefusal> {
        // "he never stops about acne. Who has acne?"
        let leaves_nobody = |clause: &&Fragment| {
            let terms = clause.topic.as_ref().map(|topic| &topic.terms);
            { &clause.excluded }
                .iter()
                .any(|of| Some(&of.terms) == terms)
        };
        if let Some(topic) = clauses
            .iter()
            .find(leaves_nobody)
            .and_then(|c| c.topic.as_ref())
        {
            return Err(PlanRefusal::Negation(topic.shown.clone()));
        }
        match self.unplaced {
            Some(word) if clauses.is_empty() => Err(PlanRefusal::Negation(word)),
            _ => Ok(()),
        }
    }

    /// Returns whether the fragment is left out: then it has narrowed the clause before, or will
    /// narrow the next.
    pub fn takes(
        &mut self,
        fragment: &Fragment,
        clauses: &mut [Fragment],
    ) -> Result<bool, PlanRefusal> {
        // "without acne or eczema"
        let goes_on = self.goes_on == Some(fragment.sentence)
            && matches!(fragment.connector, Connector::Or | Connector::And)
            && fragment.has_only_topic()
            && !fragment.taking
            && !fragment.cue;
        let word = match &fragment.left_out {
            Some(word) => word.clone(),
            None if goes_on => String::new(),
            None => {
                self.goes_on = None;
                return Ok(false);
            }
        };
        self.goes_on = Some(fragment.sentence);
        let refuse = || Err(PlanRefusal::Negation(word.clone()));
        let base = clauses
            .last_mut()
            .filter(|base| base.sentence == fragment.sentence && base.ids.is_empty());
        let is_negated = fragment.connector == Connector::Negation;
        match (base, &fragment.topic) {
            (Some(_), _) if !fragment.ids.is_empty() => refuse(),
            (Some(_), Some(topic)) => {
                exclude(clauses, topic);
                Ok(true)
            }
            (Some(base), None) if !fragment.clinics.is_empty() => {
                if base.clinics.is_empty() {
                    base.clinics = (0..self.clinics_total).collect();
                }
                base.clinics.retain(|at| !fragment.clinics.contains(at));
                match base.clinics.is_empty() {
                    true => refuse(),
                    false => Ok(true),
                }
            }
            // "without the names": they are never shown
            (_, None) if fragment.identity && fragment.has_no_object() => Ok(true),
            (Some(_), None) if is_negated => refuse(),
            (Some(_), None) => Ok(true),
            // "Forget about neurology, …", "I don't want acne, I want …"
            (None, topic) => {
                self.pending.extend(topic.clone());
                if topic.is_none() {
                    extend_unique(&mut self.pending_clinics, &fragment.clinics);
                }
                self.unplaced = is_negated.then_some(word);
                self.asked_in = fragment.verb.then_some(fragment.sentence);
                Ok(true)
            }
        }
    }

    /// Leaves what a last sentence leaves out out of the clause before: "Who takes aspirin? Leave out angina."
    ///
    /// # Errors
    /// [`PlanRefusal::Negation`], if that clause is about patients by id.
    pub fn take_last(&mut self, clauses: &mut [Fragment]) -> Result<(), PlanRefusal> {
        match clauses {
            [.., last] if !self.pending.is_empty() && !last.ids.is_empty() => {
                Err(PlanRefusal::Negation(self.pending[0].shown.clone()))
            }
            [_, .., _] if !self.pending_clinics.is_empty() => self.refuse_clinic(),
            [.., last] => self.narrow(last),
            [] => Ok(()),
        }
    }

    /// Leaves what is pending out of a clause.
    ///
    /// # Errors
    /// [`PlanRefusal::Negation`], if no clinic would be left.
    pub fn narrow(&mut self, clause: &mut Fragment) -> Result<(), PlanRefusal> {
        clause.excluded.append(&mut self.pending);
        if self.pending_clinics.is_empty() || !clause.ids.is_empty() {
            return Ok(());
        }
        if clause.clinics.is_empty() {
            let seen_at = clause.topic.as_ref().map(SearchTopic::seen_at);
            let seen_at = seen_at.filter(|clinics| !clinics.is_empty());
            clause.clinics = seen_at.unwrap_or_else(|| (0..self.clinics_total).collect());
        }
        clause
            .clinics
            .retain(|at| !self.pending_clinics.contains(at));
        match clause.clinics.is_empty() {
            true => self.refuse_clinic(),
            false => {
                self.pending_clinics.clear();
                Ok(())
            }
        }
    }

    fn refuse_clinic(&self) -> Result<(), PlanRefusal> {
        Err(PlanRefusal::Negation("that clinic".to_owned()))
    }

    /// Reads a word such as `others`. Returns whether the fragment adds nothing: it names those whom the
    /// clause before already finds, "ignore those without acne, show the others".
    ///
    /// # Errors
    /// [`PlanRefusal::Negation`], if nothing tells of whom the others are left.
    pub fn takes_rest(
        &mut self,
        fragment: &mut Fragment,
        before: Option<&Fragment>,
    ) -> Result<bool, PlanRefusal> {
        // "skip the list of cardiology and go to neurology"
        fragment.asked |= self.asked_in.take() == Some(fragment.sentence);
        let names_others = fragment.has_no_object();
        match &fragment.rest {
            Some(_) if names_others && !self.pending.is_empty() => {
                (fragment.patients, fragment.asked) = (true, true);
                Ok(false)
            }
            Some(_) if names_others && before.is_some_and(|before| before.unignored) => {
                fragment.pronoun = true;
                Ok(!fragment.has_data())
            }
            // "of the patients with acne, leave out those on doxycycline and show the rest"
            Some(_)
                if names_others
                    && before.is_some_and(|before| {
                        before.sentence == fragment.sentence && !before.excluded.is_empty()
                    }) =>
            {
                fragment.pronoun = true;
                Ok(!fragment.has_data())
            }
            Some(word) if names_others => Err(PlanRefusal::Negation(word.clone())),
            _ => Ok(false),
        }
    }
}
