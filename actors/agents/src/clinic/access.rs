use std::collections::BTreeSet;

use callboard_message::{Principal, PrincipalKind};

use super::config::ClinicConfig;
use super::error::ClinicError;
use super::record::{DataClass, Field, PatientView, Record};
use super::search::words;

/// The scope that lets a principal other than the local operator ask for identities.
pub const IDENTITY_SCOPE: &str = "patient.identity";
/// The purpose for which identities are answered where the topology names none.
pub const PURPOSE_DEFAULT: &str = "treatment";

/// A word of a name this long, in characters, gives its bearer away in a note; shorter ones are "de", "van", initials.
const NAME_WORD_CHARS_MIN: usize = 3;

/// Field-level policy: who may see which field, and for what.
#[derive(Debug)]
pub(super) struct Access {
    identifying: BTreeSet<Field>,
    purposes_allowed: Vec<String>,
}

impl Access {
    pub fn new(config: &ClinicConfig) -> Result<Self, ClinicError> {
        let class = |field: Field| config.classes.get(&field).copied().unwrap_or_else(|| field.class_default());
        let identifying: BTreeSet<_> = Field::ALL.into_iter().filter(|f| class(*f) == DataClass::Identifying).collect();
        for field in [Field::PatientId, Field::Condition] {
            if identifying.contains(&field) {
                return Err(ClinicError::FieldIsListed { field });
            }
        }
        Ok(Self { identifying, purposes_allowed: config.purposes_allowed.clone() })
    }

    /// Whether the principal may be told by this clinic who a patient is.
    pub fn may_identify(&self, principal: &Principal) -> bool {
        may_identify(principal, &self.purposes_allowed)
    }

    /// Whether the principal may see the field.
    pub fn may_see(&self, field: Field, principal: &Principal) -> bool {
        !self.identifying.contains(&field) || self.may_identify(principal)
    }

    /// Whether a search may look at the field. The same for everyone, so that a search is never a way to an identity.
    pub fn is_searchable(&self, field: Field) -> bool {
        !self.identifying.contains(&field)
    }

    /// The record without what the principal may not see.
    pub fn view(&self, record: Record, principal: &Principal) -> PatientView {
        let mut redacted: Vec<Field> = Field::ALL.into_iter().filter(|f| !self.may_see(*f, principal)).collect();
        if !redacted.is_empty() && !redacted.contains(&Field::Notes) && notes_identify(&record) {
            redacted.push(Field::Notes);
        }
        let seen = |field: Field, value: String| (!redacted.contains(&field)).then_some(value);
        PatientView {
            name: seen(Field::Name, record.name),
            birth_date: seen(Field::BirthDate, record.birth_date),
            government_id_scheme: seen(Field::GovernmentIdScheme, record.government_id_scheme),
            government_id: seen(Field::GovernmentId, record.government_id),
            address: seen(Field::Address, record.address),
            phone: seen(Field::Phone, record.phone),
            notes: seen(Field::Notes, record.notes),
            medications: (!redacted.contains(&Field::Medications)).then_some(record.medications),
            patient_id: record.patient_id,
            condition: record.condition,
            redacted,
        }
    }
}

/// Whether the principal may be told who a patient is: it must be the local operator or hold [`IDENTITY_SCOPE`], and it
/// must ask for one of the purposes that are allowed. Neither is enough alone.
pub(crate) fn may_identify(principal: &Principal, purposes_allowed: &[String]) -> bool {
    let trusted =
        principal.kind == PrincipalKind::LocalOperator || principal.scopes.iter().any(|s| s == IDENTITY_SCOPE);
    let purpose_fits = principal.purpose.as_ref().is_some_and(|p| purposes_allowed.contains(p));
    trusted && purpose_fits
}

/// Whether the free text says who the patient is: a word of the name, or a number, date or address as in the file.
/// Such notes are withheld with the identity and not searched.
pub(super) fn notes_identify(record: &Record) -> bool {
    let notes = words(&record.notes);
    let names_patient =
        words(&record.name).iter().any(|part| part.chars().count() >= NAME_WORD_CHARS_MIN && notes.contains(part));
    let joined = notes.concat();
    let quotes_field = [Field::BirthDate, Field::GovernmentId, Field::Address, Field::Phone]
        .into_iter()
        .filter_map(|field| record.text(field))
        .map(|text| words(text).concat())
        .any(|text| !text.is_empty() && joined.contains(&text));
    names_patient || quotes_field
}
