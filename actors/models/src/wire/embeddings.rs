//! Embeddings of OpenAI (`/embeddings`) and of Ollama (`/api/embed`), which take the same request.

use callboard_message::RawObject;
use serde::Deserialize;

use super::parse_json;
use crate::provider_failure::ProviderFailure;
use crate::vector::{Embedding, check_vector};

/// Builds the request body as JSON.
pub fn request_body(model: &str, texts: &[&str]) -> String {
    let body = RawObject::single("model", model).with("input", texts);
    Box::<str>::from(body.to_raw()).into_string()
}

/// Response of either API.
#[derive(Deserialize)]
struct Body {
    /// Vectors with their places, of OpenAI.
    #[serde(default)]
    data: Vec<Entry>,
    /// Vectors in the order of the texts, of Ollama.
    #[serde(default)]
    embeddings: Vec<Vec<f32>>,
    usage: Option<Usage>,
    /// Input tokens, of Ollama.
    prompt_eval_count: Option<u64>,
}

#[derive(Deserialize)]
struct Entry {
    index: usize,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
}

/// Parses a response. Returns the vectors of `count` texts in their order, and the number of input
/// tokens if the provider says it.
///
/// # Errors
/// `Malformed` for a body of another shape, a missing vector, or vectors of several lengths.
pub fn read_answer(
    body: &[u8],
    count: usize,
) -> Result<(Vec<Embedding>, Option<u64>), ProviderFailure> {
    let Body {
        mut data,
        embeddings,
        usage,
        prompt_eval_count,
    } = parse_json(body)?;
    data.sort_by_key(|entry| entry.index);
    if data.iter().enumerate().any(|(at, entry)| entry.index != at) {
        return Err(ProviderFailure::Malformed(
            "it has a vector twice, or lacks one",
        ));
    }
    let vectors: Vec<Vec<f32>> = data
        .into_iter()
        .map(|entry| entry.embedding)
        .chain(embeddings)
        .collect();
    if vectors.len() != count {
        return Err(ProviderFailure::Malformed(
            "it has not one vector for each text",
        ));
    }
    for vector in &vectors {
        check_vector(vector).map_err(ProviderFailure::Malformed)?;
        if vector.len() != vectors[0].len() {
            return Err(ProviderFailure::Malformed(
                "its vectors have several lengths",
            ));
        }
    }
    let tokens = usage
        .and_then(|usage| usage.prompt_tokens)
        .or(prompt_eval_count);
    Ok((vectors.into_iter().map(Embedding::from).collect(), tokens))
}
