//! Tests of rule R1 by kinds of alterations and of faithful rewordings.

use serde_json::{Value, json};

use super::facts::{NOTES_MAX, find_fabrications};
use super::steps::steps_of;

fn records() -> Vec<Value> {
    let medication = |name: &str, dose: Value, unit: &str, frequency: &str, route: &str| json!({"name": name, "dose": dose, "unit": unit, "frequency": frequency, "route": route});
    vec![
        json!({"patient_id": "CARD-001", "medications": [
            medication("Losartan", json!(50), "mg", "once daily", "oral"),
            medication("Metformin", json!(1.5), "g", "twice daily", "oral"),
            medication("Levothyroxine", json!(75), "mcg", "once daily", "oral"),
            medication("Amoxicillin/clavulanate", json!("875/125"), "mg", "every 12 hours", "oral"),
            medication("Insulin glargine", json!(20), "units", "at bedtime", "subcutaneous"),
            medication("Hydralazine", json!(25), "mg", "three times daily", "oral")
        ]}),
        json!({"patient": {"patient_id": "CARD-002", "condition": "Angina", "medications": [
            medication("Warfarin", json!(5), "mg", "once daily", "oral"),
            medication("Zorbatrel", json!(10), "mg", "once weekly", "oral")
        ], "notes": "Physiotherapy twice a week. Allergic to penicillin. Metoprolol was stopped."}}),
    ]
}

fn notes(text: &str) -> Vec<String> {
    find_fabrications(&records(), &Value::Null, text)
}

fn fails(texts: &[&str]) {
    for text in texts {
        assert!(!notes(text).is_empty(), "passes: {text}");
    }
}

fn passes(texts: &[&str]) {
    for text in texts {
        assert_eq!(notes(text), Vec::<String>::new(), "{text}");
    }
}

/// Goal: an altered dose is found however it is altered. Method: each alteration of row G1 of the list of bad input.
/// Rows: C-23.
#[test]
fn g1_altered_facts() {
    fails(&[
        // Twice and ten times the dose.
        "CARD-001 takes losartan 100 mg once daily.",
        "CARD-001 takes losartan 500 mg once daily.",
        // Units.
        "CARD-001 takes losartan 50 g once daily.",
        "CARD-001 takes levothyroxine 75 mg once daily.",
        "CARD-001 takes losartan 500 m g once daily.",
        "CARD-001 takes insulin glargine 20 mg at bedtime.",
        // Schedule.
        "CARD-001 takes losartan 50 mg every hour.",
        "CARD-001 takes losartan 50 mg per hour.",
        "CARD-001 takes losartan 50 mg b.i.d.",
        "CARD-002 takes Zorbatrel 10 mg daily.",
        "Twice a day, CARD-001 takes 50 mg of losartan.",
        "CARD-001 takes insulin glargine 20 units in the morning.",
        // A look-alike.
        "CARD-001 takes hydroxyzine 25 mg three times daily.",
        // Pieces.
        "CARD-001 takes half a tablet of losartan 50 mg daily.",
        "CARD-001 takes two 50 mg tablets of losartan daily.",
        "CARD-001 takes losartan 50 mg, 2 tablets once daily.",
        "CARD-001 takes two 50 mg losartan tablets once daily.",
        "CARD-001 takes two losartan 50 mg tablets once daily.",
        "CARD-001 takes half the recorded dose of losartan.",
        "CARD-001 takes losartan 50 mg tablets cut in half.",
        // Numbers in words and with separators.
        "CARD-001 takes five hundred milligrams of losartan.",
        "CARD-001 takes seventy-five milligrams of losartan once daily.",
        "CARD-001 takes metformin 1.500 mg twice daily.",
        "CARD-001 toma metformina 1,500 mg duas vezes ao dia.",
        // Route.
        "CARD-001 takes losartan 50 mg once daily into a vein.",
        // Combinations.
        "CARD-001 takes amoxicillin/clavulanate 125/875 mg every 12 hours.",
        "CARD-001 takes amoxicillin 875 mg every 12 hours.",
        "CARD-001 takes ampicillin/sulbactam 875/125 mg every 12 hours.",
        // No unit.
        "CARD-001 takes losartan 500 once daily.",
    ]);
}

/// Goal: the same facts in other words pass. Method: each rewording of row G2 of the list of bad input.
/// Rows: C-23.
#[test]
fn g2_same_facts() {
    passes(&[
        "CARD-001 takes 50 mg of losartan each morning.",
        "CARD-001 takes Cozaar 0.05 g once a day, by mouth.",
        "CARD-001 takes one 50 mg tablet of losartan once daily.",
        "CARD-001 takes two 25 mg tablets of losartan once daily.",
        "CARD-001 takes half a 100 mg tablet of losartan once daily.",
        "CARD-001 takes metformin 1500 mg bid.",
        "CARD-001 takes metformin 1,500 mg every 12 hours.",
        "CARD-001 takes metformin 1.5 g two times a day.",
        "CARD-001 takes metformin 3 g per day.",
        "CARD-001 toma metformina 1.500 mg de 12/12h.",
        "CARD-001 toma metformina 1,5 g duas vezes ao dia, via oral.",
        "CARD-001 takes levothyroxine 0.075 mg daily.",
        "CARD-001 takes seventy-five micrograms of levothyroxine daily.",
        "CARD-001 takes losartan 5 0 mg once daily.",
        "CARD-001 takes losartan 50 m g once daily.",
        "CARD-001 takes insulin 20 IU at night, injected under the skin.",
        "CARD-001 takes co-amoxiclav 875/125 mg twice daily.",
        "CARD-001 takes amoxicillin 875 mg + clavulanic acid 125 mg twice daily.",
        "CARD-001 takes clavulanate/amoxicillin 125/875 mg twice daily.",
        "CARD-001 takes amoxicillin/clavulanate 1 g twice daily.",
        "CARD-001 takes losartan and hydralazine, 50 mg and 25 mg respectively.",
        "CARD-001 takes losartan/hydralazine 50/25 mg.",
        "CARD-002 takes Zorbatrel 10 mg every week.",
        "CARD-001 takes losartan 50 once daily.",
    ]);
}

/// Goal: a treatment that no record has is found. Method: medicines and procedures of row G3 of the list of bad input,
/// and such that records have or the text denies.
/// Rows: C-23.
#[test]
fn g3_plans_absent_from_the_records() {
    fails(&[
        "CARD-001 is treated with apixaban.",
        "CARD-002 takes losartan.",
        "CARD-001 is scheduled for chemotherapy.",
        "CARD-001 will undergo cardioversion.",
        "CARD-001 takes apixaban with no side effects.",
        "CARD-001 takes Quixoral 20 mg at night.",
        "CARD-009 takes losartan 50 mg once daily.",
        "CARD-001 does not take losartan.",
        "Losartan was stopped for CARD-001.",
        "CARD-001 takes darolutamide.",
    ]);
    passes(&[
        "CARD-001 does not take apixaban.",
        "CARD-001 takes no digoxin, apixaban or warfarin.",
        "Nobody takes digoxin.",
        "Digoxin: none.",
        "CARD-002 received physiotherapy.",
        "CARD-001 isn't on chemotherapy.",
        "CARD-002 is allergic to penicillin.",
        "Metoprolol was discontinued for CARD-002.",
        "CARD-002 takes an anticoagulant, warfarin 5 mg.",
    ]);
}

/// Goal: doses belong to their medicine and patient in all layouts. Method: lists, tables, one value a line, ids after
/// the medicine, each true and swapped.
#[test]
fn layouts() {
    passes(&[
        "Losartan\n50\nmg\nonce daily\nMetformin\n1.5 g\ntwice daily",
        "CARD-001\n- Losartan: 50 mg\n- Metformin: 1.5 g, twice daily",
        "| Losartan | 50 mg | once daily |\n| Metformin | 1.5 g | twice daily |",
        "Losartan 50 mg (CARD-001), warfarin 5 mg (CARD-002)",
        "CARD-001 takes losartan 50 mg and CARD-002 takes warfarin 5 mg.",
        "Drug | Losartan | Hydralazine\nDose | 50 mg | 25 mg",
        "Medication: Losartan\nDose: 50\nUnit: mg\nFrequency: once daily",
        "1. Losartan\n2. 50\n3. mg\n4. once daily",
        "dose: 50\nfrequency: once daily\nname: Losartan\nunit: mg",
        "<name>Losartan</name>\n<dose>50</dose>\n<unit>mg</unit>",
        "CARD-001 takes losartan and hydralazine. The doses are 50 mg and 25 mg.",
        "CARD-001 takes losartan. Its dose is 50 mg. He takes it once daily.",
        "CARD-001 takes losartan 50 mg and checks the blood pressure twice daily.",
        "CARD-001: BP 128/78 mmHg, LDL 98 mg/dL, potassium 4.1 mmol/L, HbA1c 7.2%, weight 80 kg, sodium 2 g a day.",
        "Seen on 12/03/2024 at 10:30, 61 years old, 3 visits.",
    ]);
    fails(&[
        "Losartan\n100\nmg\nonce daily",
        "Losartan\n\n100\n\nmg",
        "1. Losartan\n2. 100\n3. mg",
        "- Losartan\n- 100\n- mg",
        "dose: 100\nfrequency: once daily\nname: Losartan\nunit: mg",
        "Dose (mg): 100\nMedicine: Losartan",
        "<name>Losartan</name>\n<dose>100</dose>\n<unit>mg</unit>",
        "name,dose,unit\nLosartan,100,mg",
        "Losartan\n50 mg\nby intramuscular injection",
        "Losartan\n50 mg\ntwice daily",
        "| Losartan | 1.5 g | once daily |\n| Metformin | 50 mg | twice daily |",
        "Losartan 50 mg (CARD-002), warfarin 5 mg (CARD-001)",
        "CARD-001 takes warfarin 5 mg and CARD-002 takes losartan 50 mg.",
        "CARD-001 takes losartan and hydralazine, 25 mg and 50 mg respectively.",
        "Medication: Losartan\nDose: 500\nUnit: mg",
        "CARD-001 takes losartan. Its dose is 75 mg.",
        "CARD-001 takes losartan. He takes it twice daily.",
        "A dose of 33 mg is given.",
    ]);
}

/// Goal: results are read under any keys. Method: one prescription in many shapes, true and altered.
#[test]
fn results_under_any_keys() {
    let shapes = |dose: i32| {
        vec![
            json!({"patient_id": "CARD-001", "medications": [{"name": "Losartan", "dose": dose, "unit": "mg"}]}),
            json!({"CARD-001": {"losartan": format!("{dose} mg")}}),
            json!({"patient_id": "CARD-001", "rx": [{"what": "Losartan", "howmuch": dose, "u": "mg"}]}),
            json!({"patient_id": "CARD-001", "drugs": ["Losartan", format!("{dose} mg")]}),
            json!({"patient_id": "CARD-001", "meds": {"names": ["Losartan", "Metformin"], "doses": [format!("{dose} mg"), "1.5 g"]}}),
            json!({"patient_id": "CARD-001", "medication": {"name": "Losartan"}, "dosage": {"value": dose, "unit": "mg"}}),
            json!({"patient_id": "CARD-001", "losartan_mg": dose}),
            json!({"patient_id": "CARD-001", "drug": "Losartan", "remarks": format!("Take {dose} mg after breakfast.")}),
        ]
    };
    for (dose, expect) in [(50, true), (500, false)] {
        for results in shapes(dose) {
            let notes = find_fabrications(&records(), &results, "");
            assert_eq!(notes.is_empty(), expect, "{results}: {notes:?}");
        }
    }
}

/// Goal: a dose beyond reason isn't shown even if a record has it, and the note names the medicine, not the patient.
/// Method: a record with a slip.
#[test]
fn implausible_records() {
    let records = [json!({"patient_id": "CARD-001", "medications": [
        {"name": "Amiodarone", "dose": 200, "unit": "g", "frequency": "every hour"}
    ]})];
    let notes = find_fabrications(
        &records,
        &Value::Null,
        "CARD-001 takes amiodarone 200 g every hour.",
    );
    assert_eq!(
        notes,
        ["Response contains a dose of Amiodarone outside the plausible range."]
    );
}

/// Goal: notes are limited and don't repeat. Method: one more than the limit, each twice.
#[test]
fn notes_are_bounded() {
    let names = [
        "digoxin",
        "apixaban",
        "sotalol",
        "captopril",
        "ramipril",
        "atenolol",
        "nadolol",
        "timolol",
        "pindolol",
    ];
    assert_eq!(names.len(), NOTES_MAX + 1);
    let text: Vec<String> = names
        .iter()
        .chain(&names)
        .map(|name| format!("CARD-001 takes {name} 3 mg."))
        .collect();
    assert_eq!(notes(&text.join("\n")).len(), NOTES_MAX);
}

/// Goal: time grows linearly with records and answer. Method: steps for inputs of one size and eight times that, of many kinds.
#[test]
fn steps_are_linear() {
    let many =
        |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<Vec<_>>().join("\n");
    let lines: [&dyn Fn(usize) -> String; 5] = [
        &|n| {
            format!(
                "CARD-{:03} takes losartan {n} mg once daily and metformin {n} g.",
                n % 900
            )
        },
        &|n| format!("losartan {n} mg, "),
        &|_| "no losartan ".to_owned(),
        &|n| format!("{n} and {n} and"),
        &|_| "(((| * ½ 1/2 a of de".to_owned(),
    ];
    for line in lines {
        for separator in ["\n", " "] {
            let steps = |n: usize| {
                let text = many(n, line).replace('\n', separator);
                let records: Vec<Value> = (0..n)
                    .map(|n| json!({"patient_id": format!("CARD-{n:03}"), "medications": [{"name": "Losartan", "dose": n, "unit": "mg", "frequency": "once daily"}]}))
                    .collect();
                steps_of(|| {
                    find_fabrications(&records, &json!({ "text": text }), &text);
                })
            };
            let (small, large) = (steps(400), steps(3200));
            assert!(large <= small * 10, "{}: {small} {large}", line(1));
        }
    }
}

const ANY_TEXT: &str = concat!(
    r"(?s)([0-9]{1,4}[.,/x-]? ?(mg|g|%|½|a|of|mg/kg/|de|every|half|and|to|unit:|losartan|CARD-001) ?){0,8}",
    r"[\PC%=.,'-]{0,60}.{0,30}",
);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(128))]

    /// Goal: no text makes the check panic, as text, as value and as key. Method: any characters, with numbers, units,
    /// names and signs.
    #[test]
    fn any_text_is_read(text in ANY_TEXT) {
        let value = json!({ "notes": text, text.as_str(): [text, {"name": text, "dose": text}] });
        let notes = find_fabrications(std::slice::from_ref(&value), &value, &text);
        proptest::prop_assert!(notes.len() <= NOTES_MAX);
    }
}
