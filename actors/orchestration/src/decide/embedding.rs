//! Decider that compares the embedding of a request with those of what tools and agents say of
//! themselves. It decides DP2 and DP3, and rejects nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard_message::text::cut_bytes;
use callboard_message::{Failure, RawObject};
use callboard_models::{
    EMBED_BATCH_MAX, EMBED_TEXT_BYTES_MAX, EMBED_TEXTS_MAX, EmbedTexts, Embedding,
};
use callboard_runtime::{Agent, AgentProfile, AgentRef, ConcurrentHandler, Context, Handlers};
use quick_cache::sync::Cache;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    DecideRoute, DecideTool, DeciderReply, PeerAgentView, Route, TOOL_LLM, ToolChoice, ToolView,
    only_text_param,
};

/// Maximum texts of tools and agents whose vectors are cached. With more, those that weren't used
/// lately are embedded again. Fixed.
pub const EMBEDDINGS_CACHED_MAX: usize = 4_096;
/// Maximum texts of tools and agents that a request is compared with. Further ones are left out.
/// Fixed.
pub const COMPARED_TEXTS_MAX: usize = EMBED_TEXTS_MAX - 1;
/// Default minimum similarity, −1 to 1, of a request to the tool or agent that gets it.
pub const SIMILARITY_MIN_DEFAULT: f32 = 0.5;
/// Default minimum lead, 0 to 2, of the most similar tool or agent over the next one.
pub const LEAD_MIN_DEFAULT: f32 = 0.05;
/// Maximum concurrent decisions of one decision point. Further ones wait in the decider's mailbox.
const DECISIONS_MAX: u32 = 64;

/// Options of an embedding decider. Suitable values depend on the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingDeciderOptions {
    /// Minimum cosine similarity, −1 to 1; below it the decision is unclear.
    pub similarity_min: f32,
    /// Minimum lead over the next tool or agent, 0 to 2; below it the decision is unclear.
    pub lead_min: f32,
}

impl Default for EmbeddingDeciderOptions {
    fn default() -> Self {
        Self {
            similarity_min: SIMILARITY_MIN_DEFAULT,
            lead_min: LEAD_MIN_DEFAULT,
        }
    }
}

/// Agent that decides DP2 and DP3 with the embeddings of a model.
#[derive(Debug, Clone)]
pub struct EmbeddingDecider(Arc<EmbeddingDeciderInner>);

#[derive(derive_more::Debug)]
struct EmbeddingDeciderInner {
    /// Agent that handles [`EmbedTexts`].
    model: AgentRef,
    options: EmbeddingDeciderOptions,
    /// Vectors of texts of tools and agents, by the texts' digests.
    #[debug(skip)]
    vectors: Cache<TextDigest, Embedding>,
}

/// SHA-256 of the part of a text that is embedded.
type TextDigest = [u8; 32];

/// Destination of a request: the tools here together, or an agent by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Local,
    Agent(usize),
}

impl EmbeddingDecider {
    /// Creates a decider over `model`, an agent that handles [`EmbedTexts`].
    pub fn new(model: AgentRef, options: EmbeddingDeciderOptions) -> Self {
        Self(Arc::new(EmbeddingDeciderInner {
            model,
            options,
            vectors: Cache::new(EMBEDDINGS_CACHED_MAX),
        }))
    }
}

impl EmbeddingDeciderInner {
    async fn decide_route(
        &self,
        asked: &DecideRoute,
        cx: &Context,
    ) -> Result<DeciderReply<Route>, Failure> {
        let tools = asked.world.tools.iter().filter(|tool| is_comparable(tool));
        let local = tools
            .flat_map(tool_texts)
            .map(|text| (Destination::Local, text));
        let agents = asked.world.agents.iter().enumerate();
        let remote = agents
            .filter(|(_, agent)| agent.is_up)
            .flat_map(|(at, agent)| {
                let texts = agent_texts(agent).into_iter();
                texts.map(move |text| (Destination::Agent(at), text))
            });
        let ranked = self.rank(&asked.request, remote.chain(local), cx).await?;
        Ok(match self.first(&ranked) {
            Ok((Destination::Local, similarity)) => clear(Route::Local, similarity),
            Ok((Destination::Agent(at), similarity)) => {
                let agent = asked.world.agents[at].id.clone();
                clear(Route::Remote { agent }, similarity)
            }
            Err(why) => DeciderReply::unclear(why),
        })
    }

    async fn decide_tool(
        &self,
        asked: &DecideTool,
        cx: &Context,
    ) -> Result<DeciderReply<ToolChoice>, Failure> {
        let tools = asked.tools.iter().enumerate();
        let texts = tools
            .filter(|(_, tool)| is_comparable(tool))
            .flat_map(|(at, tool)| tool_texts(tool).into_iter().map(move |text| (at, text)));
        let ranked = self.rank(&asked.request, texts, cx).await?;
        let (at, similarity) = match self.first(&ranked) {
            Ok(first) => first,
            Err(why) => return Ok(DeciderReply::unclear(why)),
        };
        let tool = &asked.tools[at];
        Ok(match params_of(tool, &asked.request) {
            Some(params) => {
                let tool_name = tool.name.clone();
                clear(ToolChoice { tool_name, params }, similarity)
            }
            None => {
                DeciderReply::unclear("the tool needs parameters that embeddings don't fill in")
            }
        })
    }

    /// Returns the destinations with the similarity of the request to the most similar of their
    /// texts, the most similar destination first. Texts after [`COMPARED_TEXTS_MAX`] are left out.
    ///
    /// # Errors
    /// Failures of the model.
    async fn rank<D: Ord + Copy>(
        &self,
        request: &str,
        texts: impl Iterator<Item = (D, String)>,
        cx: &Context,
    ) -> Result<Vec<(D, f32)>, Failure> {
        let (owners, texts): (Vec<D>, Vec<String>) = texts.take(COMPARED_TEXTS_MAX).unzip();
        let mut vectors = self.embed(&texts, request, cx).await?;
        let wanted = vectors.pop().unwrap_or_default();
        let mut best: BTreeMap<D, f32> = BTreeMap::new();
        for (owner, vector) in owners.into_iter().zip(&vectors) {
            let similarity = cosine(&wanted, vector);
            let known = best.entry(owner).or_insert(similarity);
            *known = known.max(similarity);
        }
        let mut ranked: Vec<(D, f32)> = best.into_iter().collect();
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        Ok(ranked)
    }

    /// Returns the first destination if it is similar enough and has enough lead.
    ///
    /// # Errors
    /// The reason why not.
    fn first<D: Copy>(&self, ranked: &[(D, f32)]) -> Result<(D, f32), &'static str> {
        let EmbeddingDeciderOptions {
            similarity_min,
            lead_min,
        } = self.options;
        match ranked {
            [(_, first), ..] if *first < similarity_min => {
                Err("nothing is similar enough to the request")
            }
            [(_, first), (_, second), ..] if first - second < lead_min => {
                Err("two are about as similar to the request")
            }
            [first, ..] => Ok(*first),
            [] => Err("there is nothing to compare the request with"),
        }
    }

    /// Returns the vectors of the texts of tools and agents, in their order, and then that of the
    /// request. Asks the model for at most [`EMBED_BATCH_MAX`] at once, so that a reply that comes in
    /// time is cached even if the decision takes too long. The request's vector isn't cached.
    ///
    /// # Errors
    /// Failures of the model; `Internal` if it gives not one vector for each text.
    async fn embed(
        &self,
        texts: &[String],
        request: &str,
        cx: &Context,
    ) -> Result<Vec<Embedding>, Failure> {
        let digests: Vec<TextDigest> = texts.iter().map(|text| digest_of(text)).collect();
        let mut found: Vec<Option<Embedding>> =
            digests.iter().map(|key| self.vectors.get(key)).collect();
        found.push(None);
        let missing: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        for batch in missing.chunks(EMBED_BATCH_MAX) {
            let text = |at: &usize| texts.get(*at).map_or(request, String::as_str).to_owned();
            let asked = batch.iter().map(text).collect();
            let made = cx.ask(&self.model, EmbedTexts { texts: asked }).await??;
            for (at, vector) in batch.iter().zip(made) {
                if let Some(key) = digests.get(*at) {
                    self.vectors.insert(*key, vector.clone());
                }
                found[*at] = Some(vector);
            }
        }
        let vectors: Option<Vec<Embedding>> = found.into_iter().collect();
        vectors.ok_or_else(|| Failure::internal("the model gave not one vector for each text"))
    }
}

fn digest_of(text: &str) -> TextDigest {
    Sha256::digest(cut_bytes(text, EMBED_TEXT_BYTES_MAX)).into()
}

fn clear<T>(outcome: T, similarity: f32) -> DeciderReply<T> {
    DeciderReply::clear(outcome, similarity.clamp(0.0, 1.0), "by similarity")
}

/// Whether a tool can be compared with a request: `llm` answers any.
fn is_comparable(tool: &ToolView) -> bool {
    tool.name != TOOL_LLM
}

fn tool_texts(tool: &ToolView) -> Vec<String> {
    texts_of(&tool.name, &tool.description, &tool.tags, &tool.examples)
}

fn agent_texts(agent: &PeerAgentView) -> Vec<String> {
    if agent.skills.is_empty() {
        return texts_of(&agent.name, &agent.description, &[], &[]);
    }
    let skills = agent.skills.iter();
    let texts = skills.map(|skill| {
        texts_of(
            &skill.name,
            &skill.description,
            &skill.tags,
            &skill.examples,
        )
    });
    texts.flatten().collect()
}

/// Returns the description with name and tags as one text, and each example as another.
fn texts_of(name: &str, description: &str, tags: &[String], examples: &[String]) -> Vec<String> {
    let described = format!("{name}. {description} {}", tags.join(" "));
    std::iter::once(described)
        .chain(examples.iter().cloned())
        .collect()
}

/// Returns the parameters of a tool that takes the request, or nothing; `None` if it needs others.
fn params_of(tool: &ToolView, request: &str) -> Option<RawObject> {
    if let Some(member) = only_text_param(&tool.params) {
        return Some(RawObject::single(&member, request));
    }
    let required = tool.params.get("required").and_then(Value::as_array);
    required.is_none_or(Vec::is_empty).then(RawObject::new)
}

/// Returns the cosine of the angle between two vectors; 0 if one is zero, or their lengths differ.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    if one.len() != other.len() {
        return 0.0;
    }
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let length = (dot(one, one) * dot(other, other)).sqrt();
    match length > 0.0 && length.is_finite() {
        true => dot(one, other) / length,
        false => 0.0,
    }
}

impl Agent for EmbeddingDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<DecideRoute>(DECISIONS_MAX)
            .concurrent::<DecideTool>(DECISIONS_MAX);
    }

    /// Marks the agent as cancel-safe: a dropped request leaves at most cached vectors.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }

    fn observe(&self) -> Value {
        json!({ "cached": self.0.vectors.len() })
    }
}

impl ConcurrentHandler<DecideRoute> for EmbeddingDecider {
    fn handle(
        &mut self,
        message: DecideRoute,
        cx: Context,
    ) -> impl Future<Output = Result<DeciderReply<Route>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.decide_route(&message, &cx).await }
    }
}

impl ConcurrentHandler<DecideTool> for EmbeddingDecider {
    fn handle(
        &mut self,
        message: DecideTool,
        cx: Context,
    ) -> impl Future<Output = Result<DeciderReply<ToolChoice>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.decide_tool(&message, &cx).await }
    }
}
