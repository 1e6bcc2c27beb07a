//! Leaving out of patients and clinics that a question excludes.

use super::fragment::{Connector, Fragment};
use super::phrases::extend_unique;
use super::refusal::PlanRefusal;
use super::topic::SearchTopic;

/// Returns the last clause and those that it is an alternative to: "acne, eczema or rosacea".
fn last_alternatives(clauses: &mut [Fragment]) -> &mut [Fragment] {
    let Some(mut start) = clauses.len().checked_sub(1) else {
        return clauses;
    };
    let mut is_choice = false;
    while start > 0 {
        let clause = &clauses[start];
        is_choice |= clause.connector == Connector::Or;
        let goes_on = clause.connector == Connector::Comma
            && clause.topic.is_some()
            && !(clause.verb || clause.count || clause.asked);
        if !is_choice || !goes_on && clause.connector != Connector::Or {
            break;
        }
        start -= 1;
    }
    &mut clauses[start..]
}

/// Reads the commas of what is left out as the conjunction at its end: "not on aspirin, losartan or warfarin".
pub(super) fn join_left_out(fragments: &mut [Fragment]) {
    let is_bare = |f: &Fragment, start: &Fragment| {
        f.sentence == start.sentence
            && f.left_out.is_none()
            && (is_bare_topic(f) || f.has_only_clinics() && !f.asks())
    };
    for start in 0..fragments.len() {
        if fragments[start].left_out.is_none() || fragments[start].connector != Connector::Negation
        {
            continue;
        }
        let behind = fragments[start + 1..].iter();
        let commas = behind
            .take_while(|f| f.connector == Connector::Comma && is_bare(f, &fragments[start]))
            .count();
        let last = fragments.get(start + 1 + commas);
        if last.is_some_and(|f| f.connector == Connector::Or && is_bare(f, &fragments[start])) {
            for fragment in &mut fragments[start + 1..=start + commas] {
                fragment.connector = Connector::Or;
            }
        }
    }
}

/// Returns whether a fragment names nothing but what is searched, and perhaps where.
fn is_bare_topic(fragment: &Fragment) -> bool {
    let is_bare = !(fragment.verb || fragment.patients || fragment.taking || fragment.cue);
    fragment.topic.is_some() && is_bare && !fragment.has_data()
}

/// Leaves a topic out of the last clause and its alternatives; `place` is theirs if they name none: "patients not on
/// aspirin in cardiology".
fn leave_topic(clauses: &mut [Fragment], topic: &SearchTopic, place: &[usize]) {
    for clause in last_alternatives(clauses) {
        clause.excluded.push(topic.clone());
        if clause.clinics.is_empty() {
            clause.clinics = place.to_vec();
        }
    }
}

/// Leaves clinics out of a clause, which names others or is asked of all. Returns whether a clinic is left.
fn leave_clinics(clause: &mut Fragment, left_out: &[usize], clinics_total: usize) -> bool {
    if clause.clinics.is_empty() {
        clause.clinics = (0..clinics_total).collect();
    }
    clause.clinics.retain(|at| !left_out.contains(at));
    !clause.clinics.is_empty()
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
    /// Whether that fragment was only clinics.
    left_clinics: bool,
    /// Topics and clinics that the last clause began with leaving out: its alternatives leave them out too.
    of_alternatives: (Vec<SearchTopic>, Vec<usize>),
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
            left_clinics: false,
            of_alternatives: Default::default(),
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
            && (is_bare_topic(fragment)
                // "not in cardiology or dermatology"
                || self.left_clinics
                    && fragment.has_only_clinics()
                    && !fragment.asks()
                    && !fragment.all);
        // "not in cardiology but in dermatology"
        if goes_on && fragment.but && fragment.has_only_clinics() {
            for clause in last_alternatives(clauses) {
                clause.clinics = fragment.clinics.clone();
            }
            return Ok(true);
        }
        let word = match &fragment.left_out {
            Some(word) => word.clone(),
            None if goes_on => String::new(),
            None => {
                (self.goes_on, self.left_clinics) = (None, false);
                return Ok(false);
            }
        };
        self.goes_on = Some(fragment.sentence);
        // "skip the cardiology list and go to dermatology"
        self.left_clinics = fragment.has_only_clinics()
            && (self.left_clinics || fragment.connector == Connector::Negation);
        let refuse = || Err(PlanRefusal::Negation(word.clone()));
        let base = clauses
            .last_mut()
            .filter(|base| base.sentence == fragment.sentence && base.ids.is_empty());
        let is_negated = fragment.connector == Connector::Negation;
        match (base, &fragment.topic) {
            (Some(_), _) if !fragment.ids.is_empty() => refuse(),
            // "cardiology patients not on aspirin in neurology"
            (Some(base), Some(_))
                if !base.clinics.is_empty()
                    && fragment.clinics.iter().any(|at| !base.clinics.contains(at)) =>
            {
                refuse()
            }
            (Some(_), Some(topic)) => {
                leave_topic(clauses, topic, &fragment.clinics);
                Ok(true)
            }
            (Some(_), None) if !fragment.clinics.is_empty() => {
                let total = self.clinics_total;
                let mut alternatives = last_alternatives(clauses).iter_mut();
                match alternatives.all(|clause| leave_clinics(clause, &fragment.clinics, total)) {
                    true => Ok(true),
                    false => refuse(),
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
        let count = clauses.len();
        let alternatives = last_alternatives(clauses);
        match alternatives {
            [.., last] if !self.pending.is_empty() && !last.ids.is_empty() => {
                Err(PlanRefusal::Negation(self.pending[0].shown.clone()))
            }
            [_, ..] if !self.pending_clinics.is_empty() && alternatives.len() < count => {
                self.refuse_clinic()
            }
            _ => alternatives
                .iter_mut()
                .try_for_each(|clause| self.leave_pending(clause)),
        }
    }

    /// Leaves what is pending out of a clause, or what was pending before the one that it is an alternative to.
    ///
    /// # Errors
    /// [`PlanRefusal::Negation`], if no clinic would be left.
    pub fn narrow(&mut self, clause: &mut Fragment) -> Result<(), PlanRefusal> {
        if clause.connector == Connector::Or
            && self.pending.is_empty()
            && self.pending_clinics.is_empty()
        {
            (self.pending, self.pending_clinics) = std::mem::take(&mut self.of_alternatives);
        }
        self.leave_pending(clause)?;
        self.of_alternatives = (
            std::mem::take(&mut self.pending),
            std::mem::take(&mut self.pending_clinics),
        );
        Ok(())
    }

    fn leave_pending(&self, clause: &mut Fragment) -> Result<(), PlanRefusal> {
        clause.excluded.extend(self.pending.iter().cloned());
        if self.pending_clinics.is_empty() || !clause.ids.is_empty() {
            return Ok(());
        }
        if clause.clinics.is_empty() {
            let seen_at = clause.topic.as_ref().map(SearchTopic::seen_at);
            clause.clinics = seen_at.unwrap_or_default();
        }
        match leave_clinics(clause, &self.pending_clinics, self.clinics_total) {
            true => Ok(()),
            false => self.refuse_clinic(),
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
