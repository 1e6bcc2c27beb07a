//! Features of a sentence, by which the model in [`super::model`] judges it.

use super::hit::Address;
use super::lexicon::Class;
use super::sentence::{LABELLED, LINE, OPENS, Token};

/// Number of different features. Features of the same hash are one.
pub(super) const FEATURES: usize = ((1 << 16) - 1) << u8::BITS;

/// Origin of a part of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentenceOrigin {
    /// In the system's own words.
    Answer,
    /// Word for word in a record.
    Record,
}

impl SentenceOrigin {
    pub const ALL: [Self; 2] = [Self::Answer, Self::Record];
}

/// Kinds of features, so that the same words in different roles have different weights. The fitted weights
/// depend on the numbers.
#[derive(Clone, Copy)]
enum Kind {
    Word = 1,
    Pair,
    /// Two words with one between them.
    Skip,
    /// Two words with two between them.
    LongSkip,
    WordInPlace,
    PairInPlace,
    /// A word, and whether a report covers it.
    Covered,
    /// The classes of a word; of a word without one, the word.
    Classes,
    ClassPair,
    /// The sign that ends the sentence.
    End,
    Length,
    /// Advice that the grammar found.
    Rule,
    /// A word with which a clause opens, and the sign before it.
    Opening,
    /// The last letters of such a word, and the sign before it.
    OpeningEnding,
    /// The classes of such a word and of the next.
    OpeningPair,
    /// The last letters of a word.
    Ending = 17,
}

/// Hash of the place before the first word and after the last.
const EDGE: u32 = 1;
/// Hash of all numbers.
const NUMBER: u32 = 3;
/// Number of last bytes of a word that tell its form, such as "ada" and "ing".
const ENDING_BYTES: usize = 3;

/// Calls `add` with the features of words of a sentence, each with the origin of sentences that have it;
/// `None` if it is of both. One pass gives both, because most features don't depend on the origin.
/// `covered` tells of each word whether a report covers it; `end` is the sign that ends the sentence.
pub(super) fn read(
    tokens: &[Token<'_>],
    covered: &[bool],
    end: char,
    mut add: impl FnMut(Option<SentenceOrigin>, u32),
) {
    let mut was_open = false;
    let (mut third, mut second, mut last, mut last_class) = (EDGE, EDGE, EDGE, 0);
    for (token, covered) in tokens.iter().zip(covered) {
        let word = word_hash(token.word);
        let class = class_hash(token.class, word);
        add(None, feature(Kind::Word, [word, 0, 0]));
        in_places(&mut add, Kind::WordInPlace, |place| [word, place, 0]);
        add(None, feature(Kind::Covered, [word, u32::from(*covered), 0]));
        add(None, feature(Kind::Pair, [last, word, 0]));
        in_places(&mut add, Kind::PairInPlace, |place| [last, word, place]);
        add(None, feature(Kind::Skip, [second, word, 0]));
        add(None, feature(Kind::LongSkip, [third, word, 0]));
        add(None, feature(Kind::Classes, [class, 0, 0]));
        in_places(&mut add, Kind::ClassPair, |place| {
            [last_class, class, place]
        });
        if was_open {
            in_places(&mut add, Kind::OpeningPair, |place| {
                [last_class, class, place]
            });
        }
        let bytes = token.word.as_bytes();
        let ending = hash(&bytes[bytes.len().saturating_sub(ENDING_BYTES)..]);
        add(None, feature(Kind::Ending, [ending, 0, 0]));
        was_open = token.has(OPENS);
        if was_open {
            let sign = u32::from(token.before & (LINE | LABELLED));
            in_places(&mut add, Kind::Opening, |place| [word, place, sign]);
            in_places(&mut add, Kind::OpeningEnding, |place| [ending, place, sign]);
        }
        (third, second, last, last_class) = (second, last, word, class);
    }
    add(None, feature(Kind::Pair, [last, EDGE, 0]));
    in_places(&mut add, Kind::End, |place| [end as u32, place, 0]);
    let length = u32::try_from(tokens.len() / 4).map_or(8, |n| n.min(8));
    in_places(&mut add, Kind::Length, |place| [length, place, 0]);
}

/// Calls `add` with the features of a kind that depend on the origin, by the number of the origin.
fn in_places(
    add: &mut impl FnMut(Option<SentenceOrigin>, u32),
    kind: Kind,
    parts: impl Fn(u32) -> [u32; 3],
) {
    for place in SentenceOrigin::ALL {
        add(Some(place), feature(kind, parts(place as u32 + 1)));
    }
}

/// Returns the feature of what the grammar found: advice with this address.
pub(super) fn rule(place: SentenceOrigin, address: Address) -> u32 {
    feature(Kind::Rule, [place as u32 + 1, address as u32 + 1, 0])
}

fn feature(kind: Kind, parts: [u32; 3]) -> u32 {
    let mixed = parts
        .iter()
        .fold((kind as u32).wrapping_mul(0x9e37_79b1), |hash, part| {
            (hash.rotate_left(5) ^ part).wrapping_mul(0x85eb_ca6b)
        });
    let hash = (mixed ^ (mixed >> 15)).wrapping_mul(0xc2b2_ae35);
    ((u64::from(hash) * FEATURES as u64) >> u32::BITS) as u32
}

/// Hashes by FNV-1a: the same on every machine and in every version, since the weights depend on it.
fn word_hash(word: &str) -> u32 {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return NUMBER;
    }
    hash(word.as_bytes())
}

fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

fn class_hash(class: Class, word: u32) -> u32 {
    if class == 0 {
        return word;
    }
    let halves = (class as u64) ^ ((class >> 64) as u64).rotate_left(23);
    (halves.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
