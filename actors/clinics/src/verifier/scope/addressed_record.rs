//! Records that address their reader, which is a finding whatever they say.

use callboard_message::is_one_of;

use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::sentence::JOINED;

const KIND: &str = "addressing the reader";
/// Words of letters between those who treat.
const LETTERS: &str = "thank thanks thanking grateful obrigado obrigada agradeco agradecemos sincerely regards referring \
    referral recall cumprimentos atenciosamente";

/// Returns whether a sentence speaks of the program's own answers and not of health.
fn is_about_program(r: &SentenceReading<'_, '_>) -> bool {
    let len = r.tokens.len();
    let is_health = |n| r.is(n, CHANGE | TREATMENT | COMPLAINT | CONDITION) || r.is_medicine(n);
    r.any(0, len, SYSTEM) && !r.names_reader && !(0..len).any(is_health)
}

/// Appends the address of the reader in a sentence to `hits`: it is advice where a record has it,
/// whatever it says.
pub(super) fn find(r: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    if r.end == '?' && !r.is_addressed || is_about_program(r) {
        return;
    }
    let addressed = (0..r.tokens.len()).find(|n| {
        is_one_of!(
            r.word(*n),
            "you yours yourself voce voces vc vcs tu vos contigo consigo teu tua teus tuas"
        ) && !r.tokens.get(n + 1).is_some_and(|next| next.has(JOINED))
            || r.is(*n, YOU) && r.is(*n, OBLIGE | ABLE)
    });
    let at = addressed.or(r.is_addressed.then_some(0));
    let Some(at) = at.filter(|at| !r.covered[*at]) else {
        return;
    };
    if (0..r.tokens.len()).any(|n| is_one_of!(r.word(n), LETTERS)) {
        return;
    }
    hits.push(Hit {
        at,
        end: at,
        kind: KIND,
        address: Address::RecordToReader,
    });
}
