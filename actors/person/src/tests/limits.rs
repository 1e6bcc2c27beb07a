//! Limits of questions and of calls that wait.

use async_trait::async_trait;
use callboard_runtime::{JournalResult, KvEntry, KvError};
use futures::future::join_all;

use super::*;

/// Goal: one principal can't hold all calls that wait for a person. Method: all places that one may have; it and another
/// ask.
#[test]
fn waiting_calls_are_shared() {
    run_with_paused_time(async |system| {
        let person = PersonAgent::new(PersonOptions::new("dora-inbox")).unwrap();
        let waits = person.waits.clone();
        let agent = system.spawn(person);
        let (bot, other) = (principal("bot", &[]), principal("other", &[]));
        let held: Vec<_> = std::iter::from_fn(|| waits.try_acquire(&*bot).ok()).collect();
        assert_eq!(held.len(), PERSON_WAITS_MAX / 4 * 3);
        let well = || question("Well?", None);
        assert_eq!(
            ask_briefly(&agent, &bot, well()).await,
            FailureKind::Overloaded
        );
        assert_eq!(
            ask_briefly(&agent, &other, well()).await,
            FailureKind::TimedOut
        );
        drop(held);
        assert_eq!(
            ask_briefly(&agent, &bot, well()).await,
            FailureKind::TimedOut
        );
        assert_eq!(waits.used(), 0);
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: the questions of a requester are bounded, and an old answer makes room for a new one. Method: the most
/// questions and one more, of one requester and of another; answers of now and of a minute ago.
#[test]
fn questions_of_a_requester_are_bounded() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let (bot, other) = (principal("bot", &[]), principal("other", &[]));
        for at in 0..PERSON_REQUESTS_PER_REQUESTER_MAX {
            let asked = question("?", Some(&at.to_string()));
            let kind = ask_briefly(&agent, &bot, asked).await;
            assert_eq!(kind, FailureKind::TimedOut, "{at}");
        }
        let more = || question("?", Some("more"));
        let repeated = question("?", Some("0"));
        assert_eq!(
            ask_briefly(&agent, &bot, repeated).await,
            FailureKind::TimedOut
        );
        assert_eq!(
            ask_briefly(&agent, &bot, more()).await,
            FailureKind::Overloaded
        );
        assert_eq!(
            ask_briefly(&agent, &other, more()).await,
            FailureKind::TimedOut
        );
        let all = waiting(store, PERSON_REQUESTS_PER_REQUESTER_MAX + 1).await;
        let of_bot = all.iter().find(|waits| waits.requester == "api_key:bot");
        let id = &of_bot.unwrap().id;
        answer_inbox(store, system.audit(), id, &dora(), InboxAnswer::Decline)
            .await
            .unwrap();
        // A call may not have read it yet.
        assert_eq!(
            ask_briefly(&agent, &bot, more()).await,
            FailureKind::Overloaded
        );
        rewrite(store, id, |stored| stored.answered_s -= 60).await;
        assert_eq!(
            ask_briefly(&agent, &bot, more()).await,
            FailureKind::TimedOut
        );
        let (removed, _) = inbox::read(store, id.split_once('-').unwrap().0)
            .await
            .unwrap();
        assert!(removed.is_none());
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: the questions in a store are bounded. Method: as many as fit and one more; an expired one and an old answer
/// make room.
#[test]
fn questions_of_all_are_bounded() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let bot = principal("bot", &[]);
        ask_briefly(&agent, &bot, question("?", Some("first"))).await;
        let first = waiting(store, 1).await.remove(0);
        let (stored, _) = inbox::read(store, first.id.split_once('-').unwrap().0)
            .await
            .unwrap();
        let stored = stored.unwrap();
        for at in 1..PERSON_REQUESTS_MAX {
            let of_another = StoredRequest {
                id: format!("{at:032x}-0"),
                requester: format!("requester-{at}"),
                person: format!("person-{}", at % 3),
                ..stored.clone()
            };
            of_another.write(store, 0).await.unwrap();
        }
        let more = |n: u32| question("?", Some(&n.to_string()));
        let full = FailureKind::Overloaded;
        assert_eq!(ask_briefly(&agent, &bot, more(1)).await, full);
        rewrite(store, &format!("{:032x}-0", 1), |stored| {
            stored.expires_s = 1;
        })
        .await;
        let room = FailureKind::TimedOut;
        assert_eq!(ask_briefly(&agent, &bot, more(1)).await, room);
        assert_eq!(ask_briefly(&agent, &bot, more(2)).await, full);
        rewrite(store, &format!("{:032x}-0", 2), |stored| {
            stored.state = InboxState::Declined;
        })
        .await;
        assert_eq!(ask_briefly(&agent, &bot, more(2)).await, room);
        waiting(store, PERSON_REQUESTS_MAX).await;
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Goal: the questions to one person are bounded. Method: as many as fit, of many requesters, and one more; one to
/// another person.
#[test]
fn questions_to_a_person_are_bounded() {
    run_with_paused_time(async |system| {
        let agent = spawn(system);
        let store = &*system.store().kv;
        let bot = principal("bot", &[]);
        ask_briefly(&agent, &bot, question("?", Some("first"))).await;
        let first = waiting(store, 1).await.remove(0);
        let (stored, _) = inbox::read(store, first.id.split_once('-').unwrap().0)
            .await
            .unwrap();
        for at in 1..PERSON_REQUESTS_PER_PERSON_MAX {
            let of_another = StoredRequest {
                id: format!("{at:032x}-0"),
                requester: format!("requester-{at}"),
                ..stored.clone().unwrap()
            };
            of_another.write(store, 0).await.unwrap();
        }
        let more = || question("?", Some("more"));
        assert_eq!(
            ask_briefly(&agent, &bot, more()).await,
            FailureKind::Overloaded
        );
        let eve = PersonAgent::new(PersonOptions::new("eve")).unwrap();
        let eve = system.spawn(eve);
        assert_eq!(ask_briefly(&eve, &bot, more()).await, FailureKind::TimedOut);
        system.shutdown(POLL_INTERVAL).await;
    });
}

/// Store whose operations let other calls run first, as those of a database do.
#[derive(Default)]
struct YieldingStore(MemoryKvStore);

#[async_trait]
impl KvStore for YieldingStore {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>> {
        tokio::task::yield_now().await;
        self.0.get(space, key).await
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        tokio::task::yield_now().await;
        self.0.put(space, key, body, expected).await
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        tokio::task::yield_now().await;
        self.0.remove(space, key).await
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> JournalResult<Vec<KvEntry>> {
        tokio::task::yield_now().await;
        self.0.list(space, after, entries_max).await
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        self.0.clear(space).await
    }
}

/// Goal: limits hold for questions that are asked at the same time. Method: twice as many as one requester may have, on a
/// store whose operations interleave.
#[test]
fn limits_hold_for_parallel_questions() {
    run_with_paused_time(async |_| {
        let store = YieldingStore::default();
        let bot = principal("bot", &[]);
        let (secret, schema) = (inbox::secret(&store).await.unwrap(), form::text_form());
        let (kv, requester, secret, schema) = (&store, &*bot, secret.as_str(), &schema);
        let ask = |at: usize| async move {
            let reference = at.to_string();
            let new = NewRequest {
                secret,
                person: "dora-inbox",
                requester,
                named: Some(reference.as_str()),
                question: "?",
                schema,
                answer_time: ANSWER_TIME_DEFAULT,
            };
            inbox::open(kv, &new).await
        };
        let asked = join_all((0..2 * PERSON_REQUESTS_PER_REQUESTER_MAX).map(ask)).await;
        let (opened, refused): (Vec<_>, Vec<_>) = asked.into_iter().partition(Result::is_ok);
        assert_eq!(opened.len(), PERSON_REQUESTS_PER_REQUESTER_MAX);
        for asked in refused {
            assert_eq!(asked.unwrap_err().kind, FailureKind::Overloaded);
        }
        let waits = inbox(&store, None).await.unwrap();
        assert_eq!(waits.len(), PERSON_REQUESTS_PER_REQUESTER_MAX);
    });
}
