//! Embeddings by providers, and by word vectors.

use callboard_message::{Failure, FailureKind};
use callboard_runtime::AgentRef;
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::kit::{asked, at, real, server, spawn, times_asked, whole};
use crate::embedding::WordVectors;
use crate::{
    EMBED_BATCH_MAX, EMBED_TEXT_BYTES_MAX, EMBED_TEXTS_MAX, EMBEDDING_DIMENSIONS_MAX, EchoConfig,
    EmbedTexts, ModelConfig, RemoteModelConfig,
};

async fn embed(agent: &AgentRef, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failure> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let vectors = agent
        .ask(EmbedTexts { texts })
        .await
        .map_err(Failure::from)??;
    Ok(vectors.iter().map(|vector| vector.to_vec()).collect())
}

/// Builds a response of OpenAI with these vectors, the last one first.
fn openai(vectors: &[Value]) -> ResponseTemplate {
    let entry = |(at, vector): (usize, &Value)| json!({ "object": "embedding", "index": at, "embedding": vector });
    let data: Vec<Value> = vectors.iter().enumerate().map(entry).rev().collect();
    whole(
        json!({ "object": "list", "data": data, "model": "m-1", "usage": { "prompt_tokens": 5, "total_tokens": 5 } }),
    )
}

/// Goal: vectors come in the order of the texts, from both APIs, with the key where there is one, and
/// their tokens are counted. Method: recorded responses; the requests.
#[test]
fn vectors_of_providers() {
    real(async |system| {
        let server = server([openai(&[json!([1, 0.5]), json!([0, 1])])]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let vectors = embed(&agent, &["a", "b"]).await.unwrap();
        assert_eq!(vectors, [[1.0, 0.5], [0.0, 1.0]]);
        assert_eq!(
            asked(&server).await,
            json!({ "model": "m-1", "input": ["a", "b"] })
        );
        let request = server.received_requests().await.unwrap().remove(0);
        assert_eq!(request.url.path(), "/v1/embeddings");
        assert!(request.headers.contains_key("authorization"));
        assert_eq!(agent.observe().await["tokensToday"], 5);
    });
    real(async |system| {
        let body = json!({ "model": "m-1", "embeddings": [[0.25, -1.0]], "prompt_eval_count": 3 });
        let server = server([whole(body)]).await;
        let config = RemoteModelConfig {
            url: Some(server.uri()),
            ..at(&server)
        };
        let agent = spawn(system, ModelConfig::Ollama(config));
        assert_eq!(embed(&agent, &["a"]).await.unwrap(), [[0.25, -1.0]]);
        let request = server.received_requests().await.unwrap().remove(0);
        assert_eq!(request.url.path(), "/api/embed");
    });
}

/// Goal: more texts than a request takes are sent in several, longer texts are cut, and too many
/// texts are refused. Method: each limit, and one more.
#[test]
fn bounds() {
    real(async |system| {
        let full: Vec<Value> = (0..EMBED_BATCH_MAX).map(|at| json!([at])).collect();
        let server = server([openai(&full), openai(&[json!([7])])]).await;
        let agent = spawn(system, ModelConfig::OpenaiCompatible(at(&server)));
        let long = "a".repeat(EMBED_TEXT_BYTES_MAX + 1);
        let texts = vec![&*long; EMBED_BATCH_MAX + 1];
        let vectors = embed(&agent, &texts).await.unwrap();
        assert_eq!(vectors.len(), EMBED_BATCH_MAX + 1);
        assert_eq!(times_asked(&server).await, 2);
        let sent = asked(&server).await;
        assert_eq!(
            sent["input"][0].as_str().unwrap().len(),
            EMBED_TEXT_BYTES_MAX
        );
        let refused = embed(&agent, &vec!["a"; EMBED_TEXTS_MAX + 1]).await;
        assert_eq!(refused.unwrap_err().kind, FailureKind::InvalidInput);
        assert_eq!(times_asked(&server).await, 2);
    });
}

/// Goal: a response that isn't one vector for each text, all of one length, fails; so does a model
/// without embeddings. Method: rows.
#[test]
fn responses_that_cannot_be_used() {
    let long = vec![0.5; EMBEDDING_DIMENSIONS_MAX + 1];
    for body in [
        json!({ "data": [] }),
        json!({ "data": [{ "index": 1, "embedding": [1] }, { "index": 1, "embedding": [1] }] }),
        json!({ "embeddings": [[1], [1, 2]] }),
        json!({ "embeddings": [[], []] }),
        json!({ "embeddings": [long, long] }),
        json!({ "embeddings": "no" }),
    ] {
        let told = body.to_string();
        real(async |system| {
            let server = server([whole(body)]).await;
            let agent = spawn(system, ModelConfig::Openai(at(&server)));
            let failed = embed(&agent, &["a", "b"]).await.unwrap_err();
            assert_eq!(failed.kind, FailureKind::Unavailable, "{told:.80}");
        });
    }
    real(async |system| {
        let server = server([ResponseTemplate::new(503), openai(&[json!([1])])]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        assert_eq!(
            embed(&agent, &["a"]).await.unwrap(),
            [[1.0]],
            "after a retry"
        );
        for config in [
            ModelConfig::Anthropic(at(&server)),
            ModelConfig::Echo(EchoConfig::default()),
        ] {
            let failed = embed(&spawn(system, config), &["a"]).await.unwrap_err();
            assert_eq!(failed.kind, FailureKind::Rejected);
        }
        assert_eq!(times_asked(&server).await, 2);
    });
}

/// Goal: word vectors are read from both formats, and a file that can't be used is told with the
/// place. Method: rows.
#[test]
fn files_of_word_vectors() {
    for text in [
        "2 2\nsun 1 0\nCafé 0 1\n",
        "sun 1 0\n\ncafe 0 1",
        r#"{"sun":[1,0],"Café":[0,1]}"#,
    ] {
        let read = WordVectors::parse(text).unwrap();
        assert_eq!(format!("{read:?}"), "WordVectors(2 words)", "{text}");
    }
    for (text, why) in [
        ("", "it has no word with a vector"),
        ("{}", "it has no word with a vector"),
        ("sun 1 0\nrain 1", "line 2: it has 1 numbers instead of 2"),
        ("sun 1 x", "line 1: it has something else than numbers"),
        ("sun", "line 1: a vector has no number, or too many"),
        ("sun inf", "line 1: a vector has an infinite number"),
        (r#"{"sun": 1}"#, "`sun` has no list of numbers"),
    ] {
        assert_eq!(WordVectors::parse(text).unwrap_err(), why, "{text}");
    }
}
