use callboard_message::FailureKind;
use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
use callboard_runtime::*;
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::messages::*;

/// Goal: tell, ask and try_tell reach the handler. Method: a counter, inline and through its
/// mailbox.
#[test]
fn typed() {
    for profile in [
        AgentProfile::default(),
        AgentProfile::default().without_inline(),
    ] {
        run_with_paused_time(async |system| {
            let counter = system.prepare(Counter::default()).profile(profile).spawn();
            counter.tell(Add { by: 1 }).await.unwrap();
            counter.try_tell(Add { by: 2 }).unwrap();
            assert_eq!(counter.ask(Add { by: 3 }).await.unwrap(), 6);
            assert_eq!(
                counter
                    .recipient::<Add>()
                    .unwrap()
                    .ask(Add { by: 1 })
                    .await
                    .unwrap(),
                7
            );
            assert_eq!(
                counter
                    .ask(SlowAdd {
                        by: 1,
                        pause: SECOND
                    })
                    .await
                    .unwrap(),
                8
            );
            assert_eq!(counter.observe().await, json!(8));
            assert_eq!(
                system.shutdown(SECOND).await,
                ShutdownReport {
                    drained: 1,
                    killed: 0
                }
            );
        });
    }
}

/// Goal: the same handler is reached by name with JSON, and a payload that doesn't fit is rejected.
/// Method: good and bad payloads.
#[test]
fn by_name() {
    running(async |system| {
        let counter = system.spawn(Counter::default());
        let ask = async |name: &str, payload| {
            let reply = counter
                .ask_named(name, to_raw_value(&payload).unwrap(), None)
                .await;
            reply
                .map(|raw| serde_json::from_str::<serde_json::Value>(raw.get()).unwrap())
                .map_err(|f| f.kind)
        };
        assert_eq!(ask("add", json!({"by": 2})).await, Ok(json!(2)));
        assert_eq!(
            ask("add", json!({"by": "two"})).await,
            Err(FailureKind::InvalidInput)
        );
        assert_eq!(ask("slow_add", json!({})).await, Err(FailureKind::NotFound));
        assert_eq!(ask("add", json!({"by": 1})).await, Ok(json!(3)));
        assert_eq!(counter.specs().len(), 1);
        assert_eq!(counter.specs()[0].description, "Adds to the counter.");
    });
}

/// Goal: an agent can declare a message idempotent without affecting other agents. Method: one of
/// each, and their specs.
#[test]
fn repeatable() {
    struct Twice;
    impl Agent for Twice {
        fn handlers(on: &mut Handlers<Self>) {
            on.sync::<Add>().idempotent::<Add>();
        }
    }
    impl SyncHandler<Add> for Twice {
        fn handle(&mut self, add: Add, _: &mut Context) -> u64 {
            add.by
        }
    }
    running(async |system| {
        let (twice, once) = (system.spawn(Twice), system.spawn(Counter::default()));
        let hint = |agent: &AgentRef| {
            agent.specs()[0]
                .more
                .object("annotations")
                .and_then(|a| a.read::<bool>("idempotentHint"))
        };
        assert_eq!((hint(&twice), hint(&once)), (Some(true), None));
    });
}

/// Goal: a proxy agent is asked like any other. Method: a scripted agent in the counter's place.
#[test]
fn local_and_remote_look_identical() {
    running(async |system| {
        let remote = system.spawn(ScriptedAgent::new([
            ScriptStep::Reply(json!(42)),
            ScriptStep::Panic,
            ScriptStep::Reply(json!("not a number")),
        ]));
        assert_eq!(remote.ask(Add { by: 2 }).await.unwrap(), 42);
        assert_eq!(remote.observe().await, json!([["add", {"by": 2}]]));
        let told = system.spawn(ScriptedAgent::new([
            ScriptStep::Reply(json!(1)),
            ScriptStep::Reply(json!(2)),
        ]));
        told.tell(Add { by: 3 }).await.unwrap();
        told.try_tell(Add { by: 4 }).unwrap();
        testkit::eventually("both are begun", SECOND, || told.snapshot().handled == 2).await;
        assert_eq!(
            told.observe().await,
            json!([["add", {"by": 3}], ["add", {"by": 4}]])
        );
        told.kill();
        told.wait_for_exit().await;
        assert!(matches!(
            told.tell(Add { by: 5 }).await,
            Err(SendError::Closed {
                message: Add { by: 5 }
            })
        ));
        assert_eq!(
            remote.ask(Add { by: 2 }).await.unwrap_err().kind(),
            FailureKind::Internal
        );
    });
}

/// Goal: a message without a handler is returned to the sender. Method: one such message.
#[test]
fn not_handled() {
    running(async |system| {
        let remote = system.spawn(ScriptedAgent::new([]));
        assert!(matches!(
            remote.ask(Boom).await,
            Err(SendError::NotHandled { message: Boom, .. })
        ));
        assert!(remote.recipient::<Boom>().is_none());
    });
}
