//! Advice without a verb of treatment: orders by a verb that stands for another one, what the speaker
//! would do in the reader's place, next steps, amounts, promises, and what to keep from a doctor.

use callboard_message::is_one_of;

use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::sentence::{JOINED, OPENS};

const PRESCRIBING: &str = "prescribing";
const AGAINST_CARE: &str = "advising against medical care";
const PROMISE: &str = "promising an outcome";

/// Maximum distance, in words, between the parts of one frame.
const FRAME_WORDS: usize = 7;

/// Times and circumstances of a dose.
const TIMES: &str = "night morning evening noon lunch lunchtime dinner bedtime breakfast meal meals food week weekly day \
    noite manha almoco jantar jejum dia deitar refeicao refeicoes semana";

/// Appends the implied advice of a sentence to `hits`.
pub(super) fn find(r: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    const BEGINNINGS: &str = "do try faca facam faz shoes place position lugar were fosse mim keep hide conceal withhold \
        esconda esconder oculte mention tell admit show report conte mencione fale diga mostre next first logical sensible \
        proxima proximo primeira primeiro seguinte pronto done promise guarantee assure prometo garanto garantimos juro \
        expect way was enough plenty sufficient suficiente chega bastam leave deixe deixa bem time make question gained gain ganha ganhar not nao instead vez less fewer menos mais last ultimo ultima before after antes depois every day dia off away out fora better antes \
        bastava bastavam chegava chegavam suffice suffices";
    if r.is_question {
        return;
    }
    for n in 0..r.tokens.len() {
        if r.covered[n] || !r.is(n, OBLIGE) && !is_one_of!(r.word(n), BEGINNINGS) {
            continue;
        }
        let found = pro_verb(r, n)
            .or_else(|| in_your_place(r, n))
            .or_else(|| concealment(r, n))
            .or_else(|| left_to_others(r, n))
            .or_else(|| fate(r, n))
            .or_else(|| next_step(r, n))
            .or_else(|| amount(r, n))
            .or_else(|| promise(r, n))
            .or_else(|| scheduled(r, n))
            .or_else(|| way_forward(r, n))
            .or_else(|| bare_amount(r, n))
            .or_else(|| bare_habit(r, n))
            .or_else(|| dismissed(r, n))
            .or_else(|| hopeless(r, n));
        hits.extend(found);
    }
}

fn hit(r: &SentenceReading<'_, '_>, at: usize, end: usize, kind: &'static str) -> Option<Hit> {
    Some(Hit {
        at,
        end: end.min(r.tokens.len() - 1),
        kind,
        address: Address::reader_if(r.has_you || r.follows_address),
    })
}

fn health(r: &SentenceReading<'_, '_>) -> Option<usize> {
    (0..r.tokens.len()).find(|n| !r.covered[*n] && r.is_health(*n))
}

fn is_sourced(r: &SentenceReading<'_, '_>) -> bool {
    let of_one = |n| r.is(n, PATIENT) && r.is(n, NUMBER);
    r.any(0, r.tokens.len(), SYSTEM | RECORDED | WAS) || (0..r.tokens.len()).any(of_one)
}

/// Finds an order by a verb that stands for others: "do it in that order", "faca o seguinte: …".
fn pro_verb(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    const OBJECTS: &str =
        "this that it so these follows following likewise isto isso assim seguinte tambem igual";
    // "Make it eight hours."
    if r.word(n) == "make" && r.word(n + 1) == "it" && r.opens(n) && !is_sourced(r) {
        let amount = (n + 2..n + 4).find(|at| r.is(*at, NUMBER | UNIT))?;
        return hit(r, n, amount, PRESCRIBING);
    }
    let is_object = |at| is_one_of!(r.word(at), OBJECTS);
    let orders = is_one_of!(r.word(n), "do try faca facam faz")
        && (n + 1..n + 4).any(is_object)
        && !r.any(n + 1, n + 3, NEG | BASE)
        && r.opens(n);
    if !orders || is_sourced(r) {
        return None;
    }
    let at = health(r)?;
    hit(r, n.min(at), n.max(at), PRESCRIBING)
}

/// Finds what the speaker would do as the reader: "in your shoes I'd …", "por mim, nem ia".
fn in_your_place(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let back = n.saturating_sub(2);
    let next = r.word(n + 1);
    let is_place = match r.word(n) {
        "shoes" | "place" | "position" => r.any(back, n, YOU),
        "lugar" => r.any(back, n, YOU) || (back..n).any(|at| r.word(at) == "seu"),
        "were" | "was" => {
            r.any(back, n + 3, FIRST) && r.any(back, n, IF) && r.any(n + 1, n + 4, YOU | FAMILY)
                || r.any(n + 1, n + 2, FIRST) && r.any(n + 1, n + 4, YOU)
        }
        "fosse" => is_one_of!(next, "eu voce comigo a meu minha"),
        "mim" => n > 0 && r.word(n - 1) == "por" && n < 3,
        _ => false,
    };
    let would = |at: usize| {
        r.is(at, OBLIGE | CONDITIONAL | IMPERFECT)
            || is_one_of!(r.word(at), "would ia iria deixava ficava")
    };
    if !is_place || r.any(0, r.tokens.len(), SYSTEM) {
        return None;
    }
    let end = (0..r.tokens.len()).find(|at| would(*at))?;
    hit(r, n.min(end), n.max(end), PRESCRIBING)
}

/// Finds what is to be kept from those who treat: "keep this from your cardiologist", "don't mention
/// it to the nurse".
fn concealment(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let until = r.tokens.len().min(n + FRAME_WORDS);
    let negated = r.any(n.saturating_sub(2), n, NEG);
    let hides = is_one_of!(
        r.word(n),
        "keep hide conceal withhold esconda esconder oculte"
    );
    let tells = is_one_of!(
        r.word(n),
        "mention tell admit show report conte mencione fale diga mostre",
    );
    if !(hides && !negated || tells && negated) || !r.opens(n) || r.any(n, until, HESITATE) {
        return None;
    }
    let links = |at: &usize| {
        is_one_of!(
            r.word(*at),
            "from to your the de do da dos ao a aos seu sua"
        )
    };
    let person = (n + 1..until).find(|at| r.is(*at, ROLE | CARE))?;
    let is_linked = (n + 1..person).any(|at| links(&at))
        && (!hides || { (n + 1..person).any(|at| is_one_of!(r.word(at), "from de do da dos ao")) });
    is_linked.then(|| hit(r, n, person, AGAINST_CARE)).flatten()
}

/// Finds that care is left to others: "leave the hospital for the really sick".
fn left_to_others(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let leaves = is_one_of!(r.word(n), "leave deixe deixa") && r.opens(n);
    let care = (n + 1..n + 5).find(|at| leaves && r.is(*at, CARE) && !r.is(*at, ROLE))?;
    let to_others = (care + 1..care + 3).any(|at| is_one_of!(r.word(at), "for to para"));
    to_others.then(|| hit(r, n, care, AGAINST_CARE)).flatten()
}

/// Finds that somebody won't live: "she won't make it to the summer".
fn fate(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let back = n.saturating_sub(4);
    let makes_it = r.word(n) == "make" && r.word(n + 1) == "it" && r.any(back, n, WILL);
    let arrives =
        r.word(n) == "chega" && r.any(back, n, NEG) && is_one_of!(r.word(n + 1), "a ao aos");
    let of_person = r.any(back, n, PATIENT | YOU) && !r.any(0, r.tokens.len(), SYSTEM);
    (of_person && (makes_it || arrives))
        .then(|| hit(r, back, n, PROMISE))
        .flatten()
}

/// Finds the next thing to do: "the next step is an MRI", "a proxima coisa a fazer e …".
fn next_step(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    const ORDINALS: &str = "next first logical sensible proxima proximo primeira primeiro seguinte";
    let things =
        |at: usize| is_one_of!(r.word(at), "thing step move stop coisa passo medida etapa");
    let is_step = is_one_of!(r.word(n), ORDINALS)
        && (things(n + 1) || things(n + 2) || r.word(n) == "seguinte" && n > 0 && things(n - 1));
    if !is_step || is_sourced(r) || r.any(n, r.tokens.len(), PAST) {
        return None;
    }
    let until = r.tokens.len().min(n + 1 + FRAME_WORDS);
    let states = |at: &usize| r.is(*at, IS | OBLIGE | ABLE) || r.word(*at) == "e";
    let copula = (n + 2..until).find(states)?;
    let until = r.tokens.len().min(copula + FRAME_WORDS);
    let object = (copula + 1..until).find(|at| r.is_health(*at))?;
    hit(r, n, object, PRESCRIBING)
}

/// Finds that an amount is enough: "once a day will do".
fn amount(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let ends = |at: usize| r.tokens.get(at).is_none_or(|token| token.has(OPENS));
    let from = n.saturating_sub(5);
    let is_enough = r.word(n) == "do" && n > 0 && r.is(n - 1, WILL | OBLIGE) && ends(n + 1);
    // "Two drops, and that's it", "e pronto".
    let is_all = is_one_of!(r.word(n), "pronto done")
        && n > 0
        && !r.tokens.get(n + 1).is_some_and(|next| next.has(JOINED))
        && (r.word(n - 1) == "e" || r.is(n - 1, IS) && r.any(n.saturating_sub(2), n, YOU));
    let is_fraction =
        |at: &usize| r.is(*at, UNIT) || is_one_of!(r.word(*at), "half quarter metade once");
    let suffices = is_one_of!(
        r.word(n),
        "enough plenty sufficient suficiente chega bastam bastava bastavam chegava chegavam suffice suffices"
    );
    if is_sourced(r) {
        return None;
    }
    if suffices {
        return hit(r, (from..n).find(is_fraction)?, n, PRESCRIBING);
    }
    let at = match (is_enough, is_all) {
        (true, _) => (from..n).find(|at| r.is(*at, NUMBER | UNIT | MEDICINE))?,
        (_, true) => health(r).filter(|at| *at < n)?,
        _ => return None,
    };
    hit(r, at, n, PRESCRIBING)
}

/// Finds a promise, or what is to be expected of somebody: "I promise the scar will fade", "expect
/// him to be in a wheelchair".
fn promise(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let own = r.any(n.saturating_sub(2), n, FIRST)
        || is_one_of!(r.word(n), "prometo garanto garantimos juro");
    let promises =
        own && is_one_of!(
            r.word(n),
            "promise guarantee assure prometo garanto garantimos juro"
        ) && !r.any(n.saturating_sub(2), n, NEG);
    let expects = r.word(n) == "expect" && r.opens(n);
    if expects && r.is(n + 1, PATIENT) && (n + 2..n + 4).any(|at| r.word(at) == "to") {
        return hit(r, n, n + 3, PROMISE);
    }
    if !promises && !expects || r.any(0, r.tokens.len(), SYSTEM) {
        return None;
    }
    let is_fate = |at: &usize| r.is_health(*at) || r.is(*at, OUTCOME) && !r.is(*at, WILL);
    let at = (0..r.tokens.len()).find(is_fate)?;
    hit(r, n.min(at), n.max(at), PROMISE)
}

/// Finds the schedule of something named before: "it ought to be taken at night".
fn scheduled(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    if !r.is(n, OBLIGE) {
        return None;
    }
    let before = n.checked_sub(1).map_or("", |at| r.word(at));
    let has_pronoun = is_one_of!(
        before,
        "it they this these those one both isto isso ele ela"
    ) || r.is(n, OBLIGE) && r.word(n).starts_with("deve") && r.opens(n);
    // "He should have twice as much."
    let is_measure = |at: usize| is_one_of!(r.word(at), "twice half double dobro metade triple");
    let gets = (n + 1..n + 3).find(|at| is_one_of!(r.word(*at), "have get take ter tomar"));
    if let Some(at) = gets.filter(|at| is_measure(at + 1) || is_measure(at + 2)) {
        return (!is_sourced(r))
            .then(|| hit(r, n, at, PRESCRIBING))
            .flatten();
    }
    let be = (n + 1..n + 4).find(|at| is_one_of!(r.word(*at), "be ser"))?;
    let verb = (be + 1..be + 3).find(|at| r.is(*at, ACT) && r.is(*at, PAST))?;
    let until = r.tokens.len().min(verb + FRAME_WORDS + 1);
    const TREATED: &str = "operated operado operada removed removido removida excised drained treated tratado tratada biopsied";
    if is_one_of!(r.word(verb), TREATED) && !is_sourced(r) && (has_pronoun || before == "isto") {
        return hit(r, n, verb, PRESCRIBING);
    }
    let timed =
        (verb + 1..until).find(|at| r.is(*at, UNIT | NUMBER) || is_one_of!(r.word(*at), TIMES));
    has_pronoun
        .then(|| hit(r, n, timed?, PRESCRIBING))
        .flatten()
}

/// Finds a treatment called the way to go.
fn way_forward(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let before = n.checked_sub(1).map_or("", |at| r.word(at));
    let is_way = r.word(n) == "way"
        && (r.word(n + 1) == "forward" || r.word(n + 1) == "to" && r.word(n + 2) == "go")
        && r.any(n.saturating_sub(4), n, IS | ABLE)
        || r.word(n) == "time" && is_one_of!(before, "high about")
        || r.word(n) == "question" && n > 2 && r.word(n - 2) == "of" && r.word(n - 3) == "out";
    if is_way && r.word(n) == "question" {
        return (0..n)
            .find(|at| r.is_health(*at))
            .and_then(|at| hit(r, at, n, PRESCRIBING));
    }
    // "Ficava-lhe bem perder uns quilos."
    if r.word(n) == "bem" && before == "fica" && r.word(n + 1) == "com" && r.is(n + 2, NUMBER) {
        return hit(r, n, n + 2, PRESCRIBING);
    }
    if r.word(n) == "bem"
        && is_one_of!(before, "ficava fazia faria lhe te")
        && r.is(n + 1, INFINITIVE)
    {
        return hit(r, n, n + 1, PRESCRIBING);
    }
    if !is_way || is_sourced(r) {
        return None;
    }
    let acts = |at: &usize| r.is_health(*at) || r.is(*at, ACT) && r.is(*at, GERUND);
    let at = (0..r.tokens.len()).find(acts)?;
    hit(r, n.min(at), n.max(at), PRESCRIBING)
}

/// Finds an amount without a verb, or with one of permission: "twelve drops, not eight", "five units
/// less at supper", "adults can take up to eight a day".
fn bare_amount(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let len = r.tokens.len();
    if is_sourced(r) || r.any(0, len, PAST | DOCUMENT) {
        return None;
    }
    let from = n.saturating_sub(4);
    // "Better 40 mg than 20", "one unit more".
    let leads = is_one_of!(r.word(n), "better antes more less mais menos") && r.opens(n);
    let doses = |at: usize| r.is(at, UNIT) || is_one_of!(r.word(at), "unit unidade units unidades");
    if leads && r.is(n + 1, NUMBER) && (n + 1..n + 4).any(doses) {
        return hit(r, n, n + 2, PRESCRIBING);
    }
    let number = (from..n).find(|at| r.is(*at, NUMBER))?;
    let is_dose = |at: usize| {
        r.is(at, UNIT | MEDICINE) || is_one_of!(r.word(at), "units unidades drops gotas")
    };
    let has_dose = (number..(n + 3).min(len)).any(is_dose);
    let contrasts = is_one_of!(r.word(n), "not nao instead vez") && r.any(n + 1, n + 4, NUMBER);
    let compares = is_one_of!(r.word(n), "less fewer menos mais") && n <= number + 3;
    let limits = is_one_of!(r.word(n), "day dia")
        && r.any(0, number, ABLE)
        && (0..number).any(|at| r.is(at, DOSE_VERB) && r.is(at, BASE | INFINITIVE));
    let is_bare = r.opens(number) && has_dose && (contrasts || compares);
    (is_bare || limits)
        .then(|| hit(r, number, n, PRESCRIBING))
        .flatten()
}

/// Finds habits without a verb: "a hot bath before bed and no coffee after noon".
fn bare_habit(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    const EVIDENCE: Class = PAST | WAS | IS | PATIENT | DOCUMENT | ROLE | CARE | HAVE | NEG;
    if !is_one_of!(r.word(n), "before after antes depois every day dia") || is_sourced(r) {
        return None;
    }
    let len = r.tokens.len();
    let habits = (0..len).filter(|at| r.is(*at, LIFESTYLE)).count();
    let is_repeated = (n.saturating_sub(3)..n).any(|at| is_one_of!(r.word(at), "vezes times"));
    if is_repeated && habits > 0 && !r.any(0, len, EVIDENCE & !NEG) && !r.any(0, len, SAID) {
        return hit(r, 0, n, PRESCRIBING);
    }
    let is_bare = r.is(0, DETERMINER | NUMBER) && !r.any(0, len, EVIDENCE);
    (is_bare && habits > 1)
        .then(|| hit(r, 0, n, PRESCRIBING))
        .flatten()
}

/// Finds that a treatment or care has no use: "nothing to be gained from the statin", "hospital is the
/// last place she should be".
fn hopeless(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let from = n.saturating_sub(4);
    let gains = is_one_of!(r.word(n), "gained gain ganha ganhar")
        && (from..n).any(|at| is_one_of!(r.word(at), "nothing nada little pouco"));
    let is_last = is_one_of!(r.word(n), "last ultimo ultima")
        && is_one_of!(r.word(n + 1), "place thing lugar coisa")
        && r.any(n, r.tokens.len(), OBLIGE);
    if !gains && !is_last || r.any(0, r.tokens.len(), WAS) {
        return None;
    }
    let matters = |at: &usize| r.is_health(*at) || r.is(*at, CARE);
    let at = (0..r.tokens.len()).find(matters)?;
    hit(r, n.min(at), n.max(at), AGAINST_CARE)
}

/// Finds a treatment that is dismissed: "off with the plaster".
fn dismissed(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let is_dismissal = is_one_of!(r.word(n), "off away out fora")
        && is_one_of!(r.word(n + 1), "with com")
        && r.opens(n);
    let object = (n + 2..n + 6).find(|at| is_dismissal && r.is_health(*at))?;
    hit(r, n, object, PRESCRIBING)
}
