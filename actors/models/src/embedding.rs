//! Embeddings: texts as vectors, by a model of a provider or by a table of word vectors.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_message::text::{cut_bytes, fold, folded_words};
use callboard_runtime::{ConcurrentHandler, Context};
use tokio::time::Instant;

use super::config::ModelError;
use super::request::TokenCounts;
use super::vector::{Embedding, check_vector};
use super::{AnswerSource, LanguageModel, ModelInner, with_deadline};

/// Maximum texts of one [`EmbedTexts`]. One with more fails as `InvalidInput`. Fixed.
pub const EMBED_TEXTS_MAX: usize = 1_024;
/// Maximum bytes of a text that are embedded. The rest of a longer one is ignored. Fixed.
pub const EMBED_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Maximum texts of one request to a provider. More are sent in several requests. Fixed.
pub const EMBED_BATCH_MAX: usize = 32;
/// Maximum size of a file of word vectors, in bytes. A model with a larger one doesn't start. Fixed.
pub const WORD_VECTORS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Estimated bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// Asks a model for the vectors of texts, in their order. A text of which a table of word vectors
/// knows no word has a vector of zeros.
///
/// Fails as `Rejected` if the model makes no embeddings.
#[derive(derive_more::Debug, Message, Clone)]
// `Debug` omits the texts: they may contain user data.
#[debug("EmbedTexts({})", texts.len())]
#[message(name = "embed_texts", reply = Vec<Embedding>, fallible, local)]
pub struct EmbedTexts {
    /// Texts, at most [`EMBED_TEXTS_MAX`].
    pub texts: Vec<String>,
}

/// Table of word vectors. The vector of a text is the mean of those of its words.
#[derive(derive_more::Debug)]
#[debug("WordVectors({} words)", by_word.len())]
pub(super) struct WordVectors {
    /// Vectors by folded word.
    by_word: HashMap<String, Box<[f32]>>,
    dimensions: usize,
}

impl WordVectors {
    /// Reads a file of word vectors.
    ///
    /// # Errors
    /// [`ModelError::WordVectors`] for a file that can't be read or used.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let wrong = |why: String| ModelError::WordVectors {
            path: path.to_owned(),
            why,
        };
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        if bytes > WORD_VECTORS_BYTES_MAX {
            return Err(wrong(format!(
                "it has more than {WORD_VECTORS_BYTES_MAX} bytes"
            )));
        }
        let mut text = String::new();
        file.take(WORD_VECTORS_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Parses the text of such a file. Words that differ only in case or accents share the vector
    /// of the first of them.
    ///
    /// # Errors
    /// The reason, with the line or word, if the text has no vectors, or vectors of several lengths.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = Self {
            by_word: HashMap::new(),
            dimensions: 0,
        };
        if text.trim_start().starts_with('{') {
            let table: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(text).map_err(|error| format!("it isn't valid: {error}"))?;
            for (word, numbers) in table {
                let vector = serde_json::from_value(numbers)
                    .map_err(|_| format!("`{word}` has no list of numbers"))?;
                all.add(&word, vector)
                    .map_err(|why| format!("`{word}`: {why}"))?;
            }
        } else {
            for (at, line) in text.lines().enumerate() {
                let wrong = |why: &str| format!("line {}: {why}", at + 1);
                let mut parts = line.split_whitespace();
                let Some(word) = parts.next() else { continue };
                let numbers: Result<Vec<f32>, _> = parts.map(str::parse).collect();
                let numbers = numbers.map_err(|_| wrong("it has something else than numbers"))?;
                // The first line of a `.vec` file: the numbers of words and of dimensions.
                if at == 0 && numbers.len() == 1 && word.parse::<u64>().is_ok() {
                    continue;
                }
                all.add(word, numbers).map_err(|why| wrong(&why))?;
            }
        }
        match all.by_word.is_empty() {
            true => Err("it has no word with a vector".to_owned()),
            false => Ok(all),
        }
    }

    fn add(&mut self, word: &str, vector: Vec<f32>) -> Result<(), String> {
        check_vector(&vector).map_err(str::to_owned)?;
        if self.dimensions == 0 {
            self.dimensions = vector.len();
        }
        if vector.len() != self.dimensions {
            return Err(format!(
                "it has {} numbers instead of {}",
                vector.len(),
                self.dimensions
            ));
        }
        self.by_word
            .entry(fold(word))
            .or_insert(vector.into_boxed_slice());
        Ok(())
    }

    fn embed(&self, text: &str) -> Embedding {
        let mut sum = vec![0.0_f32; self.dimensions];
        let words = folded_words(text);
        let known = words.iter().filter_map(|word| self.by_word.get(word));
        let mut count = 0.0_f32;
        for vector in known {
            count += 1.0;
            sum.iter_mut()
                .zip(vector)
                .for_each(|(sum, part)| *sum += part);
        }
        sum.iter_mut().for_each(|part| *part /= count.max(1.0));
        sum.into()
    }
}

impl ModelInner {
    /// Embeds texts, within the model's limits and the caller's budget.
    ///
    /// # Errors
    /// `InvalidInput` for too many texts, `Rejected` for a model without embeddings, `Cancelled`,
    /// `TimedOut`, `Overloaded` for an exhausted limit or budget, or the failure of the provider.
    async fn embed(&self, texts: &[String], cx: &Context) -> Result<Vec<Embedding>, Failure> {
        if texts.len() > EMBED_TEXTS_MAX {
            return Err(Failure::invalid(format!(
                "{} texts to embed at once: send at most {EMBED_TEXTS_MAX}",
                texts.len()
            )));
        }
        let texts: Vec<&str> = texts
            .iter()
            .map(|text| cut_bytes(text, EMBED_TEXT_BYTES_MAX))
            .collect();
        match &self.answer_source {
            AnswerSource::WordVectors(table) => {
                Ok(texts.iter().map(|text| table.embed(text)).collect())
            }
            AnswerSource::Provider(provider) => {
                let end = [Some(provider.deadline_from_now()), cx.deadline()];
                let end = end.into_iter().flatten().min();
                let mut vectors = Vec::with_capacity(texts.len());
                for batch in texts.chunks(EMBED_BATCH_MAX) {
                    vectors.extend(self.embed_batch(batch, end, cx).await?);
                }
                Ok(vectors)
            }
            AnswerSource::Script(_) | AnswerSource::Echo => Err(Failure::rejected(
                "this model makes no embeddings: use one of the provider `word_vectors`, `openai`, `openai_compatible`, `azure_openai` or `ollama`",
            )),
        }
    }

    async fn embed_batch(
        &self,
        texts: &[&str],
        end: Option<Instant>,
        cx: &Context,
    ) -> Result<Vec<Embedding>, Failure> {
        let AnswerSource::Provider(provider) = &self.answer_source else {
            return Ok(Vec::new());
        };
        let permit = with_deadline(end, self.call_permits.acquire()).await?;
        let _permit =
            permit.map_err(|_| Failure::internal("the model has stopped and takes no calls"))?;
        let quota_use = self.reserve_quotas(cx).await?;
        let bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
        let input = bytes / BYTES_PER_TOKEN + 1;
        let budget = cx.call().map(|call| call.budget).unwrap_or_default();
        let reserved = self.ledger.reserve(input, Some(1), budget);
        let (grant, _) = reserved.inspect_err(|_| quota_use.withdraw())?;
        let grant = grant.with_quotas(quota_use);
        let end = end.unwrap_or_else(|| provider.deadline_from_now());
        let (vectors, tokens) = tokio::select! {
            embedded = provider.embed(texts, end) => embedded.map_err(|trouble| trouble.to_failure())?,
            () = cx.cancelled() => return Err(Failure::cancelled("cancelled")),
        };
        grant.record_usage(TokenCounts {
            input: tokens.unwrap_or(input),
            output: 0,
        });
        Ok(vectors)
    }
}

impl ConcurrentHandler<EmbedTexts> for LanguageModel {
    fn handle(
        &mut self,
        message: EmbedTexts,
        cx: Context,
    ) -> impl Future<Output = Result<Vec<Embedding>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.embed(&message.texts, &cx).await }
    }
}
