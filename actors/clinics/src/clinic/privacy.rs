//! Identifying data in the free texts of a clinic: what the clinic knows about its patients is
//! matched exactly, and cut out before a text leaves the clinic.

use std::borrow::Cow;

use super::messages::{Medication, PatientField, PatientRecord};
use crate::verifier::{IDENTITY_MARKS, IdentityKind, KnownIdentities, NameReach, redact_known};

/// Names and numbers of all patients of a clinic.
#[derive(Default)]
pub(super) struct PatientIdentities(KnownIdentities);

impl PatientIdentities {
    /// Adds a patient: full name, government id and phone number.
    pub fn insert(&mut self, name: &str, government_id: &str, phone: &str) {
        let known = &mut self.0;
        known.insert(IdentityKind::Name, name, NameReach::Full);
        known.insert(IdentityKind::Id, government_id, NameReach::Full);
        known.insert(IdentityKind::Phone, phone, NameReach::Full);
    }

    /// Returns a text without the names and numbers of patients, marks in their place; the text
    /// itself if it holds none.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        redacted(text, &self.0)
    }

    /// Cuts identifying data out of the free texts of a record: what `fields` of the record hold, and
    /// names and numbers of all patients.
    pub fn redact_record(&self, record: &mut PatientRecord, fields: &[PatientField]) {
        let own = own_identities(record, fields);
        let cut = |text: &mut String| {
            for known in [&own, &self.0] {
                if let Cow::Owned(redacted) = redacted(text, known) {
                    *text = redacted;
                }
            }
        };
        let PatientRecord {
            condition,
            notes,
            medications,
            ..
        } = record;
        cut(condition);
        cut(notes);
        medications.iter_mut().flat_map(texts).for_each(cut);
    }

    /// Cuts names and numbers of all patients out of the texts of medications.
    pub fn redact_medications(&self, medications: &mut [Medication]) {
        for text in medications.iter_mut().flat_map(texts) {
            if let Cow::Owned(redacted) = self.redact(text) {
                *text = redacted;
            }
        }
    }
}

/// Returns the free texts of a medication.
fn texts(medication: &mut Medication) -> [&mut String; 3] {
    let Medication {
        name,
        frequency,
        route,
        ..
    } = medication;
    [name, frequency, route]
}

/// Returns a text without the marks in place of identifying data, which nobody should search for.
pub(super) fn without_marks(text: &str) -> String {
    IDENTITY_MARKS
        .iter()
        .fold(text.to_owned(), |text, mark| text.replace(mark, " "))
}

fn redacted<'a>(text: &'a str, known: &KnownIdentities) -> Cow<'a, str> {
    redact_known(text, known).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Returns what the fields of a record hold, also each part of the name alone.
fn own_identities(record: &PatientRecord, fields: &[PatientField]) -> KnownIdentities {
    let mut known = KnownIdentities::default();
    for (field, kind) in [
        (PatientField::Name, IdentityKind::Name),
        (PatientField::BirthDate, IdentityKind::BirthDate),
        (PatientField::GovernmentId, IdentityKind::Id),
        (PatientField::Address, IdentityKind::Address),
        (PatientField::Phone, IdentityKind::Phone),
    ] {
        if let Some(text) = record.text(field).filter(|_| fields.contains(&field)) {
            known.insert(kind, text, NameReach::Parts);
        }
    }
    known
}
