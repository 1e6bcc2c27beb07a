//! Counters without gaps: the numbers of a stream, the letters, the tasks, a chain.

use std::collections::{BTreeMap, HashMap};

use crate::sql::{Arg, Db, ManyRows, args};

static TAKE: ManyRows = ManyRows::new(
    "INSERT INTO stream (name, last) VALUES",
    2,
    "ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING name, last",
);
// Each row that SQLite answers wakes two threads: one row with all of them.
static LAST: ManyRows = ManyRows::new("SELECT json_group_object(name, last) FROM stream WHERE name IN (VALUES", 1, ")");
static SET: ManyRows =
    ManyRows::new("INSERT INTO stream (name, last) VALUES", 2, "ON CONFLICT (name) DO UPDATE SET last = excluded.last");

/// Takes so many numbers of each counter; answers each one's last number before them. They are locked to the commit, so
/// numbers appear in order; sorted, so that two nodes never wait for each other's.
pub(crate) async fn take(db: &mut Db, counters: &BTreeMap<String, i64>) -> Result<HashMap<String, i64>, sqlx::Error> {
    // Nobody else writes to a SQLite file between the two statements.
    if db.is_sqlite() { take_alone(db, counters).await } else { take_locked(db, counters).await }
}

async fn take_alone(db: &mut Db, counters: &BTreeMap<String, i64>) -> Result<HashMap<String, i64>, sqlx::Error> {
    let names: Vec<Arg<'_>> = counters.keys().map(Arg::from).collect();
    let mut last: HashMap<String, i64> = HashMap::with_capacity(counters.len());
    for row in LAST.rows(db, &names).await? {
        last.extend(row.json::<HashMap<String, i64>>(0)?);
    }
    let values: Vec<Arg<'_>> =
        counters.iter().flat_map(|(name, n)| args![name, last.get(name).copied().unwrap_or_default() + n]).collect();
    SET.execute(db, &values).await?;
    Ok(last)
}

async fn take_locked(db: &mut Db, counters: &BTreeMap<String, i64>) -> Result<HashMap<String, i64>, sqlx::Error> {
    let values: Vec<Arg<'_>> = counters.iter().flat_map(|(name, n)| args![name, *n]).collect();
    let mut last = HashMap::with_capacity(counters.len());
    for row in TAKE.rows(db, &values).await? {
        let name = row.get(0)?;
        let taken = counters.get(&name).copied().unwrap_or_default();
        last.insert(name, row.get::<i64>(1)? - taken);
    }
    Ok(last)
}
