//! Journal appends: all records of a transaction are written together, numbered without gaps.

use std::collections::{BTreeMap, HashMap, HashSet};

use callboard_runtime::{
    JOURNAL_BATCH_MAX, JournalError, JournalRecord, JournalResult, check_storable,
};

use crate::sql::{BulkStatement, DbConnection, SqlArg, args};
use crate::tx::{Tx, WriteOp};

/// Maximum bytes of one record: stream, key and body together. A larger one fails with
/// `JournalError::TooLarge`.
pub const RECORD_BYTES_MAX_DEFAULT: usize = 1024 * 1024;

// The cross join makes SQLite look up each pair by its index instead of scanning every row.
static FIND: BulkStatement = BulkStatement::new(
    "SELECT wanted.column3, record.number FROM (VALUES",
    3,
    ") AS wanted CROSS JOIN record WHERE record.stream = wanted.column1 AND record.key = wanted.column2 \
     AND record.key IS NOT NULL",
);
static INSERT: BulkStatement = BulkStatement::new(
    "INSERT INTO record (stream, number, key, at_ms, body) VALUES",
    5,
    "",
);

/// Records of one append, validated.
pub(super) struct AppendRecords(Vec<PreparedRecord>);

struct PreparedRecord {
    stream: String,
    key: Option<String>,
    body: String,
}

impl PreparedRecord {
    fn bytes(&self) -> usize {
        self.stream.len() + self.key.as_ref().map_or(0, String::len) + self.body.len()
    }
}

impl AppendRecords {
    pub(super) fn new(records: Vec<JournalRecord>) -> JournalResult<Self> {
        if records.len() > JOURNAL_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 256 records can be appended at once (`JOURNAL_BATCH_MAX`)",
            ));
        }
        records
            .into_iter()
            .map(prepare_record)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl WriteOp for AppendRecords {
    /// Record numbers in the order of the given records.
    type Output = Vec<u64>;
    const NAME: &'static str = "append";
    const IS_MERGED: bool = true;

    fn bytes(&self) -> usize {
        self.0.iter().map(PreparedRecord::bytes).sum()
    }

    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Vec<u64>>> {
        let now_ms = tx.now_ms;
        let (numbers, rows) = plan_append(&mut tx.db, &all).await?;
        let values = rows
            .into_iter()
            .flat_map(|(number, PreparedRecord { stream, key, body })| {
                args![stream, number, key.as_deref(), now_ms, body]
            });
        INSERT
            .execute(&mut tx.db, &values.collect::<Vec<_>>())
            .await?;
        Ok(numbers)
    }
}

fn prepare_record(
    JournalRecord { stream, key, body }: JournalRecord,
) -> JournalResult<PreparedRecord> {
    if stream.is_empty() {
        return Err(JournalError::Invalid("a record must name its stream"));
    }
    let body = body.to_string();
    // The body may hold a NUL: JSON escapes it, so any database can store it.
    check_storable(&stream)?;
    key.as_deref().map_or(Ok(()), check_storable)?;
    let ready = PreparedRecord { stream, key, body };
    let bytes = ready.bytes();
    if bytes > RECORD_BYTES_MAX_DEFAULT {
        return Err(JournalError::TooLarge {
            bytes,
            bytes_max: RECORD_BYTES_MAX_DEFAULT,
        });
    }
    Ok(ready)
}

/// Returns the name of the counter that numbers a stream's records.
pub(crate) fn stream_counter(stream: &str) -> String {
    format!("r/{stream}")
}

/// Plan for several appends: the record numbers for each append, and the new rows with their
/// numbers.
type AppendPlan<'a> = (Vec<Vec<u64>>, Vec<(i64, &'a PreparedRecord)>);

async fn plan_append<'a>(
    db: &mut DbConnection,
    appends: &'a [&mut AppendRecords],
) -> sqlx::Result<AppendPlan<'a>> {
    let all = || appends.iter().flat_map(|append| &append.0);
    let mut known = existing_numbers(db, all()).await?;
    // Sorted, so that two nodes lock counters in the same order and can't deadlock.
    let mut new: BTreeMap<&str, i64> = BTreeMap::new();
    let mut first_of_batch: HashSet<(&str, &str)> = HashSet::new();
    for ready in all() {
        if let Some(key) = &ready.key {
            let key = (ready.stream.as_str(), key.as_str());
            if known.contains_key(&key) || !first_of_batch.insert(key) {
                continue;
            }
        }
        *new.entry(&ready.stream).or_default() += 1;
    }
    let mut next = reserve_record_numbers(db, &new).await?;
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for append in appends {
        let mut of_this = Vec::new();
        for ready in &append.0 {
            let key = ready.key.as_deref().map(|key| (ready.stream.as_str(), key));
            let number = match key.and_then(|key| known.get(&key).copied()) {
                Some(number) => number,
                None => {
                    let next = next.entry(&ready.stream).or_default();
                    *next += 1;
                    rows.push((*next, ready));
                    known.extend(key.map(|key| (key, *next)));
                    *next
                }
            };
            of_this.push(number.unsigned_abs());
        }
        numbers.push(of_this);
    }
    Ok((numbers, rows))
}

/// Returns the numbers of keyed records that exist already, by stream and key. The streams'
/// counters are locked first, to wait for records that another node has numbered but not yet
/// committed.
async fn existing_numbers<'a>(
    db: &mut DbConnection,
    records: impl Iterator<Item = &'a PreparedRecord>,
) -> sqlx::Result<HashMap<(&'a str, &'a str), i64>> {
    let keyed: BTreeMap<(&str, &str), ()> = records
        .filter_map(|ready| Some(((ready.stream.as_str(), ready.key.as_deref()?), ())))
        .collect();
    if keyed.is_empty() {
        return Ok(HashMap::new());
    }
    if !db.is_sqlite() {
        reserve_record_numbers(db, &keyed.keys().map(|(stream, _)| (*stream, 0)).collect()).await?;
    }
    let keyed: Vec<(&str, &str)> = keyed.into_keys().collect();
    let values: Vec<SqlArg<'_>> = (0i64..)
        .zip(&keyed)
        .flat_map(|(at, (stream, key))| args![*stream, *key, at])
        .collect();
    let mut known = HashMap::new();
    for row in FIND.rows(db, &values).await? {
        let number = row.get(1)?;
        let at = usize::try_from(row.get::<i64>(0)?)
            .ok()
            .and_then(|at| keyed.get(at));
        known.extend(at.map(|key| (*key, number)));
    }
    Ok(known)
}

/// Reserves record numbers. `streams` holds the number of new records by stream. Returns for each
/// stream the last number used before them.
async fn reserve_record_numbers<'a>(
    db: &mut DbConnection,
    streams: &BTreeMap<&'a str, i64>,
) -> sqlx::Result<HashMap<&'a str, i64>> {
    let counters = streams
        .iter()
        .map(|(stream, n)| (stream_counter(stream), *n))
        .collect();
    let last = take_numbers(db, &counters).await?;
    let before = |stream: &&'a str| {
        (
            *stream,
            last.get(&stream_counter(stream))
                .copied()
                .unwrap_or_default(),
        )
    };
    Ok(streams.keys().map(before).collect())
}

static TAKE: BulkStatement = BulkStatement::new(
    "INSERT INTO stream (name, last) VALUES",
    2,
    "ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING name, last",
);
// Each row that SQLite returns wakes two threads, so all counters are returned in one row.
static LAST: BulkStatement = BulkStatement::new(
    "SELECT json_group_object(name, last) FROM stream WHERE name IN (VALUES",
    1,
    ")",
);
static SET: BulkStatement = BulkStatement::new(
    "INSERT INTO stream (name, last) VALUES",
    2,
    "ON CONFLICT (name) DO UPDATE SET last = excluded.last",
);

/// Reserves numbers. `counters` holds how many are wanted, by counter name. Returns for each
/// counter the last number before them. The counters are locked until the commit, so that numbers
/// become visible in order. They are locked in sorted order, so that two nodes can't deadlock.
async fn take_numbers(
    db: &mut DbConnection,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    // A SQLite file has no other writer between the two statements.
    if db.is_sqlite() {
        take_numbers_unlocked(db, counters).await
    } else {
        take_numbers_locked(db, counters).await
    }
}

async fn take_numbers_unlocked(
    db: &mut DbConnection,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    let names: Vec<SqlArg<'_>> = counters.keys().map(SqlArg::from).collect();
    let mut last: HashMap<String, i64> = HashMap::with_capacity(counters.len());
    for row in LAST.rows(db, &names).await? {
        last.extend(row.json::<HashMap<String, i64>>(0)?);
    }
    let values: Vec<SqlArg<'_>> = counters
        .iter()
        .flat_map(|(name, n)| args![name, last.get(name).copied().unwrap_or_default() + n])
        .collect();
    SET.execute(db, &values).await?;
    Ok(last)
}

async fn take_numbers_locked(
    db: &mut DbConnection,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    let values: Vec<SqlArg<'_>> = counters
        .iter()
        .flat_map(|(name, n)| args![name, *n])
        .collect();
    let mut last = HashMap::with_capacity(counters.len());
    for row in TAKE.rows(db, &values).await? {
        let name = row.get(0)?;
        let taken = counters.get(&name).copied().unwrap_or_default();
        last.insert(name, row.get::<i64>(1)? - taken);
    }
    Ok(last)
}
