//! Vectors of texts.

use std::sync::Arc;

/// Maximum numbers of one vector. A longer one isn't accepted. Fixed.
pub const EMBEDDING_DIMENSIONS_MAX: usize = 4_096;

/// Vector of a text.
pub type Embedding = Arc<[f32]>;

/// Checks the length and the numbers of a vector.
pub(super) fn check_vector(vector: &[f32]) -> Result<(), &'static str> {
    if vector.is_empty() || vector.len() > EMBEDDING_DIMENSIONS_MAX {
        return Err("a vector has no number, or too many");
    }
    match vector.iter().all(|number| number.is_finite()) {
        true => Ok(()),
        false => Err("a vector has an infinite number"),
    }
}
