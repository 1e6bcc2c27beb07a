//! Decisions by embeddings, with word vectors that the tests write and with a recorded model.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_models::{EmbedTexts, Embedding, LanguageModel, ModelConfig, WordVectorsConfig};
use callboard_runtime::System;
use callboard_runtime::testkit::{Probe, run_with_paused_time};
use serde_json::json;

use super::*;
use crate::decide::limits::EMBEDDING_TIMEOUT;
use crate::decide::{Risk, RoutingContext, SkillView};

/// Word vectors: weather, travel, flights and echoes each have a direction of their own.
const VECTORS: &str =
    "rain 1 0 0 0\nsun 1 0.1 0 0\nhotel 0 1 0 0\nflight 0 0 0 1\nrepeat 0 0 1 0\n";

fn agent(id: &str, description: &str) -> PeerAgentView {
    let skill = SkillView {
        id: id.into(),
        name: id.into(),
        description: description.into(),
        ..SkillView::default()
    };
    PeerAgentView {
        id: id.into(),
        skills: vec![skill],
        is_up: true,
        ..PeerAgentView::default()
    }
}

fn tool(name: &str, description: &str, required: &[&str]) -> ToolView {
    let member = |name: &&str| ((*name).to_owned(), json!({ "type": "string" }));
    let properties: serde_json::Map<String, Value> = required.iter().map(member).collect();
    ToolView {
        name: name.into(),
        description: description.into(),
        tags: Vec::new(),
        examples: Vec::new(),
        params: json!({ "type": "object", "properties": properties, "required": required }),
        risk: Risk::Reads,
    }
}

fn world() -> Arc<RoutingContext> {
    Arc::new(RoutingContext {
        tools: vec![
            tool("echo", "repeat", &["text"]),
            tool("fly", "flight", &["from", "to"]),
            tool(TOOL_LLM, "rain", &["text"]),
        ],
        agents: vec![agent("weather", "rain and sun"), agent("travel", "a hotel")],
    })
}

fn route(request: &str) -> DecideRoute {
    DecideRoute {
        request: request.into(),
        history: Vec::new(),
        world: world(),
        slim: false,
    }
}

fn tool_choice(request: &str) -> DecideTool {
    DecideTool {
        request: request.into(),
        history: Vec::new(),
        tools: world().tools.clone(),
        slim: false,
    }
}

/// Runs `test` with a decider over word vectors from a file.
fn with_vectors(test: impl AsyncFnOnce(&System, &AgentRef)) {
    run_with_paused_time(async |system| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.vec");
        std::fs::write(&path, VECTORS).unwrap();
        let config = ModelConfig::WordVectors(WordVectorsConfig { path });
        let model = system.spawn(LanguageModel::open(config).unwrap());
        let decider = EmbeddingDecider::new(model, EmbeddingDeciderOptions::default());
        test(system, &system.spawn(decider)).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a request goes to the agent whose texts are most similar, here if a tool's are, and the
/// decision is unclear if nothing is similar enough or two are alike. Method: rows over a tiny
/// model.
#[test]
fn routes_by_similarity() {
    let remote = |agent: &str| {
        Some(Route::Remote {
            agent: agent.into(),
        })
    };
    with_vectors(async |_, decider| {
        for (request, expected) in [
            ("will it rain?", remote("weather")),
            ("HOTEL, please", remote("travel")),
            ("repeat that", Some(Route::Local)),
            ("rain at the hotel", None),
            ("do my taxes", None),
        ] {
            let decided = decider.ask(route(request)).await.unwrap().unwrap();
            assert!(decided.outcome == expected, "{request}: {}", decided.why);
            assert!((0.0..=1.0).contains(&decided.confidence));
        }
        let mut away = route("will it rain?");
        Arc::make_mut(&mut away.world).agents[0].is_up = false;
        let decided = decider.ask(away).await.unwrap().unwrap();
        assert!(
            decided.outcome.is_none(),
            "an agent that is down gets no request"
        );
    });
}

/// Goal: a tool that takes one text gets the request; one that needs more is unclear, and so is what
/// only `llm` is similar to. Method: rows over a tiny model.
#[test]
fn tools_by_similarity() {
    with_vectors(async |_, decider| {
        let decided = decider
            .ask(tool_choice("repeat that"))
            .await
            .unwrap()
            .unwrap();
        let choice = decided.outcome.unwrap();
        assert_eq!(
            (&*choice.tool_name, choice.params.text("text").as_deref()),
            ("echo", Some("repeat that"))
        );
        for request in ["a flight", "rain"] {
            let decided = decider.ask(tool_choice(request)).await.unwrap().unwrap();
            assert!(decided.outcome.is_none(), "{request}");
        }
    });
}

fn one(_: &EmbedTexts) -> Result<Vec<Embedding>, Failure> {
    Ok(Vec::new())
}

/// Goal: each text of a tool or agent is embedded once, nothing of a request is kept, and a model
/// that gives too few vectors fails. Method: inspect the requests to a recorded model; a model
/// without vectors.
#[test]
fn texts_are_embedded_once() {
    run_with_paused_time(async |system| {
        let (model, mut asked) = Probe::<EmbedTexts>::spawn(system, |asked| {
            let vector = |text: &String| Embedding::from([text.len() as f32, 1.0]);
            Ok(asked.texts.iter().map(vector).collect())
        });
        let decider = EmbeddingDecider::new(model, EmbeddingDeciderOptions::default());
        let (shared, decider) = (decider.clone(), system.spawn(decider));
        let first = [
            "weather. rain and sun ",
            "travel. a hotel ",
            "echo. repeat ",
            "fly. flight ",
            "rain",
        ];
        for (request, expected) in [
            ("rain", first.as_slice()),
            ("rain", &["rain"]),
            ("sun", &["sun"]),
        ] {
            decider.ask(route(request)).await.unwrap().unwrap();
            assert_eq!(asked.try_recv().unwrap().texts, expected);
            assert!(asked.try_recv().is_err());
            assert_eq!(shared.0.vectors.len(), first.len() - 1);
            assert!(shared.0.vectors.get(&digest_of(request)).is_none());
        }

        let (silent, _asked) = Probe::<EmbedTexts>::spawn(system, one);
        let decider = EmbeddingDecider::new(silent, EmbeddingDeciderOptions::default());
        let failed = system.spawn(decider).ask(route("rain")).await.unwrap();
        assert_eq!(failed.unwrap_err().kind, FailureKind::Internal);
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: no more vectors are cached than the limit, and no more texts compared. Method: one text
/// more than each.
#[test]
fn bounds() {
    run_with_paused_time(async |system| {
        let (model, mut asked) = Probe::<EmbedTexts>::spawn(system, |asked| {
            Ok(asked.texts.iter().map(|_| Embedding::from([1.0])).collect())
        });
        let decider = EmbeddingDecider::new(model, EmbeddingDeciderOptions::default());
        for at in 0..=EMBEDDINGS_CACHED_MAX {
            decider
                .0
                .vectors
                .insert(digest_of(&at.to_string()), Embedding::from([1.0]));
        }
        assert!(decider.0.vectors.len() <= EMBEDDINGS_CACHED_MAX);
        let mut many = route("rain");
        let examples: Vec<String> = (0..=COMPARED_TEXTS_MAX)
            .map(|at| format!("no. {at}"))
            .collect();
        Arc::make_mut(&mut many.world).agents[0].skills[0].examples = examples;
        system.spawn(decider).ask(many).await.unwrap().unwrap();
        let mut sent = Vec::new();
        while let Ok(batch) = asked.try_recv() {
            assert!(batch.texts.len() <= EMBED_BATCH_MAX);
            sent.extend(batch.texts);
        }
        assert_eq!(sent.len(), EMBED_TEXTS_MAX);
        assert_eq!(sent.last().unwrap(), "rain");
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Model that needs two seconds for each full or partial batch.
struct SlowModel;

impl Agent for SlowModel {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<EmbedTexts>(DECISIONS_MAX);
    }
}

impl ConcurrentHandler<EmbedTexts> for SlowModel {
    fn handle(
        &mut self,
        asked: EmbedTexts,
        _: Context,
    ) -> impl Future<Output = Result<Vec<Embedding>, Failure>> + Send + 'static {
        let batches = asked.texts.len().div_ceil(EMBED_BATCH_MAX) as u64;
        let vectors = asked.texts.iter().map(|_| Embedding::from([1.0]));
        let vectors: Vec<Embedding> = vectors.collect();
        async move {
            tokio::time::sleep(Duration::from_secs(2 * batches)).await;
            Ok(vectors)
        }
    }
}

/// Goal: the batches that a slow model embedded in time are kept, so that a later decision is in
/// time. Method: four batches, of which two fit into the time limit.
#[test]
fn slow_models_warm_up() {
    run_with_paused_time(async |system| {
        let options = EmbeddingDeciderOptions::default();
        let decider = EmbeddingDecider::new(system.spawn(SlowModel), options);
        let (shared, decider) = (decider.clone(), system.spawn(decider));
        let mut many = route("rain");
        let examples = (0..3 * EMBED_BATCH_MAX).map(|at| format!("no. {at}"));
        Arc::make_mut(&mut many.world).agents[0].skills[0].examples = examples.collect();
        let late = decider.ask(many.clone()).within(EMBEDDING_TIMEOUT).await;
        assert!(late.is_err());
        assert_eq!(shared.0.vectors.len(), 2 * EMBED_BATCH_MAX);
        let second = decider.ask(many).within(EMBEDDING_TIMEOUT).await;
        second.unwrap().unwrap();
        system.shutdown(Duration::from_secs(5)).await;
    });
}
