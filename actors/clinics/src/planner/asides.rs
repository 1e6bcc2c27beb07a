//! Asides of the asker: what is said beside the question, such as a greeting, a reason or a complaint.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::corrections::without_retracted;
use super::orders::{folded, refuse_causative};
use super::phrases::RegistryPhrases;
use super::reading::{QuestionReading, SpelledQuery};
use super::refusal::PlanRefusal;
use super::tags::{PhraseTag, TaggedPhrase, next_phrase};
use super::tokens::QueryToken;
use super::vocabulary::{WordRole, word_role};
use crate::plan::ClinicRegistry;

/// Words that begin an aside within a sentence, in folded form: "…, because the wholesaler rang".
const CONJUNCTIONS: &str = "because cause cos coz cuz bc since porque pq pois";
/// Words before the subject line of a letter.
const HEADINGS: &str = "subject re assunto";
/// Words that close a letter, before the signature.
const CLOSINGS: &str =
    "regards sincerely cheers wishes atenciosamente cumprimentos obrigado obrigada abraco abracos";
/// Number of words from which on a clause doesn't close a letter.
const CLOSING_WORDS_MAX: usize = 6;
/// Words before a statement that belong to no part of it.
const LEADS: &str = "and because cause cos coz cuz since so and but well oh hi hello hey oi ola anyway honestly porque pq pois mas aqui";
/// Words by which a sentence tells of somebody else than the patients: "I only want to print as many".
const SUBJECTS: &str = "i i'm im i've ive i'd i'll myself we've we're he's she's it's its someone somebody they've they're \
                        someone's somebody's rang phoned asked asks asking said pergunta perguntam eu minha meu minhas meus mim comigo estou sou fui \
                        vou ela ele disse alguem ligou pediu perguntou perguntando mandou";
/// Words that refer to the patients asked for: "only those that she sees".
const REFERENCES: &str = "those these them they their ones who whom whose except rest others estes esses aqueles eles elas \
                          deles delas quem cujo outros outras";

/// First words of a courtesy, such as a greeting or an apology.
const COURTESIES: &str = "hope hoping thanks thank sorry apologies espero obrigado obrigada desculpa desculpe desculpas \
                          perdao congratulations parabens";
/// Words that may begin a statement about a thing: "the printer is broken".
const DETERMINERS: &str =
    "the my our your a an this that o os as um uma meu minha nosso nossa esse essa este esta";
/// Verbs of such a statement.
const FINITE_VERBS: &str = "ta sent is are was were has had will would should isn't aren't wasn't hasn't won't keeps went came looks seems \
                            broke says rings esta estao foi vai ficou caiu diz disse quebrou chegou para";
/// First words of a question that can be answered by yes or no.
const AUXILIARIES: &str = "should can could may might must do does did is are was were has have would will shall devo deve posso \
                           pode podem";
/// Auxiliaries that ask before a person, wherever they stand.
const MODALS: &str = "should can could may might must shall do does devo deve posso pode";
/// Words by which the asker wishes something or limits it, so that a statement may be part of the question.
const WISHES: &str = "want wants wanted need needs needed wish would i'd please only just mean meant except excluded exclude excluding \
                      without restrict restricted limit limited include included quero quer queria preciso precisa gostaria favor \
                      apenas somente so sem exceto excluindo excluido excluidos excluidas";
/// Wishes of somebody else than the asker.
const OTHERS_WISHES: &str = "wants wanted needs needed quer precisa";
/// First words of what may be wished of the answer.
const WISHED: &str = "the only just these those o os a as so apenas somente";
/// Words that tell of something else than patients where a statement has them, though a question selects by them: "the
/// lift stopped", "forty minutes on hold".
const TOLD_FILTERS: &str = "old lack lacks avoid avoids evitar stopped quit parou sort twenty thirty forty fifty sixty seventy eighty ninety hundred vinte trinta \
                            quarenta cinquenta sessenta setenta oitenta noventa";
/// Words for a day or a part of it. Longer times, such as `march`, may limit what is asked for.
const DAYS: &str = "monday tuesday wednesday thursday friday saturday sunday today yesterday tomorrow tonight hoje ontem amanha \
                    week";
/// Telephones as things: "the phone keeps ringing".
const DEVICES: &str = "phone telephone telefone celular";
/// Words before a mail that is a thing.
const MAIL_LEADS: &str = "my this that the one earlier previous last";
/// Words after a telephone that is a thing.
const DEVICE_STATES: &str = "is has isn't hasn't keeps kept rings rang won't was stopped nao esta toca tocou queue call calls line lines with";
/// Persons of whom advice may be asked, or a patient: "should I give it".
const ADVISED: &str = "i he she they we it ele ela eles elas eu";

/// Words after which an unknown one may narrow the question.
const PREPOSITIONS: &str =
    "from at in under by like named called only just em no na so somente apenas";

/// Part of a question between two signs, or from a conjunction on.
struct Segment {
    tokens: Range<usize>,
    sentence: usize,
    /// Whether it has a word that asks, such as `who` or `many`.
    asks: bool,
    /// Whether it names a clinic, a patient's id, a medicine, or a condition that clinics list.
    has_matter: bool,
    /// Whether it has another medical word: "my knee".
    has_medical_word: bool,
    /// Whether it names a clinic or a patient's id, or one that isn't registered.
    has_object: bool,
    /// Whether it may narrow what is asked for.
    may_narrow: bool,
    /// Whether it asks for what is refused, such as advice: then nothing of the question is left out.
    is_binding: bool,
    /// Whether it tells of somebody else, and doesn't refer to patients.
    is_statement: bool,
    /// Whether it can be quoted: it has no word that must not stand in an answer, such as advice.
    is_quotable: bool,
}

impl Segment {
    /// Returns whether it can be left out beside what is asked for.
    fn is_aside(&self) -> bool {
        !self.has_matter && !self.may_narrow && (!self.has_medical_word || self.is_statement)
    }

    /// Returns whether it can be left out beside a sentence that is a question by itself: it tells something,
    /// perhaps of the same matter.
    fn asks_nothing(&self) -> bool {
        let tells = self.is_statement && !self.has_object && !self.may_narrow;
        !self.asks && (tells || self.is_aside())
    }
}

/// Query without its asides.
pub(super) struct QueryWithoutAsides {
    pub rest: SpelledQuery,
    /// First words of the parts that are left out, to quote.
    pub left_out: Vec<String>,
    /// Whether a part that isn't quoted is left out too.
    pub has_unquoted: bool,
}

/// Returns the query without its asides, in one or more ways: first without all parts that are asides, then each
/// sentence that may be the question by itself, then without all parts that ask nothing. A part that might narrow
/// the question is no aside, and beside one that asks for what is refused nothing is left out.
pub(super) fn without_asides(
    query: &SpelledQuery,
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
) -> Vec<QueryWithoutAsides> {
    let reading = QuestionReading::new(query);
    let tokens = without_retracted(&query.tokens, registry, names, &reading);
    let segments = read_segments(&tokens, registry, names, &reading);
    if segments.iter().any(|segment| segment.is_binding) {
        return Vec::new();
    }
    let mut readings: Vec<Vec<bool>> = vec![segments.iter().map(|s| !s.is_aside()).collect()];
    let sentences = segments.last().map_or(0, |last| last.sentence + 1);
    for sentence in 0..sentences {
        let beside = segments.iter().filter(|s| s.sentence != sentence);
        if beside.clone().count() > 0 && beside.into_iter().all(Segment::asks_nothing) {
            let is_kept = |s: &Segment| s.sentence == sentence;
            readings.push(segments.iter().map(is_kept).collect());
            let is_kept = |s: &Segment| s.sentence == sentence && !s.is_aside();
            readings.push(segments.iter().map(is_kept).collect());
        }
    }
    readings
        .iter()
        .filter_map(|keeps| keep(query, &tokens, &segments, keeps))
        .collect()
}

/// Returns the query with these segments; `None` if they ask for nothing, or are all.
fn keep(
    query: &SpelledQuery,
    tokens: &[QueryToken],
    segments: &[Segment],
    keeps: &[bool],
) -> Option<QueryWithoutAsides> {
    let parts = || segments.iter().zip(keeps);
    let kept = || parts().filter(|(_, kept)| **kept).map(|(s, _)| s);
    let left = || parts().filter(|(_, kept)| !**kept).map(|(s, _)| s);
    if !kept().any(|s| s.has_matter || s.has_medical_word) || left().next().is_none() {
        return None;
    }
    let quotable = left().filter(|segment| segment.is_quotable);
    let left_out = quotable.map(|segment| beginning_of(&tokens[segment.tokens.clone()]));
    let rest = kept().flat_map(|segment| {
        let sign = tokens.get(segment.tokens.end);
        let sign = sign.filter(|token| token.as_word().is_none());
        tokens[segment.tokens.clone()].iter().chain(sign)
    });
    Some(QueryWithoutAsides {
        rest: query.with_tokens(rest.cloned().collect()),
        left_out: left_out.collect(),
        has_unquoted: left().any(|segment| !segment.is_quotable),
    })
}

/// Returns the first words of a part, to quote: as a whole it may read like advice to the reader.
fn beginning_of(tokens: &[QueryToken]) -> String {
    const WORDS_MAX: usize = 2;
    let words: Vec<&str> = tokens
        .iter()
        .filter_map(QueryToken::as_word)
        .map(|word| word.text.as_str())
        .collect();
    match words.get(..WORDS_MAX) {
        Some(first) if words.len() > WORDS_MAX => format!("{} …", first.join(" ")),
        _ => words.join(" "),
    }
}

fn read_segments(
    tokens: &[QueryToken],
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    let (mut start, mut sentence) = (0, 0);
    let (mut is_headed, mut is_signed) = (false, false);
    for end in 0..=tokens.len() {
        let is_sign = tokens
            .get(end)
            .is_none_or(|token| token.as_word().is_none());
        if is_sign || end > start && begins_aside(&tokens[end..]) {
            if end > start {
                let is_beside = is_headed || is_signed;
                let segment =
                    read_segment(tokens, (start..end, is_beside), registry, names, reading);
                segments.push(Segment {
                    sentence,
                    ..segment
                });
                // "Subject: valve meeting", "Kind regards, Ana"
                let words = &tokens[start..end];
                is_headed =
                    start == 0 && words.len() == 1 && is_one_of(folded(&words[0]), HEADINGS);
                is_signed |= start > 0
                    && words.len() < CLOSING_WORDS_MAX
                    && words.iter().any(|token| is_one_of(folded(token), CLOSINGS));
            }
            sentence += usize::from(tokens.get(end) == Some(&QueryToken::Stop));
            start = if is_sign { end + 1 } else { end };
        }
    }
    segments
}

/// Returns whether a conjunction begins an aside. `since` before a date or time narrows the question.
fn begins_aside(tokens: &[QueryToken]) -> bool {
    let word = |at: usize| tokens.get(at).and_then(QueryToken::as_word);
    let is_time = word(1).is_some_and(|word| {
        let role = word_role(&word.folded);
        word.folded.starts_with(|c: char| c.is_ascii_digit())
            || matches!(role, Some(WordRole::Time | WordRole::Relative))
    });
    let is_aim = matches!(
        (word(0).map(|w| &*w.folded), word(1).map(|w| &*w.folded)),
        (Some("so"), Some("i" | "we")) | (Some("para" | "pra"), Some("eu"))
    );
    is_aim || word(0).is_some_and(|word| is_one_of(&word.folded, CONJUNCTIONS)) && !is_time
}

fn read_segment(
    tokens: &[QueryToken],
    (range, is_beside): (Range<usize>, bool),
    registry: &ClinicRegistry,
    names: &RegistryPhrases,
    reading: &QuestionReading,
) -> Segment {
    let mut words = SegmentWords {
        has_subject: is_beside,
        is_english: reading.is_english,
        ..SegmentWords::default()
    };
    let leads = tokens[range.clone()]
        .iter()
        .take_while(|token| is_one_of(folded(token), LEADS));
    let start = range.start + leads.count();
    let mut at = range.start;
    while at < range.end {
        let word = folded(&tokens[at]);
        let next = tokens[..range.end].get(at + 1).map_or("", folded);
        match next_phrase(&tokens[at..range.end], registry, names, reading) {
            Ok((used, Some(phrase))) => {
                if let Some(nth) = at.checked_sub(start) {
                    words.read_place(nth, word, next);
                }
                words.read_tag(&phrase, (word, next), at <= start);
                words.is_led = matches!(
                    phrase.tag,
                    PhraseTag::Vocabulary(WordRole::Cue | WordRole::Taking | WordRole::Of)
                ) || is_one_of(word, PREPOSITIONS);
                let is_verb = words.begins_own && at == start + 2;
                words.is_had = is_verb && is_one_of(word, "had has got tem teve tinha")
                    || words.is_had && is_one_of(word, "a an the um uma o os as");
                words.before = word.to_owned();
                at += used;
            }
            // "the dental nurse rang": a specialty that isn't registered narrows a question only.
            Err(PlanRefusal::NoSuchSpecialty { .. }) => {
                words.may_narrow_question = true;
                at += 1;
            }
            // An id that isn't registered is refused.
            _ => {
                (words.has_matter, words.has_object) = (true, true);
                at += 1;
            }
        }
    }
    words.binds |= refuse_causative(&tokens[range.clone()]).is_err();
    words.into_segment(range)
}

/// Findings about the words of a segment.
#[derive(Default)]
struct SegmentWords {
    before: String,
    is_led: bool,
    asks: bool,
    has_matter: bool,
    has_medical_word: bool,
    has_object: bool,
    has_people: bool,
    /// Whether it has a word for what patients take, or for their records.
    has_data: bool,
    has_subject: bool,
    /// Whether it tells what the asker will do with the answer.
    is_aim: bool,
    refers: bool,
    /// Whether a wish or a word such as `only` makes it part of the question.
    wishes: bool,
    /// Whether it begins with an order or a question.
    requests: bool,
    is_courtesy: bool,
    has_determiner: bool,
    has_finite_verb: bool,
    /// Whether it begins with a thing without an article, and a verb: "sistema caiu".
    has_bare_subject: bool,
    /// Whether the question is in English, where `no` negates.
    is_english: bool,
    /// Whether somebody is in it whom advice may concern.
    is_advised: bool,
    /// Whether it may narrow what is asked for, unless it only tells something.
    may_narrow_question: bool,
    /// Whether it may narrow what is asked for in any case: by age, sex, year or dose.
    narrows: bool,
    /// Whether it begins with somebody of the asker's: "my neighbour".
    begins_own: bool,
    /// Whether a verb of having stands before, said of somebody of the asker's.
    is_had: bool,
    /// Whether it tells of a disease of somebody else: "my neighbour had a heart attack".
    is_of_outsider: bool,
    /// Whether it has a word of what is refused, which only tells something in a statement.
    may_bind: bool,
    is_unquotable: bool,
    has_advice: bool,
    /// Whether it asks for what is refused in any case.
    binds: bool,
}

impl SegmentWords {
    /// Reads the word at position `nth`, in folded form, and the one after it.
    fn read_place(&mut self, nth: usize, word: &str, next: &str) {
        const PURPOSES: &str = "for para pra pro que";
        // "it's for the audit", "é pra auditoria"
        let is_purpose =
            nth == 1 && is_one_of(word, PURPOSES) && is_one_of(&self.before, "it's its e isso is");
        self.has_subject |= is_one_of(word, SUBJECTS)
            || is_purpose
            || nth == 0 && (is_past(word) || is_progressive(word, next) || is_errand(word, next));
        self.begins_own |= nth == 0 && is_one_of(word, "my meu minha") && may_be_thing(next);
        // "so I can warn them"
        self.is_aim |= nth == 0 && is_one_of(word, "i we eu") && self.before == "so"
            || nth == 1 && word == "eu" && is_one_of(&self.before, "para pra");
        self.refers |= is_one_of(word, REFERENCES) && !self.is_aim;
        // "wants to know", "quer saber"
        let is_of_another = is_one_of(word, OTHERS_WISHES) && !is_one_of(next, WISHED);
        let is_to_do = next == "to" || is_infinitive(next);
        // "just got off the phone"
        let is_just_done =
            word == "just" && nth == 0 && is_one_of(next, "got came finished saw heard spoke");
        self.has_subject |= is_just_done;
        self.wishes |= is_one_of(word, WISHES) && !is_of_another && !is_to_do && !is_just_done;
        self.is_courtesy |= nth == 0 && is_one_of(word, COURTESIES);
        self.has_determiner |= nth == 0 && is_one_of(word, DETERMINERS);
        let is_finite = is_one_of(word, FINITE_VERBS) || is_past(word);
        self.has_finite_verb |= nth > 1 && is_finite;
        // "sistema caiu", "telefone não para"
        self.has_bare_subject |= nth == 1 && is_finite && may_be_thing(&self.before)
            || nth == 0 && is_one_of(word, DEVICES) && is_one_of(next, DEVICE_STATES);
        // "doctor should we double it"
        let is_inverted = is_one_of(word, MODALS) && is_one_of(next, ADVISED);
        self.requests |= nth == 0 && is_one_of(word, AUXILIARIES) || is_inverted;
        self.is_advised |= is_one_of(word, ADVISED);
        self.narrows |= word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
    }

    /// Reads the tag of a phrase; `word` and `next` are its first word and the one after that, in folded form.
    fn read_tag(&mut self, phrase: &TaggedPhrase, (word, next): (&str, &str), is_first: bool) {
        use WordRole::*;
        self.is_of_outsider |= self.is_had && matches!(phrase.tag, PhraseTag::Term(_));
        match &phrase.tag {
            PhraseTag::Clinic(..) | PhraseTag::Id(..) => {
                (self.has_object, self.has_matter) = (true, true);
            }
            PhraseTag::Term(term) if term.is_medicine || !term.clinics.is_empty() => {
                self.has_matter = true;
            }
            PhraseTag::Term(_) | PhraseTag::Weak => self.has_medical_word = true,
            PhraseTag::Number => self.may_narrow_question = true,
            PhraseTag::Vocabulary(Filter) if !is_one_of(word, TOLD_FILTERS) => self.narrows = true,
            PhraseTag::Vocabulary(Time) if !is_one_of(word, DAYS) => self.narrows = true,
            PhraseTag::Vocabulary(Rest | More | Both) => self.narrows = true,
            // "over sixty", "since monday"
            PhraseTag::Vocabulary(Relative) => {
                self.narrows |= is_number_or_time(next) && !is_one_of(next, DAYS);
                self.may_narrow_question = true;
            }
            PhraseTag::Vocabulary(Filter | Time | Negation | Qualifier | Form | Than) => {
                self.may_narrow_question = true;
            }
            PhraseTag::Vocabulary(Identity) if self.is_device(word, next) => self.may_bind = true,
            PhraseTag::Vocabulary(Identity | NameCue) if self.is_negated() => {}
            // "my earlier mail"
            PhraseTag::Vocabulary(Send)
                if is_one_of(word, "mail email e-mail") && is_one_of(&self.before, MAIL_LEADS) =>
            {
                self.is_unquotable = true;
            }
            PhraseTag::Vocabulary(Change | Send) if is_told_change(word, &self.before) => {
                self.may_bind = true;
            }
            // "hope your day is better than mine"
            PhraseTag::Vocabulary(Advice)
                if self.is_courtesy && is_one_of(word, "better best melhor") =>
            {
                (self.may_narrow_question, self.is_unquotable) = (true, true);
            }
            PhraseTag::Vocabulary(Advice) => (self.may_bind, self.has_advice) = (true, true),
            PhraseTag::Vocabulary(
                Combine | Change | Identity | Ignore | Send | Repeat | NameCue,
            ) => self.binds = true,
            PhraseTag::Vocabulary(Who | What | Count) => (self.asks, self.requests) = (true, true),
            PhraseTag::Vocabulary(Verb) if is_first && is_errand(word, next) => {}
            // "I can't find the chart"
            PhraseTag::Vocabulary(Verb)
                if is_one_of(&self.before, "can't cannot couldn't didn't") && self.has_subject => {}
            PhraseTag::Vocabulary(Verb) => {
                self.asks = true;
                // "need to see them"
                self.requests |= is_first || self.before == "to";
            }
            PhraseTag::Vocabulary(Patients | OnePatient) => {
                self.has_people |= !is_one_of(word, "someone somebody people");
            }
            PhraseTag::Vocabulary(Record | Medication | Dose) => {
                (self.has_people, self.has_data) = (true, true);
            }
            PhraseTag::Vocabulary(Taking) if word != "on" => self.has_data = true,
            // "with glorbix", "from Lisbon"
            PhraseTag::Unknown => {
                self.may_narrow_question |= self.is_led || phrase.capital && !is_first;
            }
            _ => {}
        }
    }

    /// Returns whether a word for a telephone means the thing: "the phone has been ringing", "on the phone".
    fn is_device(&self, word: &str, next: &str) -> bool {
        const ARTICLES: &str = "the my our o meu nosso this on no";
        is_one_of(word, DEVICES)
            && (is_one_of(&self.before, ARTICLES) || self.before.is_empty())
            && (is_one_of(next, DEVICE_STATES) || next.is_empty() || self.before == "no")
    }

    /// Returns whether the word before negates: "no names", "sem nomes".
    fn is_negated(&self) -> bool {
        is_one_of(&self.before, "without sem not nem") || self.is_english && self.before == "no"
    }

    /// Returns whether the words only tell something: they ask, order and wish nothing, and nobody asked for is in
    /// them.
    fn tell(&self) -> bool {
        let is_of_thing = self.has_determiner && self.has_finite_verb;
        (self.is_courtesy || self.has_subject || self.has_bare_subject || is_of_thing)
            && !self.wishes
            && !self.requests
            && !self.refers
            && !self.has_people
            && !self.has_matter
            && !self.narrows
    }

    fn into_segment(self, tokens: Range<usize>) -> Segment {
        let tells = self.tell();
        // "should I give it", "CARD-001 is tired, she should stop"
        let is_advice = self.has_advice
            && (self.has_medical_word || self.is_advised && (self.requests || !self.is_courtesy));
        Segment {
            tokens,
            sentence: 0,
            asks: self.asks && !tells,
            has_matter: self.has_matter,
            has_medical_word: self.has_medical_word,
            has_object: self.has_object,
            may_narrow: self.refers
                || self.narrows
                || self.may_narrow_question && !tells && !self.is_of_outsider
                || self.has_data && (self.asks || !self.has_subject),
            is_binding: self.binds || is_advice || self.may_bind && !tells,
            is_statement: (self.has_subject || self.is_of_outsider || tells) && !self.refers,
            is_quotable: !self.may_bind && !self.is_unquotable && !self.has_medical_word,
        }
    }
}

/// Returns whether a word for a change, or for sending, tells what was or is being done: "nothing was
/// forwarded".
fn is_told_change(word: &str, before: &str) -> bool {
    // "before I write it up"
    word.ends_with("ing")
        || word.ends_with("ed") && before != "be"
        || word == "write" && is_one_of(before, "i we")
}

/// Returns whether a word is a Portuguese infinitive that requests nothing: `avisar`, but not `mostrar`.
fn is_infinitive(word: &str) -> bool {
    const LETTERS_MIN: usize = 4;
    let is_free = matches!(word_role(word), None | Some(WordRole::Filler));
    word.len() >= LETTERS_MIN && is_free && ["ar", "er", "ir"].iter().any(|e| word.ends_with(e))
}

fn is_number_or_time(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        || matches!(word_role(word), Some(WordRole::Time | WordRole::Filter))
}

/// Returns whether a verb with an implied subject begins a statement: "writing up the poster", "tô digitando".
fn is_progressive(word: &str, next: &str) -> bool {
    const LETTERS_MIN: usize = 6;
    let is_verb = matches!(
        word_role(word),
        None | Some(WordRole::Change | WordRole::Send)
    );
    word.len() >= LETTERS_MIN && word.ends_with("ing") && is_verb
        || is_one_of(word, "to ta estou estamos") && next.ends_with("ndo")
}

/// Returns whether an errand of the asker's begins, with an implied subject: "need to split the pile", "preciso avisar
/// a farmácia", "tô com pressa".
fn is_errand(word: &str, next: &str) -> bool {
    is_one_of(word, "need want have preciso quero vou tenho")
        && (next == "to" || is_infinitive(next))
        || word == "to" && next == "com"
}

/// Returns whether a word may be the subject of a statement about a thing: it asks for nothing and for nobody.
fn may_be_thing(word: &str) -> bool {
    const POINTERS: &str = "this that it there one mine isso isto quem que";
    matches!(word_role(word), None | Some(WordRole::Filler)) && !is_one_of(word, POINTERS)
}

/// Returns whether a word ends as verbs in the past do, and is no word of a question: `arrived`, `parou`.
fn is_past(word: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        "ed", "ou", "eu", "iu", "aram", "eram", "iram", "ei", "eci", "erdi",
    ];
    const LETTERS_MIN: usize = 5;
    let is_free = matches!(
        word_role(word),
        None | Some(WordRole::Filler | WordRole::Filter)
    );
    let word = word.strip_suffix("-me").unwrap_or(word);
    word.len() >= LETTERS_MIN && is_free && ENDINGS.iter().any(|ending| word.ends_with(ending))
}
