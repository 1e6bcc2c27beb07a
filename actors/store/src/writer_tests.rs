use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::append_records::AppendRecords;
use crate::{SqlStore, StoreOptions};
use callboard_runtime::JournalRecord;

struct Count {
    spoils: bool,
    panics: bool,
}

impl WriteOp for Count {
    type Output = u64;
    const NAME: &'static str = "count";

    fn bytes(&self) -> usize {
        8
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        let number = tx.take_numbers("test", 1).await?;
        assert!(!self.panics, "as asked");
        if self.spoils {
            tx.db
                .execute("INSERT INTO stream (name, last) VALUES (NULL, 1)", &[])
                .await?;
        }
        Ok(number)
    }
}

/// Write that returns how many ran merged with it, and its position among them.
struct Together {
    spoils: bool,
}

impl WriteOp for Together {
    type Output = (usize, usize);
    const NAME: &'static str = "together";
    const IS_MERGED: bool = true;

    fn bytes(&self) -> usize {
        8
    }

    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Self::Output>> {
        if all.iter().any(|one| one.spoils) {
            tx.db
                .execute("INSERT INTO stream (name, last) VALUES (NULL, 1)", &[])
                .await?;
        }
        Ok((0..all.len()).map(|at| (all.len(), at)).collect())
    }
}

async fn opened() -> (TempDir, SqlStore) {
    let folder = TempDir::new().unwrap();
    let store = SqlStore::open(&StoreOptions::sqlite(folder.path().join("j.sqlite")))
        .await
        .unwrap();
    (folder, store)
}

fn record(stream: &str, key: Option<&str>) -> JournalRecord {
    JournalRecord {
        stream: stream.to_owned(),
        key: key.map(str::to_owned),
        body: json!({"a": 1}),
    }
}

/// Goal: a write that the database rejects, or that panics, fails alone and takes no number.
/// Method: many at once, some of them bad.
#[tokio::test]
async fn a_bad_write_fails_alone() {
    let (_folder, store) = opened().await;
    let writer = &store.core.writer;
    let count = |at: usize| {
        writer.submit(Count {
            spoils: at % 7 == 3,
            panics: at % 7 == 5,
        })
    };
    let all = futures::future::join_all((0..70).map(count)).await;
    let (good, bad): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    let mut good: Vec<u64> = good.into_iter().map(Result::unwrap).collect();
    good.sort_unstable();
    assert_eq!(good, (1..=50).collect::<Vec<_>>());
    assert!(
        bad.iter().all(|e| matches!(e, Err(JournalError::Store(_)))),
        "{bad:?}"
    );
    store.close().await;
    let closed = writer
        .submit(Count {
            spoils: false,
            panics: false,
        })
        .await;
    assert!(
        matches!(closed, Err(JournalError::Unavailable(_))),
        "{closed:?}"
    );
}

/// Goal: writes of one type run merged, overtaking others; if one of them is bad, each runs alone.
/// Method: 10 beside as many others, without a bad one and with one.
#[tokio::test]
async fn those_of_a_kind_run_together() {
    let (_folder, store) = opened().await;
    let writer = &store.core.writer;
    let both = |spoils: bool| async move {
        let other = writer.submit(Count {
            spoils: false,
            panics: false,
        });
        let (one, other) = futures::join!(writer.submit(Together { spoils }), other);
        other.unwrap();
        one
    };
    let all = futures::future::join_all((0..10).map(|_| both(false))).await;
    let mut all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    all.sort_unstable();
    assert_eq!(all, (0..10).map(|at| (10, at)).collect::<Vec<_>>());
    let all = futures::future::join_all((0..10).map(|at| both(at == 7))).await;
    let (good, bad): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    assert_eq!(good, vec![Ok((1, 0)); 9]);
    assert!(
        matches!(bad.as_slice(), [Err(JournalError::Store(_))]),
        "{bad:?}"
    );
    store.close().await;
}

/// Goal: stream numbers have no gaps, and a key is stored once, also twice in one transaction.
/// Method: append keyed and plain records to two streams at once, then the same again.
#[tokio::test]
async fn appends_are_merged_and_keys_kept_once() {
    let (_folder, store) = opened().await;
    let writer = &store.core.writer;
    let keys: Vec<String> = (0..40).map(|at| format!("k{}", at / 2)).collect();
    let append = |key: &String| {
        let records = vec![
            record("a", Some(key)),
            record("b", Some(key)),
            record("b", None),
        ];
        writer.submit(AppendRecords::new(records).unwrap())
    };
    let first = futures::future::join_all(keys.iter().map(append)).await;
    for pair in first.chunks(2) {
        let (one, two) = (pair[0].as_ref().unwrap(), pair[1].as_ref().unwrap());
        assert_eq!((one[0], one[1]), (two[0], two[1]));
        assert_ne!(one[2], two[2]);
    }
    let again = futures::future::join_all(keys.iter().map(append)).await;
    assert_eq!(
        first[7].as_ref().unwrap()[..2],
        again[7].as_ref().unwrap()[..2]
    );
    let rows = store.core.readers.rows(
        "SELECT stream, count(*), max(number) FROM record GROUP BY stream ORDER BY stream",
        &[],
    );
    let counted: Vec<_> = rows
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get::<i64>(1).unwrap(), row.get::<i64>(2).unwrap()))
        .collect();
    assert_eq!(counted, [(20, 20), (100, 100)]);
    assert!(store.metrics().batches < 80, "{:?}", store.metrics());
    store.close().await;
}

/// Write of a size.
struct OfSize(usize);

impl WriteOp for OfSize {
    type Output = ();
    const NAME: &'static str = "of_size";

    fn bytes(&self) -> usize {
        self.0
    }

    async fn run(&mut self, _tx: &mut Tx) -> sqlx::Result<()> {
        Ok(())
    }
}

/// Goal: small writes overtake large ones beyond the limit, in order, and a single larger one isn't held
/// back. Method: sizes that wait, and those of each batch.
#[test]
fn small_writes_overtake_large_ones() {
    const LARGE: usize = LARGE_WRITE_BYTES_MIN;
    const HALF: usize = BATCH_LARGE_BYTES_MIN / 2;
    const WHOLE: usize = BATCH_LARGE_BYTES_MIN;
    for (waiting, batches) in [
        (vec![HALF, HALF, 1, 2], vec![vec![HALF, HALF, 1, 2]]),
        (
            vec![HALF, HALF + 1, 1, 2],
            vec![vec![HALF, 1, 2], vec![HALF + 1]],
        ),
        (
            vec![WHOLE + 1, LARGE, LARGE - 1, 1],
            vec![vec![WHOLE + 1, LARGE - 1, 1], vec![LARGE]],
        ),
        (
            vec![1, WHOLE, LARGE, HALF, 2],
            vec![vec![1, WHOLE, 2], vec![LARGE, HALF]],
        ),
    ] {
        let places = Arc::new(Semaphore::new(1_000));
        let queued = waiting.iter().map(|bytes| {
            let permits = || places.clone().try_acquire_owned().unwrap();
            QueuedWrite::new(OfSize(*bytes), oneshot::channel().0, [permits(), permits()])
        });
        let mut queue: VecDeque<QueuedWrite> = queued.collect();
        let mut taken = Vec::new();
        while !queue.is_empty() {
            let batch = next_batch(&mut queue);
            taken.push(batch.iter().map(|write| write.bytes).collect::<Vec<_>>());
        }
        assert_eq!(taken, batches, "{waiting:?}");
    }
}
