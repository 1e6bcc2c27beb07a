//! Rule R3: no diagnosing, no prescribing, no talking anybody out of seeing a doctor.

mod cue;

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

use cue::{CUES, Object};

use super::fold::fold;
use super::medicine::{is_medicine, stem};
use crate::text::{is_one_of, words};

/// What the text does that only a physician may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutOfScope {
    Diagnosing,
    Prescribing,
    Dissuading,
}

impl OutOfScope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Diagnosing => "diagnosing",
            Self::Prescribing => "prescribing",
            Self::Dissuading => "advising against medical care",
        }
    }
}

/// Words after a cue in which the condition or medicine must stand.
const OBJECT_WORDS_MAX: usize = 8;

/// How many different sentences of one answer are looked up in the records, which takes time for each. An answer with
/// more that only a physician may say is withheld.
pub(super) const QUOTES_MAX: usize = 256;

/// Letters by which the names of a condition in two languages are alike.
const CONDITION_LETTERS: usize = 7;

/// What the records say, folded: quoting them is safe.
pub(super) struct Records {
    folded: Vec<String>,
    /// Their words, one space apart; made when a first sentence needs them.
    plain: OnceCell<Vec<String>>,
    /// Sentences that were looked up, and whether a record has them.
    looked_up: RefCell<HashMap<String, bool>>,
    /// Each word, and how each long one begins; made when a first condition is looked up.
    vocabulary: OnceCell<HashSet<String>>,
}

impl Records {
    pub(super) fn new(folded: Vec<String>) -> Self {
        Self { folded, plain: OnceCell::new(), looked_up: RefCell::default(), vocabulary: OnceCell::new() }
    }

    /// Whether a sentence stands in the records word for word. Beyond [`QUOTES_MAX`] of them none is taken for a
    /// quotation.
    fn has(&self, sentence: &str) -> bool {
        let sentence = plain(sentence);
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
        let records = self.plain.get_or_init(|| self.folded.iter().map(|record| plain(record)).collect());
        let found = records.iter().any(|record| record.contains(&sentence));
        looked_up.insert(sentence, found);
        found
    }

    /// Whether a condition is in the records, perhaps in the other language: hypertension, hipertensao.
    fn name(&self, condition: &str) -> bool {
        let vocabulary = self.vocabulary.get_or_init(|| {
            let recorded = || self.folded.iter().flat_map(|record| words(record));
            let beginnings = recorded().filter(|word| word.len() >= CONDITION_LETTERS).map(beginning);
            recorded().map(str::to_owned).chain(beginnings).collect()
        });
        vocabulary.contains(condition) || vocabulary.contains(&beginning(condition))
    }
}

/// Marked, so that it isn't taken for a word.
fn beginning(word: &str) -> String {
    stem(word).chars().take(CONDITION_LETTERS).chain(['-']).collect()
}

fn plain(text: &str) -> String {
    words(text).collect::<Vec<_>>().join(" ")
}

/// The first out-of-scope sentence in `text` that is no quotation from `records`.
pub(super) fn find(text: &str, records: &Records) -> Option<OutOfScope> {
    let folded = fold(text);
    let sentences = folded.split(['\n', '!', ';']).flat_map(|line| line.split(". ")).map(str::trim);
    // Only a sentence that needs the excuse is looked up: with every sentence, a long answer took minutes.
    sentences.filter(|s| !s.is_empty()).find_map(|s| judge(s, records).filter(|_| !records.has(s)))
}

fn judge(sentence: &str, records: &Records) -> Option<OutOfScope> {
    let cues = CUES.as_ref().ok()?;
    let found = cues.iter().find(|cue| {
        cue.pattern.find_iter(sentence).any(|m| match cue.object {
            Object::Any => true,
            Object::Medicine => near(&sentence[m.end()..]).any(|w| is_medicine(w) || is_one_of(w, MEDICINE_WORDS)),
            Object::Condition => new_condition(&sentence[m.end()..], records),
            Object::AnyCondition => near(&sentence[m.end()..]).any(is_condition),
        })
    });
    found.map(|cue| cue.meaning)
}

fn near(rest: &str) -> impl Iterator<Item = &str> {
    words(rest).take(OBJECT_WORDS_MAX)
}

/// A condition that no record holds.
fn new_condition(rest: &str, records: &Records) -> bool {
    near(rest).any(|word| is_condition(word) && !records.name(word))
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
    // "dose" and "glucose" end as Portuguese names of diseases do.
    const NOT: &str = "dose glucose lactose purpose those close whose overdose hypotheses write website favorite \
        despite quite noite limite permite diagnosis prognosis chemistry diploma aroma coma suite site appetite \
        white invite opposite definite composite attention extension dimension prose rose nose lose loose choose \
        expose propose suppose requisite";
    is_one_of(word, WORDS)
        || word.len() > 4 && !is_one_of(word, NOT) && ENDINGS.split_ascii_whitespace().any(|e| word.ends_with(e))
}

const MEDICINE_WORDS: &str = "medication medications medicine medicines dose dosage doses drug drugs tablet tablets \
    pill pills treatment therapy antibiotic antibiotics insulin statin mg mcg medicamento medicamentos remedio \
    remedios medicacao dosagem comprimido comprimidos tratamento antibiotico insulina capsule capsules anticoagulant \
    anticoagulante steroid steroids diuretic blocker";
