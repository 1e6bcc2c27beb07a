//! Linear model of medical advice: the sum of the weights of a sentence's features.
//!
//! The weights are fitted to the labelled lines of `examples/eval/scope_dev.jsonl` and `scope_more.jsonl`
//! (see `training.rs`): a mistake is mended by lines like it and another fit, not by hand.

use std::sync::LazyLock;

use super::features::{self, FEATURES, SentenceOrigin, rule};
use super::hit::Address;
use super::sentence::Token;

/// Header, then buckets of weights.
///
/// The header has the unit of the weights and the bias as 32-bit floats in little-endian order. A bucket has the tags
/// of [`BUCKET_SLOTS`] features and then their weights as signed bytes. An empty slot has the weight 0. A feature
/// without a slot has no weight.
static FILE: &[u8; FILE_BYTES] = include_bytes!("../../../data/advice_weights.bin");

pub(super) const FILE_BYTES: usize = HEADER_BYTES + BUCKETS * BUCKET_BYTES;
pub(super) const HEADER_BYTES: usize = 8;
/// Number of buckets, one for all features that differ only in their tags. With the header, the file has 512 KiB.
pub(super) const BUCKETS: usize = FEATURES >> u8::BITS;
/// Number of features that have a weight in one bucket.
pub(super) const BUCKET_SLOTS: usize = 4;
const BUCKET_BYTES: usize = 2 * BUCKET_SLOTS;

/// A sentence with fewer features is judged as if it had as many, so that a single word decides little.
const FEATURES_MIN: usize = 40;

/// Returns the factor of the sum of weights for a sentence with this many features, which keeps long
/// sentences comparable with short ones.
pub(super) fn scale(features: usize) -> f32 {
    8.0 / (features.max(FEATURES_MIN) as f32).sqrt()
}

struct Header {
    unit: f32,
    bias: f32,
    /// Largest weight of what the grammar finds, by origin; at least 0.
    rule_max: [i32; SentenceOrigin::ALL.len()],
}

static HEADER: LazyLock<Header> = LazyLock::new(|| {
    let &[u0, u1, u2, u3, b0, b1, b2, b3, ..] = FILE;
    let rule_max = |place| {
        let weights = Address::ALL.map(|address| weight(rule(place, address)));
        weights.into_iter().fold(0, i32::max)
    };
    Header {
        unit: f32::from_le_bytes([u0, u1, u2, u3]),
        bias: f32::from_le_bytes([b0, b1, b2, b3]),
        rule_max: SentenceOrigin::ALL.map(rule_max),
    }
});

/// Returns the bucket of a feature, and its tag there.
pub(super) fn slot(feature: u32) -> (usize, u8) {
    let [tag, ..] = feature.to_le_bytes();
    ((feature >> u8::BITS) as usize, tag)
}

fn weight(feature: u32) -> i32 {
    let (bucket, tag) = slot(feature);
    let (buckets, _) = FILE[HEADER_BYTES..].as_chunks::<BUCKET_BYTES>();
    let Some((tags, weights)) = buckets
        .get(bucket)
        .and_then(|bytes| bytes.split_first_chunk::<BUCKET_SLOTS>())
    else {
        return 0;
    };
    // A sum, because it takes no branch: at most one slot with a weight has the tag.
    let weights = tags
        .iter()
        .zip(weights)
        .map(|(other, weight)| i32::from(*other == tag) * i32::from(weight.cast_signed()));
    weights.sum()
}

/// Score of a sentence by its words.
pub(super) struct SentenceScore {
    words: i32,
    scale: f32,
    place: SentenceOrigin,
}

/// Scores of a sentence in the order of [`SentenceOrigin::ALL`].
pub(super) type SentenceScores = [SentenceScore; SentenceOrigin::ALL.len()];

/// Returns the scores of words of a sentence, by the sums of their features' weights.
pub(super) fn scores(tokens: &[Token<'_>], covered: &[bool], end: char) -> SentenceScores {
    let (mut count, mut shared) = (0, 0);
    let mut own = SentenceOrigin::ALL.map(|_| (0, 0));
    features::read(tokens, covered, end, |place, feature| match place {
        None => {
            count += 1;
            shared += weight(feature);
        }
        Some(place) => {
            let (count, sum) = &mut own[place as usize];
            *count += 1;
            *sum += weight(feature);
        }
    });
    SentenceOrigin::ALL.map(|place| {
        let (own_count, own_sum) = own[place as usize];
        SentenceScore {
            words: shared + own_sum,
            scale: scale(count + own_count) * HEADER.unit,
            place,
        }
    })
}

impl SentenceScore {
    /// Returns whether the sentence is advice if the grammar finds advice with this address in it, or none.
    pub fn is_advice(&self, found: Option<Address>) -> bool {
        let found = found.map_or(0, |address| weight(rule(self.place, address)));
        self.with(found) > 0.0
    }

    /// Returns whether the sentence can't be advice, whatever the grammar finds.
    pub fn is_harmless(&self) -> bool {
        self.with(HEADER.rule_max[self.place as usize]) <= 0.0
    }

    fn with(&self, found: i32) -> f32 {
        HEADER.bias + (self.words + found) as f32 * self.scale
    }
}
