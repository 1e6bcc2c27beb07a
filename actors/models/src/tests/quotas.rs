//! Quotas of principals at models.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, Principal, PrincipalKind};
use callboard_runtime::{AgentRef, CallContext, Quota, System, testkit};
use serde_json::{Value, json};

use super::kit::{at, open, params, real, said, server, times_asked, whole};
use crate::{AskModel, ModelConfig, ModelPool, PoolMember};

/// Spawns a model whose answers use 30 tokens, as the member `m` of a pool.
fn spawn(system: &System, limits: Value) -> (AgentRef, AgentRef) {
    let usage = json!({ "input_tokens": 20, "output_tokens": 10 });
    let prices = json!({ "input_usd_per_million": 1.0, "output_usd_per_million": 8.0 });
    let config = json!({ "provider": "scripted", "answers": [{ "text": "a", "usage": usage }],
        "prices": prices, "limits": limits });
    let model = open(serde_json::from_value(config).unwrap());
    let member = PoolMember::new("m", model.card());
    let agent = system.prepare(model).label("m").spawn();
    system.directory().register("m", &agent).unwrap();
    let pool = system.spawn(ModelPool::new(vec![member], true).unwrap());
    (agent, pool)
}

fn set(system: &System, quota: Value) {
    let quota: Quota = serde_json::from_value(quota).unwrap();
    assert_eq!(quota.validate(), Ok(()));
    system.policy().quotas().set(vec![quota]);
}

/// Asks on behalf of the key `id`.
async fn sample(agent: &AgentRef, id: &str) -> Result<(), Failure> {
    let principal = Principal {
        kind: PrincipalKind::ApiKey,
        ..Principal::agent(id)
    };
    let call = CallContext::new(Arc::new(principal));
    let asked = agent.ask(params(&said("Hi")));
    let asked = asked.within_call(Some(Arc::new(call))).await;
    asked.map_err(Failure::from)?.map(drop)
}

/// Goal: tokens count for the principal of a call, whether the model is asked directly or by a pool, until they are
/// used up; others aren't bound by it. Method: a quota of 90 tokens, three answers of 30; then one too many each way.
#[test]
fn tokens_count_whoever_asks() {
    testkit::run_with_paused_time(async |system| {
        let (model, pool) = spawn(system, json!({}));
        set(
            system,
            json!({ "id": "q", "window": "month", "models": ["m"], "tokens": 90 }),
        );
        for agent in [&model, &pool, &model] {
            assert_eq!(sample(agent, "alice").await, Ok(()));
        }
        for agent in [&model, &pool] {
            let refused = sample(agent, "alice").await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::Overloaded);
            assert_eq!(refused.data.unwrap()["quota"], "q");
        }
        assert_eq!(sample(&model, "bob").await, Ok(()));
        // The node itself.
        assert!(model.ask(AskModel::new("Hi")).await.unwrap().is_ok());
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: money counts by the model's prices. Method: answers of a hundred millionths of a dollar, and a quota of
/// two.
#[test]
fn money_counts() {
    testkit::run_with_paused_time(async |system| {
        let (model, _) = spawn(system, json!({}));
        set(
            system,
            json!({ "id": "q", "window": "month", "models": ["*"], "usd": 0.000_2 }),
        );
        assert_eq!(sample(&model, "alice").await, Ok(()));
        assert_eq!(sample(&model, "alice").await, Ok(()));
        let refused = sample(&model, "alice").await.unwrap_err();
        assert!(refused.message.contains("0.0002 US dollars"), "{refused}");
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a request that the model's own limits refuse doesn't count. Method: a model of one request a minute, and a
/// quota of two.
#[test]
fn refused_requests_do_not_count() {
    testkit::run_with_paused_time(async |system| {
        let (model, _) = spawn(system, json!({ "requests_per_minute_max": 1 }));
        set(
            system,
            json!({ "id": "q", "window": "month", "models": ["m"], "calls": 2 }),
        );
        for is_first in [true, false] {
            assert_eq!(sample(&model, "alice").await, Ok(()), "{is_first}");
            if is_first {
                let refused = sample(&model, "alice").await.unwrap_err();
                assert!(refused.message.contains("requests_per_minute_max"));
                tokio::time::advance(Duration::from_secs(60)).await;
            }
        }
        let refused = sample(&model, "alice").await.unwrap_err();
        assert!(
            refused.message.contains("the quota `q` of 2 calls"),
            "{refused}"
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a request that is cancelled before its answer begins counts its input. Method: a provider that is slow to
/// answer, and a quota of one token.
#[test]
fn cancelled_requests_count_their_input() {
    real(async |system| {
        let slow = whole(json!({})).set_delay(Duration::from_secs(60));
        let server = server([slow]).await;
        let model = open(ModelConfig::OpenaiCompatible(at(&server)));
        let agent = system.spawn(model.clone().with_id("m"));
        set(
            system,
            json!({ "id": "q", "window": "month", "models": ["m"], "tokens": 1 }),
        );
        let until_asked = async {
            while times_asked(&server).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            reply = sample(&agent, "alice") => panic!("{reply:?}"),
            () = until_asked => {}
        }
        let refused = sample(&agent, "alice").await.unwrap_err();
        assert!(refused.message.contains("`q` of 1 tokens"), "{refused}");
        // The answer's tokens were reserved only.
        let used = || model.0.ledger.usage_today().0;
        testkit::eventually("the rest is free again", Duration::from_secs(5), || {
            (1..20).contains(&used())
        })
        .await;
    });
}
