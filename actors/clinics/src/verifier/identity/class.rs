//! Classes of personal data, and the policy that says which of them are cut out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verifier::spans::IdentityKind;

/// Class of personal data that the verifier finds in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdentityClass {
    /// Name of a patient, or of a person whose role isn't known.
    Name,
    /// Full name of a doctor, nurse or other professional, by the title or role beside it.
    DoctorName,
    /// Family name of a doctor alone behind the title, as in `Dr Morgan`.
    DoctorSurname,
    /// Name of a relative or contact, by the role before it.
    RelativeName,
    /// Name of a person after whom a disease, sign or score is called, as in `Crohn's disease`.
    Eponym,
    /// Place where a person lives or comes from.
    Place,
    /// Number or code that identifies a person, such as a CPF, a passport or a record number.
    Id,
    /// Postal address, part of one with street or postcode, or coordinates.
    Address,
    /// Telephone or fax number.
    Phone,
    /// E-mail address.
    Email,
    /// Date of birth.
    BirthDate,
}

/// Treatment of a class of personal data in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disclosure {
    /// Data of the class is replaced by the class in brackets.
    Redact,
    /// Data of the class stays.
    Show,
}

const CLASSES: usize = 11;

/// Treatment of each class of personal data that isn't in the records. What the records hold about
/// a person is always cut out, unless the caller may see it.
///
/// By default, all is cut out but eponyms and family names of doctors behind a title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPolicy {
    by_class: [Disclosure; CLASSES],
}

impl Default for IdentityPolicy {
    fn default() -> Self {
        Self::showing(&[IdentityClass::Eponym, IdentityClass::DoctorSurname])
    }
}

impl IdentityPolicy {
    /// Creates a policy that shows these classes, and redacts all others.
    pub fn showing(classes: &[IdentityClass]) -> Self {
        let all = Self {
            by_class: [Disclosure::Redact; CLASSES],
        };
        let show = |policy: Self, class: &IdentityClass| policy.with(*class, Disclosure::Show);
        classes.iter().fold(all, show)
    }

    /// Sets the treatment of a class.
    pub fn with(mut self, class: IdentityClass, disclosure: Disclosure) -> Self {
        self.by_class[class as usize] = disclosure;
        self
    }

    /// Returns the treatment of a class.
    pub fn disclosure(&self, class: IdentityClass) -> Disclosure {
        self.by_class[class as usize]
    }
}

impl IdentityClass {
    /// Mark that replaces data of the class.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Name
            | Self::DoctorName
            | Self::DoctorSurname
            | Self::RelativeName
            | Self::Eponym => "[name]",
            Self::Place => "[place]",
            Self::Id => "[id]",
            Self::Address => "[address]",
            Self::Phone => "[phone]",
            Self::Email => "[e-mail]",
            Self::BirthDate => "[date of birth]",
        }
    }

    /// Returns the class in words, as the notes of verdicts state it.
    pub(in crate::verifier) fn description(self) -> &'static str {
        match self {
            Self::Name
            | Self::DoctorName
            | Self::DoctorSurname
            | Self::RelativeName
            | Self::Eponym => "a person's name",
            Self::Place => "a place of residence",
            Self::Id => "an identification number",
            Self::Address => "an address",
            Self::Phone => "a phone number",
            Self::Email => "an e-mail address",
            Self::BirthDate => "a date of birth",
        }
    }
}

impl From<IdentityKind> for IdentityClass {
    fn from(kind: IdentityKind) -> Self {
        match kind {
            IdentityKind::Name | IdentityKind::NamePart => Self::Name,
            IdentityKind::Id => Self::Id,
            IdentityKind::Address => Self::Address,
            IdentityKind::Phone => Self::Phone,
            IdentityKind::Email => Self::Email,
            IdentityKind::BirthDate => Self::BirthDate,
        }
    }
}

/// Marks of all classes; they are never searched.
pub(crate) const IDENTITY_MARKS: [&str; 7] = [
    "[name]",
    "[place]",
    "[id]",
    "[address]",
    "[phone]",
    "[e-mail]",
    "[date of birth]",
];

/// Returns the length of the mark at the beginning of a text; 0 if there is none.
pub(super) fn mark_len(text: &str) -> usize {
    IDENTITY_MARKS
        .iter()
        .find(|mark| text.starts_with(**mark))
        .map_or(0, |mark| mark.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each class has a setting of its own, and the documented default. Method: every class, one changed.
    #[test]
    fn classes_have_settings() {
        use IdentityClass::*;
        let all = [
            Name,
            DoctorName,
            DoctorSurname,
            RelativeName,
            Eponym,
            Place,
            Id,
            Address,
            Phone,
            Email,
            BirthDate,
        ];
        assert_eq!(all.len(), CLASSES);
        for class in all {
            let shown = matches!(class, Eponym | DoctorSurname);
            let default = IdentityPolicy::default();
            assert_eq!(
                default.disclosure(class) == Disclosure::Show,
                shown,
                "{class:?}"
            );
            let changed = default.with(class, Disclosure::Redact);
            assert_eq!(changed.disclosure(class), Disclosure::Redact);
            assert_eq!(mark_len(class.mark()), class.mark().len());
        }
    }
}
