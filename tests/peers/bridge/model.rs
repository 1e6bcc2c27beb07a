//! Model that answers sampling requests: 135 million parameters on this machine's processor, behind
//! an address with OpenAI's chat completions.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Topology};
use crate::kit::{Served, Target, peers, script, with};
use crate::rmcp::{caller, without_session};
use crate::round::{Kind, Step};

/// Goal: a server without any key has a language model to ask. Method: the reference server's sampling request is answered
/// by an agent that stands for that model (`models`), for a client that can answer nothing of the kind itself;
/// the tool's result has what the model wrote, and what it used. What a model writes is its own business: it only isn't
/// nothing.
/// Rows: M-43, M-45.
#[actix_web::test]
async fn a_language_model_answers_a_server() {
    let Some(peers) = peers() else { return };
    let (node, file) = (peers.node(), peers.language_model());
    let model = Served::start(|port| {
        with(
            peers.command(&node),
            [
                script("llm.mjs"),
                file.display().to_string(),
                port.to_string(),
            ],
        )
    });
    let model = model.await;
    let everything = peers.package("@modelcontextprotocol/server-everything/dist/index.js");
    let topology = format!(
        "[[agent]]\nkind = \"model\"\nid = \"small\"\nprovider = \"openai_compatible\"\n\
         model = \"smollm2-135m-instruct\"\nurl = {}\n\
         [[upstream]]\nid = \"everything\"\ncommand = {}\nsupports_sampling = true\n\
         [routing.sampling]\ndefault_strategy = \"models\"\n",
        json!(model.url("http", "/v1")),
        json!([node.as_path(), everything.as_path(), Path::new("stdio")]),
    );
    let gateway = Gateway::start(&peers, Topology::new(&topology)).await;
    let Target::Url(url) = gateway.target("everything") else {
        panic!("no address")
    };
    let arguments = json!({ "prompt": "What is the capital of France?", "maxTokens": 24 });
    let name = "trigger-sampling-request";
    let step = Step {
        label: name,
        kind: Kind::Tool,
        name,
        arguments,
        loose: true,
    };

    for lifecycle in [rmcp::ClientLifecycleMode::Initialize, without_session()] {
        let round = caller::round(&url, lifecycle, [&step]).await;
        assert_eq!(round.broken, None);
        let heard = &round.steps[name];
        assert!(heard.asked.is_empty(), "the client was asked: {heard:?}");
        // "LLM sampling result: \n{…}"
        let json = heard
            .said
            .find('{')
            .map(|at| &heard.said[at..])
            .unwrap_or_default();
        let answer: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {heard:?}"));
        let written = answer["content"]["text"].as_str().unwrap_or_default();
        assert!(!written.trim().is_empty(), "{answer}");
        let usage = &answer["_meta"]["callboard/usage"];
        assert!(
            usage["inputTokens"].as_u64() > Some(0) && usage["outputTokens"].as_u64() > Some(0),
            "{answer}"
        );
    }
    gateway.end().await;
}
