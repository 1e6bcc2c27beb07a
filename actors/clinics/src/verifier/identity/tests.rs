use serde_json::{Value, json};

use super::*;
use crate::verifier::{Identities, Rule, Verified, Verify};

fn records() -> Value {
    json!({"patient": {
        "patient_id": "CARD-001",
        "name": "Maria Conceição Silva",
        "cpf": "529.982.247-25",
        "address": "Rua das Acácias, 120, Campinas",
        "phone": "+55 11 91234-5678",
        "birth_date": "1958-03-12",
        "condition": "Hypertension",
        "medications": [{"name": "Amiodarone", "dose": "200 mg", "frequency": "once daily"}],
        "notes": "Sleeps well."
    }})
}

fn verify(results: Value, text: &str, identities: Identities) -> Verified {
    Verify {
        records: vec![records()],
        results,
        text: text.to_owned(),
        identities,
    }
    .check()
}

/// Checks the text that is shown in place of `text`, and that the answer stays safe.
fn shown(text: &str, expect: &str) {
    let verified = verify(Value::Null, text, Identities::Withheld);
    assert_eq!(verified.text, expect, "{text}");
    let verdict = verified.verdict;
    assert!(
        verdict.safe && verdict.rule.is_none() && verdict.note == "OK",
        "{text}: {verdict:?}"
    );
    assert_eq!(verdict.redactions > 0, text != expect, "{text}");
    let rules: Vec<Rule> = verdict
        .findings
        .iter()
        .map(|finding| finding.rule)
        .collect();
    assert_eq!(!rules.is_empty(), text != expect, "{text}");
    assert!(rules.iter().all(|rule| *rule == Rule::R2), "{text}");
}

/// Goal: one name costs that name, not the answer. Method: a name of the records in each spelling,
/// inside a sentence.
/// Rows: C-7, C-24.
#[test]
fn names_are_cut_out() {
    for name in [
        "Maria Silva",
        "Silva, Maria",
        "M. Silva",
        "M. C. Silva",
        "MARIA SILVA",
        "MARIA CONCEICAO SILVA",
        "maria conceicao silva",
        "Maria\nSilva",
        "Ma\u{200b}ria Sil\u{00ad}va",
        "TWFyaWEgU2lsdmE=",
        "M a r i a S i l v a",
    ] {
        shown(
            &format!("CARD-001: {name} has hypertension."),
            "CARD-001: [name] has hypertension.",
        );
    }
    shown(
        "see https://example.org/p/maria-silva now",
        "see https://example.org/p/[name] now",
    );
    shown(
        "write to maria.silva@example.org now",
        "write to [e-mail] now",
    );
}

/// Goal: government ids are cut out, with right and wrong check digits. Method: one of each scheme,
/// with a label.
/// Rows: C-24.
#[test]
fn government_ids_are_cut_out() {
    for (right, wrong) in [
        ("SSN 123-45-6789", "SSN 000-45-6789"),
        ("CPF 390.533.447-05", "CPF 390.533.447-06"),
        ("NHS number 943 476 5919", "NHS number 943 476 5918"),
        ("NIF 123456789", "NIF 123456780"),
        ("Aadhaar 2345 6789 0124", "Aadhaar 2345 6789 0123"),
    ] {
        for text in [right, wrong] {
            let label = text
                .split(|c: char| c.is_ascii_digit())
                .next()
                .unwrap_or("");
            shown(
                &format!("{text}, seen today"),
                &format!("{label}[id], seen today"),
            );
        }
    }
    shown(
        "CARD-001 (390.533.447-05): seen today",
        "CARD-001 ([id]): seen today",
    );
}

/// Goal: eponyms, medicines and hospitals stay. Method: a table.
/// Rows: C-24.
#[test]
fn eponyms_medicines_and_hospitals_stay() {
    for text in [
        "Parkinson's disease",
        "Wolff-Parkinson-White syndrome",
        "Crohn's disease and Hashimoto thyroiditis",
        "takes amiodarone 200 mg once daily",
        "treated at Mayo Clinic",
        "seen at Albert Einstein Hospital",
        "Dr Morgan saw CARD-001.",
    ] {
        shown(text, text);
    }
}

/// Goal: no note repeats personal data, whatever rule it is of. Method: answers that break a rule
/// beside personal data.
/// Rows: C-24.
#[test]
fn notes_are_silent() {
    for text in [
        "John Kelly, SSN 123-45-6789, j.doe@example.com takes Kelly 400 mg daily.",
        "John Kelly should stop warfarin.",
        "John Kelly",
    ] {
        let verdict = verify(Value::Null, text, Identities::Withheld).verdict;
        let notes: Vec<&str> = verdict.findings.iter().map(|f| f.note.as_str()).collect();
        let told = format!("{} {}", verdict.note, notes.join(" "));
        for secret in ["Kelly", "123-45-6789", "example.com"] {
            assert!(!told.contains(secret), "{told}");
        }
    }
}

/// Goal: a caller with permission sees recorded identities, and no others. Method: known and
/// unknown values, two patients in one line.
#[test]
fn permission_shows_what_is_recorded() {
    let other = json!({"patient": {"patient_id": "CARD-002", "name": "João Souza Lima"}});
    let check = |text: &str| {
        let asked = Verify {
            records: vec![records(), other.clone()],
            results: records(),
            text: text.to_owned(),
            identities: Identities::AsRecorded,
        };
        asked.check()
    };
    for text in [
        "CARD-001: Maria Conceição Silva, CPF 529.982.247-25, Rua das Acácias, 120, born 12/03/1958",
        "CARD-001 Maria Silva CARD-002 João Lima",
        "Maria Silva João Souza Lima",
    ] {
        let verified = check(text);
        assert_eq!(verified.text, text);
        assert_eq!(verified.results, records());
        assert_eq!(verified.verdict.redactions, 0, "{text}");
    }
    assert_eq!(check("CARD-001: John Kelly").text, "CARD-001: [name]");
    assert_eq!(check("CARD-001: Maria Lima").text, "CARD-001: [name]");
}

/// Goal: results are cut as the text is: by their keys, and inside texts and numbers. Method: the
/// records themselves, and a note.
#[test]
fn results_are_cut_out() {
    let results = json!({"patient": {"patient_id": "CARD-001", "name": "Maria Conceição Silva", "cpf": 52998224725_u64,
        "note": "Maria sleeps well, call 11 91234-5678", "number": 52998224725_u64, "age": 64}});
    let verified = verify(results, "", Identities::Withheld);
    let expect = json!({"patient": {"patient_id": "CARD-001", "name": "[name]", "cpf": "[id]",
        "note": "[name] sleeps well, call [phone]", "number": "[id]", "age": 64}});
    assert_eq!(verified.results, expect);
    assert_eq!(verified.verdict.redactions, 5);
    assert!(verified.verdict.safe);
}

/// Goal: what can't be cut out withholds the answer. Method: a name as a key, encoded as a key, and
/// spread over several values.
#[test]
fn what_cannot_be_cut_withholds_the_answer() {
    for results in [
        json!({"Maria Silva": 1}),
        json!({"TWFyaWEgU2lsdmE=": 1}),
        json!(["M", "a", "r", "i", "a", "S", "i", "l", "v", "a"]),
        json!({"a": "529", "b": ["982", "247"], "c": 25}),
    ] {
        let verified = verify(results.clone(), "fine", Identities::Withheld);
        assert_eq!(verified.verdict.rule, Some(Rule::R2), "{results}");
        assert!(verified.results.is_null() && verified.text.is_empty());
    }
}

/// Goal: classes can be shown. Method: relatives, doctors and places, each with the other setting.
#[test]
fn settings_apply() {
    let text =
        "Dr. Sarah Warren told his wife Joana Prado, who lives in Porto Alegre. Crohn disease.";
    let find = |policy: &IdentityPolicy| {
        let found = find_personal_data(text, &[], policy).into_iter();
        found.map(|span| &text[span.range]).collect::<Vec<_>>()
    };
    let default = IdentityPolicy::default();
    assert_eq!(
        find(&default),
        ["Sarah Warren", "Joana Prado", "Porto Alegre"]
    );
    let relaxed = default
        .with(IdentityClass::DoctorName, Disclosure::Show)
        .with(IdentityClass::RelativeName, Disclosure::Show)
        .with(IdentityClass::Place, Disclosure::Show);
    assert_eq!(find(&relaxed), Vec::<&str>::new());
    let strict = relaxed.with(IdentityClass::Eponym, Disclosure::Redact);
    assert_eq!(find(&strict), ["Crohn"]);
}

const ANY_TEXT: &str = concat!(
    r"(?s)((Maria|Silva|SSN|born|Rua|tel|at|\+|%4|&#|\\u00|[0-9]{1,4})[ .,/:-]?){0,12}",
    r"[\PC%=.,'-]{0,60}.{0,30}",
);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]

    /// Goal: no text makes the search panic, and nothing is left in what is shown. Method: any
    /// characters, with beginnings of personal data.
    #[test]
    fn any_text_is_cut(text in ANY_TEXT) {
        let records = [records()];
        let policy = IdentityPolicy::default();
        for span in find_personal_data(&text, &records, &policy) {
            proptest::prop_assert!(text.get(span.range).is_some());
        }
        let verified = verify(Value::Null, &text, Identities::Withheld);
        let left = find_personal_data(&verified.text, &records, &policy);
        proptest::prop_assert!(left.is_empty(), "{}", verified.text);
    }
}
