//! Rule R1: no dose, schedule, route or treatment that isn't in the records.
//!
//! Records, results and text are read into the same normal form: claims, each about one medicine of
//! one patient, with its dose, schedule and route. Each claim of an answer is compared field by
//! field with the claims that the records make about this medicine of this patient.
//!
//! Limits: medicines are known by lists, by endings, from the records, or because an unknown word
//! stands directly before a dose. A dose is attributed by the order of the words, not by grammar.
//! Claims that only a reader of the whole text understands, such as "the former at half the dose",
//! aren't read. Time grows linearly with the length of records and answer.

mod claims;
mod compare;
mod embedded;
mod facts;
mod lexicon;
mod model;
mod number;
mod part_memo;
mod parts;
mod patient_facts;
mod patients;
mod phrase;
mod plausible;
mod schedule;
mod stance;
mod statements;
mod steps;
#[cfg(test)]
mod tests;
mod token;
mod treatment;
mod word_meanings;

pub(super) use facts::find_fabrications;
pub(super) use lexicon::{is_medicine, stem};
