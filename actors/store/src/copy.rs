//! A Postgres store copied, as of one moment, into a file that is a store.

use std::path::Path;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::error::StoreError;
use crate::sql::{Arg, Db, ManyRows, Row};
use crate::{postgres, sqlite};

/// A table as it is copied: its columns, and a letter each for what they hold (number, text, bytes).
struct Table {
    declare: &'static str,
    /// One text a table: a prepared statement has its columns.
    fetch: &'static str,
    insert: ManyRows,
    kinds: &'static [u8],
}

macro_rules! table {
    ($name:literal, $columns:literal, $kinds:literal) => {
        Table {
            declare: concat!("DECLARE copied_", $name, " CURSOR FOR SELECT ", $columns, " FROM ", $name),
            fetch: concat!("FETCH 500 FROM copied_", $name),
            insert: ManyRows::new(concat!("INSERT INTO ", $name, " (", $columns, ") VALUES"), $kinds.len(), ""),
            kinds: $kinds,
        }
    };
}

/// Every table of the schema but `meta`, which tells of the database itself.
static TABLES: [Table; 11] = [
    table!("writer", "name, epoch, run, since_ms, closed", b"tntnn"),
    table!("stream", "name, last", b"tn"),
    table!("record", "stream, number, key, at_ms, body", b"tntnt"),
    table!(
        "task",
        "id, number, scope, owner, key, request_mark, parent, agent, message, class, on_restart, state, waiting, \
         children_open, cancel, lease_by, lease_epoch, lease_until_ms, created_ms, updated_ms, deadline_ms, expires_ms, \
         last_event, bytes, body",
        b"tnttttttttttnnntnnnnnnnnt"
    ),
    table!("task_need", "task, needs", b"tt"),
    table!("task_event", "task, number, at_ms, state, is_end, body", b"tnntnt"),
    table!(
        "letter",
        "number, id, sender, key, kind, label, audience, thread, reply_to, topic, urgent, class, at_ms, expires_ms, \
         recipients, count, spread, bytes, mark, body",
        b"ntttttttttntnntnnntt"
    ),
    table!(
        "copy",
        "recipient, letter, urgent, state, at_ms, delivered_ms, read_ms, attempts, expires_ms",
        b"tnntnnnnn"
    ),
    table!("note", "space, key, version, at_ms, body", b"ttnnt"),
    table!("audit", "chain, number, at_ms, event, agent, principal, call_id, class, line, hash", b"tnnttttttb"),
    table!("audit_checkpoint", "chain, number, at_ms, hash, key_id, signature", b"tnnbtb"),
];

/// Fills `part`, which is empty.
pub(crate) async fn to_file(from: &PgConnectOptions, part: &Path) -> Result<(), StoreError> {
    let mut server = postgres::connect(from).await?;
    let connect = sqlite::connect_options(part).create_if_missing(false);
    let mut file = Db::Sqlite(Box::new(connect.connect().await?));
    file.run("PRAGMA auto_vacuum = INCREMENTAL").await?;
    sqlite::migrate(&mut file, part).await?;

    server.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    file.run("BEGIN IMMEDIATE").await?;
    for table in &TABLES {
        server.run(table.declare).await?;
        loop {
            let rows = server.rows(table.fetch, &[]).await?;
            if rows.is_empty() {
                break;
            }
            let columns = || table.kinds.iter().enumerate();
            let values = rows.iter().flat_map(|row| columns().map(move |(at, kind)| value(row, at, *kind)));
            let values: Vec<Arg<'_>> = values.collect::<Result<_, _>>()?;
            table.insert.execute(&mut file, &values).await?;
        }
    }
    file.run("COMMIT").await?;
    server.run("ROLLBACK").await?;
    file.close().await?;
    Ok(server.close().await?)
}

/// The value of a column for an insert of the same row.
fn value(row: &Row, column: usize, kind: u8) -> Result<Arg<'_>, sqlx::Error> {
    match kind {
        b'n' => row.get(column).map(Arg::Int),
        b't' => row.get(column).map(Arg::Text),
        _ => row.get(column).map(Arg::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Goal: a column that a migration adds isn't forgotten. Method: compare with the tables of a new file.
    #[tokio::test]
    async fn every_column_is_copied() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("new");
        let mut db =
            Db::Sqlite(Box::new(sqlite::connect_options(&path).create_if_missing(true).connect().await.unwrap()));
        sqlite::migrate(&mut db, &path).await.unwrap();
        let tables = db
            .rows(
                "SELECT t.name, group_concat(c.name, ', ') FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c \
                 WHERE t.type = 'table' AND t.name NOT IN ('meta', 'sqlite_sequence') GROUP BY t.name",
                &[],
            )
            .await
            .unwrap();
        let mut wanted: Vec<String> = tables
            .iter()
            .map(|row| (row.get::<&str>(0).unwrap(), row.get::<&str>(1).unwrap()))
            .map(|(name, columns)| format!("DECLARE copied_{name} CURSOR FOR SELECT {columns} FROM {name}"))
            .collect();
        let mut copied: Vec<&str> = TABLES.iter().map(|table| table.declare).collect();
        wanted.sort_unstable();
        copied.sort_unstable();
        assert_eq!(copied, wanted);
    }
}
