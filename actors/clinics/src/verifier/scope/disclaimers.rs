//! Sentences and clauses in which the program says what it can't do, sends somebody to a doctor, or
//! repeats a source: no rule reads them.

use callboard_message::is_one_of;

use super::lexicon::*;
use super::reading::SentenceReading;
use super::sentence::OPENS;

/// Words before the negation of what the program doesn't do.
const UNABLE: &str = "can am may posso podemos consigo conseguimos sei sabemos conheco";
/// Verbs of what the program doesn't do, after `do not`.
const UNDONE: &str =
    "know have give make diagnose prescribe offer provide store hold understand keep";
/// Verbs of what is said to be impossible.
const DISCLAIMED: &str = "recommend advise suggest diagnose give say tell recomendar aconselhar sugerir diagnosticar dar dizer avaliar";
/// Words that also speak of the program's own answers.
const OWN_RESULTS: &str =
    "advice conselho orientacao instructions result results resultado resultados";
/// Units of a dose after a number.
const DOSE_UNITS: &str = "mg mcg ug ml g iu ui units unidades puffs puff jatos gotas drops sprays";

/// Marks the words of a clause in which the program says what it can't do: "I can't recommend …".
pub(super) fn cover_disclaimers(r: &mut SentenceReading<'_, '_>) {
    const TOOLS: &str = "system tool service program sistema servico ferramenta programa";
    // "Recommending a medicine is not something this system does."
    let denies = r.any(0, r.tokens.len(), NEG);
    let is_tool = |n: usize| is_one_of!(r.word(n), TOOLS) && n > 0 && !r.is(n - 1, BODY);
    if denies && (0..r.tokens.len()).any(is_tool) && !r.has_you && !r.any(0, r.tokens.len(), OBLIGE)
    {
        r.covered.fill(true);
    }
    if r.is_referral() || names_source(r) && !r.any(0, r.tokens.len(), OBLIGE | IF) {
        r.covered.fill(true);
    }
    let mut is_covered = false;
    for n in 0..r.tokens.len() {
        if is_one_of!(
            r.word(n),
            "but however so therefore still mas porem contudo portanto",
        ) {
            is_covered = false;
        }
        is_covered |= r.disclaims(n) || r.is_left_to_care(n);
        r.covered[n] |= is_covered;
    }
}

impl SentenceReading<'_, '_> {
    fn disclaims(&self, n: usize) -> bool {
        if !self.is(n, NEG) {
            return false;
        }
        let from = n.saturating_sub(3);
        let is_own = self.any(from, n, FIRST) || self.any(from, n, SYSTEM);
        let unable = (from..n + 2).any(|at| is_one_of!(self.word(at), UNABLE));
        let portuguese = self.word(n) == "nao" && is_one_of!(self.word(n + 1), UNABLE);
        let undone = self.any(from, n, FIRST)
            && matches!(self.word(n.wrapping_sub(1)), "do" | "does")
            && (is_one_of!(self.word(n + 1), UNDONE)
                || is_one_of!(self.word(n + 1), DISCLAIMED)
                    && is_one_of!(
                        self.word(n + 2),
                        "treatments medicines doses anything treatment"
                    ));
        let impossible = (n..n + 4).any(|at| is_one_of!(self.word(at), "possible possivel"))
            && (n + 1..n + 6).any(|at| is_one_of!(self.word(at), DISCLAIMED));
        let sees = is_one_of!(self.word(n + 1), "see imagine find think");
        undone || impossible || portuguese || is_own && unable && !sees
    }

    /// Returns whether a judgement is left to care from `n` on: "only a physician can say …".
    pub fn is_left_to_care(&self, n: usize) -> bool {
        self.any(n + 1, n + 5, CARE | ROLE)
            && is_one_of!(self.word(n), "only so apenas cabe question pergunta")
    }

    /// Returns whether the sentence sends somebody who asks to a doctor: "If you need advice on a
    /// dose, speak to a doctor."
    fn is_referral(&self) -> bool {
        let all = 0..self.tokens.len();
        let sends = |n: usize| {
            self.opens(n)
                && self.is(n, SEEK | ORDINARY)
                && self.any(n + 1, n + 5, CARE)
                && (n + 1..n + 5).all(|at| self.word(at) != "for")
        };
        let acts = |n: usize| {
            self.is(n, ACT) && self.is(n, BASE | INFINITIVE | POLITE) && !self.is(n, ORDINARY)
        };
        // "If you need the dose, ask for the record."
        let asks = |n: usize| {
            self.opens(n) && self.is(n, ORDINARY) && self.any(n, n + 6, DOCUMENT | SYSTEM)
        };
        if self.is(0, IF) && self.has_you && all.clone().any(asks) {
            return !all.clone().any(|n| acts(n) || self.is(n, CONDITION));
        }
        (self.is(0, IF) || matches!(self.word(0), "for" | "para"))
            && !self.any(0, all.end, NEG)
            && all.clone().any(sends)
            && !all.clone().any(|n| acts(n) || self.is(n, CONDITION))
    }

    /// Returns whether the evaluation at `n` says that a value is stated: "the number isn't indicated".
    pub fn is_value(&self, n: usize) -> bool {
        let is_datum = |at| is_one_of!(self.word(at), "number numero valor value reason motivo");
        is_one_of!(self.word(n), "indicado indicada indicated") && (0..n).any(is_datum)
    }

    pub fn is_health(&self, n: usize) -> bool {
        let is_dose = n > 0 && self.is(n - 1, NUMBER) && is_one_of!(self.word(n), DOSE_UNITS);
        is_dose
            || !is_one_of!(self.word(n), OWN_RESULTS)
                && (self.is(n, MEDICINE | TREATMENT | LIFESTYLE | COMPLAINT | BODY)
                    || self.is(n, CONDITION)
                    || self.is_medicine(n))
    }
}

/// Returns whether the sentence ends with the source of what it says of a patient: "…, as the
/// paramedic showed her", "…, by her own account".
pub(super) fn names_source(r: &SentenceReading<'_, '_>) -> bool {
    let len = r.tokens.len();
    let is_third = r.any(0, len, PATIENT | PAST | WAS)
        || r.is(0, FAMILIAR) && !r.is(0, BASE | POLITE | INFINITIVE);
    if r.has_you || !is_third {
        return false;
    }
    let is_source = |n: usize| {
        let until = len.min(n + 7);
        let speaks = r.any(n, until, SAID | TOLD | DOCUMENT_VERB)
            || (n..until).any(|at| is_one_of!(r.word(at), "conta contou confessou showed"));
        let links = is_one_of!(r.word(n), "as like by per como conforme segundo")
            && (r.any(n, until, DOCUMENT | ROLE)
                || (n..until).any(|at| is_one_of!(r.word(at), "account diary words relato")));
        let ends = until == len && r.any(n, until, DOCUMENT | ROLE | PATIENT | FAMILY);
        let diary = (n..until).any(|at| is_one_of!(r.word(at), "diary diario"));
        links || speaks && (ends || diary || is_one_of!(r.word(n), "as like como conforme"))
    };
    (3..len).any(|n| r.tokens[n].has(OPENS) && is_source(n))
}
