//! Detection of people's names, by lists of given and family names and by context.

use std::ops::Range;

use callboard_message::{is_one_of, word_set};

use crate::verifier::medicine::is_medicine;

use super::Hit;
use super::class::IdentityClass;
use super::lexicon::{
    CALL, DISCOVERY, DOCTOR, INSTITUTION, INSTITUTION_FIRST, INTRODUCES, PARTICLE, PATIENT,
    PERSON_VERB, RELATIVE, SPEECH, STAFF, TITLE,
};
use super::reading::Tokens;
use crate::verifier::word_lists::{EPONYMS, EVERYDAY, FAMILY, GIVEN, Listing, MEDICAL, WordList};

/// Maximum number of words in a person's name. Further words are examined as if a new name began.
const NAME_WORDS_MAX: usize = 6;
/// Minimum letters of a listed name that counts in lower case, beside another one.
const LOWER_LETTERS_MIN: usize = 4;

/// Word of a text, perhaps of several parts with hyphens or apostrophes, with its context.
struct NameWord<'a> {
    /// First and last token.
    first: usize,
    last: usize,
    cased: &'a str,
    lower: &'a str,
    is_capital: bool,
    /// Number of line breaks, if nothing but white space, or the full stop of an initial or title,
    /// separates the word from the one before it.
    joined: Option<u8>,
    /// Whether the word before it and this one have only a comma between them.
    after_comma: bool,
    /// Whether a possessive `'s` follows.
    possessive: bool,
    given: Option<Listing>,
    family: Option<Listing>,
    everyday: bool,
}

impl NameWord<'_> {
    fn is_capital(&self) -> bool {
        self.is_capital
    }

    fn is_initial(&self) -> bool {
        self.is_capital() && self.cased.chars().count() == 1
    }

    /// Returns whether it may be a name of a person that no list has.
    fn is_foreign(&self) -> bool {
        !self.everyday
            && !self.is_abbreviation()
            && self.given != Some(Listing::Everyday)
            && self.family != Some(Listing::Everyday)
            && (self.lower.chars().count() > 2 || self.is_listed() && self.lower.len() > 1)
    }

    /// Returns whether it begins with two capitals before small letters, as `QTc` does.
    fn is_abbreviation(&self) -> bool {
        let mut letters = self.cased.chars();
        let capitals = letters.by_ref().take(2).all(char::is_uppercase);
        capitals && letters.any(char::is_lowercase)
    }

    fn is_listed(&self) -> bool {
        self.given.is_some() || self.family.is_some()
    }

    /// Returns whether it is listed, and has no other meaning.
    fn is_surely_listed(&self) -> bool {
        self.is_foreign() && self.is_listed()
    }
}

/// Returns the certainty of a name in a list. A double name ("Silva-Costa", "O'Neil") is listed if
/// any part of three or more letters is.
fn find_listing(list: &WordList, lower: &str) -> Option<Listing> {
    if lower.bytes().all(|b| b.is_ascii_lowercase()) {
        return list.find(lower);
    }
    lower
        .split(['-', '\''])
        .filter(|part| part.len() > 2)
        .find_map(|part| list.find(part))
}

/// Adds the names of people. Disguises such as look-alike letters must have been removed from the
/// text.
pub(super) fn find_names(tokens: &Tokens<'_>, out: &mut Vec<Hit>) {
    let words = split_words(tokens);
    let mut at = 0;
    while at < words.len() {
        let found = if words[at].is_capital() {
            name_at(tokens, &words, at)
        } else {
            lower_case_name(tokens, &words, at)
        };
        let Some((taken, class)) = found else {
            at += 1;
            continue;
        };
        if let Some(class) = class {
            let range = tokens.range(words[at].first, words[at + taken - 1].last);
            out.push(Hit::new(range, class));
        }
        at += taken.max(1);
    }
}

fn split_words<'a>(tokens: &Tokens<'a>) -> Vec<NameWord<'a>> {
    let reading = tokens.reading;
    let mut words: Vec<NameWord<'a>> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if !tokens.is_word(at) {
            at += 1;
            continue;
        }
        let first = at;
        let mut last = at;
        let inner = |at: usize| matches!(tokens.sign(at), Some(b'-' | b'\'')) && !tokens.gap(at);
        let mut possessive = false;
        while inner(last + 1) && tokens.is_word(last + 2) && !tokens.gap(last + 2) {
            possessive = tokens.sign(last + 1) == Some(b'\'') && tokens.lower(last + 2) == "s";
            if possessive {
                break;
            }
            last += 2;
        }
        // "Thomas' Hospital"
        let plural = inner(last + 1) && tokens.gap(last + 2) && tokens.lower(last).ends_with('s');
        let range: Range<usize> = tokens.range(first, last);
        let (cased, lower) = (&reading.cased[range.clone()], &reading.lower[range]);
        let (joined, after_comma) = link(tokens, words.last(), first);
        let capital = tokens.is_capital(first);
        let looked = capital || lower.len() >= LOWER_LETTERS_MIN;
        let given = looked.then(|| find_listing(&GIVEN, lower)).flatten();
        // The family name of a word in lower case matters only behind a given name, or first.
        let near = given.is_some()
            || words.last().is_some_and(|w| w.given.is_some())
            || looked && tokens.opens(first);
        let family = (capital || near)
            .then(|| find_listing(&FAMILY, lower))
            .flatten();
        let listed = given.is_some() || family.is_some();
        words.push(NameWord {
            first,
            last,
            cased,
            lower,
            is_capital: capital,
            joined,
            after_comma,
            possessive: possessive || plural,
            given,
            family,
            everyday: capital && (EVERYDAY.contains(lower) || !listed && is_medical_word(lower))
                || is_contraction(tokens, first, last),
        });
        at = last + if possessive { 3 } else { 1 };
    }
    words
}

/// Returns whether a word, or its singular, is on the list of medical words, and no eponym.
fn is_medical_word(lower: &str) -> bool {
    let singular = lower.strip_suffix('s').unwrap_or(lower);
    (MEDICAL.contains(lower) || MEDICAL.contains(singular)) && !EPONYMS.contains(lower)
}

/// Returns whether a word is a contraction, such as "I'm".
fn is_contraction(tokens: &Tokens<'_>, first: usize, last: usize) -> bool {
    last > first
        && tokens.sign(last - 1) == Some(b'\'')
        && matches!(tokens.lower(last), "m" | "ve" | "ll" | "d" | "re" | "t")
}

/// Returns how a word at token `at` is linked to the one before it: as [`NameWord::joined`] and
/// [`NameWord::after_comma`].
fn link(tokens: &Tokens<'_>, before: Option<&NameWord<'_>>, at: usize) -> (Option<u8>, bool) {
    let Some(before) = before else {
        return (None, false);
    };
    let possessive = match before.possessive {
        true if tokens.lower(before.last + 2) == "s" && !tokens.gap(before.last + 2) => 2,
        true => 1,
        false => 0,
    };
    let between = (at - before.last - 1).saturating_sub(possessive);
    let lines = tokens.lines(at);
    match between {
        0 => ((lines < 2).then_some(lines), false),
        1 if tokens.sign(at - 1) == Some(b',') => (None, lines < 2),
        // Parts of a name in messages of the HL7 standard.
        1 if tokens.sign(at - 1) == Some(b'^') && !tokens.gap(at) => (Some(0), false),
        1 if tokens.sign(at - 1) == Some(b'.') => {
            let short = before.lower.len() <= 2 || tokens.is(before.last, TITLE | DOCTOR);
            (
                (short && lines == 0 && before.is_capital()
                    || tokens.is(before.last, TITLE | DOCTOR))
                .then_some(0),
                false,
            )
        }
        _ => (None, false),
    }
}

/// Number of words taken, and the class if they are a person's name.
type Taken = Option<(usize, Option<IdentityClass>)>;

/// Examines the words from index `at`, the first of which is capitalised. Returns how many of them
/// belong together; `None` if they are no known unit.
fn name_at(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> Taken {
    if let Some(taken) = family_first_len(tokens, words, at) {
        return Some((taken, Some(class_of(tokens, words, at, taken))));
    }
    let len = name_run_len(tokens, words, at);
    if len == 0 {
        return None;
    }
    if is_of_thing(tokens, words, at, len) {
        let eponym = words[at..at + len].iter().all(|w| is_eponym(tokens, w));
        return Some((len, eponym.then_some(IdentityClass::Eponym)));
    }
    // The usual case: no list of the words is needed.
    if len == 1 {
        return single_name(tokens, words, at).map(|class| (1, Some(class)));
    }
    let run = &words[at..at + len];
    let content: Vec<&NameWord<'_>> = run
        .iter()
        .filter(|w| !tokens.is(w.first, PARTICLE) || w.is_capital())
        .collect();
    if content.len() == 1 {
        return single_name(tokens, words, at).map(|class| (1, Some(class)));
    }
    if !is_full_name(tokens, words, at, &content) {
        return None;
    }
    let medicine = run.iter().position(|w| is_medicine(w.lower));
    let len = match medicine {
        None => len,
        Some(before @ 2..) => before,
        Some(_) => return None,
    };
    Some((len, Some(class_of(tokens, words, at, len))))
}

/// Returns whether several words that belong together are a person's name, by lists and context.
fn is_full_name(
    tokens: &Tokens<'_>,
    words: &[NameWord<'_>],
    at: usize,
    content: &[&NameWord<'_>],
) -> bool {
    use Listing::{Everyday, Plain, Rare};
    let (Some(first), Some(last)) = (content.first(), content.last()) else {
        return false;
    };
    let labelled = is_labelled(tokens, words, at);
    let opens = tokens.opens(first.first);
    let initials = content.iter().any(|w| w.is_initial());
    if last.is_initial() {
        // "João S." or "Maria C. S."; "M. C. S." behind a word for initials.
        let short = tokens.sign(last.last + 1) == Some(b'.')
            && content.len() > 1
            && (matches!(first.given, Some(Plain)) && first.is_foreign()
                || is_introduced(tokens, words, at) && first.is_initial());
        let rest = &content[..content.len() - 1];
        return short || rest.len() > 1 && is_full_name(tokens, words, at, rest);
    }
    // "I reviewed Grace Field today".
    let met = at.checked_sub(1).is_some_and(|i| {
        first.joined == Some(0)
            && is_one_of!(
                words[i].lower,
                "reviewed saw seen examined met assessed atendi avaliei examinei",
            )
    });
    match (first.given, last.family) {
        (Some(_), Some(_)) if met => true,
        _ if first.everyday && first.given.is_none() => false,
        (Some(Plain), Some(_)) => !first.everyday || last.is_surely_listed() || labelled,
        (Some(Everyday | Rare), Some(Plain)) => {
            last.is_foreign() && (first.is_foreign() || !opens || labelled || initials)
        }
        (Some(Plain), None) => last.is_foreign() || labelled || initials,
        (Some(_), _) => labelled && last.is_foreign() || first.is_foreign() && last.is_foreign(),
        (None, Some(_)) if first.is_initial() => {
            last.is_surely_listed() && last.lower.len() > 3 && !tokens.is(last.first, DISCOVERY)
        }
        (None, _) if is_family_before_given(content) => true,
        (None, Some(Plain)) => {
            let middle = content[1].given.is_some();
            let medical = content
                .iter()
                .any(|w| !w.is_listed() && is_medical(w.lower));
            (labelled || !medical)
                && first.is_foreign()
                && last.is_foreign()
                && (!opens || labelled || initials || middle)
        }
        (None, _) => {
            let verb = words
                .get(at + content.len())
                .is_some_and(|w| tokens.is(w.first, PERSON_VERB) && w.joined == Some(0));
            let possessive = words[at + content.len() - 1].possessive;
            let dotted = first.is_initial() && tokens.sign(first.last + 1) == Some(b'.');
            let context = labelled || dotted || verb || possessive || !opens;
            let discoverer = is_eponym(tokens, first) && !last.is_listed();
            let medical = content.iter().any(|w| is_medical(w.lower));
            context
                && (labelled || !discoverer)
                && (first.is_foreign()
                    || dotted && last.lower.len() > 3
                    || first.family.is_some() && (labelled || verb))
                && (last.is_foreign() || labelled)
                && (labelled || initials || !medical && !is_shouted(content))
        }
    }
}

/// Returns whether a family name stands before given names, as in Asia and in lists: "SOUZA MARIA".
fn is_family_before_given(words: &[&NameWord<'_>]) -> bool {
    words.len() > 1
        && words[0].is_surely_listed()
        && words[1..]
            .iter()
            .all(|w| w.given == Some(Listing::Plain) && w.is_foreign() && w.lower.len() > 2)
}

/// Returns whether a word ends as words of medicine, and hardly any names, do.
fn is_medical(lower: &str) -> bool {
    const ENDS: &str = "itis osis iasis emia aemia oma pathy ectomy otomy algia plasty scopy scope graphy gram uria plegia \
        trophy mab nib pril sartan olol statin azole cillin mycin cycline ide ate ium ose ase ic al ous ary oid ive ism \
        ity tion sion ment ology ologist iatric iatrics ular eal ite izumab avir parin pine pam lam tine dine zine \
        xaban gliptin gliflozin glutide prazole setron triptan barbital caine oxacin fungin vir ida ol ose ado ada oso osa \
        ico ica cao dade mente eia grafia avel ivel agem mento ncia ista";
    let lower = lower.strip_suffix('s').unwrap_or(lower);
    word_set!(ENDS).ends(lower, 3)
}

/// Returns whether all words are in capitals, as headings and abbreviations are.
fn is_shouted(words: &[&NameWord<'_>]) -> bool {
    words
        .iter()
        .any(|w| w.cased.chars().all(|c| !c.is_lowercase()))
}

/// Returns the class of the single capitalised word at index `at`, if it is a person's name: after
/// a title, an introducing phrase or a verb of speech, or a given name without another meaning.
fn single_name(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> Option<IdentityClass> {
    // The list of medicines is searched last, because few words get here.
    single_word_class(tokens, words, at).filter(|_| !is_medicine(words[at].lower))
}

/// Returns the class of [`single_name`], also for a word that is a medicine.
fn single_word_class(
    tokens: &Tokens<'_>,
    words: &[NameWord<'_>],
    at: usize,
) -> Option<IdentityClass> {
    let word = &words[at];
    let short = word.lower.chars().count() < 2;
    if short || tokens.is(word.first, INTRODUCES) {
        return None;
    }
    let before = at.checked_sub(1).map(|i| &words[i]);
    let linked = |meaning| {
        before.is_some_and(|w| {
            // "ms" behind a number is a unit.
            let unit = w.first > 0 && tokens.is_number(w.first - 1);
            tokens.is(w.first, meaning)
                && !unit
                && (word.joined.is_some_and(|lines| lines == 0) || meaning == TITLE)
        })
    };
    // A word that no list has: no abbreviation, and no word of medicine.
    let is_unknown = || {
        word.is_listed()
            || !is_medical(word.lower) && (!is_shouted(&[word]) || word.lower.len() >= 5)
    };
    let plausible = !word.everyday || word.is_listed();
    if linked(DOCTOR) {
        return plausible.then_some(IdentityClass::DoctorSurname);
    }
    if linked(TITLE) {
        let adjoins = word.joined.is_some() || !word.everyday;
        return (plausible && adjoins).then_some(IdentityClass::Name);
    }
    let is_eponym = || EPONYMS.contains(word.lower);
    let surely_given =
        word.given == Some(Listing::Plain) && word.is_foreign() && word.lower.len() > 3;
    if linked(RELATIVE) && word.given.is_some() && !word.everyday {
        return Some(IdentityClass::RelativeName);
    }
    let introduced = is_introduced(tokens, words, at);
    let spoken = linked(SPEECH) && tokens.lower(word.last + 1) != "that";
    let quoted = spoken
        && is_one_of!(tokens.lower(word.first - 1), "says said disse")
        && word.lower.len() > 3
        && !is_medical(word.lower)
        && !is_shouted(&[word]);
    let listed = word.is_surely_listed() && word.lower.len() > 2 || quoted && word.is_foreign();
    let bedside = word.given.is_some()
        && word.is_foreign()
        && before.is_some_and(|w| {
            is_one_of!(w.lower, "bed leito cama box")
                && tokens.is_number(w.last + 1)
                && word.first - w.last <= 3
        });
    // "Dolores is tolerating the diet".
    let acts = word.given.is_some()
        && !word.everyday
        && tokens.is(word.last + 1, PERSON_VERB)
        && !is_eponym()
        && (!is_one_of!(
            tokens.lower(word.last + 1),
            "is was has had needs needed e foi esta tem",
        ) || tokens.lower(word.last + 2).ends_with("ing"));
    let named = surely_given && !((word.possessive || word.family.is_some()) && is_eponym())
        || introduced && word.is_foreign() && is_unknown()
        || spoken && listed
        || bedside
        || acts;
    named.then(|| class_of(tokens, words, at, 1))
}

/// Returns a name in lower case: a given and a family name that have no other meaning, or listed
/// names behind a label.
fn lower_case_name(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> Taken {
    let word = &words[at];
    let plain = |w: &NameWord<'_>| {
        w.lower.len() >= LOWER_LETTERS_MIN && !EVERYDAY.contains(w.lower) && w.is_foreign()
    };
    if let Some(given) = words.get(at + 1).filter(|w| w.after_comma) {
        let sure = word.family.is_some() && given.given == Some(Listing::Plain);
        let begins = tokens.opens(word.first) || is_labelled(tokens, words, at);
        if sure && begins && plain(word) && plain(given) && tokens.lines(given.first) == 0 {
            return Some((2, Some(IdentityClass::Name)));
        }
    }
    let titled = at.checked_sub(1).is_some_and(|i| {
        let title = words[i].first;
        let unit = title > 0 && tokens.is_number(title - 1);
        tokens.is(title, TITLE) && !unit && word.joined == Some(0)
    });
    let introduced = titled || is_introduced(tokens, words, at);
    if word.given.is_none() && !(introduced && find_listing(&FAMILY, word.lower).is_some()) {
        return None;
    }
    let mut end = at + 1;
    while end < words.len() && end - at < NAME_WORDS_MAX && words[end].joined == Some(0) {
        let next = &words[end];
        let listed = next.family.is_some() || next.given.is_some();
        let part = listed && !EVERYDAY.contains(next.lower) || next.lower.len() == 1;
        let leads_on = tokens.is(next.first, PARTICLE)
            && words
                .get(end + 1)
                .is_some_and(|w| w.joined == Some(0) && w.family.is_some());
        if !(part && !next.is_capital() || leads_on) {
            break;
        }
        end += 1;
    }
    while end > at + 1 && !plain(&words[end - 1]) {
        end -= 1;
    }
    let run = &words[at..end];
    let last = run.last()?;
    let labelled = introduced || is_labelled(tokens, words, at);
    let addressed = at.checked_sub(1).is_some_and(|i| {
        let meanings = SPEECH | RELATIVE | TITLE | PATIENT | CALL;
        let meant =
            tokens.is(words[i].first, meanings) || is_one_of!(words[i].lower, "for about tell");
        word.joined == Some(0) && meant
    });
    let known = (word.given == Some(Listing::Plain) || introduced) && !is_medical_word(word.lower);
    if run.len() == 1 && (addressed || introduced) && known && plain(word) {
        let class = class_of(tokens, words, at, 1);
        return (!is_medicine(word.lower)).then_some((1, Some(class)));
    }
    let sure = word.given == Some(Listing::Plain) && last.family == Some(Listing::Plain);
    let named = run.len() >= 2 && plain(word) && plain(last) && (sure || labelled);
    if !named
        || run.iter().any(|w| is_medicine(w.lower))
        || is_of_thing(tokens, words, at, run.len())
    {
        return None;
    }
    Some((run.len(), Some(class_of(tokens, words, at, run.len()))))
}

/// Returns how many words from index `at`, up to [`NAME_WORDS_MAX`], could be one name: joined
/// words that are capitalised, initials, and particles such as "de", each before a capitalised
/// word. An everyday word that no list has as a name ends it. 0 if the first word can't begin one.
fn name_run_len(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> usize {
    let first = &words[at];
    let thing = tokens.is(first.first, DISCOVERY | INSTITUTION_FIRST)
        && first.given != Some(Listing::Plain);
    if thing
        || first.everyday && !first.is_listed()
        || tokens.is(first.first, TITLE | DOCTOR) && !first.is_surely_listed()
    {
        return 0;
    }
    let mut end = at + 1;
    while end < words.len() && end - at < NAME_WORDS_MAX {
        let next = &words[end];
        let Some(lines) = next.joined else { break };
        // A possessive ends a name, and a full stop only shortens an initial.
        if words[end - 1].possessive || !follows(tokens, words, at, end, lines) {
            break;
        }
        end += 1;
    }
    end - at
}

/// Returns whether the word at index `next` continues the name that began at `at`.
fn follows(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize, next: usize, lines: u8) -> bool {
    let word = &words[next];
    if lines > 0 {
        // A name that is split over two lines has one word on the first.
        let first = &words[at];
        return next == at + 1
            && first.given.is_some()
            && first.is_foreign()
            && word.is_capital()
            && word.is_surely_listed();
    }
    let dotted = tokens.sign(word.first.saturating_sub(1)) == Some(b'.');
    if dotted && !words[next - 1].is_initial() && words[next - 1].lower.len() > 2 {
        return false;
    }
    let particle = tokens.is(word.first, PARTICLE) && !word.is_capital();
    if particle {
        return words.get(next + 1).is_some_and(|w| {
            w.joined == Some(0) && w.is_capital() && (!w.everyday || w.is_listed())
        });
    }
    let number = word.last + 1 + usize::from(tokens.sign(word.last + 1) == Some(b'-'));
    let digits = tokens.is_number(number) && !tokens.gap(number) && !tokens.gap(word.last + 1);
    let thing = tokens.is(word.first, DISCOVERY | INSTITUTION) && word.everyday;
    let stage = word.cased.len() > 1 && word.cased.bytes().all(|b| b"IVXabcs".contains(&b));
    word.is_capital() && !digits && !thing && !stage && (!word.everyday || word.is_listed())
}

/// Returns the number of words of a name with the family name first, such as "Barker, Margaret A.",
/// at index `at`. The first must open a sentence or line or have a label.
fn family_first_len(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> Option<usize> {
    let (family, given) = (&words[at], words.get(at + 1)?);
    let labelled = is_labelled(tokens, words, at);
    let listed = family.family.is_some()
        && given.given.is_some()
        && (family.is_surely_listed() || given.is_surely_listed());
    let foreign = labelled
        && family.is_foreign()
        && (given.is_foreign() || given.is_initial())
        && tokens.lines(given.first) == 0;
    let capital = family.is_capital() && given.is_capital();
    let initial = given.is_initial()
        && family.is_surely_listed()
        && tokens.sign(given.last + 1) == Some(b'.');
    let lonely = words.get(at + 2).is_none_or(|w| !w.after_comma);
    let usual =
        (listed && !given.is_initial() || foreign) && (tokens.opens(family.first) || labelled);
    if !(given.after_comma && capital && lonely && (usual || initial && family.lower.len() > 3)) {
        return None;
    }
    let mut len = 2;
    while let Some(next) = words
        .get(at + len)
        .filter(|w| w.joined == Some(0) && len < NAME_WORDS_MAX)
    {
        if !(next.is_capital() && (next.is_initial() || next.is_surely_listed())) {
            break;
        }
        len += 1;
    }
    Some(len)
}

/// Returns whether a title, a role such as "nurse" or "wife", or an introducing phrase such as
/// "named" precedes the word at index `at`.
fn is_labelled(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|i| &words[i]) else {
        return false;
    };
    let near = words[at].first - before.last <= 3 && tokens.lines(words[at].first) < 2;
    let colon = tokens.sign(words[at].first - 1) == Some(b':');
    near && tokens.is(before.first, TITLE | DOCTOR)
        || tokens.is(before.first, PATIENT | RELATIVE | STAFF)
            && (words[at].joined == Some(0) || colon)
        || is_introduced(tokens, words, at)
}

/// Last words of the phrases of [`is_introduced`].
const PHRASE_ENDS: &str =
    "is e was as chama chamo am m i'm it's its iniciais initials identificacao o a fala";

/// Returns whether an introducing word or phrase stands before the word at index `at`: "Name:",
/// "called", "my name is", "I am".
fn is_introduced(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize) -> bool {
    let back = |n: usize| at.checked_sub(n).map(|i| &words[i]);
    let Some(before) = back(1) else {
        return false;
    };
    let near = words[at].first - before.last <= 3 && tokens.lines(words[at].first) < 2;
    if !near {
        return false;
    }
    let word = tokens.is(before.first, INTRODUCES) && !tokens.is(before.first, TITLE);
    if !word && !is_one_of!(before.lower, PHRASE_ENDS) {
        return false;
    }
    let third = back(2).map_or("", |w| w.lower);
    let labels = INTRODUCES | PATIENT | RELATIVE;
    let phrase = matches!(before.lower, "is" | "e" | "was" | "as" | "chama" | "chamo")
        && back(2).is_some_and(|w| {
            tokens.is(w.first, labels) || matches!(w.lower, "se" | "me" | "known" | "contact")
        })
        || third == "i" && matches!(before.lower, "am" | "m")
        || third == "this" && before.lower == "is"
        || is_one_of!(before.lower, "i'm it's its iniciais initials identificacao")
        || matches!(third, "sou" | "fala" | "aqui")
            && matches!(before.lower, "o" | "a" | "e" | "fala");
    let boundary = tokens.sign(words[at].first - 1) == Some(b'.');
    (word || phrase) && !boundary
}

/// Returns the class of a name by the words beside it.
fn class_of(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize, len: usize) -> IdentityClass {
    let near = |back: usize, meaning| {
        at.checked_sub(back).is_some_and(|i| {
            let gap = words[at].first - words[i].last;
            gap <= 2 * back + 1
                && tokens.lines(words[at].first) == 0
                && tokens.is(words[i].first, meaning)
        })
    };
    let after = tokens.lower(words[at + len - 1].last + 1);
    let degree = matches!(after, "md" | "rn" | "np" | "phd") || {
        let open = tokens.lower(words[at + len - 1].last + 2);
        matches!(after, "(" | ",")
            && matches!(
                open,
                "npi" | "crm" | "md" | "rn" | "np" | "coren" | "gmc" | "m"
            )
    };
    if near(1, DOCTOR | STAFF) || near(2, DOCTOR) || degree {
        return IdentityClass::DoctorName;
    }
    if near(1, RELATIVE) || near(2, RELATIVE) {
        return IdentityClass::RelativeName;
    }
    IdentityClass::Name
}

/// Returns whether a word is part of the name of a disease, sign or score.
fn is_eponym(tokens: &Tokens<'_>, word: &NameWord<'_>) -> bool {
    word.lower.split('-').any(|part| EPONYMS.contains(part)) || tokens.is(word.first, PARTICLE)
}

/// Returns whether the words at index `at` name a thing: an institution, or a disease, sign or
/// score after its discoverer. The word for the thing directly follows in the same sentence, or
/// stands before.
fn is_of_thing(tokens: &Tokens<'_>, words: &[NameWord<'_>], at: usize, len: usize) -> bool {
    let run = &words[at..at + len];
    let next = words.get(at + len).filter(|w| w.joined == Some(0));
    let eponyms = run.iter().all(|w| is_eponym(tokens, w));
    // A person's full name with a disease behind it stays one, except of well-known discoverers.
    let person = len > 1
        && run.first().is_some_and(|w| w.given.is_some())
        && run.last().is_some_and(|w| w.family.is_some());
    let lower_next = next.map_or(0, |w| w.first);
    if next.is_some() && tokens.is(lower_next, DISCOVERY) {
        let hyphenated = len == 1 && run[0].lower.contains('-');
        if eponyms || !person && (len == 1 || hyphenated || !is_labelled(tokens, words, at)) {
            return true;
        }
    }
    if eponyms
        && (len == 1 && run[0].possessive
            || next.is_some_and(|w| w.is_capital() && !w.is_listed() && w.everyday))
    {
        return true;
    }
    if next.is_some_and(|w| w.is_capital()) && tokens.is(lower_next, INSTITUTION) {
        return true;
    }
    let before = at.checked_sub(1).map(|i| &words[i]);
    let led = before.filter(|_| words[at].joined == Some(0));
    let named_after = |w: &NameWord<'_>| {
        tokens.is(w.first, INSTITUTION_FIRST) && w.is_capital()
            || tokens.is(w.first, DISCOVERY) && (eponyms || len == 1)
    };
    if led.is_some_and(named_after) && !led.is_some_and(|w| tokens.is(w.first, TITLE)) {
        return true;
    }
    let particle = led.is_some_and(|w| tokens.is(w.first, PARTICLE) && !w.is_capital());
    let second = at.checked_sub(2).map(|i| &words[i]);
    particle
        && second.is_some_and(|w| {
            words[at - 1].joined == Some(0)
                && (tokens.is(w.first, INSTITUTION_FIRST)
                    || tokens.is(w.first, DISCOVERY) && (eponyms || !person))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::identity::reading::IdentityReading;

    fn names(text: &str) -> Vec<String> {
        let reading = IdentityReading::new(text);
        let mut hits = Vec::new();
        find_names(&Tokens::new(&reading), &mut hits);
        let shown = [IdentityClass::DoctorSurname, IdentityClass::Eponym];
        hits.retain(|hit| !shown.contains(&hit.class));
        hits.into_iter()
            .map(|hit| reading.cased[hit.range].to_owned())
            .collect()
    }

    /// Goal: people are found, and the whole name. Method: a table of names and contexts.
    #[test]
    fn people() {
        for (text, expect) in [
            ("Maria Silva reports chest pain", "Maria Silva"),
            (
                "the patient Kimberly Santiago was seen",
                "Kimberly Santiago",
            ),
            ("Name: Barker, Margaret", "Barker, Margaret"),
            ("MARIA SILVA", "MARIA SILVA"),
            ("Maria Alice H. Jesus", "Maria Alice H. Jesus"),
            ("João\nSilva", "Joao\nSilva"),
            ("J. Nakamura signed", "J. Nakamura"),
            ("Maria Silva. Test results are normal.", "Maria Silva"),
            ("Maria Silva disease history", "Maria Silva"),
            ("my name is maria silva", "maria silva"),
            ("his wife Joana was called", "Joana"),
            ("Ms. Barajas flew", "Barajas"),
            ("Maria Silva\nWarfarin 5 mg", "Maria Silva"),
            ("Dr. Sarah Warren (NPI 1565322280)", "Sarah Warren"),
            ("Dustin O'Neil and Ana Silva-Costa", "Dustin O'Neil"),
            ("J.R. Oyelaran was seen", "J.R. Oyelaran"),
            ("SOUZA MARIA, F, 29", "SOUZA MARIA"),
            ("VASQUEZ^ROSALINDA^M", "VASQUEZ^ROSALINDA^M"),
            ("souza, edvaldo: missed the visit", "souza, edvaldo"),
            ("mr patel called", "patel"),
            ("Hi Priyanka, your INR was 2.4", "Priyanka"),
            ("I reviewed Grace Field today", "Grace Field"),
            ("aqui é a Thayná, bom dia", "Thayna"),
        ] {
            assert_eq!(
                names(text).first().map(String::as_str),
                Some(expect),
                "{text}"
            );
        }
    }

    /// Goal: eponyms, medicines, hospitals and headings are no people. Method: a table.
    #[test]
    fn things() {
        for text in [
            "Parkinson's Disease since 1995",
            "Charcot-Marie-Tooth disease",
            "Guillain-Barre Syndrome",
            "Wolff-Parkinson-White syndrome",
            "Austin Flint murmur",
            "doença de Parkinson",
            "Referred by Dr Morgan; no new symptoms",
            "seen at Albert Einstein Hospital",
            "Hospital Santa Maria Silva",
            "Heart Rate and Blood Pressure",
            "List of Cardiology Patients",
            "Amiodarone Hydrochloride",
            "treated at Mayo Clinic",
            "CARD-001: Hypertension",
            "Foley catheter and Holter monitor",
            "Atopic Dermatitis and Plaque Psoriasis",
            "PR 160 ms, QRS 90 ms, QTc Bazett 430 ms",
            "re: INR result",
            "no E. Coli, H. Pylori or S. Aureus",
            "Manobra de Finkelstein, fio de Kirschner",
            "Stage IIIb, Paris Is",
        ] {
            assert_eq!(names(text), Vec::<String>::new(), "{text}");
        }
    }
}
