use callboard_message::{FailureKind, SamplingRequest};
use callboard_runtime::System;
use std::time::Duration;

use super::kit::{Client, Does, Seen, ask, ask_for, by, options, paused, speaker};
use crate::question_router::{REFUSAL_DELAY, StrategyQuestionRouter};

/// Returns a router with a server `s` with these caps, and a model whose answers cost 3 + 4 tokens
/// and 10 millionths of a dollar.
fn capped(system: &System, caps: &str) -> (StrategyQuestionRouter, Seen) {
    let toml = format!(
        "models = [\"m\"]\nsampling.default_strategy = \"magictunnel_handled\"\n\
         servers.s = {{ supports_sampling = true, caps = {{ {caps} }} }}"
    );
    let model = speaker(system, "m", Does::Costs(3, 4));
    (
        StrategyQuestionRouter::new(system.clone(), options(&toml)).unwrap(),
        model,
    )
}

/// Goal: questions are limited in a call and in a minute. Method: the limits and one more; other
/// calls, and a minute later, succeed.
/// Rows: M-59.
#[test]
fn questions_are_counted() {
    paused(async |system| {
        let (answerers, _) = capped(
            system,
            "requests_per_call_max = 2, requests_per_minute_max = 3",
        );
        let client = Client::that(Does::Answers);
        let (one, two) = (client.call(), client.call());
        // As long as an asker holds it, a call has one account, through any number of handles.
        let _open = callboard_runtime::QuestionRouter::caller(&answerers, "s", &one).unwrap();
        _open
            .ask(callboard_message::Question::sample("p", 1))
            .await
            .unwrap();
        ask(&answerers, "s", &one).await.unwrap();
        let refused = ask(&answerers, "s", &one).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        assert_eq!(
            refused.message,
            "more than 2 questions in one call (`requests_per_call_max`)"
        );
        ask(&answerers, "s", &two).await.unwrap();
        let refused = ask(&answerers, "s", &client.call()).await.unwrap_err();
        assert_eq!(
            refused.message,
            "more than 3 questions in a minute (`requests_per_minute_max`)"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        ask(&answerers, "s", &client.call()).await.unwrap();
    });
}

/// Goal: a server that keeps asking after rejections is slowed down. Method: questions one after
/// another for ten seconds of a call that may ask twice.
#[test]
fn asking_on_and_on_is_slow() {
    paused(async |system| {
        let (answerers, _) = capped(system, "requests_per_call_max = 2");
        let call = Client::that(Does::Answers).call();
        let open = callboard_runtime::QuestionRouter::caller(&answerers, "s", &call).unwrap();
        let (begun, mut refused) = (tokio::time::Instant::now(), 0);
        while begun.elapsed() < REFUSAL_DELAY * 100 && refused <= 100 {
            refused += u32::from(
                open.ask(callboard_message::Question::sample("p", 1))
                    .await
                    .is_err(),
            );
        }
        assert!((90..=100).contains(&refused), "{refused}");
    });
}

/// Goal: an answer's tokens are limited, if the question asks for more or sets no limit. Method:
/// rows.
/// Rows: X-7.
#[test]
fn answers_are_bounded() {
    paused(async |system| {
        let (answerers, model) = capped(
            system,
            "tokens_per_answer_max = 50, tokens_per_answer_default = 20",
        );
        let client = Client::that(Does::Answers);
        let mut silent = SamplingRequest::prompt("p", 1);
        silent.0.remove("maxTokens");
        let odd = SamplingRequest(SamplingRequest::prompt("p", 1).0.with("maxTokens", -3));
        for (sample, tokens) in [
            (SamplingRequest::prompt("p", 50), 50),
            (SamplingRequest::prompt("p", 51), 50),
            (silent, 20),
            (odd, 20),
        ] {
            ask_for(&answerers, "s", &client.call(), sample)
                .await
                .unwrap();
            let heard = model.heard.lock().unwrap().pop().unwrap();
            assert_eq!(heard.read::<u32>("maxTokens"), Some(tokens));
        }
    });
}

/// Goal: used tokens count for call and minute; the last answer gets the rest, the next none.
/// Method: answers that cost seven tokens.
/// Rows: M-59.
#[test]
fn tokens_are_counted() {
    for (caps, message) in [
        (
            "tokens_per_call_max = 10",
            "this call's questions have used up their tokens (`tokens_per_call_max` or the call's budget)",
        ),
        (
            "tokens_per_minute_max = 10",
            "the server's questions have used up this minute's tokens (`tokens_per_minute_max`)",
        ),
        (
            "micro_usd_per_call_max = 11",
            "this call's questions have used up their money (`micro_usd_per_call_max` or the call's budget)",
        ),
        (
            "micro_usd_per_minute_max = 11",
            "the server's questions have used up this minute's money (`micro_usd_per_minute_max`)",
        ),
    ] {
        paused(async |system| {
            let (answerers, model) = capped(system, caps);
            let call = Client::that(Does::Answers).call();
            let open = callboard_runtime::QuestionRouter::caller(&answerers, "s", &call).unwrap();
            for _ in 0..2 {
                open.ask(callboard_message::Question::sample("p", 100))
                    .await
                    .unwrap();
            }
            if caps.starts_with("tokens") {
                let given: Vec<u64> = model
                    .heard
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|m| m.read("maxTokens").unwrap())
                    .collect();
                assert_eq!(given, [10, 3]);
            }
            // Input tokens count too: the answerer's budget has all that is left.
            let budgets: Vec<serde_json::Value> = model
                .heard
                .lock()
                .unwrap()
                .iter()
                .map(|m| m.read("budget").unwrap())
                .collect();
            let (name, left) = match caps.starts_with("tokens") {
                true => ("tokens", [10, 3]),
                false => ("micro_usd", [11, 1]),
            };
            assert_eq!([&budgets[0][name], &budgets[1][name]], left);
            let refused = ask(&answerers, "s", &call).await.unwrap_err();
            assert_eq!(
                (refused.kind, refused.message.as_str()),
                (FailureKind::Overloaded, message)
            );
        });
    }
}

/// Goal: the budget of a call limits its questions too; without budget the client can still answer.
/// Method: a call with a budget of ten tokens, a client that answers last.
#[test]
fn budgets_count() {
    paused(async |system| {
        speaker(system, "m", Does::Costs(3, 4));
        let toml = "models = [\"m\"]\nsampling.default_strategy = \"magictunnel_first\"\nservers.s.supports_sampling = true";
        let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
        let mut call = Client::that(Does::Answers).call();
        call.budget.tokens = Some(7);
        let _open = callboard_runtime::QuestionRouter::caller(&answerers, "s", &call).unwrap();
        _open
            .ask(callboard_message::Question::sample("p", 100))
            .await
            .unwrap();
        assert_eq!(by(&ask(&answerers, "s", &call).await.unwrap()), "client");
    });
}

/// Goal: a cancelled answer counts with its whole reservation, a failed one with nothing. Method: a
/// model that hangs until the call is dropped; one that fails.
#[test]
fn what_is_unknown_counts_whole() {
    for (does, left) in [
        (Does::Hangs, 40),
        (Does::Fails(FailureKind::Unavailable), 100),
    ] {
        paused(async |system| {
            speaker(system, "m", does.clone());
            let heard = speaker(system, "n", Does::Answers);
            let toml = "models = [\"m\", \"n\"]\nservers.s = { supports_sampling = true, caps.tokens_per_call_max = 100 }\n\
                        sampling = { default_strategy = \"magictunnel_handled\", answer_timeout_s = 1 }";
            let answerers = StrategyQuestionRouter::new(system.clone(), options(toml)).unwrap();
            let sample = SamplingRequest::prompt("p", 60);
            ask_for(&answerers, "s", &Client::that(Does::Answers).call(), sample)
                .await
                .unwrap();
            let given: u64 = heard.heard.lock().unwrap()[0].read("maxTokens").unwrap();
            assert_eq!(given, left.min(60));
        });
    }
}
