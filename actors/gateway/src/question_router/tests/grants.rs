use callboard_message::{Answer, Elicitation, ElicitationAnswer, FailureKind, Question};
use callboard_runtime::QuestionRouter;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use super::kit::{Client, Does, ask, by, options, paused, speaker};
use crate::question_router::{
    AnswerStrategy, QuestionRouterError, QuestionRouterOptions, StrategyQuestionRouter,
};
use crate::recording::Recording;

/// Goal: a question without a grant is rejected, and not among the capabilities. Method: servers
/// with each grant and with none; their questions; their capabilities.
/// Rows: M-18, M-37.
#[test]
fn nothing_is_granted_by_default() {
    let toml = r#"
        [servers]
        nothing = {}
        samples = { supports_sampling = true }
        forms = { supports_elicitation = true }
        roots = { supports_roots = true }
    "#;
    paused(async |system| {
        let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
        for source in ["unknown", "nothing", "samples", "forms", "roots"] {
            let client = Client::that_can(json!({
                "sampling": { "tools": {} }, "elicitation": { "url": {} }, "roots": { "listChanged": true }, "other": {}
            }));
            let caller = answerers.caller(source, &client.call()).unwrap();
            let told = serde_json::to_value(caller.capabilities()).unwrap();
            let form = Question::Elicit(Elicitation::form("m", json!({})));
            for (question, name, granted) in [
                (Question::sample("p", 1), "sampling", source == "samples"),
                (form, "elicitation", source == "forms"),
                (Question::roots(), "roots", source == "roots"),
            ] {
                let answer = caller.ask(question).await;
                assert_eq!(answer.is_ok(), granted, "{source} {name}");
                assert_eq!(told.get(name).is_some(), granted, "{source} {name}");
                if let Err(why) = answer {
                    assert_eq!(why.kind, FailureKind::Denied);
                }
            }
            assert_eq!(told["other"], json!({}));
        }
    });
}

/// Goal: requests of extensions need a grant, count against the server's caps and are recorded, while
/// every server is told of the extensions. Method: a server without the grant, one with a cap of two,
/// and one request more.
#[test]
fn extensions_need_a_grant() {
    let toml = "[servers]\nnothing = {}\n\
                may = { supports_extensions = true, caps = { requests_per_call_max = 2 } }";
    let recording = Recording::start(LevelFilter::INFO);
    paused(async |system| {
        let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
        let client = Client::that_can(json!({ "extensions": { "example/ui": {} } }));
        let call = client.call();
        for (source, requests) in [
            ("nothing", vec![Err(FailureKind::Denied)]),
            ("may", vec![Ok(()), Ok(()), Err(FailureKind::Overloaded)]),
        ] {
            let caller = answerers.caller(source, &call).unwrap();
            assert!(caller.capabilities().0.has("extensions"), "{source}");
            for wanted in requests {
                let params = to_raw_value(&json!({ "a": 1 })).unwrap();
                let result = caller.forward("ui/open".into(), Some(params)).await;
                let result = result.map(|result| assert_eq!(result.get(), r#"{"a":1}"#));
                assert_eq!(result.map_err(|why| why.kind), wanted, "{source}");
            }
        }
    });
    let lines = recording.text();
    let of_requests = |line: &&str| line.contains("callboard::audit") && line.contains("extension");
    assert_eq!(lines.lines().filter(of_requests).count(), 4, "{lines}");
}

/// Goal: a server sees exactly the capabilities that can be answered. Method: strategies, clients
/// with various capabilities, models available and not.
/// Rows: M-18.
#[test]
fn abilities_are_true() {
    let told = |strategy: &str, can: Value, models: bool, approval: bool| {
        let toml = format!(
            "models = [\"m\"]\nsampling.default_strategy = \"{strategy}\"\n\
             servers.s = {{ supports_sampling = true, approval = {approval} }}"
        );
        paused(async |system| {
            if models {
                speaker(system, "m", Does::Answers);
            }
            let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
            let caller = answerers
                .caller("s", &Client::that_can(can.clone()).call())
                .unwrap();
            let told = serde_json::to_value(caller.capabilities()).unwrap();
            told.get("sampling").cloned().unwrap_or_default()
        })
    };
    let (client, models, nothing) = (
        json!({ "context": {} }),
        json!({ "tools": {} }),
        Value::Null,
    );
    let can = json!({ "sampling": client });
    assert_eq!(told("client_forwarded", can.clone(), true, false), client);
    assert_eq!(told("client_forwarded", json!({}), true, false), nothing);
    assert_eq!(
        told("magictunnel_handled", can.clone(), true, false),
        models
    );
    assert_eq!(
        told("magictunnel_handled", can.clone(), false, false),
        nothing
    );
    assert_eq!(told("magictunnel_handled", json!({}), true, false), models);
    assert_eq!(told("magictunnel_handled", json!({}), true, true), nothing);
    assert_eq!(
        told(
            "magictunnel_handled",
            json!({ "elicitation": {} }),
            true,
            true
        ),
        models
    );
    assert_eq!(
        told("parallel", can.clone(), true, false),
        json!({ "context": {}, "tools": {} })
    );
    assert_eq!(told("external_server", can, false, false), nothing);
}

/// Goal: only the client answers elicitations in any configuration, and the answer is unchanged.
/// Method: every strategy by default and for a server; a client that declines.
/// Rows: X-13.
#[test]
fn models_answer_no_elicitation() {
    let wrong = [
        "magictunnel_handled",
        "magictunnel_first",
        "external_server",
        "parallel",
        "hybrid",
    ];
    for strategy in wrong {
        let options = options(&format!("elicitation.default_strategy = \"{strategy}\""));
        assert!(
            matches!(
                options.validate(),
                Err(QuestionRouterError::ElicitationByModel { server: None, .. })
            ),
            "{strategy}"
        );
        let options = self::options(&format!("elicitation.server_strategies.s = \"{strategy}\""));
        let why = options.validate().unwrap_err().to_string();
        assert!(why.contains(strategy) && why.contains(" of s,"), "{why}");
    }
    assert_eq!(
        options("elicitation.order = [\"models\"]").validate(),
        Err(QuestionRouterError::ElicitationOrder)
    );
    for strategy in ["client_forwarded", "client_first"] {
        let toml = format!(
            "models = [\"m\"]\nelicitation.default_strategy = \"{strategy}\"\nservers.s.supports_elicitation = true"
        );
        paused(async |system| {
            let model = speaker(system, "m", Does::Answers);
            let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
            let form = Question::Elicit(Elicitation::form("m", json!({})));
            let caller = answerers
                .caller("s", &Client::that(Does::Answers).call())
                .unwrap();
            assert_eq!(
                caller.ask(form.clone()).await,
                Ok(Answer::Elicit(ElicitationAnswer::decline()))
            );
            let mut alone = Client::that(Does::Answers).call();
            alone.caller = None;
            assert!(answerers.caller("s", &alone).is_none());
            assert!(model.heard.lock().unwrap().is_empty());
        });
    }
}

/// Goal: contradictions in the configuration are errors at start. Method: rows.
#[test]
fn configurations_are_checked() {
    let parsed = |toml: &str| toml::from_str::<QuestionRouterOptions>(toml);
    for toml in [
        "sampling.default_strategy = \"magic\"",
        "sampling.order = [\"clients\"]",
        "sampling.order = [\"model:\"]",
        "servers.a.supports_samplings = true",
        "servers.a.caps.tokens = 1",
    ] {
        assert!(parsed(toml).is_err(), "{toml}");
    }
    let order = parsed("sampling.order = [\"model:m\"]").unwrap();
    assert_eq!(
        order.validate(),
        Err(QuestionRouterError::UnknownAnswerer { name: "m".into() })
    );
    let order = parsed("sampling.order = [\"server:s\"]\nservers.s = {}").unwrap();
    assert_eq!(
        order.validate(),
        Err(QuestionRouterError::UnknownAnswerer { name: "s".into() })
    );
    let order = parsed(
        "sampling = { order = [\"client\"], server_strategies.s = \"magictunnel_handled\" }",
    )
    .unwrap();
    assert_eq!(
        order.validate(),
        Err(QuestionRouterError::NobodyInOrder {
            strategy: AnswerStrategy::Models
        })
    );
    assert_eq!(parsed("").unwrap().validate(), Ok(()));
}

/// Goal: each question has an audit entry with asker, answerer and cost, without content. Method:
/// one answered, one denied.
#[test]
fn questions_are_recorded() {
    let recording = Recording::start(LevelFilter::INFO);
    paused(async |system| {
        speaker(system, "m", Does::Costs(3, 4));
        let toml = "models = [\"m\"]\nsampling.default_strategy = \"magictunnel_handled\"\nservers.s.supports_sampling = true";
        let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
        let client = Client::that(Does::Answers);
        let answer = ask(&answerers, "s", &client.call()).await.unwrap();
        assert_eq!(by(&answer), "model:m");
        assert_eq!(
            serde_json::to_value(answer).unwrap()["_meta"]["callboard/answered"],
            json!({ "by": "model:m", "strategy": "magictunnel_handled" })
        );
        ask(&answerers, "t", &client.call()).await.unwrap_err();
    });
    let lines = recording.text();
    let audit: Vec<&str> = lines
        .lines()
        .filter(|line| line.contains("callboard::audit"))
        .collect();
    assert_eq!(audit.len(), 2, "{lines}");
    for part in [
        "peer=\"s\"",
        "by=\"model:m\"",
        "tokens_in=3",
        "tokens_out=4",
        "strategy=\"magictunnel_handled\"",
    ] {
        assert!(audit[0].contains(part), "{part} {}", audit[0]);
    }
    assert!(
        audit[1].contains("peer=\"t\"") && audit[1].contains("denied"),
        "{}",
        audit[1]
    );
    assert!(!lines.contains("how are you") && !lines.contains("from m"));
}
