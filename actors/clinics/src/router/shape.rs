//! Checks of a clinic's answer against what it was asked.

use callboard_message::text::{fold, folded_words, is_one_of};
use serde_json::{Map, Value};

use crate::plan::{ClinicRegistry, PATIENT_ID_CHARS_MAX, Step};

/// Reason a clinic's answer isn't the answer to its step, as the rest of a sentence about the clinic.
/// It quotes nothing of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ShapeError {
    #[error("answered about another patient")]
    OtherPatient,
    #[error("answered with patients of another clinic")]
    OtherClinic,
    #[error("answered another query")]
    OtherQuery,
    #[error("answered with a list where one patient's record was asked for")]
    ListForRecord,
    #[error("answered with one patient's record where a list was asked for")]
    RecordForList,
    #[error("answered with fields that its tool does not have")]
    UnknownField,
    #[error("answered without the fields that its tool has")]
    MissingField,
    #[error("answered with a field of the wrong type")]
    WrongType,
    #[error("answered with a dose that has no positive number or no known unit")]
    BadDose,
}

/// Text fields of a patient's record.
const RECORD_TEXTS: &str =
    "patient_id condition name birth_date government_id_scheme government_id address phone notes";

/// Checks that `answer` is what the step's tool declares (technical blueprint, section 2.4), and
/// about what the step asks for: the patient, or patients of the clinic. Members that may be absent
/// are `truncated`, `redacted`, `specialty`, `query`, and all of a record but its id.
pub(super) fn check_answer(
    step: &Step,
    answer: &Value,
    registry: &ClinicRegistry,
) -> Result<(), ShapeError> {
    let asked = |name: &str| {
        step.parameters
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let fields = match answer {
        Value::Object(fields) => fields,
        Value::Array(_) if !step.finds_patients() => return Err(ShapeError::ListForRecord),
        _ => return Err(ShapeError::WrongType),
    };
    match step.action.as_str() {
        "list_patients" => check_rows(fields, "patients", "patients truncated", step, registry),
        "query" => {
            for name in ["specialty", "query"] {
                check_type(fields, name, Value::is_string)?;
            }
            let told = fields.get("specialty").and_then(Value::as_str);
            let specialty = registry.clinic(&step.clinic).map(|c| c.specialty.as_str());
            if let (Some(told), Some(specialty)) = (told, specialty)
                && folded_words(told) != folded_words(specialty)
            {
                return Err(ShapeError::OtherQuery);
            }
            let echoed = fields.get("query").and_then(Value::as_str);
            if echoed.is_some_and(|text| folded_words(text) != folded_words(asked("query"))) {
                return Err(ShapeError::OtherQuery);
            }
            check_rows(
                fields,
                "matches",
                "specialty query matches truncated",
                step,
                registry,
            )
        }
        "get_patient" => {
            let record = match fields.get("patient") {
                Some(Value::Object(record)) => record,
                Some(Value::Array(_)) => return Err(ShapeError::ListForRecord),
                Some(_) => return Err(ShapeError::WrongType),
                None if has_list(fields) => return Err(ShapeError::ListForRecord),
                None => return Err(ShapeError::MissingField),
            };
            only_fields(fields, "patient")?;
            check_patient(record, asked("patient_id"))?;
            check_record(record)
        }
        "check_medications" => {
            if has_list(fields) {
                return Err(ShapeError::ListForRecord);
            }
            only_fields(fields, "patient_id medications")?;
            check_patient(fields, asked("patient_id"))?;
            check_medications(fields.get("medications").ok_or(ShapeError::MissingField)?)
        }
        // A checked plan has no other tool.
        _ => Ok(()),
    }
}

fn has_list(fields: &Map<String, Value>) -> bool {
    ["patients", "matches"]
        .iter()
        .any(|name| fields.contains_key(*name))
}

/// Checks that there are no other fields than `known`, words separated by spaces.
fn only_fields(fields: &Map<String, Value>, known: &str) -> Result<(), ShapeError> {
    match fields.keys().all(|key| is_one_of(key, known)) {
        true => Ok(()),
        false => Err(ShapeError::UnknownField),
    }
}

fn check_type(
    fields: &Map<String, Value>,
    name: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<(), ShapeError> {
    match fields.get(name) {
        Some(value) if !fits(value) => Err(ShapeError::WrongType),
        _ => Ok(()),
    }
}

/// Checks an answer with rows in the field `list`: each an id of the clinic and a condition.
fn check_rows(
    fields: &Map<String, Value>,
    list: &str,
    known: &str,
    step: &Step,
    registry: &ClinicRegistry,
) -> Result<(), ShapeError> {
    let rows = match fields.get(list) {
        Some(Value::Array(rows)) => rows,
        Some(_) => return Err(ShapeError::WrongType),
        None if ["patient", "medications"]
            .iter()
            .any(|name| fields.contains_key(*name)) =>
        {
            return Err(ShapeError::RecordForList);
        }
        None => return Err(ShapeError::MissingField),
    };
    only_fields(fields, known)?;
    check_type(fields, "truncated", Value::is_boolean)?;
    for row in rows {
        let row = row.as_object().ok_or(ShapeError::WrongType)?;
        only_fields(row, "patient_id condition")?;
        check_type(row, "condition", Value::is_string)?;
        let id = patient_id(row)?;
        if !row.contains_key("condition") {
            return Err(ShapeError::MissingField);
        }
        if !belongs_to(id, &step.clinic, registry) {
            return Err(ShapeError::OtherClinic);
        }
    }
    Ok(())
}

/// Returns whether a patient id may be one of the clinic: it has the clinic's prefix, if the registry
/// has one, and then digits with at most two letters; and it has no other clinic's. So no name can pass as
/// an id.
fn belongs_to(id: &str, clinic: &str, registry: &ClinicRegistry) -> bool {
    let prefix = registry.clinic(clinic).map_or("", |c| c.id_prefix.as_str());
    let has_prefix = id
        .get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let rest = id.get(prefix.len()..).unwrap_or_default();
    let letters = rest.chars().filter(char::is_ascii_alphabetic).count();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_number = letters <= 2 && rest.chars().all(is_part);
    has_prefix
        && (prefix.is_empty() || is_number)
        && registry.find_other_clinic(clinic, id).is_none()
}

/// Returns the `patient_id` of a row or record.
fn patient_id(fields: &Map<String, Value>) -> Result<&str, ShapeError> {
    match fields.get("patient_id") {
        Some(Value::String(id)) => match id.chars().count() {
            1..=PATIENT_ID_CHARS_MAX if !id.contains(char::is_control) && !id.trim().is_empty() => {
                Ok(id)
            }
            _ => Err(ShapeError::WrongType),
        },
        Some(_) => Err(ShapeError::WrongType),
        None => Err(ShapeError::MissingField),
    }
}

/// Checks that a record is that of the patient who was asked for, apart from case.
fn check_patient(record: &Map<String, Value>, asked: &str) -> Result<(), ShapeError> {
    match fold(patient_id(record)?) == fold(asked) {
        true => Ok(()),
        false => Err(ShapeError::OtherPatient),
    }
}

fn check_record(record: &Map<String, Value>) -> Result<(), ShapeError> {
    let is_text_list = |value: &Value| {
        let items = value
            .as_array()
            .map(|items| items.iter().all(Value::is_string));
        items.unwrap_or_default()
    };
    for (name, value) in record {
        match name.as_str() {
            "medications" => check_medications(value)?,
            "redacted" if is_text_list(value) => {}
            name if is_one_of(name, RECORD_TEXTS) && value.is_string() => {}
            name if name == "redacted" || is_one_of(name, RECORD_TEXTS) => {
                return Err(ShapeError::WrongType);
            }
            _ => return Err(ShapeError::UnknownField),
        }
    }
    Ok(())
}

fn check_medications(value: &Value) -> Result<(), ShapeError> {
    for medication in value.as_array().ok_or(ShapeError::WrongType)? {
        let medication = medication.as_object().ok_or(ShapeError::WrongType)?;
        only_fields(medication, "name dose unit frequency route")?;
        for name in ["name", "frequency", "route"] {
            match medication.get(name) {
                Some(Value::String(_)) => {}
                Some(_) => return Err(ShapeError::WrongType),
                None => return Err(ShapeError::MissingField),
            }
        }
        let dose = medication.get("dose").and_then(Value::as_f64);
        let unit = medication.get("unit").and_then(Value::as_str);
        let fits = dose.is_some_and(|dose| dose.is_finite() && dose > 0.0)
            && unit.is_some_and(is_dose_unit);
        if !fits {
            return Err(ShapeError::BadDose);
        }
    }
    Ok(())
}

/// Units of a dose, in folded form and without a plural `s`: of the SI and of UCUM for doses, and the
/// forms of a medicine that are counted.
const DOSE_UNITS: &str = "kg g mg mcg ug µg μg ng l ml dl cl iu ui u mu unit unidade unid meq mmol mol mcmol % permille \
    drop gota puff jato inhalation spray tablet tab comprimido cp capsule capsula cap patch adesivo ampoule ampola vial \
    frasco suppository supositorio sachet sache application aplicacao teaspoon tablespoon dose kcal mci mbq gbq cm cm2 \
    h hr hour min minute dia day kg m2 kg/m2";

/// Returns whether a text is the unit of a dose: a known one, or several with `/` between them, each
/// perhaps after a number: `mg/mL`, `mg/5 mL`.
fn is_dose_unit(text: &str) -> bool {
    let unit = |part: &str| {
        let part = fold(part);
        let part = part
            .trim()
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
        let part = part.trim().trim_end_matches('.');
        is_one_of(part, DOSE_UNITS)
            || part
                .strip_suffix('s')
                .is_some_and(|part| is_one_of(part, DOSE_UNITS))
    };
    let first = text.split('/').next().unwrap_or_default();
    !first.trim_start().starts_with(|c: char| c.is_ascii_digit()) && text.split('/').all(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::plan::samples::two_clinics;

    fn check(
        action: &str,
        parameter: Option<(&str, &str)>,
        answer: Value,
    ) -> Result<(), ShapeError> {
        check_answer(
            &Step::new(1, "clinic_a", action, parameter),
            &answer,
            &two_clinics(),
        )
    }

    const PATIENT: Option<(&str, &str)> = Some(("patient_id", "CARD-001"));
    const QUERY: Option<(&str, &str)> = Some(("query", "Heart failure"));

    /// Goal: what the four tools declare passes, with and without what may be absent. Method: rows.
    /// Rows: C-28, C-29, C-30, C-31.
    #[test]
    fn declared_shapes_pass() {
        let row = json!({ "patient_id": "CARD-001", "condition": "Angina" });
        let medication = json!({ "name": "Losartan", "dose": 12.5, "unit": "mg", "frequency": "daily", "route": "oral" });
        let record = json!({ "patient_id": "card-001", "condition": "Angina", "name": "n", "notes": "",
            "medications": [medication], "redacted": ["phone"] });
        for (action, parameter, answer) in [
            (
                "list_patients",
                None,
                json!({ "patients": [row], "truncated": true }),
            ),
            ("list_patients", None, json!({ "patients": [] })),
            (
                "query",
                QUERY,
                json!({ "specialty": "cardiology", "query": "heart  FAILURE", "matches": [row] }),
            ),
            ("query", QUERY, json!({ "matches": [] })),
            ("get_patient", PATIENT, json!({ "patient": record })),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": { "patient_id": "CARD-001" } }),
            ),
            (
                "check_medications",
                PATIENT,
                json!({ "patient_id": "CARD-001", "medications": [medication] }),
            ),
            (
                "check_medications",
                PATIENT,
                json!({ "patient_id": "CARD-001", "medications": [] }),
            ),
        ] {
            assert_eq!(
                check(action, parameter, answer.clone()),
                Ok(()),
                "{action} {answer}"
            );
        }
    }

    /// Goal: an answer about something else, or with other fields, is told apart. Method: rows, one a
    /// reason.
    #[test]
    fn other_answers_fail() {
        use ShapeError::*;
        let row = |id: &str| json!({ "patient_id": id, "condition": "Angina" });
        for (action, parameter, answer, reason) in [
            (
                "get_patient",
                PATIENT,
                json!({ "patient": row("CARD-002") }),
                OtherPatient,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": row("DERM-001") }),
                OtherPatient,
            ),
            (
                "check_medications",
                PATIENT,
                json!({ "patient_id": "CARD-0011", "medications": [] }),
                OtherPatient,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patients": [row("CARD-001")] }),
                ListForRecord,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": [row("CARD-001")] }),
                ListForRecord,
            ),
            (
                "get_patient",
                PATIENT,
                json!([row("CARD-001")]),
                ListForRecord,
            ),
            (
                "check_medications",
                PATIENT,
                json!({ "matches": [] }),
                ListForRecord,
            ),
            (
                "list_patients",
                None,
                json!({ "patient": row("CARD-001") }),
                RecordForList,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [row("CARD-001"), row("DERM-001")] }),
                OtherClinic,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [row("X-1")] }),
                OtherClinic,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [], "next": 1 }),
                UnknownField,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [{ "patient_id": "CARD-001", "condition": "x", "name": "n" }] }),
                UnknownField,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [{ "patient_id": "CARD-001" }] }),
                MissingField,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [{ "condition": "x" }] }),
                MissingField,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": "CARD-001" }),
                WrongType,
            ),
            (
                "list_patients",
                None,
                json!({ "patients": [], "truncated": "no" }),
                WrongType,
            ),
            ("list_patients", None, json!({}), MissingField),
            ("list_patients", None, json!(7), WrongType),
            (
                "query",
                QUERY,
                json!({ "query": "angina", "matches": [] }),
                OtherQuery,
            ),
            (
                "query",
                QUERY,
                json!({ "query": 1, "matches": [] }),
                WrongType,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": { "patient_id": "CARD-001", "ssn": "1" } }),
                UnknownField,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": { "patient_id": "CARD-001", "notes": [1] } }),
                WrongType,
            ),
            (
                "get_patient",
                PATIENT,
                json!({ "patient": { "patient_id": "CARD-001" }, "also": 1 }),
                UnknownField,
            ),
            (
                "check_medications",
                PATIENT,
                json!({ "patient_id": "CARD-001" }),
                MissingField,
            ),
        ] {
            assert_eq!(
                check(action, parameter, answer.clone()),
                Err(reason),
                "{action} {answer}"
            );
        }
    }

    /// Goal: a medication needs a number above zero and a unit of doses. Method: rows.
    #[test]
    fn doses_have_units() {
        for (dose, unit, fits) in [
            (json!(5), "mg", true),
            (json!(0.005), "%", true),
            (json!(10), "mg/mL", true),
            (json!(5), "mg/5 mL", true),
            (json!(2), "Tablets", true),
            (json!(100), "UI", true),
            (json!(50), "µg", true),
            (json!("50"), "mg", false),
            (json!(0), "mg", false),
            (json!(-1), "mg", false),
            (json!(5), "", false),
            (json!(5), "mg daily", false),
            (json!(5), "5 mg", false),
            (json!(5), "stones", false),
            (json!(5), "mg/", false),
        ] {
            let medication = json!({ "name": "x", "dose": dose, "unit": unit, "frequency": "daily", "route": "oral" });
            let answer = json!({ "patient_id": "CARD-001", "medications": [medication] });
            let expect = if fits {
                Ok(())
            } else {
                Err(ShapeError::BadDose)
            };
            assert_eq!(
                check("check_medications", PATIENT, answer),
                expect,
                "{dose} {unit}"
            );
        }
    }

    proptest! {
        /// Goal: no text of a unit or id panics. Method: any text.
        #[test]
        fn any_text_is_checked(text in "\\PC{0,20}") {
            let _ = is_dose_unit(&text);
            let row = json!({ "patient_id": text, "condition": text });
            let _ = check("list_patients", None, json!({ "patients": [row] }));
        }
    }
}
