//! Which of our models fits a question best.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::{About, Describe};
use callboard_message::{Message, RawObject, Sample};
use callboard_runtime::AgentRef;
use tokio::time::timeout;

use super::{Core, lock};

/// How long a model has to say what it is, before it is taken for one of which only the name is known.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(1);

/// One of our models.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) agent: AgentRef,
}

/// What a model says of itself.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// By which hints find it, in lower case.
    names: Vec<String>,
    scores: Scores,
}

/// How it compares to others, each from 0 to 1.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Scores {
    cost: f64,
    speed: f64,
    intelligence: f64,
}

impl Core {
    /// The models there are, of those named, the one that fits the question best first; and whether it names one.
    pub(super) async fn models(&self, named: &[&str], sample: &Sample) -> (Vec<Model>, bool) {
        let found = named.iter().filter_map(|name| {
            let agent = self.system.directory().get(name)?;
            Some(Model { name: (*name).to_owned(), agent })
        });
        let models: Vec<Model> = found.collect();
        let Some(wanted) = sample.0.object("modelPreferences").map(|preferences| Wanted::of(&preferences)) else {
            return (models, false);
        };
        let mut known = Vec::with_capacity(models.len());
        for model in models {
            known.push((self.facts(&model).await, model));
        }
        let names_one = known.iter().any(|(facts, _)| wanted.hint(facts).is_some());
        known.sort_by(|(a, _), (b, _)| wanted.compare(a, b));
        (known.into_iter().map(|(_, model)| model).collect(), names_one)
    }

    /// What the model says of itself. It is asked once.
    async fn facts(&self, model: &Model) -> Arc<Facts> {
        if let Some(facts) = lock(&self.facts).get(&model.name) {
            return facts.clone();
        }
        let describes = model.agent.is_outside() || model.agent.specs().iter().any(|spec| spec.name == Describe::NAME);
        let about = match describes {
            true => timeout(DESCRIBE_TIMEOUT, model.agent.ask(Describe::default())).await,
            false => Ok(Ok(Ok(About::default()))),
        };
        match about {
            Ok(Ok(Ok(about))) => {
                let facts = Arc::new(Facts::of(&model.name, &about.0));
                lock(&self.facts).insert(model.name.clone(), facts.clone());
                facts
            }
            // It may say more the next time.
            _ => Arc::new(Facts::of(&model.name, &RawObject::new())),
        }
    }
}

impl Facts {
    /// From a model's name in the directory and its `callboard.describe`: `serverInfo.name` and `.title`, and of `model`
    /// `{"names": [..], "scores": {"cost": .., "speed": .., "intelligence": ..}}`.
    fn of(name: &str, about: &RawObject) -> Self {
        let info = about.object("serverInfo").unwrap_or_default();
        let model = about.object("model").unwrap_or_default();
        let mut names = vec![name.to_lowercase()];
        names.extend(["name", "title"].iter().filter_map(|member| info.text(member)).map(|n| n.to_lowercase()));
        let more: Vec<String> = model.read("names").unwrap_or_default();
        names.extend(more.iter().map(|name| name.to_lowercase()));
        let scores = model.object("scores").unwrap_or_default();
        let score = |name| scores.read::<f64>(name).unwrap_or_default();
        let scores = Scores { cost: score("cost"), speed: score("speed"), intelligence: score("intelligence") };
        Self { names, scores }
    }
}

/// What a question wants of its model (MCP `ModelPreferences`).
struct Wanted {
    /// In lower case, the most wanted first.
    hints: Vec<String>,
    weights: Scores,
}

impl Wanted {
    fn of(preferences: &RawObject) -> Self {
        let hints: Vec<RawObject> = preferences.read("hints").unwrap_or_default();
        let weight = |name| preferences.read::<f64>(name).unwrap_or_default();
        Self {
            hints: hints.iter().filter_map(|hint| hint.text("name")).map(|hint| hint.to_lowercase()).collect(),
            weights: Scores {
                cost: weight("costPriority"),
                speed: weight("speedPriority"),
                intelligence: weight("intelligencePriority"),
            },
        }
    }

    /// The first hint that is a part of one of the model's names.
    fn hint(&self, facts: &Facts) -> Option<usize> {
        let fits = |hint: &String| !hint.is_empty() && facts.names.iter().any(|name| name.contains(hint));
        self.hints.iter().position(fits)
    }

    /// The earlier hint goes first, then the higher score; else the order stays.
    fn compare(&self, a: &Facts, b: &Facts) -> Ordering {
        let rank = |facts| self.hint(facts).unwrap_or(usize::MAX);
        let score = |facts: &Facts| {
            let (has, wants) = (facts.scores, self.weights);
            has.cost * wants.cost + has.speed * wants.speed + has.intelligence * wants.intelligence
        };
        rank(a).cmp(&rank(b)).then_with(|| score(b).total_cmp(&score(a)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(name: &str, about: serde_json::Value) -> Facts {
        Facts::of(name, &serde_json::from_value(about).unwrap())
    }

    /// Goal: hints go before priorities, priorities before the order. Method: three models, questions that want each.
    #[test]
    fn the_best_goes_first() {
        let models = [
            facts("big", json!({ "serverInfo": { "name": "gpt-4" }, "model": { "scores": { "intelligence": 0.9 } } })),
            facts(
                "small",
                json!({ "model": { "names": ["claude-3-haiku"], "scores": { "cost": 1.0, "speed": 0.9 } } }),
            ),
            facts("local", json!({})),
        ];
        let first = |preferences: serde_json::Value| {
            let wanted = Wanted::of(&serde_json::from_value(preferences).unwrap());
            let mut sorted: Vec<&Facts> = models.iter().collect();
            sorted.sort_by(|a, b| wanted.compare(a, b));
            sorted[0].names[0].clone()
        };
        assert_eq!(first(json!({})), "big");
        assert_eq!(first(json!({ "hints": [{ "name": "Claude" }, { "name": "gpt-4" }] })), "small");
        assert_eq!(first(json!({ "hints": [{ "name": "mistral" }, { "name": "local" }], "costPriority": 1 })), "local");
        assert_eq!(
            first(json!({ "hints": [{ "name": "" }], "speedPriority": 0.4, "intelligencePriority": 0.3 })),
            "small"
        );
        assert_eq!(first(json!({ "speedPriority": 0.1, "intelligencePriority": 1 })), "big");
    }
}
