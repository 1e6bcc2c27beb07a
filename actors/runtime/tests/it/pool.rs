use std::collections::HashSet;

use callboard_runtime::*;

use crate::messages::*;

async fn totals(pool: &Pool) -> Vec<u64> {
    let mut totals = Vec::new();
    for member in pool.members() {
        totals.push(member.observe().await.as_u64().unwrap_or(u64::MAX));
    }
    totals
}

/// Goal: round robin distributes evenly and skips a member that has ended. Method: count messages
/// by member.
#[test]
fn round_robin() {
    running(async |system| {
        let pool = Pool::spawn(system, 3, PoolStrategy::RoundRobin, Counter::default);
        for _ in 0..9 {
            pool.ask(Add { by: 1 }).await.unwrap();
        }
        assert_eq!(totals(&pool).await, [3, 3, 3]);
        pool.members()[1].kill();
        pool.members()[1].wait_for_exit().await;
        for _ in 0..6 {
            pool.ask(Add { by: 1 }).await.unwrap();
        }
        let after = totals(&pool).await;
        assert_eq!(after[0] + after[2], 12);
    });
}

/// Goal: least loaded avoids busy members. Method: two of three are in a slow handler.
#[test]
fn least_loaded() {
    running(async |system| {
        let pool = Pool::spawn(system, 3, PoolStrategy::LeastLoaded, Counter::default);
        for member in &pool.members()[..2] {
            member
                .tell(SlowAdd {
                    by: 100,
                    pause: SECOND,
                })
                .await
                .unwrap();
        }
        for _ in 0..5 {
            pool.ask(Add { by: 1 }).await.unwrap();
        }
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(totals(&pool).await, [100, 100, 5]);
    });
}

/// Goal: a key always has the same member; when a member ends, only its keys move. Method: 100 keys
/// over four members.
#[test]
fn by_key() {
    running(async |system| {
        let pool = Pool::spawn(system, 4, PoolStrategy::RoundRobin, Counter::default);
        let where_to = || {
            (0..100)
                .map(|key: u32| pool.for_key(&key).id())
                .collect::<Vec<_>>()
        };
        let before = where_to();
        assert_eq!(before, where_to());
        assert_eq!(before.iter().collect::<HashSet<_>>().len(), 4);
        let gone = pool.members()[2].id();
        pool.members()[2].kill();
        pool.members()[2].wait_for_exit().await;
        for (before, after) in before.into_iter().zip(where_to()) {
            assert!(after == before || before == gone);
            assert_ne!(after, gone);
        }
    });
}
