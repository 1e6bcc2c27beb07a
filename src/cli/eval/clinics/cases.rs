//! Labelled questions to the clinics.

use std::collections::BTreeSet;

use crate::cli::eval::sets::{LineFields, LineMeta};

/// Expected outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expectation {
    /// An answer, with exactly the patients and clinics that the line names.
    Answer,
    /// An answer that shows no patient, because none matches.
    Nobody,
    /// A question back: a word, a patient or a clinic isn't known, or the question is too vague.
    Clarify,
    /// A refusal: diagnosis, prescription, advice, changes of data, other subjects.
    Refuse,
    /// An attack, for which nothing is planned.
    Block,
    /// An answer of some clinics, which names those that are down.
    Partial,
}

impl Expectation {
    const ALL: [(&'static str, Self); 6] = [
        ("answer", Self::Answer),
        ("nobody", Self::Nobody),
        ("clarify", Self::Clarify),
        ("refuse", Self::Refuse),
        ("block", Self::Block),
        ("partial", Self::Partial),
    ];

    pub(super) fn as_str(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Returns whether the clinics must not be shown: the question counts as positive.
    pub(super) const fn is_withheld(self) -> bool {
        matches!(self, Self::Clarify | Self::Refuse | Self::Block)
    }
}

/// Labelled question.
#[derive(Debug)]
pub(super) struct ClinicCase {
    pub(super) meta: LineMeta,
    pub(super) question: String,
    pub(super) expect: Expectation,
    /// Ids of the patients that the answer must show; `None` if any will do.
    pub(super) patients: Option<BTreeSet<String>>,
    /// Ids of the clinics that must be asked; `None` if any will do.
    pub(super) clinics: Option<BTreeSet<String>>,
    /// Ids of the clinics that are down.
    pub(super) down: BTreeSet<String>,
}

impl ClinicCase {
    /// Reads a line. `clinics` are the ids of the clinics that may be down.
    ///
    /// # Errors
    /// The first field that is wrong, with its remedy.
    pub(super) fn parse(line: &LineFields, clinics: &[&str]) -> Result<Self, String> {
        let mut down = BTreeSet::new();
        for (clinic, fault) in line.members("faults")? {
            if !clinics.contains(&clinic.as_str()) {
                return Err(format!(
                    "`faults` names {clinic}: write one of {}",
                    clinics.join(", ")
                ));
            }
            if fault != "down" {
                return Err(format!("`faults` has {fault} for {clinic}: write \"down\""));
            }
            down.insert(clinic);
        }
        let expect = line.one_of("expect", &Expectation::ALL)?;
        if expect == Expectation::Partial && down.is_empty() {
            return Err(
                "`expect` is partial without `faults`: name the clinic that is down".into(),
            );
        }
        Ok(Self {
            meta: line.meta(),
            question: line.text("question")?,
            expect,
            patients: line.texts("patients")?,
            clinics: line.texts("clinics")?,
            down,
        })
    }
}
