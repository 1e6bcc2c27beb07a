//! Duration of one verification of an answer of 2 KiB with the records of three patients: the first of
//! the process, which reads the word lists, and then 20,000 more. With `--check` the bench fails above
//! the limits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use callboard_clinics::verifier::{Identities, Verify};
use serde_json::{Value, json};

/// Size of the answer's text, in bytes.
const ANSWER_BYTES: usize = 2 << 10;
const ROUNDS: usize = 20_000;
/// Largest duration of the first verification of a process.
const FIRST_MAX: Duration = Duration::from_millis(5);
/// Largest 99th percentile of the others.
const P99_MAX: Duration = Duration::from_micros(200);

fn main() -> Result<(), String> {
    let checks = std::env::args().any(|argument| argument == "--check");
    let answer = answer();
    let first = timed(&answer)?;
    let mut all = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        all.push(timed(&answer)?);
    }
    all.sort_unstable();
    let (middle, p99) = (all[ROUNDS / 2], all[ROUNDS * 99 / 100]);
    println!("| first of the process | p50 | p99 |\n|---|---|---|");
    println!(
        "| {:.2} ms | {:.0} µs | {:.0} µs |",
        first.as_secs_f64() * 1e3,
        middle.as_secs_f64() * 1e6,
        p99.as_secs_f64() * 1e6
    );
    match checks && (first > FIRST_MAX || p99 > P99_MAX) {
        true => Err(format!(
            "a verification takes too long: at most {FIRST_MAX:?} for the first and {P99_MAX:?} for the \
             99th percentile are permitted"
        )),
        false => Ok(()),
    }
}

/// Returns the time of one verification.
///
/// # Errors
/// The note of the verdict, if the answer isn't safe: it would be left early.
fn timed(answer: &Verify) -> Result<Duration, String> {
    let message = answer.clone();
    let began = Instant::now();
    let verified = black_box(message.check());
    let took = began.elapsed();
    match verified.verdict.safe {
        true => Ok(took),
        false => Err(verified.verdict.note),
    }
}

/// Returns an answer whose facts are all in the records.
fn answer() -> Verify {
    let records: Vec<Value> = (1..=3).map(record).collect();
    let mut text = String::new();
    let mut lines = (1..=3).cycle().flat_map(lines);
    while text.len() < ANSWER_BYTES {
        text.extend(lines.next());
    }
    Verify {
        results: json!(records),
        records,
        text,
        identities: Identities::Withheld,
    }
}

fn record(patient: u32) -> Value {
    json!({"patient": {
        "patient_id": format!("CARD-00{patient}"),
        "condition": "Hypertension",
        "medications": [
            {"name": "Losartan", "dose": 50 * patient, "unit": "mg", "frequency": "once daily", "route": "oral"},
            {"name": "Amlodipine", "dose": 5, "unit": "mg", "frequency": "once daily", "route": "oral"},
        ],
        "notes": "Blood pressure under control; potassium and creatinine are checked every six months.",
    }})
}

fn lines(patient: u32) -> [String; 4] {
    [
        format!("CARD-00{patient}: Hypertension\n"),
        format!("   Losartan {} mg once daily, oral\n", 50 * patient),
        "   Amlodipine 5 mg once daily, oral\n".to_owned(),
        "   Blood pressure under control; potassium and creatinine are checked every six months.\n"
            .to_owned(),
    ]
}
