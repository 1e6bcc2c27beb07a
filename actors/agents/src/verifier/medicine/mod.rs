//! Rule R1: no dose and no treatment that the records don't hold.

mod claim;
mod ground;
mod lexicon;
mod number;
mod phrase;
mod token;
mod unit;

pub(super) use ground::{Grounds, Ungrounded};
pub(super) use lexicon::stem;

/// Whether a folded word names a medicine.
pub(super) fn is_medicine(folded: &str) -> bool {
    let tokens = token::sentences(folded).concat();
    lexicon::LEXICON.find(&tokens).is_some()
}
