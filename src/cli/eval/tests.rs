use std::time::Duration;

use serde_json::json;

use super::metrics::{Detection, Durations};
use super::privacy::{compare_spans, parse_spans, personal_ranges};
use super::sets::{LineFields, parse_lines};
use super::texts::TextEval;

fn detection(counts: [usize; 4]) -> Detection {
    let [
        true_positives,
        false_positives,
        false_negatives,
        true_negatives,
    ] = counts;
    Detection {
        true_positives,
        false_positives,
        false_negatives,
        true_negatives,
    }
}

/// Goal: the numbers are the usual ones. Method: counts with results computed by hand, and without
/// any line.
/// Rows: C-40.
#[test]
fn numbers_are_those_computed_by_hand() {
    let some = detection([6, 2, 3, 9]);
    assert_eq!(some.all(), 20);
    assert_eq!(some.precision().share(), Some(0.75));
    assert_eq!(some.recall().accuracy(), 6.0 / 9.0);
    assert_eq!(some.false_positive_rate().accuracy(), 2.0 / 11.0);
    assert_eq!(some.f1(), Some(12.0 / 17.0));
    assert_eq!(some.accuracy().share(), Some(0.75));
    let none = detection([0; 4]);
    assert_eq!((none.precision().share(), none.f1()), (None, None));
    assert_eq!(detection([0, 0, 1, 0]).f1(), Some(0.0));
}

/// Goal: percentiles are of the measured times. Method: 1 to 100 µs in any order, and none.
#[test]
fn percentiles() {
    let mut durations = Durations::default();
    for us in (1..=100).rev() {
        durations.add(Duration::from_micros(us));
    }
    assert_eq!(durations.microseconds(), [100.0, 50.0, 99.0]);
    assert_eq!(Durations::default().microseconds(), [0.0; 3]);
}

/// Goal: places are counted in characters. Method: personal data behind letters of several bytes.
#[test]
fn places_are_counted_in_characters() {
    let text = "Coração: jose@example.com, João: ana@example.com";
    let found = personal_ranges(text, &[]);
    let words = |range: &std::ops::Range<usize>| -> String {
        text.chars().skip(range.start).take(range.len()).collect()
    };
    let found: Vec<String> = found.iter().map(words).collect();
    assert!(found.contains(&"jose@example.com".to_owned()), "{found:?}");
    assert!(found.contains(&"ana@example.com".to_owned()), "{found:?}");
}

/// Goal: a place counts if it overlaps, and a decoy never does. Method: two names of which one is
/// found, an eponym that is found.
#[test]
fn places_are_compared_by_overlap() {
    let spans =
        json!([[0, 5, "NAME"], {"start": 10, "end": 15, "type": "name"}, [20, 25, "EPONYM"]]);
    let text = "x".repeat(30);
    let spans = parse_spans(spans.as_array().unwrap(), &text).unwrap();
    let counts = compare_spans(&spans, &[4..7, 21..22]);
    assert_eq!((counts.labelled.correct, counts.labelled.all), (1, 2));
    assert_eq!((counts.found.correct, counts.found.all), (1, 2));
    assert_eq!(counts.f1(), Some(0.5));
}

/// Goal: a mistake is named with its line and its remedy. Method: for each evaluation a good line,
/// and bad ones after it.
#[test]
fn mistakes_name_line_and_remedy() {
    let good = [
        r#"{"text":"t","records":[],"label":"true"}"#,
        r#"{"text":"t","label":"harmless","place":"answer"}"#,
        r#"{"text":"t","spans":[[0,1,"NAME"]],"more":1,"kind":null}"#,
        r#"{"text":"t","label":0,"source":7}"#,
    ];
    let bad: [&[(&str, &str)]; 4] = [
        &[
            (r#"{"text":"t","label":"true"}"#, "`records` is missing"),
            (
                r#"{"text":"t","records":{},"label":"true"}"#,
                "`records` must be an array",
            ),
            (
                r#"{"text":"t","records":[],"label":"wrong"}"#,
                "write one of altered, true",
            ),
        ],
        &[(
            r#"{"text":"t","label":"advice","place":"note"}"#,
            "write one of answer, record",
        )],
        &[
            (r#"{"text":"t"}"#, "`spans` is missing"),
            (
                r#"{"text":"t","spans":[[0,2,"NAME"]]}"#,
                "within the text's 1",
            ),
            (
                r#"{"text":"t","spans":[[1,1,"NAME"]]}"#,
                "write [start, end",
            ),
            (r#"{"text":1,"spans":[]}"#, "`text` must be a string"),
        ],
        &[
            (r#"{"text":"t","label":2}"#, "write one of 1, 0"),
            (r#"{"label":1}"#, "`text` is missing: write a string"),
            ("[]", "write one JSON object a line"),
            ("{", "write one JSON object a line"),
        ],
    ];
    for ((eval, good), bad) in TextEval::ALL.into_iter().zip(good).zip(bad) {
        let parse = |line: LineFields| eval.parse(line);
        assert_eq!(parse_lines("f.jsonl", good, parse).unwrap().len(), 1);
        for (line, remedy) in bad {
            let text = format!("{good}\n\n{line}\n");
            let error = parse_lines("f.jsonl", &text, parse).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("f.jsonl, line 3: "), "{error}");
            assert!(error.contains(remedy), "{error}");
        }
    }
    let twice = concat!(
        r#"{"id":"a","text":"t","label":0}"#,
        "\n",
        r#"{"id":"a","text":"t","label":0}"#
    );
    let error = parse_lines("f.jsonl", twice, |line| TextEval::Guard.parse(line)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "f.jsonl, line 2: a is the `id` of an earlier line: give each line its own"
    );
}
