//! Records of streams on their way to the store: those of a whole transaction written together, and counters without gaps.

use std::collections::{BTreeMap, HashMap, HashSet};

use callboard_runtime::{JournalError, JournalResult, RECORDS_AT_ONCE_MAX, Record, storable};

use crate::sql::{Arg, Db, ManyRows, args};
use crate::tx::{Tx, Write};

/// Bytes of one record's stream, key and body.
/// At the limit: `TooLarge`.
pub const RECORD_BYTES_MAX_DEFAULT: usize = 1024 * 1024;

// The cross join makes SQLite look each pair up, instead of every row.
static FIND: ManyRows = ManyRows::new(
    "SELECT wanted.column3, record.number FROM (VALUES",
    3,
    ") AS wanted CROSS JOIN record WHERE record.stream = wanted.column1 AND record.key = wanted.column2 \
     AND record.key IS NOT NULL",
);
static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO record (stream, number, key, at_ms, body) VALUES",
    5,
    "",
);

/// One caller's records, ready to be written.
pub(super) struct Append(Vec<Ready>);

struct Ready {
    stream: String,
    key: Option<String>,
    body: String,
}

impl Ready {
    fn bytes(&self) -> usize {
        self.stream.len() + self.key.as_ref().map_or(0, String::len) + self.body.len()
    }
}

impl Append {
    pub(super) fn new(records: Vec<Record>) -> JournalResult<Self> {
        if records.len() > RECORDS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("at most 256 records at once"));
        }
        records
            .into_iter()
            .map(ready)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Write for Append {
    /// The records' numbers, in their order.
    type Output = Vec<u64>;
    const NAME: &'static str = "append";
    const TOGETHER: bool = true;

    fn bytes(&self) -> usize {
        self.0.iter().map(Ready::bytes).sum()
    }

    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Vec<u64>>> {
        let now_ms = tx.now_ms;
        let (numbers, rows) = plan(&mut tx.db, &all).await?;
        let values = rows
            .into_iter()
            .flat_map(|(number, Ready { stream, key, body })| {
                args![stream, number, key.as_deref(), now_ms, body]
            });
        INSERT
            .execute(&mut tx.db, &values.collect::<Vec<_>>())
            .await?;
        Ok(numbers)
    }
}

fn ready(Record { stream, key, body }: Record) -> JournalResult<Ready> {
    if stream.is_empty() {
        return Err(JournalError::Invalid("a record without a stream"));
    }
    let body = body.to_string();
    // A NUL in the body is an escape of JSON's, which any store can hold.
    storable(&stream)?;
    key.as_deref().map_or(Ok(()), storable)?;
    let ready = Ready { stream, key, body };
    let bytes = ready.bytes();
    if bytes > RECORD_BYTES_MAX_DEFAULT {
        return Err(JournalError::TooLarge {
            bytes,
            bytes_max: RECORD_BYTES_MAX_DEFAULT,
        });
    }
    Ok(ready)
}

/// The counter of a stream.
pub(crate) fn counter(stream: &str) -> String {
    format!("r/{stream}")
}

/// Each append's numbers, and what is to be inserted.
type Planned<'a> = (Vec<Vec<u64>>, Vec<(i64, &'a Ready)>);

async fn plan<'a>(db: &mut Db, appends: &'a [&mut Append]) -> sqlx::Result<Planned<'a>> {
    let all = || appends.iter().flat_map(|append| &append.0);
    let mut known = known(db, all()).await?;
    // Sorted, so that two nodes never wait for each other's counters.
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
    let mut next = count(db, &new).await?;
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

/// Which keys are there already, by stream and key. Their counters are locked first: what another node has numbered and
/// not yet committed is waited for.
async fn known<'a>(
    db: &mut Db,
    records: impl Iterator<Item = &'a Ready>,
) -> sqlx::Result<HashMap<(&'a str, &'a str), i64>> {
    let keyed: BTreeMap<(&str, &str), ()> = records
        .filter_map(|ready| Some(((ready.stream.as_str(), ready.key.as_deref()?), ())))
        .collect();
    if keyed.is_empty() {
        return Ok(HashMap::new());
    }
    if !db.is_sqlite() {
        count(db, &keyed.keys().map(|(stream, _)| (*stream, 0)).collect()).await?;
    }
    let keyed: Vec<(&str, &str)> = keyed.into_keys().collect();
    let values: Vec<Arg<'_>> = (0i64..)
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

/// Takes so many numbers of each stream; answers each one's last number before them.
async fn count<'a>(
    db: &mut Db,
    streams: &BTreeMap<&'a str, i64>,
) -> sqlx::Result<HashMap<&'a str, i64>> {
    let counters = streams
        .iter()
        .map(|(stream, n)| (counter(stream), *n))
        .collect();
    let last = take_numbers(db, &counters).await?;
    let before = |stream: &&'a str| {
        (
            *stream,
            last.get(&counter(stream)).copied().unwrap_or_default(),
        )
    };
    Ok(streams.keys().map(before).collect())
}

static TAKE: ManyRows = ManyRows::new(
    "INSERT INTO stream (name, last) VALUES",
    2,
    "ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING name, last",
);
// Each row that SQLite answers wakes two threads: one row with all of them.
static LAST: ManyRows = ManyRows::new(
    "SELECT json_group_object(name, last) FROM stream WHERE name IN (VALUES",
    1,
    ")",
);
static SET: ManyRows = ManyRows::new(
    "INSERT INTO stream (name, last) VALUES",
    2,
    "ON CONFLICT (name) DO UPDATE SET last = excluded.last",
);

/// Takes so many numbers of each counter; answers each one's last number before them. They are locked to the commit, so
/// numbers appear in order; sorted, so that two nodes never wait for each other's.
async fn take_numbers(
    db: &mut Db,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    // Nobody else writes to a SQLite file between the two statements.
    if db.is_sqlite() {
        take_alone(db, counters).await
    } else {
        take_locked(db, counters).await
    }
}

async fn take_alone(
    db: &mut Db,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    let names: Vec<Arg<'_>> = counters.keys().map(Arg::from).collect();
    let mut last: HashMap<String, i64> = HashMap::with_capacity(counters.len());
    for row in LAST.rows(db, &names).await? {
        last.extend(row.json::<HashMap<String, i64>>(0)?);
    }
    let values: Vec<Arg<'_>> = counters
        .iter()
        .flat_map(|(name, n)| args![name, last.get(name).copied().unwrap_or_default() + n])
        .collect();
    SET.execute(db, &values).await?;
    Ok(last)
}

async fn take_locked(
    db: &mut Db,
    counters: &BTreeMap<String, i64>,
) -> sqlx::Result<HashMap<String, i64>> {
    let values: Vec<Arg<'_>> = counters
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
