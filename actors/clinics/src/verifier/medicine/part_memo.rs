//! Parts of segments that occur several times in records and answer, such as equal lines: they are
//! found once in a verification.

use std::rc::Rc;

use foldhash::HashMap;

use super::parts::{Names, Part, find_parts};
use super::steps::count_step;
use super::token::Token;

/// Maximum number of tokens of a segment that is remembered.
const SEGMENT_TOKENS_MAX: usize = 64;
/// Maximum number of segments that are remembered.
const SEGMENTS_MAX: usize = 8192;

/// Parts of segments of texts in which the recorded names are the same.
#[derive(Default)]
pub(super) struct PartMemo {
    /// Parts by the tokens of their segment ([`append_key`]). Their places begin at the segment.
    by_key: HashMap<Box<[u8]>, Rc<[Part]>>,
    /// Key of the segment that is searched.
    key: Vec<u8>,
}

impl PartMemo {
    /// Returns the same as [`find_parts`] for a whole segment, whose first token has the place 0. A
    /// segment of a text with names of its own isn't remembered.
    pub fn find(
        &mut self,
        segment: &[Token<'_>],
        names: Names<'_>,
        knows_medicine: bool,
    ) -> Rc<[Part]> {
        let find = || find_parts(segment, 0..segment.len(), names, knows_medicine).into();
        self.key.clear();
        self.key.push(u8::from(knows_medicine));
        let has_key = segment.len() <= SEGMENT_TOKENS_MAX
            && names.own.is_empty()
            && segment.iter().all(|token| append_key(token, &mut self.key));
        if !has_key {
            return find();
        }
        if let Some(known) = self.by_key.get(&self.key[..]) {
            return Rc::clone(known);
        }
        let found: Rc<[Part]> = find();
        if self.by_key.len() < SEGMENTS_MAX {
            self.by_key
                .insert(self.key.as_slice().into(), Rc::clone(&found));
        }
        found
    }
}

/// Appends a token to the key of its segment: all that parts are found by. Returns whether it could,
/// because the token isn't too long.
fn append_key(token: &Token<'_>, key: &mut Vec<u8>) -> bool {
    count_step();
    let Ok(len) = u8::try_from(token.text.len()) else {
        return false;
    };
    key.extend([len, u8::from(token.is_glued)]);
    key.extend_from_slice(token.text.as_bytes());
    // How a number is read depends on the language of its text.
    if let Some(number) = token.number() {
        key.extend(number.to_bits().to_le_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use foldhash::HashSet;

    use super::*;
    use crate::verifier::medicine::parts::OtherNames;
    use crate::verifier::medicine::token::Text;

    /// Goal: remembered parts are those of a search. Method: texts that differ in a space, in the
    /// decimal sign or in what is known, each twice and at another place.
    #[test]
    fn remembered_parts_are_equal() {
        let (recorded, own) = (OtherNames::default(), OtherNames::default());
        let substances = HashSet::default();
        let names = Names {
            recorded: &recorded,
            own: &own,
            substances: &substances,
        };
        let mut memo = PartMemo::default();
        for text in [
            "losartan 50 mg once daily, oral",
            "losartan 50mg once daily, oral",
            "dose - 1.500 mg",
            "dose -1.500 mg",
            "50",
            "",
        ] {
            let before = format!("take: {text}");
            for (text, skip) in [(text, 0), (text, 0), (&before, 2)] {
                for decimal_comma in [false, true] {
                    let mut read = Text::read(text);
                    read.set_decimal_comma(decimal_comma);
                    for knows in [false, true] {
                        let range = skip..read.tokens.len();
                        let mut found = find_parts(&read.tokens, range.clone(), names, knows);
                        for part in &mut found {
                            part.place = part.place.start - skip..part.place.end - skip;
                        }
                        let memoized = memo.find(&read.tokens[range], names, knows);
                        assert_eq!(format!("{memoized:?}"), format!("{found:?}"), "{text}");
                    }
                }
            }
        }
    }
}
