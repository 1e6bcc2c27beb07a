use std::num::NonZeroU32;

use callboard_macros::Message;
use callboard_message::*;
use callboard_runtime::testkit::{Probe, run_with_paused_time};
use callboard_runtime::*;
use serde_json::json;

use crate::messages::*;

/// Goal: names are exact, unique, visible by group, and removed with their agent. Method: two
/// agents in different groups.
#[test]
fn directory() {
    running(async |system| {
        let [a, b] = [0, 1].map(|_| system.spawn(Counter::default()));
        let directory = system.directory();
        directory.register("clinic", &a).unwrap();
        assert_eq!(
            directory.register("clinic", &b),
            Err(NameTakenError {
                name: "clinic".into()
            })
        );
        directory.register_in("silo", &b, ["orchestrator"]).unwrap();
        assert_eq!(directory.get("clinic"), Some(a.clone()));
        assert_eq!(directory.get("Clinic"), None);
        assert_eq!(directory.find(GROUP_DEFAULT, "silo"), None);
        assert_eq!(directory.find("orchestrator", "silo"), Some(b.clone()));
        assert_eq!(directory.find(GROUP_DEFAULT, "clinic"), Some(a.clone()));
        assert_eq!(directory.find("orchestrator", "clinic"), None);
        a.kill();
        a.wait_for_exit().await;
        assert_eq!(directory.get("clinic"), None);
        directory.register("clinic", &b).unwrap();
        directory.register("late", &a).unwrap();
        assert_eq!(directory.get("late"), None, "it had ended");
    });
}

/// Event for subscribers.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(local)]
struct News(u32);

/// Goal: an event reaches each subscriber of its topic once; a full one misses it, an ended one is
/// removed. Method: one of each.
#[test]
fn events() {
    running(async |system| {
        let (fast, mut seen) = Probe::<News>::spawn(system, |_| ());
        let (gone, _) = Probe::<News>::spawn(system, |_| ());
        let recipient = fast.recipient::<News>().unwrap();
        for _ in 0..2 {
            system.events().subscribe("weather", recipient.clone());
        }
        system
            .events()
            .subscribe("weather", gone.recipient::<News>().unwrap());
        gone.kill();
        gone.wait_for_exit().await;
        assert_eq!(
            system.events().publish("weather", &News(1)),
            PublishReport {
                delivered: 1,
                missed: 0
            }
        );
        assert_eq!(
            system.events().publish("sports", &News(2)),
            PublishReport::default()
        );
        for n in 0..MAILBOX_CAPACITY_DEFAULT {
            system.events().publish("weather", &News(n + 3));
        }
        assert_eq!(
            system.events().publish("weather", &News(0)),
            PublishReport {
                delivered: 0,
                missed: 1
            }
        );
        assert_eq!(seen.recv().await, Some(News(1)));
        assert_eq!(seen.recv().await, Some(News(3)));
        system.events().unsubscribe::<News>("weather", fast.id());
        assert_eq!(
            system.events().publish("weather", &News(0)),
            PublishReport::default()
        );
    });
}

/// Goal: policies run in order, the first rejection decides, and an empty chain permits everything;
/// a rate limit rejects a principal at its limit + 1 and no other. Method: a chain with a rate
/// limit of two.
#[test]
fn policy() {
    run_with_paused_time(async |system| {
        let payload = serde_json::value::to_raw_value(&json!({})).unwrap();
        let [ann, bob] = ["ann", "bob"].map(Principal::agent);
        let judge = async |principal| {
            let crossing = PolicyRequest {
                direction: Direction::Inbound,
                principal,
                call: CallId::generate(),
                agent: "clinic",
                message: "query",
                payload: &payload,
            };
            system
                .policy()
                .check(None, crossing)
                .await
                .map_err(|f| f.kind)
        };
        assert_eq!(judge(&ann).await, Ok(()));
        system
            .policy()
            .push(RateLimit::per_principal(NonZeroU32::new(2).unwrap()));
        let seen = [
            judge(&ann).await,
            judge(&ann).await,
            judge(&ann).await,
            judge(&bob).await,
        ];
        assert_eq!(seen, [Ok(()), Ok(()), Err(FailureKind::Overloaded), Ok(())]);
    });
}

/// Goal: the in-memory journal keeps the order, writes a key once, and fails at limit + 1. Method:
/// a journal for two records.
#[test]
fn journal() {
    run_with_paused_time(async |_| {
        let journal = MemoryJournal::with_capacity(2);
        let record = |key: &str| JournalRecord {
            stream: "audit".into(),
            key: Some(key.into()),
            body: json!(key),
        };
        assert_eq!(journal.append(record("a")).await, Ok(1));
        assert_eq!(journal.append(record("b")).await, Ok(2));
        assert_eq!(journal.append(record("a")).await, Ok(1));
        assert_eq!(
            journal.append(record("c")).await,
            Err(JournalError::Full { records_max: 2 })
        );
        assert_eq!(
            journal.read("audit", 1, 10).await,
            Ok(vec![(2, record("b"))])
        );
        assert_eq!(journal.read("task", 0, 10).await, Ok(vec![]));
    });
}
