//! What a person sees.

use std::io::{IsTerminal, Write, stdout};

use callboard_agents::orchestrator::{Answer, Status};

/// A line of progress, apart from the answer.
pub(super) fn progress(line: &str) {
    eprintln!("  · {line}");
}

/// A line of progress among the rest.
pub(super) fn told(line: &str) {
    println!("  · {line}");
}

/// A heading; bold where that can be seen.
pub(super) fn heading(text: &str) {
    match stdout().is_terminal() {
        true => println!("\x1b[1m{text}\x1b[0m"),
        false => println!("{text}"),
    }
}

/// The answer for a program: one object, one line.
pub(super) fn json(answer: &Answer) {
    let mut out = stdout().lock();
    // A reader that closed the pipe has what it wanted.
    let _ = serde_json::to_writer(&mut out, answer).map(|()| writeln!(out));
}

/// The answer for a person: the text, the verdict, the times. Of a blocked one, only why.
pub(super) fn answer(answer: &Answer) {
    println!();
    match answer.status() {
        Status::Answered => heading("Answer"),
        Status::Blocked => heading("Blocked"),
        Status::Failed => heading("Not answered"),
    }
    println!("{}", answer.text());
    if answer.status() == Status::Answered {
        println!();
    }
    if let Some(verdict) = answer.verdict().and_then(|v| serde_json::to_string(v).ok()) {
        println!("Verdict  {verdict}");
    }
    let times = answer.times_ms();
    println!(
        "Times    screening {} ms, planning {} ms, clinics {} ms, verifying {} ms, total {} ms",
        times.screening, times.planning, times.routing, times.verifying, times.total
    );
}
