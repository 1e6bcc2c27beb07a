//! Limits of tokens and money.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::Principal;
use callboard_message::{Budget, FailureKind};
use callboard_runtime::{CallContext, testkit};
use serde_json::{Value, json};

use super::super::config::ModelError;
use super::super::request::TokenCounts;
use super::kit::{asked, at, params, real, said, sample, server, spawn, times_asked, whole};
use crate::config::{ModelLimits, TokenPrices};
use crate::usage_ledger::UsageLedger;
use crate::{ModelConfig, RemoteModelConfig};

const NO_BUDGET: Budget = Budget {
    tokens: None,
    micro_usd: None,
};

fn ledger(limits: ModelLimits, prices: Option<(f64, f64)>) -> Arc<UsageLedger> {
    let prices = prices.map(|(input, output)| TokenPrices {
        input_usd_per_million: input,
        output_usd_per_million: output,
    });
    UsageLedger::new(&limits, prices).unwrap()
}

/// Goal: the tokens of an answer are reduced to the limits of its call; a call with none left is
/// rejected. Method: rows at the limit and beyond.
#[test]
fn answers_are_cut_to_the_call() {
    testkit::run_with_paused_time(async |_| {
        let limits = ModelLimits {
            tokens_max: 1_000,
            tokens_per_call_max: Some(500),
            usd_per_call_max: Some(0.001),
            ..ModelLimits::default()
        };
        // 1,000 millionths of a US dollar; an input token costs 2 of them, an output token 5.
        let ledger = ledger(limits, Some((2.0, 5.0)));
        let tokens = |input, asked, budget| {
            ledger
                .reserve(input, asked, budget)
                .map(|(_, tokens)| tokens)
                .ok()
        };
        assert_eq!(tokens(10, Some(50), NO_BUDGET), Some(50), "as asked");
        assert_eq!(
            tokens(10, None, NO_BUDGET),
            Some(196),
            "what the money is enough for"
        );
        assert_eq!(tokens(400, None, NO_BUDGET), Some(40));
        assert_eq!(tokens(497, None, NO_BUDGET), Some(1));
        assert_eq!(tokens(498, None, NO_BUDGET), None);
        let budget = |tokens, micro_usd| Budget { tokens, micro_usd };
        assert_eq!(tokens(10, Some(50), budget(Some(30), None)), Some(20));
        assert_eq!(tokens(10, Some(50), budget(Some(11), None)), Some(1));
        assert_eq!(tokens(10, Some(50), budget(Some(10), None)), None);
        assert_eq!(tokens(10, Some(50), budget(None, Some(25))), Some(1));
        assert_eq!(tokens(10, Some(50), budget(None, Some(24))), None);
        assert_eq!(ledger.usage_today(), (0, 0), "nothing was spent");
    });
}

/// Goal: usage per minute and day is limited, reservations count, and unspent ones are released.
/// Method: reach each limit, then one more; a minute later there is room.
#[test]
fn minutes_and_days_have_limits() {
    testkit::run_with_paused_time(async |_| {
        let limits = ModelLimits {
            requests_per_minute_max: Some(3),
            tokens_per_minute_max: Some(300),
            tokens_per_day_max: Some(500),
            ..ModelLimits::default()
        };
        let ledger = ledger(limits, None);
        let grant = |asked| {
            ledger
                .reserve(10, Some(asked), NO_BUDGET)
                .map(|(grant, _)| grant)
        };
        let under_way = grant(190).unwrap();
        assert!(grant(91).is_err(), "what is under way counts");
        let second = grant(90).unwrap();
        under_way.record_usage(TokenCounts {
            input: 10,
            output: 20,
        });
        drop(under_way);
        drop(second);
        assert_eq!(ledger.usage_today(), (30, 0), "only what was spent");
        let third = grant(260).unwrap();
        third.record_usage(TokenCounts {
            input: 10,
            output: 260,
        });
        drop(third);
        let refused = grant(1).err().unwrap();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        assert_eq!(
            refused.message,
            "the model's limit `requests_per_minute_max` is used up: try again later, or raise it"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(
            grant(191).err().unwrap().message,
            "the model's limit `tokens_per_day_max` is used up: try again later, or raise it"
        );
        assert!(grant(190).is_ok());
        tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
        assert!(grant(290).is_ok());
    });
}

/// Goal: the cost per day is limited. Method: to the millionth of a dollar, and one more.
/// Rows: M-59.
#[test]
fn a_day_has_its_money() {
    testkit::run_with_paused_time(async |_| {
        let limits = ModelLimits {
            usd_per_day_max: Some(0.00006),
            ..ModelLimits::default()
        };
        let ledger = ledger(limits, Some((2.0, 5.0)));
        let (grant, _) = ledger.reserve(10, Some(8), NO_BUDGET).unwrap();
        let refused = ledger.reserve(0, Some(1), NO_BUDGET).err().unwrap();
        assert_eq!(
            refused.message,
            "the model's limit `usd_per_day_max` is used up: try again later, or raise it"
        );
        grant.record_usage(TokenCounts {
            input: 10,
            output: 7,
        });
        drop(grant);
        assert_eq!(ledger.usage_today(), (17, 55));
        assert!(ledger.reserve(0, Some(1), NO_BUDGET).is_ok());
    });
}

/// Goal: invalid limits are rejected at start. Method: rows.
#[test]
fn limits_that_cannot_be_meant() {
    let limits = |limits: ModelLimits, price: Option<f64>| {
        let prices = price.map(|usd| TokenPrices {
            input_usd_per_million: usd,
            output_usd_per_million: 1.0,
        });
        matches!(
            UsageLedger::new(&limits, prices),
            Err(ModelError::InvalidSetting { .. })
        )
    };
    let default = ModelLimits::default;
    assert!(limits(
        ModelLimits {
            calls_max: 0,
            ..default()
        },
        None
    ));
    assert!(limits(
        ModelLimits {
            tokens_max: 0,
            ..default()
        },
        None
    ));
    assert!(
        limits(
            ModelLimits {
                usd_per_day_max: Some(1.0),
                ..default()
            },
            None
        ),
        "dollars need prices"
    );
    assert!(limits(
        ModelLimits {
            usd_per_day_max: Some(-1.0),
            ..default()
        },
        Some(1.0)
    ));
    assert!(limits(
        ModelLimits {
            usd_per_call_max: Some(f64::NAN),
            ..default()
        },
        Some(1.0)
    ));
    assert!(limits(default(), Some(-0.1)));
    assert!(limits(default(), Some(f64::INFINITY)));
    assert!(!limits(
        ModelLimits {
            usd_per_day_max: Some(1.0),
            ..default()
        },
        Some(0.0)
    ));
}

fn hello(tokens: u64) -> Value {
    json!({ "choices": [{ "message": { "content": "Hello" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": tokens } })
}

/// Goal: a model's limits and its call's budget bound the requested tokens; an exhausted limit
/// prevents the request. Method: a budget in the call, then a day over its limit.
#[test]
fn the_provider_is_asked_for_no_more() {
    real(async |system| {
        let server = server([whole(hello(400))]).await;
        let limits = ModelLimits {
            tokens_max: 60,
            tokens_per_day_max: Some(300),
            ..ModelLimits::default()
        };
        let agent = spawn(
            system,
            ModelConfig::OpenaiCompatible(RemoteModelConfig {
                limits,
                ..at(&server)
            }),
        );
        let mut meta = CallContext::new(Arc::new(Principal::agent("test")));
        meta.budget.tokens = Some(42);
        agent
            .ask(params(&said("Hi")))
            .within_call(Some(Arc::new(meta)))
            .await
            .unwrap()
            .unwrap();
        let allowed = asked(&server).await["max_tokens"].as_u64().unwrap();
        assert!((30..42).contains(&allowed), "{allowed}");
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.kind,
            FailureKind::Overloaded,
            "the first has used 401 tokens"
        );
        assert_eq!(times_asked(&server).await, 1);
    });
}

/// Goal: a failed request costs nothing. Method: a refusal, then the day's usage.
#[test]
fn a_refusal_is_free() {
    real(async |system| {
        let server = server([wiremock::ResponseTemplate::new(400)]).await;
        let model = super::kit::open(ModelConfig::OpenaiCompatible(at(&server)));
        let agent = system.spawn(model.clone());
        sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(model.0.ledger.usage_today(), (0, 0));
    });
}
