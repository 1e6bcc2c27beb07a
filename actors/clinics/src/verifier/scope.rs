//! Rule R3: no diagnosing, no prescribing, no advice against seeing a doctor.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use CueObject::{Any, AnyCondition, Condition, Medicine};
use callboard_message::text::{is_one_of, words};
use regex::Regex;

use super::medicine::{is_medicine, stem};
use super::{fold, read_pattern};

/// Maximum distance, in words, from the cue of medical advice to the condition or medicine after it
/// that it concerns.
const OBJECT_WORDS_MAX: usize = 8;

/// Maximum number of different sentences of one answer that are searched for in the records, since
/// each search takes time. If more sentences give medical advice, the answer counts as unsafe.
pub(super) const QUOTES_MAX: usize = 256;

/// Number of leading letters of their stems ([`stem`]) by which words of at least that length are
/// compared, so that the English and the Portuguese name of a condition match. Shorter words are
/// compared as a whole.
const CONDITION_LETTERS: usize = 7;

/// Text of the records without echoes, in folded form. Sentences of three or more words that repeat
/// a part of one text span are quotations and thus not advice.
pub(super) struct RecordedText {
    /// Words of each text span of the records, separated by one space.
    plain: Vec<String>,
    /// Results of earlier searches: whether a sentence is in a record. At most [`QUOTES_MAX`] are
    /// made.
    looked_up: RefCell<HashMap<String, bool>>,
    /// All words of the records, and the keys of long ones by [`stem_key`]. Built when a condition
    /// is first searched for.
    vocabulary: OnceCell<HashSet<String>>,
}

impl RecordedText {
    pub fn new(folded: impl Iterator<Item = String>) -> Self {
        let plain = folded.map(|record| plain_words(&record)).collect();
        Self {
            plain,
            looked_up: RefCell::default(),
            vocabulary: OnceCell::new(),
        }
    }

    /// Returns whether a sentence of three or more words is in one text span of the records; its
    /// first and last word may be parts of longer ones. A shorter sentence never is. After
    /// [`QUOTES_MAX`] different sentences, it returns `false` for all others.
    fn has_sentence(&self, sentence: &str) -> bool {
        let sentence = plain_words(sentence);
        if words(&sentence).count() <= 2 {
            return false;
        }
        let mut looked_up = self.looked_up.borrow_mut();
        if let Some(found) = looked_up.get(&sentence) {
            return *found;
        }
        if looked_up.len() == QUOTES_MAX {
            return false;
        }
        let found = self.plain.iter().any(|record| record.contains(&sentence));
        looked_up.insert(sentence, found);
        found
    }

    /// Returns whether a condition, a single folded word, seems to be in the records. Long words
    /// are compared by the first [`CONDITION_LETTERS`] letters of their stems. So names that are
    /// alike in English and Portuguese are found (hypertension, hipertensao), but also other words
    /// with the same beginning.
    fn has_condition(&self, condition: &str) -> bool {
        let vocabulary = self.vocabulary.get_or_init(|| {
            let recorded = || self.plain.iter().flat_map(|record| words(record));
            let beginnings = recorded()
                .filter(|word| word.len() >= CONDITION_LETTERS)
                .map(stem_key);
            recorded().map(str::to_owned).chain(beginnings).collect()
        });
        vocabulary.contains(condition) || vocabulary.contains(&stem_key(condition))
    }
}

/// Returns the key under which the prefix of a word's stem is stored in the vocabulary. It is
/// marked, so that it never equals a whole word.
fn stem_key(word: &str) -> String {
    stem(word)
        .chars()
        .take(CONDITION_LETTERS)
        .chain(['-'])
        .collect()
}

fn plain_words(text: &str) -> String {
    words(text).collect::<Vec<_>>().join(" ")
}

/// Returns the kind of medical advice in the first sentence of `text` that gives some, such as
/// "prescribing"; `None` if none does, or if the patterns can't be compiled. Sentences quoted from
/// `records` aren't advice, nor are most statements that a person has a recorded condition.
pub(super) fn find_advice(text: &str, records: &RecordedText) -> Option<&'static str> {
    let folded = fold(text);
    let sentences = folded
        .split(['\n', '!', ';'])
        .flat_map(|line| line.split(". "))
        .map(str::trim);
    // Only sentences with advice are looked up: with all of them, a long answer took minutes.
    sentences
        .filter(|s| !s.is_empty())
        .find_map(|s| advice_in_sentence(s, records).filter(|_| !records.has_sentence(s)))
}

fn advice_in_sentence(sentence: &str, records: &RecordedText) -> Option<&'static str> {
    let cues = CUES.as_ref().ok()?;
    let found = cues.iter().find(|(_, object, patterns)| {
        patterns
            .iter()
            .flat_map(|pattern| pattern.find_iter(sentence))
            .any(|cue| {
                let mut near = words(&sentence[cue.end()..]).take(OBJECT_WORDS_MAX);
                match object {
                    Any => true,
                    Medicine => {
                        near.any(|word| is_medicine(word) || is_one_of(word, MEDICINE_WORDS))
                    }
                    Condition => {
                        near.any(|word| is_condition(word) && !records.has_condition(word))
                    }
                    AnyCondition => near.any(is_condition),
                }
            })
    });
    found.map(|(meaning, ..)| *meaning)
}

fn is_condition(word: &str) -> bool {
    const ENDINGS: &str = "itis osis emia aemia oma pathy algia plegia uria penia ectasis sclerosis rrhea ite ose \
        patia tensao tension cardia ritmia rhythmia monia phobia philia lepsy";
    const WORDS: &str = "cancer diabetes asthma asma stroke avc infarto infarction infarct angina epilepsy epilepsia \
        migraine enxaqueca depression depressao anxiety ansiedade covid flu gripe influenza tuberculosis tuberculose \
        hiv aids lupus psoriasis psoriase eczema rosacea acne melanoma hypertension hipertensao pneumonia fracture \
        fratura infection infeccao ulcer ulcera embolism embolia failure insuficiencia fibrillation fibrilacao \
        dementia demencia alzheimer parkinson syndrome sindrome disease doenca disorder transtorno allergy alergia \
        obesity obesidade gout gota vitiligo herpes measles sarampo dengue malaria sepsis sepse meningitis tumor \
        tumour hepatitis hepatite hypothyroidism hipotireoidismo leukemia leucemia lymphoma linfoma autism adhd copd \
        dpoc attack";
    // "dose" and "glucose" end like Portuguese names of diseases.
    const NOT: &str = "dose glucose lactose purpose those close whose overdose hypotheses write website favorite \
        despite quite noite limite permite diagnosis prognosis chemistry diploma aroma coma suite site appetite \
        white invite opposite definite composite attention extension dimension prose rose nose lose loose choose \
        expose propose suppose requisite";
    is_one_of(word, WORDS)
        || word.len() > 4
            && !is_one_of(word, NOT)
            && ENDINGS.split_ascii_whitespace().any(|e| word.ends_with(e))
}

const MEDICINE_WORDS: &str = "medication medications medicine medicines dose dosage doses drug drugs tablet tablets \
    pill pills treatment therapy antibiotic antibiotics insulin statin mg mcg medicamento medicamentos remedio \
    remedios medicacao dosagem comprimido comprimidos tratamento antibiotico insulina capsule capsules anticoagulant \
    anticoagulante steroid steroids diuretic blocker";

/// Kind of word that must be among the [`OBJECT_WORDS_MAX`] words after the cue of medical advice.
#[derive(Clone, Copy)]
enum CueObject {
    /// No further word is needed.
    Any,
    /// A medicine, or a word about medicines such as `dose` or `tratamento`.
    Medicine,
    /// A condition that no record has.
    Condition,
    /// Any condition: a guess isn't a quotation, even of a recorded condition.
    AnyCondition,
}

/// Row of the advice patterns: the kind of medical advice, the word that must follow the cue in its
/// sentence, and the patterns of the cues.
type CueRow<Patterns> = (&'static str, CueObject, Patterns);

static CUES: LazyLock<Result<Vec<CueRow<Vec<Regex>>>, regex::Error>> = LazyLock::new(|| {
    let read = |pattern: &&str| read_pattern(&format!(r"(?-u:\b)(?:{pattern})(?-u:\b)"));
    let rows = TABLE.iter();
    rows.map(|(meaning, object, patterns)| {
        Ok((
            *meaning,
            *object,
            patterns.iter().map(read).collect::<Result<_, _>>()?,
        ))
    })
    .collect()
});

const TABLE: &[CueRow<&[&str]>] = &[
    (
        "advising against medical care",
        Any,
        &[
            r"(?:no|any|without(?: the| any)?) need (?:to|for|of) (?:\w+ ){0,3}(?:see|seeing|visit|visiting|
            consult|consulting|call|calling|doctor|physician|hospital|emergency|specialist|medical)",
            r"(?:do not|don't|dont|needn't|need not|does not|doesn't|shouldn't|should not|
            never) (?:\w+ ){0,3}(?:see|visit|consult|call|go to|contact|bother) (?:\w+ ){0,3}(?:doctor|
            physician|hospital|er|emergency|specialist|cardiologist|dermatologist|clinic|gp|ambulance)",
            r"(?:instead of|rather than) (?:seeing|visiting|consulting|going to|
            calling) (?:\w+ ){0,3}(?:doctor|physician|hospital|specialist|emergency|er)",
            r"(?:you can|it is safe to|you may|safely) (?:safely )?ignore (?:\w+ ){0,3}(?:symptom|symptoms|
            pain|bleeding|result|results|warning)",
            r"(?:doctor|physician|medical (?:visit|attention|care|advice)) (?:is not|isn't|is un|
            are not) ?(?:necessary|needed|required)",
            r"nao (?:e |ha |tem |se )?(?:preciso|precisa|precisam|necessario|necessidade|necessita|
            deve)(?: de)? (?:\w+ ){0,3}(?:medico|medica|consultar|consulta|hospital|especialista|procurar|
            emergencia|pronto)",
            r"(?:em vez de|ao inves de) (?:ir|procurar|consultar) (?:\w+ ){0,3}(?:medico|hospital|especialista)",
            r"pode ignorar (?:\w+ ){0,3}(?:sintoma|sintomas|dor|sangramento|resultado)",
        ],
    ),
    (
        "prescribing",
        Medicine,
        &[
            r"(?:i|we) (?:would |strongly |also )?(?:recommend|suggest|advise|prescribe|propose|
            am prescribing|are prescribing)",
            r"(?:you|patient|patients|he|she|they|\w+-\d+)(?: \w+-\d+)? (?:should|must|needs to|need to|
            has to|have to|ought to|can|may|
            could)(?: now| safely| immediately| also| probably)? (?:not )?(?:be )?(?:take|taking|start|stop|begin|
            increase|reduce|decrease|double|
            halve|discontinue|switch|switched|started|stopped|replace|suspend|use|try|continue|taper|skip|
            given|prescribed|resume|change)",
            r"(?:^|[,:*\-] ?|please |then |and |now )(?:take|start|stop|begin|increase|reduce|decrease|double|
            halve|discontinue|switch to|replace|suspend|skip|taper|resume|initiate|add|prescribe|give|
            administer|try)",
            r"(?:it is|it's|would be|is) (?:safe|best|advisable|recommended|better|time|okay|ok|
            fine) (?:for \w+ )?to (?:take|start|stop|increase|reduce|decrease|discontinue|switch|double|
            skip|combine|mix)",
            r"(?:stopping|starting|discontinuing|increasing|reducing|doubling|taking) (?:\w+ ){0,3}(?:is|
            would be) (?:recommended|advisable|advised|best|safe)",
            r"(?:consider|recommended|suggested|advisable|should be|best) (?:to )?(?:taking|starting|stopping|
            increasing|reducing|decreasing|doubling|discontinuing|switching|adding|start|stop|increase|
            reduce|discontinue|switch|add)(?: to)?",
            r"(?:recomendo|recomendamos|sugiro|sugerimos|aconselho|prescrevo|receito|indico)",
            r"(?:deve|devem|deveria|precisa|pode|tem que|tem de|
            necessita)(?: imediatamente| agora| ja)? (?:tomar|iniciar|parar|comecar|aumentar|reduzir|diminuir|dobrar|
            suspender|interromper|
            trocar|substituir|usar|continuar)",
            r"(?:^|[,:*\-] ?|por favor |entao |e )(?:tome|pare|inicie|comece|aumente|reduza|diminua|dobre|
            suspenda|interrompa|troque|substitua|use|continue)",
            r"(?:recomenda-se|sugere-se|indica-se|recomendado|aconselhavel|melhor)(?: a| o)? (?:iniciar|
            inicio|suspender|suspensao|aumentar|aumento|reduzir|reducao|parar|tomar|uso|interromper)",
        ],
    ),
    (
        "prescribing",
        Any,
        &[
            r"(?:your|his|her|the|their|this) (?:dose|dosage|medication|medicine|treatment) (?:should|must|
            can|needs to|has to|could) be (?:\w+ )?(?:increased|reduced|decreased|doubled|halved|stopped|
            changed|discontinued|suspended|started)",
        ],
    ),
    (
        "diagnosing",
        AnyCondition,
        &[
            r"(?:you|patient|he|she|they|\w+-\d+) (?:probably|likely|possibly|may|might|could|must|
            almost certainly|seems? to|appears? to|certainly|surely|definitely) (?:also )?(?:have|has|be|
            suffer|is|be having)",
            r"(?:my diagnosis|i diagnose|we diagnose|i am diagnosing|i'm diagnosing|i think (?:you|it|
            the patient|this)|i believe (?:you|it|the patient|this)|i conclude|in my opinion|
            meu diagnostico|eu diagnostico|diagnostico com)",
            r"(?:symptoms?|findings|results?|rash|lesions?|signs?|this|these|it) (?:strongly |clearly |
            probably |likely |would )?(?:suggests?|indicates?|points? to|are consistent with|
            is consistent with|means?|confirms?|looks like|are typical of|is typical of|is probably|
            is likely)",
            r"(?:voce|paciente|ele|ela|\w+-\d+) (?:provavelmente|possivelmente|talvez|deve|pode|parece|
            certamente) (?:ter|tem|tenha|estar|sofrer|esteja)",
            r"(?:sintomas?|achados|resultados?|lesoes|isso|isto) (?:\w+ )?(?:sugerem?|indicam?|apontam? para|
            significam?|confirmam?|sao compativeis com|e compativel com|parecem?)",
        ],
    ),
    (
        "diagnosing",
        Condition,
        &[
            r"(?:you|patient|he|she|you've|youre|you're)(?: \w+-\d+)? (?:have|has|got|suffers? from|
            are suffering from|is suffering from|are having|is having|is diagnosed with|are diagnosed with|
            developed|now have|now has)",
            r"\w+-\d+ (?:has|suffers from|is suffering from|is diagnosed with)",
            r"(?:the |new |final |likely |probable |most likely )?diagnosis(?: is|:| of| would be| must be)",
            r"(?:voce|paciente|ele|ela)(?: \w+-\d+)? (?:tem|esta com|sofre de|possui|apresenta|desenvolveu)",
            r"(?:o )?diagnostico (?:e|provavel|final|mais provavel)",
        ],
    ),
];
