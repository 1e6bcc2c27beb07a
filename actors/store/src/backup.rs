//! Copies of a store, of either database, as of one moment, in a file that is a store itself, while others go on writing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::error::StoreError;
use crate::files::{private, sync_entry};
use crate::options::Where;
use crate::parts::Visitor;
use crate::sql::{Arg, Db, ManyRows, Row};
use crate::{postgres, sqlite};

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Size of the file.
    pub bytes: u64,
    /// Each audit chain with the number of its last entry.
    pub chains: Vec<(String, u64)>,
}

impl Visitor {
    /// Copies the store, as of one moment, to `file`, which is a SQLite store then; others go on meanwhile.
    ///
    /// # Errors
    /// The file is there already or can't be made, or the store can't be read. Then there is no file.
    pub async fn backup(&self, file: &Path) -> Result<BackupReport, StoreError> {
        let claimed = Claimed::new(file)?;
        let (at, part) = (&self.core.options.at, Where::Sqlite(claimed.part.clone()));
        match at {
            Where::Sqlite(path) => vacuum_into(path, &claimed.part)
                .await
                .map_err(|e| at.located(e))?,
            Where::Postgres { url, password } => {
                let options = postgres::connect_options(url, password.as_ref())?;
                let copied = copy_to_file(&options, &claimed.part).await;
                copied.map_err(|e| match e.is_of_sqlite() {
                    true => part.located(e),
                    false => at.located(e),
                })?;
            }
        }
        let chains = checked(&claimed.part).await.map_err(|e| part.located(e))?;
        let file = file.to_owned();
        let kept = tokio::task::spawn_blocking(move || claimed.publish());
        let bytes = kept.await.map_err(io::Error::other).flatten();
        let bytes = bytes.map_err(|source| StoreError::NotCreated { path: file, source })?;
        Ok(BackupReport { bytes, chains })
    }
}

async fn vacuum_into(from: &Path, part: &Path) -> Result<(), StoreError> {
    let options = sqlite::connect_options(from)
        .read_only(true)
        .create_if_missing(false);
    let mut db = Db::Sqlite(Box::new(options.connect().await?));
    let not_text = || StoreError::NotSupported("a backup's path must be UTF-8");
    let name = part.to_str().ok_or_else(not_text)?.replace('\'', "''");
    let copied = db.run_text(format!("VACUUM INTO '{name}'")).await;
    let closed = db.close().await;
    Ok(copied.and(closed)?)
}

/// Reads the copy once: a backup that can't be opened is none.
async fn checked(part: &Path) -> Result<Vec<(String, u64)>, StoreError> {
    let options = sqlite::connect_options(part).create_if_missing(false);
    let mut db = Db::Sqlite(Box::new(options.connect().await?));
    sqlite::check_intact(&mut db, part).await?;
    let rows = db
        .rows(
            "SELECT substr(name, 3), last FROM stream WHERE name LIKE 'a/%' ORDER BY name",
            &[],
        )
        .await;
    let chain = |row: &Row| Ok((row.get(0)?, row.get(1)?));
    let chains: sqlx::Result<_> = rows.and_then(|rows| rows.iter().map(chain).collect());
    db.close().await?;
    Ok(chains?)
}

/// A name that is ours from the beginning, and the file that is written first. Both go where the backup fails.
struct Claimed {
    file: PathBuf,
    part: PathBuf,
    is_whole: bool,
}

impl Claimed {
    fn new(file: &Path) -> Result<Self, StoreError> {
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let not_created = |path: &Path, source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => StoreError::BackupExists {
                path: path.to_owned(),
            },
            _ => StoreError::NotCreated {
                path: path.to_owned(),
                source,
            },
        };
        let new = |path: &Path| private(path, OpenOptions::new().write(true).create_new(true));
        new(file).map_err(|e| not_created(file, e))?;
        let claimed = Self {
            file: file.to_owned(),
            part: part.into(),
            is_whole: false,
        };
        // What an earlier backup left that was killed.
        let _ = fs::remove_file(&claimed.part);
        new(&claimed.part).map_err(|e| not_created(&claimed.part, e))?;
        Ok(claimed)
    }

    fn publish(mut self) -> io::Result<u64> {
        let part = File::open(&self.part)?;
        part.sync_all()?;
        let bytes = part.metadata()?.len();
        fs::rename(&self.part, &self.file)?;
        self.is_whole = true;
        sync_entry(&self.file)?;
        Ok(bytes)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.is_whole {
            // That it stays is harmless: it is empty, or named `.part`.
            let _ = fs::remove_file(&self.part);
            let _ = fs::remove_file(&self.file);
        }
    }
}

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
            declare: concat!(
                "DECLARE copied_",
                $name,
                " CURSOR FOR SELECT ",
                $columns,
                " FROM ",
                $name
            ),
            fetch: concat!("FETCH 500 FROM copied_", $name),
            insert: ManyRows::new(
                concat!("INSERT INTO ", $name, " (", $columns, ") VALUES"),
                $kinds.len(),
                "",
            ),
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
    table!(
        "task_event",
        "task, number, at_ms, state, is_end, body",
        b"tnntnt"
    ),
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
    table!(
        "audit",
        "chain, number, at_ms, event, agent, principal, call_id, class, line, hash",
        b"tnnttttttb"
    ),
    table!(
        "audit_checkpoint",
        "chain, number, at_ms, hash, key_id, signature",
        b"tnnbtb"
    ),
];

/// Fills `part`, which is empty.
async fn copy_to_file(from: &PgConnectOptions, part: &Path) -> Result<(), StoreError> {
    let mut server = postgres::connect(from).await?;
    let connect = sqlite::connect_options(part).create_if_missing(false);
    let mut file = Db::Sqlite(Box::new(connect.connect().await?));
    file.run("PRAGMA auto_vacuum = INCREMENTAL").await?;
    sqlite::migrate(&mut file, part).await?;

    server
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        .await?;
    file.run("BEGIN IMMEDIATE").await?;
    for table in &TABLES {
        server.run(table.declare).await?;
        loop {
            let rows = server.rows(table.fetch, &[]).await?;
            if rows.is_empty() {
                break;
            }
            let columns = || table.kinds.iter().enumerate();
            let values = rows
                .iter()
                .flat_map(|row| columns().map(move |(at, kind)| value(row, at, *kind)));
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
fn value(row: &Row, column: usize, kind: u8) -> sqlx::Result<Arg<'_>> {
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
        let mut db = Db::Sqlite(Box::new(
            sqlite::connect_options(&path)
                .create_if_missing(true)
                .connect()
                .await
                .unwrap(),
        ));
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
            .map(|(name, columns)| {
                format!("DECLARE copied_{name} CURSOR FOR SELECT {columns} FROM {name}")
            })
            .collect();
        let mut copied: Vec<&str> = TABLES.iter().map(|table| table.declare).collect();
        wanted.sort_unstable();
        copied.sort_unstable();
        assert_eq!(copied, wanted);
    }
}
