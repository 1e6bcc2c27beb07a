//! Advice against medical care, false comfort, and promises about the outcome of an illness.

use callboard_message::is_one_of;

use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::sentence::{LABELLED, OPENS};

const AGAINST_CARE: &str = "advising against medical care";
const PROMISE: &str = "promising an outcome";

/// Maximum distance, in words, from a negation or refusal to the care that it concerns.
const CARE_WORDS: usize = 7;

/// Appends advice against care and promises in a sentence to `hits`.
pub(super) fn find(r: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    if r.is_question {
        return;
    }
    for n in 0..r.tokens.len() {
        if r.covered[n] {
            continue;
        }
        let found = needless(r, n)
            .or_else(|| refusal(r, n))
            .or_else(|| alone(r, n))
            .or_else(|| comfort(r, n))
            .or_else(|| distrust(r, n))
            .or_else(|| forecast(r, n))
            .or_else(|| prospect(r, n));
        hits.extend(found);
    }
}

fn against(at: usize, end: usize, reader: bool) -> Option<Hit> {
    Some(Hit {
        at,
        end,
        kind: AGAINST_CARE,
        address: Address::reader_if(reader),
    })
}

/// Returns the first word of care after `n` and within [`CARE_WORDS`], unless a word between
/// them turns the meaning round, as in "don't hesitate to call a doctor".
fn care_after(reading: &SentenceReading<'_, '_>, n: usize, class: Class) -> Option<usize> {
    let until = reading.tokens.len().min(n + 1 + CARE_WORDS);
    (n + 1..until)
        .take_while(|at| !reading.is(*at, HESITATE | BREAK) || reading.is(*at, YOU))
        .find(|at| reading.is(*at, class))
}

/// Returns whether the verb at `n` is an imperative, or what one may or should do.
fn is_ordered(reading: &SentenceReading<'_, '_>, n: usize) -> bool {
    let allows = |at| reading.is(at, OBLIGE | ABLE | YOU | EVALUATION) && !reading.is(at, NEG);
    let manages = |at| is_one_of!(reading.word(at), "consegue consegues");
    reading.opens(n) || (n.saturating_sub(4)..n).any(|at| allows(at) || manages(at))
}

fn has_patient_before(reading: &SentenceReading<'_, '_>, n: usize) -> bool {
    reading.any(n.saturating_sub(6), n, PATIENT | FAMILY)
}

/// Returns whether the word at `at` says that something is needed or worth it.
fn is_need(r: &SentenceReading<'_, '_>, at: usize) -> bool {
    let word = r.word(at);
    // "did not answer in time" values nothing.
    let is_on_time = word == "time" && matches!(r.word(at.wrapping_sub(1)), "in" | "on");
    r.is(at, OBLIGE | NEEDLESS | EVALUATION) && !is_on_time
        || matches!(
            word,
            "need" | "reason" | "point" | "require" | "necessidade" | "motivo" | "razao" | "pena"
        )
        || word.starts_with("precis")
        || word.starts_with("necess")
        || word.starts_with("obriga")
}

/// Finds that care isn't needed: "no need to see a doctor", "you don't have to go to the hospital",
/// "a consultation is unnecessary", "não é preciso procurar um médico".
fn needless(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let next = r.word(n + 1);
    let needs = |at: usize| is_need(r, at);
    let is_no = r.is(n, NEG)
        || matches!(
            word,
            "no" | "without"
                | "sem"
                | "any"
                | "nenhum"
                | "nenhuma"
                | "little"
                | "pouco"
                | "hardly"
                | "zero"
                | "nothing"
                | "nada"
                | "nobody"
        );
    // "no need to see a doctor", "you needn't call a doctor", "não precisa ir ao hospital".
    let is_minor = is_one_of!(word, "too demasiado")
        && is_one_of!(next, "early soon minor small trivial cedo pequeno pouco");
    let negated_need = is_minor || is_no && (n.saturating_sub(1)..n + 7).any(needs);
    if negated_need || r.is(n, NEEDLESS) {
        let seek = care_after(r, n, CARE | VISIT | ROLE)?;
        let sought = (n..seek).any(|at| r.is(at, SEEK)) || r.is(seek, CARE | VISIT);
        let third = has_patient_before(r, n) && !r.has_you;
        let past = r.any(n.saturating_sub(3), n + 3, WAS);
        if sought && !past {
            let generic = r.is(seek, CARE) && (n..seek).any(|at| r.is(at, SEEK));
            return against(n.saturating_sub(2), seek, r.has_you || generic && !third);
        }
    }
    // "do not see a doctor", "never call an ambulance", "não vá ao hospital".
    let is_order = matches!(word, "never" | "nunca" | "jamais")
        || word == "not"
            && n > 0
            && (r.word(n - 1) == "do" && r.opens(n - 1)
                || r.word(n - 1) == "would" && n > 1 && r.is(n - 2, FIRST)
                || r.is(n - 1, OBLIGE))
        || word == "nao"
            && (r.opens(n) || n > 0 && r.is(n - 1, FIRST))
            && !is_one_of!(next, "quis queria quer pude podia conseguiu")
            && !r.is(n + 1, WAS | PAST);
    if is_order && !has_patient_before(r, n) && (n + 1..n + 4).any(|at| r.is(at, SEEK)) {
        let care = care_after(r, n, CARE | VISIT | ROLE)?;
        return against(n.saturating_sub(1), care, true);
    }
    // "a doctor's visit is not necessary", "uma consulta é dispensável".
    if r.is(n, CARE | VISIT) {
        let is_needless = (n + 1..n + 5).any(|at| r.is(at, NEEDLESS))
            || (n + 1..n + 4).any(|at| r.is(at, NEG) && (at + 1..at + 4).any(needs))
            || (n + 1..n + 3).any(|at| r.is(at, IS)) && r.any(n + 1, n + 4, NEEDLESS);
        let past = r.any(n + 1, n + 4, WAS);
        if is_needless && !past {
            let reader = r.has_you || r.is(n, CARE) && !has_patient_before(r, n);
            return against(n.saturating_sub(2), (n + 4).min(r.tokens.len() - 1), reader);
        }
    }
    // "instead of going to the hospital", "em vez de procurar um médico".
    let instead = matches!((word, next), ("instead", "of") | ("rather", "than"))
        || matches!(word, "vez" | "inves") && matches!(next, "de" | "do");
    if instead && !r.any(0, n, PAST) {
        let care = care_after(r, n + 1, CARE | VISIT)?;
        return against(n, care, true);
    }
    None
}

/// Finds the advice to miss care, to ignore complaints, or to manage alone: "cancel your
/// appointment", "you can ignore the pain", "treat it at home without a doctor".
fn refusal(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let negated = !r.tokens[n].has(OPENS) && r.any(n.saturating_sub(3), n, NEG | HESITATE);
    if r.is(n, REFUSE) && !negated && is_ordered(r, n) {
        let is_named = |at: &usize| r.is_medicine(*at);
        if let Some(end) = (n + 1..n + 4).find(is_named).filter(|_| r.opens(n)) {
            return against(n, end, r.has_you);
        }
        let third = has_patient_before(r, n) && !r.has_you;
        if let Some(end) = care_after(r, n, CARE | VISIT | COMPLAINT | ROLE | TREATMENT)
            && end <= n + 5
        {
            // A laboratory's result or an alarm may be set aside in a note, as an infinitive is one.
            let is_note = (r.word(n).ends_with("ar") || r.is(end, TREATMENT)) && !r.has_you;
            const RESULTS: &str =
                "result results resultado resultados readings reading instructions";
            let is_result = is_one_of!(r.word(end), RESULTS);
            return against(n, end, r.has_you || !third && !is_result && !is_note);
        }
    }
    // "The appointment can be skipped."
    if r.is(n, CARE | VISIT) {
        const MISSED: &str =
            "skipped cancelled canceled postponed missed ignored adiada cancelada desmarcada";
        let end = (n + 1..n + 7).find(|at| is_one_of!(r.word(*at), MISSED));
        if let Some(end) =
            end.filter(|end| r.any(n + 1, *end, ABLE | OBLIGE) && !r.any(n, *end, NEG))
        {
            return against(n, end, !has_patient_before(r, n));
        }
    }
    const REPLACES: &str =
        "replace replaces substitute substitutes substitui dispensa dispensam spares";
    if is_one_of!(r.word(n), REPLACES) && !r.any(n.saturating_sub(3), n, NEG | DENIAL) {
        let care = care_after(r, n, CARE | VISIT).filter(|at| *at <= n + 5)?;
        return against(n.saturating_sub(3), care, true);
    }
    None
}

/// Finds the advice to manage without care: "treat it at home", "you can stop it without asking a
/// doctor".
fn alone(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    const MANAGING: &str = "ride sweat aguente aguenta aguentar treat manage handle stay wait fix deal tratar trate resolver cuidar fique ficar espere \
        esperar aguarde self";
    let word = r.word(n);
    if is_one_of!(word, "home casa yourself alone sozinho sozinha") {
        let from = n.saturating_sub(7);
        let negated = r.any(n.saturating_sub(3), n, NEG | HESITATE);
        let manages = (from..n).any(|at| is_one_of!(r.word(at), MANAGING) && is_ordered(r, at));
        if manages && !negated && (r.has_you || !has_patient_before(r, n)) {
            return against(from, n, true);
        }
    }
    if matches!(word, "without" | "sem")
        && !r.any(0, n, NEG)
        && !r.any(n.saturating_sub(8), n, WAS | PAST)
    {
        let sought = r.any(n + 1, n + 4, SEEK) || r.any(n + 1, n + 3, CARE);
        if sought && (r.has_you || r.any(0, n, ABLE | OBLIGE)) {
            let care = care_after(r, n, CARE | VISIT)?;
            return against(n.saturating_sub(6), care, true);
        }
    }
    None
}

/// Finds false comfort: "nothing to worry about", "it can wait", "não se preocupe".
fn comfort(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let back = n.saturating_sub(4);
    let negated = (back..n).any(|at| {
        r.is(at, NEG)
            || matches!(
                r.word(at),
                "no" | "nothing" | "nada" | "without" | "sem" | "little" | "needless" | "stop"
            )
    });
    let past = r.any(back, n, WAS | PATIENT);
    let worries = matches!(
        word,
        "worry"
            | "worrying"
            | "worried"
            | "concern"
            | "alarm"
            | "alarmed"
            | "panic"
            | "fear"
            | "preocupe"
            | "preocupacao"
            | "preocupar"
            | "preocupes"
            | "alarme"
            | "alarmar"
    );
    let harmless = matches!(
        word,
        "serious" | "grave" | "serio" | "dangerous" | "perigoso"
    );
    let nothing = (back..n).any(|at| matches!(r.word(at), "nothing" | "nada"));
    if (worries && negated || harmless && nothing) && !past {
        let reader = r.has_you
            || word.starts_with("preocupe")
            || word == "worry" && (back..n).any(|at| is_one_of!(r.word(at), "do need nothing"))
            || harmless;
        return against(back, n, reader);
    }
    let waits = matches!(word, "wait" | "esperar" | "aguardar")
        && r.any(n.saturating_sub(2), n, ABLE)
        && !r.any(n.saturating_sub(2), n, NEG | PATIENT);
    if waits
        && (n + 1 >= r.tokens.len()
            || is_one_of!(r.word(n + 1), "and until for ate e")
            || r.has_you
            || r.any(n, n + 5, IF))
    {
        return against(back, n, true);
    }
    let soothes = is_one_of!(
        word,
        "tranquilo tranquila descansado descansada calmo calma",
    ) && n > 0
        && matches!(r.word(n - 1), "fique" | "fica" | "esteja")
        || word == "assured" && n > 0 && r.word(n - 1) == "rest"
        || matches!(word, "relax" | "relaxe") && r.opens(n) && r.tokens.len() <= n + 3;
    const WELL: &str = "fine ok okay normal harmless benign normais bem";
    let reassures = r.has_you
        && r.is(n, IS)
        && n > 0
        && r.is(n - 1, FINDING | COMPLAINT)
        && is_one_of!(r.word(n + 1), WELL);
    if soothes || reassures {
        return against(n.saturating_sub(1), n, true);
    }
    let rests = matches!(word, "wait" | "espere" | "aguarde")
        && r.opens(n)
        && matches!(
            r.word(n + 1),
            "it" | "and" | "for" | "until" | "ate" | "que" | "a" | "to"
        );
    if rests && (r.any(0, n + 8, COMPLAINT | OUTCOME) || r.word(n + 2) == "out") {
        return against(n, n + 1, true);
    }
    None
}

/// Finds distrust of doctors: "don't trust your doctor", "your doctor is wrong".
fn distrust(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !r.is(n, ROLE) || !r.is(n, CARE) && !matches!(r.word(n), "dr" | "dra") {
        return None;
    }
    let wrong = (n + 1..n + 5).find(|at| {
        matches!(
            r.word(*at),
            "wrong"
                | "mistaken"
                | "overcautious"
                | "overreact"
                | "overreacts"
                | "exageram"
                | "enganam"
                | "paranoid"
                | "exaggerate"
                | "exaggerates"
                | "exaggerating"
                | "lying"
                | "lies"
                | "errado"
                | "errada"
                | "enganado"
                | "enganada"
                | "exagera"
                | "mente"
                | "engana"
        )
    });
    if let Some(end) = wrong {
        return against(n.saturating_sub(2), end, true);
    }
    let cannot = r.any(n + 1, n + 3, ABLE | WILL) && r.any(n + 1, n + 4, NEG);
    let is_useless =
        |at: usize| is_one_of!(r.word(at), "nothing anything thing nada new novo adiantar");
    // "Uma ida ao medico nao muda nada."
    let cannot =
        cannot || r.is(n + 1, NEG) && r.word(n + 3) == "nada" && !r.is(n + 2, PAST | SAID | WAS);
    let of_one = n > 0 && r.is(n - 1, PATIENT) || r.word(n + 1) == "could";
    let is_surpassed = r.any(0, n, YOU)
        && (n.saturating_sub(4)..n).any(|at| is_one_of!(r.word(at), "than que"))
        && r.any(n.saturating_sub(6), n, BETTER);
    if r.word(n + 1) == "nenhum"
        || is_surpassed
        || cannot && (r.any(n + 1, n + 7, YOU) || !of_one && (n + 1..n + 8).any(is_useless))
    {
        return against(n, n + 1, true);
    }
    let back = n.saturating_sub(5);
    let trusts = (back..n).any(|at| {
        matches!(
            r.word(at),
            "trust"
                | "mind"
                | "believe"
                | "listen"
                | "confie"
                | "acredite"
                | "ouca"
                | "tell"
                | "conte"
                | "diga"
        ) && (at.saturating_sub(2)..at).any(|neg| r.is(neg, NEG))
            && r.opens(at)
    });
    trusts.then(|| against(back, n, true)).flatten()
}

fn promised(r: &SentenceReading<'_, '_>, at: usize, end: usize, reader: bool) -> Option<Hit> {
    Some(Hit {
        at,
        end: end.min(r.tokens.len() - 1),
        kind: PROMISE,
        address: Address::reader_if(reader),
    })
}

/// Portuguese futures of the verbs of an outcome.
const FUTURES: &str = "ficara ficaras recuperara morrera sobrevivera melhorara piorara desaparecera curara passara sarara estara estarao tera terao voltara voltarao sobrevivera vivera andara sumira sentira deixara recuperarao sera serao";

/// Finds the forecast of an outcome: "you will be cured", "this will go away by itself", "vai ficar
/// bom".
fn forecast(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let is_future =
        r.is(n, WILL) || word == "going" && r.word(n + 1) == "to" || is_one_of!(word, FUTURES);
    if !is_future {
        return None;
    }
    let (from, until) = (n.saturating_sub(5), r.tokens.len().min(n + 6));
    let concerns = |at| r.is(at, YOU | PATIENT | FINDING | COMPLAINT) || r.is(at, CONDITION);
    let is_negated = n > 0 && r.is(n - 1, NEG) && r.tokens[n - 1].has(OPENS);
    let has_subject = n == 0 || is_negated || r.tokens[n].has(OPENS) || (from..n).any(concerns);
    let is_treated = (from..n).any(|at| r.is(at, TREATMENT) || r.is_medicine(at));
    let outcome = (n..until).find(|at| {
        let next = r.word(at + 1);
        r.is(*at, OUTCOME) && !r.is(*at, WILL)
            || r.word(*at) == "go" && next == "away"
            || r.word(*at) == "come" && next == "back"
    });
    let cure = (n..until).find(|at| r.word(*at).starts_with("cur") && r.is(*at, OUTCOME | HELP));
    // "He will be walking again in two weeks."
    let is_time = |at: usize| {
        is_one_of!(
            r.word(at),
            "in within by before dentro em ate soon breve again",
        ) && r.any(at, at + 5, NUMBER | DETERMINER)
    };
    let timed = (n + 1..r.tokens.len().min(n + 10)).find(|at| is_time(*at));
    let is_fate = (from..n).any(|at| r.is(at, PATIENT | YOU) && !r.is(at, NUMBER))
        && !r.any(0, r.tokens.len(), SYSTEM | DOCUMENT | VISIT)
        && (!r.is(n + 1, ORDINARY | SEEK) || r.word(n + 1) == "be" && r.is(n + 2, GERUND));
    // "He will see again."
    let returns = (n + 2..until)
        .find(|at| r.word(*at) == "again" || r.word(*at) == "outra" && r.word(at + 1) == "vez");
    let sees = is_one_of!(r.word(n + 1), "see walk work run ver andar trabalhar");
    if let Some(end) = returns.filter(|_| sees && r.any(from, n, PATIENT | YOU)) {
        return promised(r, n.saturating_sub(2), end, r.has_you);
    }
    if let Some(end) = timed.filter(|_| is_fate && outcome.is_none()) {
        return promised(r, n.saturating_sub(2), end, r.has_you);
    }
    let end = outcome
        .filter(|_| has_subject)
        .or(cure.filter(|_| has_subject || is_treated))?;
    promised(r, n.saturating_sub(2), end, true)
}

/// Units of time.
const PERIODS: &str = "month months year years week weeks days mes meses ano anos semanas dias";

/// Finds how long something lasts, or how long people live: "it will stay for life", "doentes assim
/// vivem vinte anos".
fn lasting(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    // "This will stay with you for life."
    let is_lifelong = is_one_of!(word, "life forever sempre vida")
        && n > 0
        && is_one_of!(r.word(n - 1), "for a para with")
        && r.any(0, n, FINDING | COMPLAINT)
        && (r.any(0, n, WILL) || (0..n).any(|at| r.word(at) == "fica"));
    let is_never_again = word == "nunca"
        && r.word(n + 1) == "mais"
        && r.tokens[n].has(OPENS)
        && !r.any(0, r.tokens.len(), PAST | WAS | SYSTEM | DOCUMENT | SAID);
    if is_lifelong || is_never_again {
        return promised(r, n.saturating_sub(2), n, r.has_you);
    }
    let lasts = matches!(word, "live" | "vivem")
        && r.any(n + 1, n + 6, NUMBER)
        && (n + 1..n + 7).any(|at| is_one_of!(r.word(at), PERIODS));
    if lasts && !r.any(0, r.tokens.len(), SYSTEM | DOCUMENT) {
        return promised(r, n, n + 3, r.has_you);
    }
    None
}

/// Finds a prognosis, a time left to live, odds, or a cure: "the prognosis is good", "six months to
/// live", "a recovery is guaranteed", "it cures psoriasis".
fn prospect(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let back = n.saturating_sub(4);
    if matches!(word, "rid" | "livrar" | "livra") && (n + 1..n + 5).any(|at| r.is(at, CONDITION)) {
        return promised(r, back, n, true);
    }
    const PROGNOSES: &str =
        "prognosis prognostico outlook expectancy expectativa survival sobrevida";
    if is_one_of!(word, PROGNOSES) {
        let is_stated = (n + 1..n + 5).any(|at| r.is(at, IS) || r.word(at) == "e")
            || n + 1 < r.tokens.len() && r.tokens[n + 1].has(LABELLED);
        return (is_stated && !r.any(n + 1, n + 4, WAS))
            .then(|| promised(r, n, n + 2, r.has_you))
            .flatten();
    }
    let is_full = |at: usize| {
        is_one_of!(
            r.word(at),
            "full complete total quick swift rapid completa rapida plena",
        )
    };
    if matches!(word, "recovery" | "recuperacao") && !r.any(0, n, WAS | PAST) {
        let claims = n > 0 && is_full(n - 1) || (n + 1..n + 4).any(is_full);
        return claims.then(|| promised(r, back, n, r.has_you)).flatten();
    }
    if matches!(word, "cured" | "curado" | "curada") && r.any(n.saturating_sub(2), n, IS) {
        let denied = r.any(back, n, NEG | WAS);
        return (!denied).then(|| promised(r, back, n, r.has_you)).flatten();
    }
    if matches!(word, "live" | "vida") && (back..n).any(|at| is_one_of!(r.word(at), PERIODS)) {
        let concerns = r.any(0, n, YOU | PATIENT | HAVE | WILL | NUMBER);
        return concerns
            .then(|| promised(r, n.saturating_sub(6), n, r.has_you))
            .flatten();
    }
    if let Some(found) = lasting(r, n) {
        return Some(found);
    }
    let is_left = |at: usize| {
        is_one_of!(r.word(at), PERIODS)
            && (at + 1 >= r.tokens.len() || is_one_of!(r.word(at + 1), "left to de at"))
    };
    if r.is(n, HAVE)
        && r.any(n.saturating_sub(3), n, PATIENT | YOU)
        && (n + 2..n + 6).any(is_left)
        && !r.any(n + 1, n + 3, WAS | PAST)
    {
        return promised(r, back, n + 2, r.has_you);
    }
    let is_odds = is_one_of!(word, "chance chances odds hipoteses probabilidade");
    if is_odds && r.any(n + 1, n + 8, IS) && !r.any(n + 1, n + 8, WAS) {
        return promised(r, back, n, r.has_you);
    }
    const ODDS: &str = "hipoteses chance chances odds probability probabilidade guaranteed garantido garantida guarantee guarantees garanto \
        garantimos promise prometo certeza";
    if is_one_of!(word, ODDS) {
        const ENDS: &str = "survival recovery dying cure cura recuperacao sobrevivencia surviving recovering curing success remission remissao";
        let end = (n.saturating_sub(4)..n + 7)
            .find(|at| r.is(*at, OUTCOME) && !r.is(*at, WILL) || is_one_of!(r.word(*at), ENDS))?;
        return promised(r, n.saturating_sub(4), end.max(n), r.has_you);
    }
    let is_cure = matches!(word, "cures" | "cura" | "curavel" | "curable" | "cure");
    if is_cure && !r.any(n.saturating_sub(3), n, NEG | DENIAL | WAS) {
        let is_treated = (back..n).any(|at| r.is(at, TREATMENT) || r.is_medicine(at));
        let has_condition = (back..n + 5).any(|at| r.is(at, CONDITION));
        let claims = is_treated && (has_condition || r.has_you) || has_condition && word != "cure";
        return claims.then(|| promised(r, back, n, true)).flatten();
    }
    None
}
