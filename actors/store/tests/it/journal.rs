use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{JOURNAL_BATCH_MAX, Journal, JournalError, JournalRecord, MemoryJournal};
use callboard_store::{PAGE_ROWS_MAX, RECORD_BYTES_MAX_DEFAULT, WRITE_WAIT_MAX};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::kit::{Opened, anywhere, in_database, in_file, stores, stores_with};

fn record(stream: &str, key: Option<&str>, body: Value) -> JournalRecord {
    JournalRecord {
        stream: stream.to_owned(),
        key: key.map(str::to_owned),
        body,
    }
}

/// Goal: numbers count from 1 in each stream without gaps, also with concurrent writers and after a
/// restart. Method: 64 writers on 3 streams, then a restart and one more.
#[tokio::test]
async fn numbers_have_no_gaps() {
    stores(async |opened| {
        let journal = opened.sql.journal();
        let writes = (0..300)
            .map(|n| journal.append(record(["a", "b", "c"][n % 3], None, json!({ "n": n }))));
        let mut numbers: Vec<u64> = join_all(writes)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        numbers.sort_unstable();
        let expected: Vec<u64> = (1..=100).flat_map(|n| [n; 3]).collect();
        assert_eq!(numbers, expected);

        opened.restart().await;
        let journal = opened.sql.journal();
        assert_eq!(
            journal.append(record("b", None, json!(null))).await,
            Ok(101)
        );
        let read = journal.read("b", 98, 10).await.unwrap();
        assert_eq!(
            read.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [99, 100, 101]
        );
        assert_eq!(read[2].1, record("b", None, json!(null)));
        assert_eq!(journal.append(record("new", None, json!(1))).await, Ok(1));
    })
    .await;
}

/// Goal: streams have separate numbers and keys, in memory and in a store. Method: records of two
/// streams at once, again, and with one of a third stream that is rejected.
#[tokio::test]
async fn streams_are_apart() {
    let memory: Arc<dyn Journal> = Arc::new(MemoryJournal::default());
    let of = |opened: &Opened| opened.sql.journal();
    anywhere(memory, of, async |journal| {
        let record = |stream: &str, key: &str| record(stream, Some(key), json!(key));
        let some = || {
            vec![
                record("a", "1"),
                record("b", "1"),
                record("a", "2"),
                record("a", "1"),
            ]
        };
        assert_eq!(journal.append_all(some()).await, Ok(vec![1, 1, 2, 1]));
        assert_eq!(journal.append_all(some()).await, Ok(vec![1, 1, 2, 1]));
        assert!(
            journal
                .append_all(vec![record("c", "1"), record("c", "\0")])
                .await
                .is_err()
        );
        assert!(
            journal
                .append_all(vec![record("a", "x"); JOURNAL_BATCH_MAX + 1])
                .await
                .is_err()
        );
        assert_eq!(journal.read("c", 0, 9).await, Ok(vec![]));
        assert_eq!(
            journal.read("a", 1, 9).await,
            Ok(vec![(2, record("a", "2"))])
        );
    })
    .await;
}

/// Goal: a key names one record of a stream, also for concurrent appends and after a restart.
/// Method: race twins; append again with another body.
#[tokio::test]
async fn a_key_is_kept_once() {
    stores(async |opened| {
        let journal = opened.sql.journal();
        let keys: Vec<String> = (0..100).map(|n| format!("key {}", n / 2)).collect();
        let writes = keys
            .iter()
            .map(|key| journal.append(record("s", Some(key), json!({ "first": true }))));
        let first: Vec<u64> = join_all(writes)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        for pair in first.chunks(2) {
            assert_eq!(pair[0], pair[1]);
        }
        opened.restart().await;
        let journal = opened.sql.journal();
        assert_eq!(
            journal
                .append(record("s", Some("key 7"), json!({ "first": false })))
                .await,
            Ok(first[14])
        );
        assert_eq!(
            journal
                .append(record("other", Some("key 7"), json!({})))
                .await,
            Ok(1)
        );
        let all = journal.read("s", 0, 1000).await.unwrap();
        assert_eq!(all.len(), 50);
        assert!(
            all.iter()
                .all(|(_, record)| record.body == json!({ "first": true }))
        );
    })
    .await;
}

/// Goal: a batch is appended as a whole or not at all. Method: a batch whose last record is too
/// large; then a good one.
#[tokio::test]
async fn all_or_none() {
    stores(async |opened| {
        let journal = opened.sql.journal();
        let large = json!("x".repeat(RECORD_BYTES_MAX_DEFAULT));
        let refused = journal
            .append_all(vec![record("s", None, json!(1)), record("s", None, large)])
            .await;
        assert!(
            matches!(
                refused,
                Err(JournalError::TooLarge {
                    bytes_max: RECORD_BYTES_MAX_DEFAULT,
                    ..
                })
            ),
            "{refused:?}"
        );
        assert_eq!(journal.read("s", 0, 10).await, Ok(vec![]));
        let both = journal
            .append_all(vec![
                record("s", None, json!(1)),
                record("t", None, json!(2)),
            ])
            .await;
        assert_eq!(both, Ok(vec![1, 1]));
        assert_eq!(journal.append_all(vec![]).await, Ok(vec![]));
    })
    .await;
}

/// Goal: each limit rejects one more. Method: the largest record, the longest batch, the longest
/// page, and one more of each; a NUL.
#[tokio::test]
async fn limits() {
    stores(async |opened| {
        let journal = opened.sql.journal();
        // Two quotes and the stream's name.
        let fits = json!("x".repeat(RECORD_BYTES_MAX_DEFAULT - 3));
        assert_eq!(journal.append(record("s", None, fits.clone())).await, Ok(1));
        let refused = journal.append(record("ss", None, fits)).await;
        assert!(
            matches!(refused, Err(JournalError::TooLarge { .. })),
            "{refused:?}"
        );

        let many = |n| {
            (0..n)
                .map(|at| record("m", None, json!(at)))
                .collect::<Vec<_>>()
        };
        assert!(journal.append_all(many(JOURNAL_BATCH_MAX)).await.is_ok());
        let refused = journal.append_all(many(JOURNAL_BATCH_MAX + 1)).await;
        assert!(
            matches!(refused, Err(JournalError::Invalid(_))),
            "{refused:?}"
        );

        for _ in 0..PAGE_ROWS_MAX / JOURNAL_BATCH_MAX + 1 {
            journal.append_all(many(JOURNAL_BATCH_MAX)).await.unwrap();
        }
        assert_eq!(
            journal.read("m", 0, PAGE_ROWS_MAX + 1).await.unwrap().len(),
            PAGE_ROWS_MAX
        );

        for bad in [
            record("a\0b", None, json!(1)),
            record("", None, json!(1)),
            record("a", Some("\0"), json!(1)),
        ] {
            let refused = journal.append(bad).await;
            assert!(
                matches!(refused, Err(JournalError::Invalid(_))),
                "{refused:?}"
            );
        }
        let body = json!({ "nul": "\0", "quote": "'\"" });
        assert_eq!(
            journal
                .append(record("n", Some("'; --"), body.clone()))
                .await,
            Ok(1)
        );
        assert_eq!(
            journal.read("n", 0, 1).await,
            Ok(vec![(1, record("n", Some("'; --"), body))])
        );
    })
    .await;
}

/// Goal: a full queue rejects writes, and queued ones are committed. Method: a queue of two, a
/// writer blocked by another connection's transaction, and three writes.
#[tokio::test]
async fn a_full_queue_is_overloaded() {
    let opened = in_file(|options| options.queue(2, 1 << 20)).await;
    let journal = opened.sql.journal();
    journal.append(record("s", None, json!(0))).await.unwrap();
    let holds = held(&opened.file()).await;
    let three = join_all((1..=3).map(|n| journal.append(record("s", None, json!(n)))));
    let three = timeout(WRITE_WAIT_MAX * 4, three).await.unwrap();
    let overloaded = three
        .iter()
        .filter(|e| matches!(e, Err(JournalError::Overloaded { writes_max: 2 })))
        .count();
    let away = three
        .iter()
        .filter(|e| matches!(e, Err(JournalError::Unavailable(_))))
        .count();
    assert_eq!((overloaded + away, three.len()), (3, 3), "{three:?}");
    assert!(overloaded >= 1, "{three:?}");
    drop(holds);
    let again = async {
        while journal.append(record("s", None, json!(9))).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), again).await.unwrap();
    assert_eq!(
        journal.read("s", 0, 10).await.unwrap().len(),
        2,
        "what was refused was kept"
    );
    opened.end().await;
}

/// Opens a write transaction on a connection of its own.
async fn held(file: &std::path::Path) -> sqlx::SqliteConnection {
    use sqlx::{ConnectOptions, Executor};
    let mut db = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .connect()
        .await
        .unwrap();
    db.execute("BEGIN IMMEDIATE").await.unwrap();
    db
}

/// Goal: a write larger than the whole queue is committed alone instead of waiting forever. Method:
/// a queue of 1 KiB.
#[tokio::test]
async fn a_write_larger_than_the_queue_passes() {
    stores_with(
        |options| options.queue(4, 1024),
        async |opened| {
            let journal = opened.sql.journal();
            let writes =
                (0..8).map(|n| journal.append(record("s", None, json!("x".repeat(2000 + n)))));
            let numbers: Vec<_> = join_all(writes)
                .await
                .into_iter()
                .map(Result::unwrap)
                .collect();
            assert_eq!(numbers.len(), 8);
        },
    )
    .await;
}

/// Goal: a lost connection is reopened with the same epoch; a retry by key tells whether an
/// interrupted write was committed. Method: terminate the writer's connections on the server
/// repeatedly during writes.
#[tokio::test]
async fn a_lost_connection_is_made_anew() {
    let Some(opened) = in_database(|options| options).await else {
        return;
    };
    let journal = opened.sql.journal();
    let name = opened.options().place();
    let name = name.rsplit('/').next().unwrap();
    let ends = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    );
    for n in 0..30 {
        if n % 5 == 2 {
            opened.raw(&ends).await;
        }
        let key = format!("{n}");
        let kept = async {
            loop {
                match journal.append(record("s", Some(&key), json!(n))).await {
                    Ok(number) => return number,
                    Err(error) => {
                        assert!(
                            matches!(
                                error,
                                JournalError::Unavailable(_) | JournalError::Unknown(_)
                            ),
                            "{error:?}"
                        )
                    }
                }
            }
        };
        assert_eq!(timeout(Duration::from_secs(30), kept).await.unwrap(), n + 1);
    }
    opened.end().await;
}

/// Goal: a writer whose name was taken over rejects all writes as fenced. Method: raise the epoch
/// in the database.
#[tokio::test]
async fn a_writer_that_was_replaced_is_fenced() {
    let Some(opened) = in_database(|options| options.writer("me")).await else {
        return;
    };
    let journal = opened.sql.journal();
    journal.append(record("s", None, json!(1))).await.unwrap();
    opened
        .raw("UPDATE writer SET epoch = epoch + 1 WHERE name = 'me'")
        .await;
    for _ in 0..2 {
        let fenced = journal.append(record("s", None, json!(2))).await;
        assert_eq!(
            fenced,
            Err(JournalError::Fenced {
                writer: "me".to_owned()
            })
        );
    }
    assert_eq!(journal.read("s", 0, 10).await.unwrap().len(), 1);
    opened.end().await;
}
