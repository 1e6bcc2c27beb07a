//! Rule R3: no diagnosing, no prescribing, no talking anybody out of seeing a doctor.

mod cue;

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

/// Letters by which the names of a condition in two languages are alike.
const CONDITION_LETTERS: usize = 7;

/// The first out-of-scope sentence in `text`. `recorded` holds what the records say, folded: quoting them is safe.
pub(super) fn find(text: &str, recorded: &[String]) -> Option<OutOfScope> {
    let folded = fold(text);
    let sentences = folded.split(['\n', '!', ';']).flat_map(|line| line.split(". ")).map(str::trim);
    // Records are searched for the few sentences that need the excuse: for each one, a long answer took minutes.
    sentences.filter(|s| !s.is_empty()).find_map(|s| judge(s, recorded).filter(|_| !quotes_record(s, recorded)))
}

/// A sentence that stands in the records word for word.
fn quotes_record(sentence: &str, recorded: &[String]) -> bool {
    let plain = |s: &str| words(s).collect::<Vec<_>>().join(" ");
    let sentence = plain(sentence);
    words(&sentence).count() > 2 && recorded.iter().any(|r| plain(r).contains(&sentence))
}

fn judge(sentence: &str, recorded: &[String]) -> Option<OutOfScope> {
    let cues = CUES.as_ref().ok()?;
    let found = cues.iter().find(|cue| {
        cue.pattern.find_iter(sentence).any(|m| match cue.object {
            Object::Any => true,
            Object::Medicine => near(&sentence[m.end()..]).any(|w| is_medicine(w) || is_one_of(w, MEDICINE_WORDS)),
            Object::Condition => new_condition(&sentence[m.end()..], recorded),
            Object::AnyCondition => near(&sentence[m.end()..]).any(is_condition),
        })
    });
    found.map(|cue| cue.meaning)
}

fn near(rest: &str) -> impl Iterator<Item = &str> {
    words(rest).take(OBJECT_WORDS_MAX)
}

/// A condition that no record holds.
fn new_condition(rest: &str, recorded: &[String]) -> bool {
    near(rest)
        .filter(|w| is_condition(w))
        .any(|w| !recorded.iter().any(|r| words(r).any(|word| same_condition(word, w))))
}

/// The same word, in English or Portuguese: hypertension, hipertensao.
fn same_condition(a: &str, b: &str) -> bool {
    let start = |word: &str| stem(word).chars().take(CONDITION_LETTERS).collect::<String>();
    a == b || a.len() >= CONDITION_LETTERS && start(a) == start(b)
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
