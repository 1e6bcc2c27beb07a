//! Orders about treatment: imperatives, obligations, recommendations and their impersonal forms.

use callboard_message::is_one_of;

use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::reports::is_report;
use super::sentence::{JOINED, LABELLED, OPENS, is_nominal};

const KIND: &str = "prescribing";

/// Maximum distance, in words, from a verb of treatment to its object.
const OBJECT_WORDS: usize = 8;
/// Maximum distance, in words, from a modal verb or evaluation to the verb of treatment.
const VERB_WORDS: usize = 6;
/// Maximum distance, in words, from an auxiliary to a verb that depends on it over a conjunction.
const GOVERNOR_WORDS: usize = 14;

/// Appends the orders about treatment in a sentence to `hits`.
pub(super) fn find(reading: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    for n in 0..reading.tokens.len() {
        if reading.covered[n] {
            continue;
        }
        let found = if reading.is_question {
            let asks_leave = reading.is(n, RECOMMEND) && reading.any(n.saturating_sub(3), n, FIRST);
            rhetorical(reading, n)
                .or_else(|| asks_leave.then(|| recommendation(reading, n)).flatten())
        } else {
            imperative(reading, n)
                .or_else(|| obligation(reading, n))
                .or_else(|| recommendation(reading, n))
                .or_else(|| evaluation(reading, n))
                .or_else(|| chain(reading, n))
                .or_else(|| relayed(reading, n))
                .or_else(|| judged_treatment(reading, n))
                .or_else(|| unreported_change(reading, n))
                .or_else(|| polite_request(reading, n))
                .or_else(|| rhetorical(reading, n))
        };
        hits.extend(found);
    }
}

fn hit(at: usize, end: usize, reader: bool) -> Option<Hit> {
    Some(Hit {
        at,
        end,
        kind: KIND,
        address: Address::reader_if(reader),
    })
}

impl SentenceReading<'_, '_> {
    /// Returns whether the word at `n` names a medicine or speaks of one.
    pub fn is_medicine(&self, n: usize) -> bool {
        self.tokens.get(n).is_some_and(|token| {
            token.is(MEDICINE)
                || token.is(NAMED_MEDICINE)
                    && token.class & !(LEAD | BODY | CONDITION | NAMED_MEDICINE) == 0
        })
    }

    /// Returns whether the word at `n` may be the object of an order about treatment.
    fn is_object(&self, n: usize) -> bool {
        self.is(n, TREATMENT | LIFESTYLE | UNIT) || self.is_medicine(n)
    }

    fn object_after(&self, n: usize) -> Option<usize> {
        (n + 1..self.tokens.len().min(n + 1 + OBJECT_WORDS))
            .take_while(|at| !self.is(*at, STOP) || *at == n + 1 && self.is(*at, DETERMINER))
            .find(|at| self.is_object(*at))
    }

    pub fn medicine_before(&self, n: usize, within: usize) -> bool {
        (n.saturating_sub(within)..n).any(|at| self.is(at, TREATMENT) || self.is_medicine(at))
    }

    /// Returns the last word of the object of the verb at `n`: a noun phrase, a pronoun, or another
    /// verb of treatment as in "stop taking".
    fn act_object(&self, n: usize) -> Option<usize> {
        let next = self.tokens.get(n + 1)?;
        let is_pronoun = matches!(
            next.word,
            "it" | "them" | "isso" | "isto" | "ambos" | "both" | "everything" | "tudo"
        ) || next.has(JOINED) && next.word.len() <= 3;
        let continues = next.is(ACT) && next.is(GERUND)
            || matches!(next.word, "de" | "a") && self.is(n + 2, ACT) && self.is(n + 2, INFINITIVE);
        // "Six of these".
        let counts = next.is(NUMBER)
            && (is_one_of!(self.word(n + 2), "desses destes dessas destas")
                || self.word(n + 2) == "of" && is_one_of!(self.word(n + 3), "these those them"));
        if counts {
            return Some(n + 2);
        }
        // "If you miss a tablet, take two."
        if next.is(NUMBER) && self.is(n, DOSE_VERB) && self.medicine_before(n, OBJECT_WORDS) {
            return Some(n + 1);
        }
        if is_pronoun || continues {
            return Some(n + 1);
        }
        self.object_after(n)
    }

    /// Returns the first verb of treatment after `n` in one of the given forms.
    fn act_after(&self, n: usize, forms: Class) -> Option<usize> {
        (n + 1..self.tokens.len().min(n + 1 + VERB_WORDS))
            .take_while(|at| !is_one_of!(self.word(*at), "which who whether quais quem"))
            .find(|at| self.is(*at, ACT) && self.is(*at, forms))
    }

    /// Returns the verb of treatment after `n` in the passive of an order, as in "that the dose be
    /// doubled".
    fn passive_after(&self, n: usize) -> Option<usize> {
        self.act_after(n, PAST).filter(|v| {
            matches!(self.word(v - 1), "be" | "seja" | "sejam") && self.medicine_before(*v, 5)
        })
    }

    /// Returns whether an imperative may stand at `n`.
    pub fn opens(&self, n: usize) -> bool {
        let mut at = n;
        let mut joins = None;
        while at > 0 && n - at < 4 && !self.tokens[at].has(OPENS) && self.is(at - 1, LEAD) {
            at -= 1;
            if self.is(at, CONJUNCTION) {
                joins = Some(at);
            }
        }
        if self.tokens[at].has(OPENS) {
            return at == 0
                || self.tokens[at].has(LABELLED)
                || self.is_polite(n)
                || !self.is_governed(at, true);
        }
        let after_id = at > 0 && self.is(at - 1, PATIENT) && self.is(at - 1, NUMBER);
        after_id || joins.is_some_and(|at| self.is_polite(n) || !self.is_governed(at, false))
    }

    /// Returns whether the word at `n` is a Portuguese imperative and not an English base form too.
    fn is_polite(&self, n: usize) -> bool {
        self.is(n, POLITE) && !self.is(n, BASE)
    }

    /// Returns whether a verb form after `n` depends on an auxiliary or subject before, as in "to
    /// stop one and start another". After a comma it does only if a verb of treatment does.
    fn is_governed(&self, n: usize, after_comma: bool) -> bool {
        (n.saturating_sub(GOVERNOR_WORDS)..n)
            .rev()
            .take_while(|at| !self.is(*at, BREAK) || self.is(*at, YOU))
            .filter(|at| {
                let word = self.word(*at);
                matches!(
                    word,
                    "to" | "who" | "they" | "we" | "i" | "did" | "does" | "para"
                ) || self.is(*at, OBLIGE | ABLE | WILL)
            })
            // A clause of purpose depends on the order after it: "to lower the pressure, add …".
            .filter(|at| !after_comma || !self.tokens[*at].has(OPENS))
            .any(|at| {
                !after_comma
                    || (at + 1..(at + 4).min(n))
                        .any(|v| self.is(v, ACT) && self.is(v, BASE | INFINITIVE))
            })
    }

    /// Returns whether a noun phrase, an adverb or a particle follows the English verb at `n`, so
    /// that it isn't an adjective or noun, as in "double vision".
    fn has_complement(&self, n: usize) -> bool {
        let next = n + 1;
        next >= self.tokens.len()
            || self.tokens[next].has(OPENS)
            || self.is(
                next,
                DETERMINER
                    | NUMBER
                    | PARTICLE
                    | URGENT
                    | LEAD
                    | UNIT
                    | CONJUNCTION
                    | GERUND
                    | PATIENT,
            )
            || self.is_object(next)
            || !self.is(next, STOP) && self.is_object(next + 1)
    }

    /// Returns whether the sentence forbids a change without medical advice, which any text may.
    pub fn is_safeguard(&self, n: usize) -> bool {
        let forbids = (n.saturating_sub(3)..(n + 4).min(self.tokens.len()))
            .any(|at| self.is(at, NEG) || self.word(at) == "avoid" || self.word(at) == "evite");
        forbids
            && (n..self.tokens.len()).any(|at| {
                self.is(at, HESITATE)
                    && (at + 1..self.tokens.len().min(at + 8))
                        .any(|c| self.is(c, CARE | ROLE | VISIT))
            })
    }

    /// Returns whether the verb at `n` asks for what the program needs: "give the patient's number".
    pub fn asks_for_data(&self, n: usize) -> bool {
        is_one_of!(self.word(n), "give use try add put")
            && (self.any(n + 1, n + 5, SYSTEM)
                || (n + 1..n + 5).any(|at| is_one_of!(self.word(at), "number code numero codigo")))
    }

    /// Returns whether the imperative at `n` addresses the reader and isn't the short form in which
    /// charts note a plan, such as "Continue losartan 50 mg" or "Suspender varfarina".
    fn addresses_reader(&self, n: usize) -> bool {
        if self.has_you || self.follows_address || self.end == '!' {
            return true;
        }
        if self.is(n, INFINITIVE) && !self.is(n, BASE) {
            return false;
        }
        // "Do not give penicillin" is said to those who treat.
        let treats = is_one_of!(
            self.word(n),
            "give administer prescribe administrar prescrever",
        );
        let lead = (n.saturating_sub(3)..n).any(|at| {
            self.is(at, NEG) && !treats
                || matches!(
                    self.word(at),
                    "please" | "kindly" | "just" | "simply" | "favor"
                )
        });
        let urgent =
            (n + 1..self.tokens.len()).any(|at| self.is(at, URGENT) && self.word(at) != "once");
        if lead || urgent || self.is(n, POLITE) && !self.is(n, BASE) {
            return true;
        }
        if self.is(n, KEEP) {
            return false;
        }
        let taking = self.is(n + 1, GERUND) && self.is(n + 1, DOSE_VERB);
        let article = self.is(n + 1, DETERMINER);
        let specific = (n + 1..self.tokens.len()).any(|at| self.is(at, NUMBER | UNIT));
        let labelled = (0..=n).any(|at| self.tokens[at].has(LABELLED));
        taking || (article || self.is(n, CHANGE)) && !specific && !labelled
    }
}

/// Finds an imperative: "Stop warfarin", "please double the dose", "Suspenda a varfarina".
fn imperative(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !r.is(n, ACT) || !r.is(n, ORDER_FORM) || is_nominal(r.tokens, n) {
        return None;
    }
    if !r.is(n, BASE | INFINITIVE | POLITE) {
        let next = r.tokens.get(n + 1)?;
        let ordered = r.is(n, CHANGE) && (next.is(DETERMINER | URGENT) || next.word == "de")
            || r.is(n, DOSE_VERB) && next.is(DETERMINER);
        // "Vive com a filha e toma os comprimidos" has the subject of the verb before.
        let joins = n > 0 && r.word(n - 1) == "e" && !r.any(0, n, ORDER_FORM | YOU);
        let has_subject = joins || n > 0 && r.is(n - 1, PATIENT) && !r.tokens[n].has(OPENS);
        if !ordered || has_subject {
            return None;
        }
    }
    let joins_next = r.tokens.get(n + 1).is_some_and(|next| next.has(JOINED));
    if r.is(n, BASE) && !r.is(n, POLITE) && (joins_next || !r.has_complement(n)) {
        return None;
    }
    if !r.opens(n) || r.is_safeguard(n) {
        return None;
    }
    let is_left = r.is(n, INFINITIVE)
        && !r.is(n, BASE)
        && (n + 1..r.tokens.len()).any(|at| r.is_left_to_care(at));
    if is_left || r.asks_for_data(n) {
        return None;
    }
    let stands_alone = n + 1 >= r.tokens.len() || r.is(n + 1, URGENT);
    let end = r.act_object(n).or_else(|| {
        (stands_alone && r.is(n, CHANGE | KEEP) && r.medicine_before(n, 4)).then_some(n)
    })?;
    hit(n, end, r.addresses_reader(n))
}

/// Finds an obligation or permission: "you should stop …", "warfarin must be stopped", "CARD-001
/// needs insulin", "a dose deve ser aumentada".
fn obligation(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let next = r.word(n + 1);
    let must = r.is(n, OBLIGE)
        || matches!(r.word(n), "have" | "has") && next == "to"
        || matches!(r.word(n), "tem" | "tens" | "temos" | "teem") && matches!(next, "que" | "de")
        || r.is(n, IS)
            && (next == "to" || r.is(n + 1, ACT) && r.is(n + 1, INFINITIVE) && !r.is(n + 1, BASE))
        || matches!(r.word(n), "better")
            && n > 0
            && (r.is(n - 1, YOU | IS) || r.word(n - 1) == "had")
        || r.word(n) == "want" && next == "to" && n > 0 && r.is(n - 1, YOU) && !r.any(0, n, IF);
    let must = must
        || r.word(n) == "due" && next == "for" && n > 0 && r.is(n - 1, IS)
        || is_one_of!(r.word(n), "caso altura momento")
            && matches!(next, "para" | "de")
            && (n.saturating_sub(3)..n).any(|at| is_one_of!(r.word(at), "e esta"));
    let may = r.is(n, ABLE | WILL) || matches!(r.word(n), "us" | "vamos");
    if !must && !may || r.is_safeguard(n) {
        return None;
    }
    let subject = |class: Class, within: usize| {
        r.is(n, class) || (n.saturating_sub(within)..n).any(|at| r.is(at, class))
    };
    let you = subject(YOU, 4) || r.is(n + 1, YOU) && !r.is_question;
    let act = r.act_after(n, BASE | INFINITIVE | GERUND).or_else(|| {
        r.act_after(n, PAST)
            .filter(|v| r.is(v - 1, IS | LEAD) || r.word(v - 1) == "ser")
    });
    let object = act.and_then(|v| r.act_object(v));
    let near = |v: usize| object.or_else(|| r.medicine_before(n, 8).then_some(v));
    if you {
        if let Some(end) = act.and_then(|v| near(v).or(r.is(v, CHANGE).then_some(v))) {
            return hit(n, end, true);
        }
        return (must || r.is(n, WILL)).then(|| unordinary(r, n)).flatten();
    }
    let negated = (n..n + 3).any(|at| r.is(at, NEG));
    let at = n.saturating_sub(1);
    if must {
        return owed(r, n, act, object);
    }
    if let Some(v) = act.filter(|_| r.is(n, ABLE) && !negated)
        && r.is(v, PAST)
        && r.is(v - 1, IS)
        && r.medicine_before(n, 4)
    {
        return hit(n.saturating_sub(3), v, r.has_you);
    }
    let first = subject(FIRST, 2) || r.word(n) == "us" && n > 0 && r.word(n - 1) == "let";
    let is_plan = first && (!negated || r.word(n) == "would");
    let is_patient = subject(PATIENT, 5) && r.is(n, ABLE) && !negated;
    // Portuguese leaves the subject out: "pode aumentar a dose".
    let is_open = matches!(r.word(n), "pode" | "podem" | "poderia")
        && (r.opens(n) || n > 0 && r.word(n - 1) == "se")
        && !negated;
    let end = act.and(object)?;
    (is_plan || is_patient || is_open)
        .then(|| hit(at, end, r.has_you))
        .flatten()
}

/// Finds what must be done by anybody but the reader: "warfarin should be stopped", "she needs
/// insulin". `act` is the verb of treatment after the modal verb at `n`, and `object` its object.
fn owed(
    r: &SentenceReading<'_, '_>,
    n: usize,
    act: Option<usize>,
    object: Option<usize>,
) -> Option<Hit> {
    let at = n.saturating_sub(1);
    if let Some(v) = act {
        // "Questions about treatment should be put to the doctor."
        if object.is_none() && r.any(v + 1, v + 7, CARE | ROLE) {
            return None;
        }
        if let Some(end) = object.or_else(|| r.medicine_before(n, 8).then_some(v)) {
            let reader = r.any(n.saturating_sub(6), n, READER);
            return hit(at, end, reader);
        }
    }
    let word = r.word(n);
    let needs = ["need", "requir", "precis", "necessit", "due"]
        .iter()
        .any(|stem| word.starts_with(stem));
    let until = r.tokens.len().min(n + 6);
    let treated = (n + 1..until).find(|at| r.is(*at, TREATMENT) || r.is_medicine(*at));
    let has_it = (n + 1..until).any(|at| {
        r.is(at, HAVE | IS) || is_one_of!(r.word(at), "get undergo receive fazer realizar")
    });
    let own = r.any(n.saturating_sub(2), n, FIRST);
    let end = treated.filter(|_| (needs || has_it) && !own)?;
    hit(at, end, false)
}

/// Finds an obligation of the reader to do anything but what the program may tell it to do, such as
/// naming a patient or asking a doctor.
fn unordinary(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let skipped = |at: &usize| {
        r.is(*at, LEAD | NEG | URGENT) || matches!(r.word(*at), "to" | "be" | "que" | "de")
    };
    let verb = (n + 1..r.tokens.len().min(n + 5)).find(|at| !skipped(at))?;
    let is_need = r.word(n).starts_with("need") || r.word(n).starts_with("precis");
    let to = (n + 1..verb).any(|at| r.word(at) == "to");
    let is_health = r.object_after(n).is_some() || r.is(verb, LIFESTYLE | TREATMENT);
    let is_ordinary = r.is(
        verb,
        ORDINARY | SEEK | DETERMINER | HAVE | INTERROGATIVE | CARE | VISIT,
    );
    (is_health && !r.is(verb, ORDINARY | SEEK)
        || !is_ordinary && (!is_need || to) && r.is(n, OBLIGE))
    .then(|| hit(n, verb, true))
    .flatten()
}

/// Finds a recommendation: "I recommend stopping …", "recomendo suspender …", "doctors advise
/// taking …", "my advice is to …", "eu pararia …".
fn recommendation(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let act = || r.act_after(n, BASE | INFINITIVE | GERUND | POLITE);
    if r.is(n, ACT) && r.is(n, CONDITIONAL) {
        return r.act_object(n).and_then(|end| hit(n, end, r.has_you));
    }
    if matches!(
        r.word(n),
        "recommendation"
            | "recommendations"
            | "advice"
            | "suggestion"
            | "recomendacao"
            | "conselho"
            | "sugestao"
    ) {
        let stated = (n + 1..n + 4).any(|at| r.is(at, IS) || r.word(at) == "e");
        let end = act().filter(|_| stated).and_then(|v| r.act_object(v))?;
        return hit(n, end, r.has_you);
    }
    if r.word(n) == "benefit" || r.word(n).starts_with("beneficia") {
        let modal =
            (n.saturating_sub(3)..=n).any(|at| r.is(at, ABLE | WILL)) || r.word(n).ends_with("ria");
        let end = r.object_after(n).filter(|_| modal)?;
        return hit(n.saturating_sub(1), end, r.has_you);
    }
    if !r.is(n, RECOMMEND) {
        return None;
    }
    let before = n.saturating_sub(3)..n;
    let refuses = before
        .clone()
        .any(|at| r.is(at, ABLE) || r.word(at) == "able")
        && before.clone().any(|at| r.is(at, NEG));
    if refuses {
        return None;
    }
    let first = before.clone().any(|at| r.is(at, FIRST)) || r.opens(n) || {
        let word = r.word(n);
        !r.is(n, BASE)
            && ["o", "amos", "imos", "emos", "ria", "omos"]
                .iter()
                .any(|e| word.ends_with(e))
    };
    let reflexive = r.word(n + 1) == "se" && r.tokens[n + 1].has(JOINED);
    if let Some(v) = act()
        && let Some(end) = r.act_object(v).or_else(|| r.has_you.then_some(v))
    {
        return hit(n.saturating_sub(1), end, r.has_you);
    }
    if let Some(v) = r.passive_after(n) {
        return hit(n.saturating_sub(1), v, r.has_you);
    }
    let noun = (n + 1..r.tokens.len().min(n + 6)).find(|at| r.is(*at, ACT_NOUN));
    if let Some(end) = noun.and_then(|v| r.object_after(v)) {
        return hit(n.saturating_sub(1), end, r.has_you);
    }
    let sought = (n + 1..n + 4).any(|at| r.is(at, SEEK | ORDINARY | CARE | VISIT));
    let end = r
        .object_after(n)
        .filter(|_| (first || reflexive || r.has_you) && !sought)?;
    hit(n.saturating_sub(1), end, r.has_you)
}

/// Evaluations that recommend a treatment even without a verb of treatment.
const INDICATIONS: &str = "recommended advisable best better safer safest indicated warranted preferable ideal \
    appropriate necessary needed required recomendado recomendada recomendavel aconselhavel melhor necessario \
    necessaria indicado indicada preferivel advised suggested sugerido sugerida proposed proposto";

/// Finds an impersonal recommendation: "it is best to stop …", "stopping … is advisable",
/// "é recomendável suspender …", "dose increase recommended".
fn evaluation(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !r.is(n, EVALUATION) {
        return None;
    }
    // "Recommended: statin therapy", "tratamento sugerido: …".
    let is_treatment = |at: usize| r.is(at, MEDICINE | TREATMENT);
    let is_label = |at: usize| r.tokens.get(at).is_some_and(|token| token.has(LABELLED));
    let head = if is_treatment(n + 1) && !is_label(n + 1) {
        n + 1
    } else {
        n
    };
    let heads = r.opens(n) || n > 0 && is_treatment(n - 1);
    let is_indication = is_one_of!(r.word(n), INDICATIONS);
    if is_indication
        && heads
        && is_label(head + 1)
        && let Some(end) = r.object_after(head)
    {
        return hit(n.saturating_sub(1), end, r.has_you);
    }
    if is_report(r.tokens, n) {
        return None;
    }
    let back = n.saturating_sub(2)..n;
    let past = back.clone().any(|at| r.is(at, WAS)) && !back.clone().any(|at| r.is(at, IS));
    let as_needed = n > 0 && (r.is(n - 1, IF) || matches!(r.word(n - 1), "as" | "where"));
    if past || as_needed || r.is_safeguard(n) || r.is_value(n) {
        return None;
    }
    let act = r.act_after(n, BASE | INFINITIVE | GERUND | POLITE);
    if let Some(v) = r.passive_after(n).filter(|_| act.is_none()) {
        return hit(n.saturating_sub(1), v, r.has_you);
    }
    let noun = || (n + 1..r.tokens.len().min(n + 5)).find(|at| r.is(*at, ACT_NOUN));
    if let Some(end) = act.or_else(noun).and_then(|v| r.act_object(v)) {
        let joined = r.tokens[n + 1].has(LABELLED)
            || r.is(n + 1, PARTICLE | DETERMINER | ACT | ACT_NOUN)
            || matches!(r.word(n + 1), "for" | "that" | "que" | "if" | "se");
        if joined {
            return hit(n.saturating_sub(1), end, r.has_you);
        }
    }
    let from = n.saturating_sub(10);
    let stated = back.clone().any(|at| r.is(at, IS));
    let acted = (from..n)
        .any(|at| r.is(at, ACT_NOUN) || r.is(at, ACT) && r.is(at, GERUND | INFINITIVE | BASE));
    let object = r.medicine_before(n, 10) || acted && (from..n).any(|at| r.is_object(at));
    (object && (acted && (stated || is_indication) || stated && is_indication))
        .then(|| hit(from, n, r.has_you))
        .flatten()
}

/// Finds an order through another verb: "consider stopping …", "remember to take …", "worth trying",
/// "time to double the dose".
fn chain(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !r.is(n, CHAIN) {
        return None;
    }
    let free = matches!(r.word(n), "worth" | "vale" | "hora" | "time");
    if !free && !r.opens(n) {
        return None;
    }
    if r.is_safeguard(n) {
        return None;
    }
    let act = r.act_after(n, BASE | INFINITIVE | GERUND | POLITE);
    if let Some(end) = act.and_then(|v| r.act_object(v)) {
        return hit(n, end, r.has_you);
    }
    let direct =
        r.word(n).starts_with("consider") || matches!(r.word(n), "try" | "tente" | "experimente");
    let end = (n + 1..n + 4).find(|at| r.is(*at, TREATMENT) || r.is_medicine(*at))?;
    direct.then(|| hit(n, end, r.has_you)).flatten()
}

/// Finds an order to pass an order on: "tell the patient to stop …".
fn relayed(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let to_you = r.is(n, YOU) && r.word(n + 1) == "to";
    let names =
        |at: usize| r.is(at, PATIENT | READER | ROLE) || matches!(r.word(at), "quem" | "whoever");
    let told =
        r.is(n, TELL) && (r.opens(n) && (n + 1..n + 4).any(names) || r.any(n + 1, n + 4, READER));
    if !to_you && !told {
        return None;
    }
    let from = if to_you { n + 1 } else { n };
    let names_reader = (n + 1..n + 4).any(|at| r.is(at, READER));
    let matter = || {
        let until = r.tokens.len().min(n + 12);
        let matters = |at: &usize| r.is(*at, CARE | VISIT | COMPLAINT) || r.is_object(*at);
        (n + 1..until).find(matters).filter(|_| names_reader)
    };
    let Some(act) = r.act_after(from, BASE | INFINITIVE | POLITE | GERUND) else {
        // "Tell her to leave the tablets alone."
        let passed_on = || {
            let links = (n + 1..n + 5).any(|at| is_one_of!(r.word(at), "to que"));
            let object = (n + 2..n + 10).find(|at| r.is_medicine(*at))?;
            links.then(|| hit(n, object, r.has_you)).flatten()
        };
        return matter()
            .and_then(|end| hit(n, end, true))
            .or_else(passed_on);
    };
    let reader = to_you || names_reader;
    let end = r.act_object(act).or(reader.then_some(act))?;
    hit(n, end, reader || r.has_you)
}

/// Finds a judgement on a treatment: "the dose is too low", "a higher dose would help", "ibuprofen
/// will help your headache", "no more warfarin".
fn judged_treatment(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let from = n.saturating_sub(6);
    // "A short course of prednisolone would clear this up."
    if matches!(word, "would" | "seria" | "seriam")
        && r.medicine_before(n, 6)
        && !r.any(from, n, PATIENT | NEG | WAS | FIRST | ROLE)
    {
        return hit(from, n, r.has_you);
    }
    if let Some(found) = alternative(r, n) {
        return Some(found);
    }
    if matches!(word, "too" | "demasiado" | "demais" | "muito") {
        let amount = matches!(
            r.word(n + 1),
            "high"
                | "low"
                | "strong"
                | "weak"
                | "much"
                | "little"
                | "alta"
                | "alto"
                | "baixa"
                | "baixo"
                | "forte"
                | "fraca"
                | "fraco"
                | "elevada"
        );
        let stated = (n.saturating_sub(4)..n).any(|at| r.is(at, IS) || r.word(at) == "e");
        let is_dosed = r.medicine_before(n, 8)
            || r.any(n.saturating_sub(8), n, UNIT)
            || (n + 2..n + 4).any(|at| r.is_medicine(at));
        return (amount && stated && is_dosed)
            .then(|| hit(n.saturating_sub(8), n + 1, r.has_you))
            .flatten();
    }
    if r.is(n, BETTER) {
        return best_treatment(r, n).or_else(|| better_option(r, n));
    }
    if r.is(n, HELP) && r.has_you && !r.is(n, PAST) && r.medicine_before(n, 4) {
        return hit(n.saturating_sub(4), n, true);
    }
    let ends_it =
        word == "more" && n > 0 && r.word(n - 1) == "no" || word == "chega" || word == "nada";
    if ends_it && r.opens(n) {
        let end = (n + 1..n + 4).find(|at| r.is_medicine(*at))?;
        return hit(n, end, true);
    }
    if r.is(n, ACT_NOUN) && r.opens(n) && (n.saturating_sub(1)..n + 3).any(|at| r.is(at, URGENT)) {
        let end = r.object_after(n)?;
        return hit(n, end, r.has_you);
    }
    None
}

/// Finds a treatment called the best one: "her best bet is chemotherapy", "o tratamento ideal é …".
fn best_treatment(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let before = n.checked_sub(1)?;
    let is_it = |at: usize| r.is(at, IS) || r.word(at) == "e";
    let is_treatment = |at: usize| r.is(at, TREATMENT | UNIT) || r.is_medicine(at);
    if is_it(n + 2) && (n + 3..n + 6).any(is_treatment) && !r.any(n, n + 3, WAS) {
        return hit(n, n + 3, r.has_you);
    }
    if r.is(before, MEDICINE) && is_it(n + 1) {
        return hit(before, n + 1, r.has_you);
    }
    None
}

/// Finds a treatment compared with another one: "the better option would be warfarin".
fn better_option(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let noun = (n + 1..n + 3).find(|at| {
        r.is(*at, MEDICINE)
            || matches!(
                r.word(*at),
                "option" | "choice" | "alternative" | "opcao" | "escolha"
            )
    });
    let noun = noun?;
    let until = r.tokens.len().min(noun + 7);
    let back = n.saturating_sub(3);
    let stated = (noun + 1..until).any(|at| r.is(at, IS | HELP | ABLE) || r.word(at) == "e")
        || r.any(back, n, IS) && !r.any(back, n, WAS);
    let past = (noun + 1..until).any(|at| r.is(at, WAS | PAST));
    let named = r.is(noun, MEDICINE) || r.object_after(noun).is_some() || r.medicine_before(n, 8);
    (stated && !past && named)
        .then(|| hit(n, until - 1, r.has_you))
        .flatten()
}

/// Finds something praised in place of a medicine: "tea replaces the tablets", "garlic works as well
/// as the pills".
fn alternative(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let from = n.saturating_sub(4);
    let replaces = is_one_of!(r.word(n), "substitui substituem replaces substitutes");
    if replaces && !r.any(n.saturating_sub(3), n, NEG) {
        let end = (n + 1..n + 6).find(|at| r.is(*at, MEDICINE))?;
        return hit(from, end, true);
    }
    let compares = (n + 1..n + 4).any(|at| match r.word(at) {
        "as" => r.word(at + 1) == "well" && r.word(at + 2) == "as",
        "better" => r.word(at + 1) == "than",
        "tao" => r.word(at + 1) == "bem",
        "melhor" => matches!(r.word(at + 1), "que" | "do"),
        _ => false,
    });
    if !r.is(n, HELP) || !compares {
        return None;
    }
    let end = (n + 1..n + 10).find(|at| r.is_medicine(*at))?;
    hit(from, end, true)
}

/// Finds a change of treatment that is neither past nor reported, in a form that only advice has:
/// "it might be an idea to pause …", "stopping … makes sense", "faz sentido reduzir …".
fn unreported_change(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    const TIMES: &str = "since after before by on while when until without for of been keeps kept avoid from about \
        regarding";
    if !r.is(n, ACT) {
        return None;
    }
    let changes = r.is(n, CHANGE);
    let before = n.checked_sub(1).map_or("", |at| r.word(at));
    let is_proposed = if r.is(n, GERUND) {
        let judged = (n + 1..r.tokens.len().min(n + 12)).any(|at| {
            r.is(at, ABLE | WILL | IS | HELP) || matches!(r.word(at), "makes" | "make" | "faz")
        });
        let tells_time = n > 0 && (r.is(n - 1, IS | WAS) || is_one_of!(before, TIMES));
        !tells_time
            && if r.tokens[n].has(OPENS) {
                judged
            } else {
                changes
            }
    } else if r.is(n, BASE) {
        changes && before == "to"
    } else {
        changes && r.is(n, INFINITIVE) && !(n > 0 && r.is(n - 1, IS | WAS))
    };
    const DEPENDS: &str = "who which only so apenas whether used able";
    if !is_proposed {
        return None;
    }
    let is_excused = r.any(0, n, NEG | ROLE | TELL | IF | PATIENT)
        || (n.saturating_sub(6)..n).any(|at| is_one_of!(r.word(at), DEPENDS))
        || (n + 1..r.tokens.len()).any(|at| r.is_left_to_care(at));
    if is_excused {
        return None;
    }
    let end = r
        .act_object(n)
        .filter(|end| !r.any(n, end + 1, LIFESTYLE))?;
    hit(n.saturating_sub(4), end, r.has_you)
}

/// Finds a request without a verb: "no more salt, please".
fn polite_request(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !matches!(r.word(n), "please" | "favor") || r.any(0, r.tokens.len(), ORDINARY | SEEK) {
        return None;
    }
    let object = (0..r.tokens.len()).find(|at| r.is(*at, LIFESTYLE) || r.is_medicine(*at))?;
    hit(object.min(n), object.max(n), true)
}

/// Finds advice in the form of a question: "why not stop …?", "have you considered …?".
fn rhetorical(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let next = r.word(n + 1);
    let asks = match r.word(n) {
        "why" => next == "not" || next == "do" && r.word(n + 3) == "not" || r.word(n + 2) == "not",
        "how" | "what" => next == "about",
        "que" => next == "tal" || next == "nao",
        "porque" => next == "nao",
        "considered" | "tried" | "pensou" | "considerou" | "experimentou" => {
            r.has_you || r.is(n, SAID)
        }
        _ => false,
    };
    let is_inside = matches!(r.word(n), "considered" | "tried") || next == "tal";
    if !asks || !r.opens(n) && !is_inside {
        return None;
    }
    if matches!(
        r.word(n),
        "considered" | "tried" | "pensou" | "considerou" | "experimentou"
    ) && !(r.end == '?' && r.has_you)
    {
        return None;
    }
    let act = r.act_after(n, BASE | INFINITIVE | GERUND | POLITE | FAMILIAR);
    let end = act
        .and_then(|v| r.act_object(v))
        .or_else(|| r.object_after(n))?;
    hit(n, end, true)
}
