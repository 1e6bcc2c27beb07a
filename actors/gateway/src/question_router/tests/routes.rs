use callboard_message::{ElicitationAnswer, FailureKind, Question, SamplingRequest};
use callboard_models::{LanguageModel, ModelConfig};
use callboard_runtime::testkit::eventually;
use callboard_runtime::{CallContext, QuestionRouter};
use serde_json::json;
use std::time::Duration;

use super::kit::{Client, Does, ask, ask_for, by, options, paused, speaker, speaker_about};
use crate::question_router::StrategyQuestionRouter;

const SOON: Duration = Duration::from_secs(10);

const CAST: &str = r#"
    models = ["m1", "m2"]
    [servers.asker]
    supports_sampling = true
    answers_sampling = true
    [servers.other]
    answers_sampling = true
"#;

/// Goal: each strategy asks its answerers in its order. Method: every strategy, with all available,
/// without the client, without the models, and without both.
/// Rows: M-22, M-23, M-25, X-12.
#[test]
fn strategies_choose() {
    let rows = [
        ("magictunnel_handled", ["model:m1", "model:m1", "-", "-"]),
        ("client_forwarded", ["client", "-", "client", "-"]),
        (
            "external_server",
            [
                "server:other",
                "server:other",
                "server:other",
                "server:other",
            ],
        ),
        (
            "client_first",
            ["client", "server:other", "client", "server:other"],
        ),
        ("magictunnel_first", ["model:m1", "model:m1", "client", "-"]),
        ("hybrid", ["client", "model:m1", "client", "-"]),
    ];
    let well = |is_well: bool| {
        if is_well {
            Does::Answers
        } else {
            Does::Fails(FailureKind::Unavailable)
        }
    };
    for (strategy, expected) in rows {
        for (at, (client, models)) in [(true, true), (false, true), (true, false), (false, false)]
            .iter()
            .enumerate()
        {
            let by = paused(async |system| {
                for name in ["m1", "m2"] {
                    speaker(system, name, well(*models));
                }
                for name in ["asker", "other"] {
                    speaker(system, name, Does::Answers);
                }
                let toml = format!("sampling.default_strategy = \"{strategy}\"\n{CAST}");
                let answerers =
                    StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
                let by = ask(&answerers, "asker", &Client::that(well(*client)).call())
                    .await
                    .map(|a| by(&a));
                assert_eq!(answerers.0.chains.len(), 0);
                by
            });
            match expected[at] {
                "-" => assert_eq!(
                    by.unwrap_err().kind,
                    FailureKind::Unavailable,
                    "{strategy} {client} {models}"
                ),
                expected => assert_eq!(by.unwrap(), expected, "{strategy} {client} {models}"),
            }
        }
    }
}

/// Goal: a server's own strategy takes precedence over the default, a configured order over the
/// built-in one, and models come last if `fallback_to_models`. Method: rows of configuration with a
/// failing client or server.
/// Rows: M-21, M-39, M-40, M-41, M-42, X-12.
#[test]
fn configuration_decides() {
    let rows = [
        (
            "sampling.server_strategies = { asker = \"magictunnel_handled\" }",
            "model:m1",
        ),
        (
            "sampling.server_strategies = { other = \"magictunnel_handled\" }",
            "-",
        ),
        (
            "sampling = { default_strategy = \"client_first\", order = [\"client\", \"models\", \"servers\"] }",
            "model:m1",
        ),
        (
            "sampling = { default_strategy = \"client_first\", order = [\"model:m2\", \"client\"] }",
            "model:m2",
        ),
        (
            "sampling = { default_strategy = \"client_first\", order = [\"client\"] }",
            "model:m1",
        ),
        (
            "sampling = { default_strategy = \"client_first\", order = [\"client\"], fallback_to_models = false }",
            "-",
        ),
        (
            "sampling = { default_strategy = \"external_server\", order = [\"server:asker\"] }",
            "model:m1",
        ),
        (
            "sampling = { default_strategy = \"external_server\", order = [\"server:asker\"], fallback_to_models = false }",
            "-",
        ),
    ];
    for (toml, expected) in rows {
        let by = paused(async |system| {
            for name in ["m1", "m2", "asker", "other"] {
                speaker(system, name, Does::Answers);
            }
            let answerers =
                StrategyQuestionRouter::new(system.clone(), options(&format!("{toml}\n{CAST}")))
                    .unwrap();
            let client = Client::that(Does::Fails(FailureKind::Unavailable));
            ask(&answerers, "asker", &client.call())
                .await
                .map(|a| by(&a))
        });
        assert_eq!(by.unwrap_or("-".into()), expected, "{toml}");
    }
}

/// Goal: a question never reaches its asker, under another name or through another server (spec:
/// requester excluded). Method: two servers that answer, one of them listed twice; then one that
/// asks back while it answers.
/// Rows: M-24, M-42.
#[test]
fn askers_are_never_asked() {
    let toml = r#"
        sampling = { default_strategy = "external_server", fallback_to_models = false }
        [servers.ai-analysis-server]
        supports_sampling = true
        answers_sampling = true
        [servers.a-second-name]
        answers_sampling = true
        [servers.other]
        supports_sampling = true
        answers_sampling = true
    "#;
    paused(async |system| {
        let asker = speaker(system, "ai-analysis-server", Does::Answers);
        system
            .directory()
            .register("a-second-name", &asker.agent)
            .unwrap();
        let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
        let call = CallContext::new(std::sync::Arc::new(
            callboard_message::Principal::local_operator(),
        ));
        assert!(
            answerers.caller("ai-analysis-server", &call).is_none(),
            "it would promise an answer"
        );
        let other = speaker(system, "other", Does::AsksBack(answerers.clone()));
        let client = Client::that(Does::Answers);
        let failed = ask(&answerers, "ai-analysis-server", &client.call())
            .await
            .unwrap_err();
        assert_eq!(failed.kind, FailureKind::NoResponder);
        assert_eq!(
            (
                asker.heard.lock().unwrap().len(),
                other.heard.lock().unwrap().len()
            ),
            (0, 1)
        );
    });
}

/// Goal: the nesting of questions is limited. Method: `a` is answered by `b` or `c`, `b` by `c`,
/// `c` by the client: three limits, of which the lowest leaves nobody.
/// Rows: X-12.
#[test]
fn nesting_ends() {
    for (depth_max, expected) in [
        (3, Ok("server:b")),
        (2, Err(FailureKind::Rejected)),
        (1, Err(FailureKind::Rejected)),
    ] {
        let toml = format!(
            r#"
            sampling.server_strategies = {{ a = "external_server", b = "external_server" }}
            sampling.fallback_to_models = false
            [servers]
            a = {{ supports_sampling = true, caps.depth_max = {depth_max} }}
            b = {{ supports_sampling = true, answers_sampling = true, caps.depth_max = {depth_max} }}
            c = {{ supports_sampling = true, answers_sampling = true, caps.depth_max = {depth_max} }}
        "#
        );
        paused(async |system| {
            let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
            for name in ["b", "c"] {
                speaker(system, name, Does::AsksBack(answerers.clone()));
            }
            let answer = ask(&answerers, "a", &Client::that(Does::Answers).call()).await;
            assert_eq!(
                answer.map(|answer| by(&answer)).map_err(|why| why.kind),
                expected.map(str::to_owned)
            );
        });
    }
}

/// Goal: of two asked concurrently the first valid answer counts and the other is cancelled.
/// Method: each of them hangs once; then both fail.
#[test]
fn the_first_answer_counts() {
    let toml = format!("sampling.default_strategy = \"parallel\"\n{CAST}");
    paused(async |system| {
        let model = speaker(system, "m1", Does::Hangs);
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let slow_client = Client::that(Does::Hangs);
        let answer = ask(&answerers, "asker", &Client::that(Does::AnswersLate).call())
            .await
            .unwrap();
        assert_eq!(by(&answer), "client");
        assert_eq!(model.heard.lock().unwrap().len(), 1);
        eventually("the model is given up", SOON, || {
            !*model.busy.lock().unwrap()
        })
        .await;
        model.agent.kill();
        model.agent.wait_for_exit().await;
        speaker(system, "m2", Does::Answers);
        let answer = ask(&answerers, "asker", &slow_client.call()).await.unwrap();
        assert_eq!(by(&answer), "model:m2");
        let failing = Client::that(Does::Fails(FailureKind::Unavailable));
        assert_eq!(
            by(&ask(&answerers, "asker", &failing.call()).await.unwrap()),
            "model:m2"
        );
        // A person's or guardrail's rejection is final.
        let refusing = Client::that(Does::Fails(FailureKind::Blocked));
        assert_eq!(
            ask(&answerers, "asker", &refusing.call())
                .await
                .unwrap_err()
                .kind,
            FailureKind::Blocked
        );
    });
}

/// Goal: after a timeout the next one is asked, and the last failure names all that were asked.
/// Method: a model that hangs, one that fails, a client that does either.
/// Rows: M-42, M-56.
#[test]
fn failures_go_on_to_the_next() {
    let toml = format!("sampling.default_strategy = \"magictunnel_first\"\n{CAST}");
    paused(async |system| {
        let hanging = speaker(system, "m1", Does::Hangs);
        speaker(system, "m2", Does::Fails(FailureKind::Overloaded));
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let answer = ask(&answerers, "asker", &Client::that(Does::Answers).call())
            .await
            .unwrap();
        assert_eq!(by(&answer), "client");
        eventually("the model is given up", SOON, || {
            !*hanging.busy.lock().unwrap()
        })
        .await;
        let failing = Client::that(Does::Fails(FailureKind::Unavailable));
        let failed = ask(&answerers, "asker", &failing.call()).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::Unavailable);
        assert_eq!(
            failed.message,
            "nobody answered (model:m1: timed out, model:m2: overloaded, client: unavailable)"
        );
        let alone = Client::that_can(json!({}));
        speaker(system, "m3", Does::Fails(FailureKind::Internal));
        // The words reach the server although the last one failed as internal.
        let toml = toml
            .replace("\"m2\"", "\"m2\", \"m3\"")
            .replace("magictunnel_first", "magictunnel_handled");
        let broken = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let failed = ask(&broken, "asker", &alone.call()).await.unwrap_err();
        assert_eq!(
            (failed.kind, &*failed.message),
            (
                FailureKind::Unavailable,
                "nobody answered (model:m1: timed out, model:m2: overloaded, model:m3: internal)"
            )
        );
        let refusing = Client::that(Does::Fails(FailureKind::Blocked));
        assert_eq!(
            ask(&answerers, "asker", &refusing.call())
                .await
                .unwrap_err()
                .message,
            "client fails"
        );
    });
}

/// Goal: a model that the question names is asked first, under `hybrid` before the client. Method:
/// hints by directory name and by the model's description; tools that the client's model lacks.
/// Rows: M-46.
#[test]
fn questions_name_models() {
    let toml = format!("sampling.default_strategy = \"hybrid\"\n{CAST}");
    let wanting = |name: &str| {
        SamplingRequest(
            SamplingRequest::prompt("p", 9)
                .0
                .with("modelPreferences", json!({ "hints": [{ "name": name }] })),
        )
    };
    paused(async |system| {
        speaker(system, "m1", Does::Answers);
        speaker_about(
            system,
            "m2",
            Does::Answers,
            json!({ "serverInfo": { "name": "gpt-4" } }),
        );
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let client = Client::that_can(json!({ "sampling": {} }));
        let tools = SamplingRequest(SamplingRequest::prompt("p", 9).0.with("tools", json!([])));
        for (sample, expected) in [
            (wanting("GPT-4"), "model:m2"),
            (wanting("m1"), "model:m1"),
            (wanting("x"), "client"),
            (tools, "model:m1"),
        ] {
            assert_eq!(
                by(&ask_for(&answerers, "asker", &client.call(), sample)
                    .await
                    .unwrap()),
                expected
            );
        }
    });
}

/// Goal: models are found by their configured names, and their cost is counted. Method: two
/// scripted models, hints by name and alias; a cap on money that the second answer exceeds.
#[test]
fn configured_models_answer() {
    let config = |model: &str, alias: &str| {
        toml::from_str::<ModelConfig>(&format!(
            "provider = \"scripted\"\nmodel = \"{model}\"\naliases = [\"{alias}\"]\n\
             answers = [{{ text = \"t\", usage = {{ input_tokens = 3, output_tokens = 4 }} }}]\n\
             prices = {{ input_usd_per_million = 1, output_usd_per_million = 2 }}"
        ))
        .unwrap()
    };
    let toml = format!("sampling.default_strategy = \"magictunnel_handled\"\n{CAST}").replace(
        "supports_sampling = true",
        "supports_sampling = true\ncaps.micro_usd_per_minute_max = 22",
    );
    paused(async |system| {
        for (name, model, alias) in [("m1", "gpt-4", "best"), ("m2", "claude-3-opus", "other")] {
            let agent = system.spawn(LanguageModel::open(config(model, alias)).unwrap());
            system.directory().register(name, &agent).unwrap();
        }
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let client = Client::that(Does::Answers);
        for (hint, expected) in [("Claude-3", "model:m2"), ("OTHER", "model:m2")] {
            let hints = json!({ "hints": [{ "name": hint }] });
            let sample = SamplingRequest(
                SamplingRequest::prompt("p", 4)
                    .0
                    .with("modelPreferences", hints),
            );
            let answer = ask_for(&answerers, "asker", &client.call(), sample)
                .await
                .unwrap();
            assert_eq!(by(&answer), expected);
        }
        let refused = ask(&answerers, "asker", &client.call()).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
    });
}

/// Goal: the answerer sees which server asks, and in whose call; the server's own `_meta` is kept,
/// forged names corrected. Method: a question with members of its own in `_meta`, two of them forged.
/// Rows: M-20, X-8, X-9.
#[test]
fn samples_say_who_asks() {
    let toml = format!("sampling.default_strategy = \"magictunnel_handled\"\n{CAST}");
    paused(async |system| {
        let model = speaker(system, "m1", Does::Answers);
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let meta = json!({ "source_external_server": "other", "original_client_id": "other", "tool_execution_context": "t" });
        let sample = SamplingRequest(SamplingRequest::prompt("p", 9).0.with("_meta", meta));
        ask_for(
            &answerers,
            "asker",
            &Client::that(Does::Answers).call(),
            sample,
        )
        .await
        .unwrap();
        let heard: serde_json::Value = model.heard.lock().unwrap()[0].read("_meta").unwrap();
        let expected = json!({ "source_external_server": "asker", "original_client_id": "client", "tool_execution_context": "t",
            "bidirectional_request": true });
        assert_eq!(heard, expected);
    });
}

/// Goal: a person decides whether anyone but the client may answer. Method: an approval, three
/// kinds of refusal, a client without a person, and a client that answers itself.
#[test]
fn people_approve() {
    let toml = format!("sampling.default_strategy = \"magictunnel_first\"\n{CAST}").replace(
        "supports_sampling = true",
        "supports_sampling = true\napproval = true",
    );
    paused(async |system| {
        let model = speaker(system, "m1", Does::Answers);
        let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
        let yes = Client::with_form(
            Does::Answers,
            ElicitationAnswer::accept(json!({ "allow": true })),
        );
        assert_eq!(
            by(&ask(&answerers, "asker", &yes.call()).await.unwrap()),
            "model:m1"
        );
        let Question::Elicit(shown) = yes.asked.lock().unwrap()[0].clone() else {
            panic!()
        };
        assert_eq!(
            shown.message(),
            "Server \"asker\" asks a model:\nuser: how are you?"
        );
        for no in [
            ElicitationAnswer::decline(),
            ElicitationAnswer::cancel(),
            ElicitationAnswer::accept(json!({ "allow": false })),
        ] {
            let failed = ask(
                &answerers,
                "asker",
                &Client::with_form(Does::Answers, no).call(),
            )
            .await
            .unwrap_err();
            assert_eq!(failed.kind, FailureKind::Rejected);
        }
        let alone = Client::that_can(json!({ "sampling": {} }));
        assert_eq!(
            by(&ask(&answerers, "asker", &alone.call()).await.unwrap()),
            "client"
        );
        assert_eq!(model.heard.lock().unwrap().len(), 1);
    });
}

/// Goal: a failure that the client's person may have caused is final under every strategy that asks
/// the client; a client that can't answer is skipped. Method: each strategy with each kind of
/// failure; under `parallel` the model never answers, else it would be asked beside the client.
#[test]
fn a_clients_refusal_is_final() {
    use FailureKind::*;
    let refusals = [
        InvalidInput,
        NotFound,
        Denied,
        Blocked,
        Rejected,
        Cancelled,
        Internal,
    ];
    for strategy in ["client_forwarded", "client_first", "hybrid", "parallel"] {
        for kind in refusals
            .into_iter()
            .chain([NoResponder, Unavailable, TimedOut, Overloaded])
        {
            let is_refusal = refusals.contains(&kind);
            paused(async |system| {
                let model = if strategy == "parallel" && is_refusal {
                    Does::Hangs
                } else {
                    Does::Answers
                };
                let speakers = [
                    speaker(system, "m1", model),
                    speaker(system, "asker", Does::Answers),
                    speaker(system, "other", Does::Answers),
                ];
                let toml = format!("sampling.default_strategy = \"{strategy}\"\n{CAST}");
                let answerers =
                    StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
                let answer =
                    ask(&answerers, "asker", &Client::that(Does::Fails(kind)).call()).await;
                let heard: usize = speakers
                    .iter()
                    .map(|speaker| speaker.heard.lock().unwrap().len())
                    .sum();
                match (is_refusal, strategy) {
                    (true, "parallel") => assert_eq!(answer.unwrap_err().kind, kind),
                    (true, _) | (false, "client_forwarded") => {
                        assert_eq!(
                            (answer.unwrap_err().kind, heard),
                            (kind, 0),
                            "{strategy} {kind}"
                        );
                    }
                    (false, _) => assert_ne!(by(&answer.unwrap()), "client", "{strategy} {kind}"),
                }
            });
        }
    }
}

/// Goal: a server's rejection is final, like a guardrail's and the end of the call; after other
/// failures of a server, and after a model's rejection, the next one is asked. Method: a server
/// that fails with each kind before two models; then a model that rejects before another.
#[test]
fn a_servers_refusal_is_final() {
    use FailureKind::*;
    let asked = |strategy: &str, server: Does, first_model: Does| {
        let toml = format!("sampling.default_strategy = \"{strategy}\"\n{CAST}");
        paused(async |system| {
            let models = [
                speaker(system, "m1", first_model),
                speaker(system, "m2", Does::Answers),
            ];
            speaker(system, "other", server);
            let answerers = StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap();
            let answer = ask(&answerers, "asker", &Client::that(Does::Answers).call()).await;
            let heard: usize = models
                .iter()
                .map(|model| model.heard.lock().unwrap().len())
                .sum();
            (
                answer
                    .map(|answer| by(&answer))
                    .map_err(|failure| failure.kind),
                heard,
            )
        })
    };
    for kind in [Rejected, Blocked, Cancelled] {
        assert_eq!(
            asked("external_server", Does::Fails(kind), Does::Answers),
            (Err(kind), 0),
            "{kind}"
        );
    }
    for kind in [
        InvalidInput,
        NotFound,
        Denied,
        Internal,
        NoResponder,
        Unavailable,
        TimedOut,
        Overloaded,
    ] {
        let answered = (Ok("model:m1".to_owned()), 1);
        assert_eq!(
            asked("external_server", Does::Fails(kind), Does::Answers),
            answered,
            "{kind}"
        );
    }
    let answered = (Ok("model:m2".to_owned()), 2);
    assert_eq!(
        asked("magictunnel_handled", Does::Answers, Does::Fails(Rejected)),
        answered
    );
}
