//! Deciders of an orchestrator (`decide`, `embedding`): who decides at which point, in what order.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use callboard_models::ModelConfig;
use callboard_orchestration::decide::limits::DECIDERS_MAX;
use callboard_orchestration::decide::{DeciderKind, DecisionPoint};
use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{DEFAULT_POINT, OrchestratorDeclaration};
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, ModelDeclaration, Topology};

/// Points that the combined decision (DP0) stands for.
pub(super) const COMBINED_POINTS: [DecisionPoint; 4] = [
    DecisionPoint::Clarity,
    DecisionPoint::Split,
    DecisionPoint::Route,
    DecisionPoint::Tool,
];

/// Deciders of one decision point: one, or several in order. A decider whose decision can't be used
/// is followed by the next.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum DeciderList {
    /// One decider.
    One(DeciderEntry),
    /// Several deciders, at most [`DECIDERS_MAX`].
    Several(Vec<DeciderEntry>),
}

/// A decider: `rules`, `model`, `person`, `embedding` or an agent's id.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum DeciderEntry {
    /// Decider with the time limit of its kind.
    Named(String),
    /// Decider with a time limit.
    Timed(TimedDecider),
}

/// Decider with a time limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimedDecider {
    /// `rules`, `model`, `person`, `embedding` or an agent's id.
    pub by: String,
    /// Time limit of a decision, in milliseconds.
    pub timeout_ms: NonZeroU64,
}

/// Embeddings by which an orchestrator decides (`embedding`). Suitable values depend on the model.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingDeclaration {
    /// Id of the model.
    pub model: String,
    /// Minimum cosine similarity, -1 to 1, of a request to what gets it. Default: 0.5.
    pub similarity_min: Option<f64>,
    /// Minimum lead, 0 to 2, over the next tool or agent. Default: 0.05.
    pub lead_min: Option<f64>,
}

impl DeciderEntry {
    /// Returns the decider of this kind, with the time limit of the kind.
    pub fn named(kind: &str) -> Self {
        Self::Named(kind.to_owned())
    }

    /// Returns the decider as it is written.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) | Self::Timed(TimedDecider { by: name, .. }) => name,
        }
    }

    /// Returns the kind of the decider.
    pub fn kind(&self) -> DeciderKind {
        DeciderKind::parse(self.name())
    }

    /// Returns the time limit; `None` for that of the kind.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Named(_) => None,
            Self::Timed(timed) => Some(Duration::from_millis(timed.timeout_ms.get())),
        }
    }
}

impl DeciderList {
    /// Returns the deciders in order.
    pub fn entries(&self) -> &[DeciderEntry] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Several(entries) => entries,
        }
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = DeciderEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decider or a table of `by` and `timeout_ms`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DeciderEntry, E> {
        Ok(DeciderEntry::named(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeciderEntry, A::Error> {
        TimedDecider::deserialize(MapAccessDeserializer::new(map)).map(DeciderEntry::Timed)
    }
}

impl<'de> Deserialize<'de> for DeciderEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = DeciderList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decider, a table of `by` and `timeout_ms`, or a list of them")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DeciderList, E> {
        EntryVisitor.visit_str(name).map(DeciderList::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeciderList, A::Error> {
        EntryVisitor.visit_map(map).map(DeciderList::One)
    }

    /// Reads the placeholder of a wrong value, which was reported.
    fn visit_unit<E: de::Error>(self) -> Result<DeciderList, E> {
        Ok(DeciderList::Several(Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<DeciderList, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(DeciderList::Several)
    }
}

impl<'de> Deserialize<'de> for DeciderList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor)
    }
}

impl OrchestratorDeclaration {
    /// Returns the deciders of a point, in order. Answers default to the model. Other points default
    /// to `decide.default`, else to the model if there is one, else to the rules. The combined
    /// decision defaults to the model if that is the first decider of all points that it stands for,
    /// and none of them has an entry of its own; else to no decider.
    pub fn deciders_at(&self, point: DecisionPoint) -> Vec<DeciderEntry> {
        if let Some(list) = self.decide.get(point.as_str()) {
            return list.entries().to_vec();
        }
        let model = || DeciderEntry::named("model");
        let default = match self.decide.get(DEFAULT_POINT) {
            Some(list) => list.entries().to_vec(),
            None if self.model.is_some() => vec![model()],
            None => vec![DeciderEntry::named("rules")],
        };
        match point {
            DecisionPoint::Answer => vec![model()],
            DecisionPoint::Intake => {
                let has_own = |point: &DecisionPoint| self.decide.contains_key(point.as_str());
                let mut first = default;
                first.truncate(1);
                first.retain(|entry| entry.kind() == DeciderKind::Model);
                match COMBINED_POINTS.iter().any(has_own) {
                    true => Vec::new(),
                    false => first,
                }
            }
            _ => default,
        }
    }

    /// Returns the deciders of all entries of `decide`.
    pub(super) fn named_deciders(&self) -> impl Iterator<Item = &DeciderEntry> {
        self.decide.values().flat_map(|list| list.entries())
    }

    pub(super) fn check_deciders(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let points: Vec<_> = DecisionPoint::ALL
            .iter()
            .map(|point| point.as_str())
            .chain([DEFAULT_POINT])
            .collect();
        let decide = tree.get("decide");
        for (point, list) in &self.decide {
            let key = decide.and_then(|tree| tree.key_span(point));
            if !points.contains(&&**point) {
                problems.not_one_of(
                    key,
                    format!("there is no decision point `{point}`"),
                    point,
                    &points,
                );
                continue;
            }
            let span = tree.span_at_path(&["decide", point]);
            let entries = list.entries();
            if entries.is_empty() && span.is_none() {
                continue;
            }
            if entries.is_empty() || entries.len() > DECIDERS_MAX {
                let message = format!(
                    "`{point}` names {} deciders: name 1 to {DECIDERS_MAX}",
                    entries.len()
                );
                problems.error(span, message);
                continue;
            }
            for (at, entry) in entries.iter().enumerate() {
                let item = decide
                    .and_then(|tree| tree.get(point))
                    .and_then(|list| list.items().get(at))
                    .map(|item| item.span.clone());
                let span = item.or_else(|| span.clone());
                if entries[..at]
                    .iter()
                    .any(|other| other.name() == entry.name())
                {
                    problems.error(span, format!("`{}` is named twice", entry.name()));
                } else {
                    self.check_decider(point, entry, span, names, problems);
                }
            }
        }
    }

    fn check_decider(
        &self,
        point: &str,
        entry: &DeciderEntry,
        span: Option<std::ops::Range<usize>>,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let is_combined = point == DecisionPoint::Intake.as_str();
        match entry.kind() {
            DeciderKind::Model if self.model.is_none() => {
                let help = Some("write the id of one in `model`".to_owned());
                problems.error_with(span, format!("{} has no model to decide", self.id), help);
            }
            DeciderKind::Rules | DeciderKind::Person | DeciderKind::Embedding if is_combined => {
                let message = format!(
                    "`{}` decides the points of a request one by one: leave `{point}` out",
                    entry.name()
                );
                problems.error(span, message);
            }
            DeciderKind::Embedding if !["route", "tool"].contains(&point) => {
                problems.error(
                    span,
                    "`embedding` decides only `route` and `tool`".to_owned(),
                );
            }
            DeciderKind::Embedding if self.embedding.is_none() => {
                let help = Some("write `embedding = { model = \"…\" }`".to_owned());
                problems.error_with(
                    span,
                    format!("{} has no embeddings to decide", self.id),
                    help,
                );
            }
            DeciderKind::Agent(id) if !names.is_known(&id) => {
                let all =
                    names
                        .agents
                        .keys()
                        .copied()
                        .chain(["rules", "model", "person", "embedding"]);
                let message = format!("there is no agent {id} to decide");
                problems.unknown_name(span, message, &id, all);
            }
            _ => {}
        }
    }

    pub(super) fn check_embedding(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let Some(EmbeddingDeclaration {
            model,
            similarity_min,
            lead_min,
        }) = &self.embedding
        else {
            return;
        };
        let span = tree.span_at_path(&["embedding", "model"]);
        let makes_none = |declared: &&ModelDeclaration| {
            use ModelConfig::{Anthropic, Echo, Scripted};
            matches!(declared.config, Anthropic(_) | Scripted(_) | Echo(_))
        };
        if let Some(declared) = names
            .agent_of_kind::<ModelDeclaration>(model)
            .filter(makes_none)
        {
            let message = format!("{} makes no embeddings", declared.id);
            let help = "name a model of the provider `word_vectors`, `openai`, `openai_compatible`, `azure_openai` or `ollama`";
            problems.error_with(span, message, Some(help.to_owned()));
        } else {
            names.check_model(model, super::model_ids(names), span, problems);
        }
        for (key, value, range) in [
            ("similarity_min", similarity_min, -1.0..=1.0),
            ("lead_min", lead_min, 0.0..=2.0),
        ] {
            if value.is_some_and(|value| !range.contains(&value)) {
                let (from, to) = (range.start(), range.end());
                let span = tree.span_at_path(&["embedding", key]);
                problems.error(span, format!("`{key}` must be from {from} to {to}"));
            }
        }
    }
}

impl Topology {
    /// Returns the ids of the models that answer sampling requests, in file order: all but those that
    /// write no answers, and those that orchestrators name for embeddings.
    pub(crate) fn answering_models(&self) -> impl Iterator<Item = &str> {
        let orchestrators = self.agents_of_kind::<OrchestratorDeclaration>();
        let embeddings = orchestrators.filter_map(|orchestrator| orchestrator.embedding.as_ref());
        let embeds: HashSet<&str> = embeddings.map(|embedding| &*embedding.model).collect();
        self.agents_of_kind::<ModelDeclaration>()
            .filter(|model| !matches!(model.config, ModelConfig::WordVectors(_)))
            .map(|model| &*model.id)
            .filter(move |id| !embeds.contains(id))
    }
}
