//! Backup of a store from either database into a SQLite file, as of one moment, while others
//! continue to write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;

use crate::error::StoreError;
use crate::files::{open_private, sync_folder_entry};
use crate::options::StoreLocation;
use crate::read_only_store::ReadOnlyStore;
use crate::sql::postgres::Connector;
use crate::sql::{BulkStatement, DbConnection, Row, SqlArg};
use crate::{postgres, sqlite};

/// Result of a backup: size of the backup file and the audit chains in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Size of the backup file, in bytes.
    pub bytes: u64,
    /// Names of the audit chains, each with the number of its last entry.
    pub chains: Vec<(String, u64)>,
}

impl ReadOnlyStore {
    /// Copies the store, as of one moment, to a new SQLite store in `file`. Others can write
    /// meanwhile.
    ///
    /// # Errors
    /// [`StoreError::BackupExists`], if the file exists; [`StoreError::NotCreated`], if it can't be
    /// created; [`StoreError::NotSupported`] for a path that isn't UTF-8, from SQLite; otherwise
    /// errors of reading the store. No file is left behind then.
    pub async fn backup(&self, file: &Path) -> Result<BackupReport, StoreError> {
        let claimed = BackupFile::new(file)?;
        let (at, part) = (
            &self.core.options.location,
            StoreLocation::Sqlite(claimed.part.clone()),
        );
        match at {
            StoreLocation::Sqlite(path) => vacuum_into(path, &claimed.part)
                .await
                .map_err(|e| at.with_place(e))?,
            StoreLocation::Postgres { url, password } => {
                let connector = Connector::new(url, password.as_ref())?;
                let copied = copy_to_file(&connector, &claimed.part).await;
                copied.map_err(|e| match e.is_sqlite_error() {
                    true => part.with_place(e),
                    false => at.with_place(e),
                })?;
            }
        }
        let chains = verify_copy(&claimed.part)
            .await
            .map_err(|e| part.with_place(e))?;
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
    let mut db = DbConnection::Sqlite(Box::new(options.connect().await?));
    let not_text = || StoreError::NotSupported("a backup's path must be UTF-8: name another file");
    let name = part.to_str().ok_or_else(not_text)?.replace('\'', "''");
    let copied = db.run_text(format!("VACUUM INTO '{name}'")).await;
    let closed = db.close().await;
    Ok(copied.and(closed)?)
}

/// Opens and checks the copy, because an unreadable backup is useless. Returns its audit chains.
async fn verify_copy(part: &Path) -> Result<Vec<(String, u64)>, StoreError> {
    let options = sqlite::connect_options(part).create_if_missing(false);
    let mut db = DbConnection::Sqlite(Box::new(options.connect().await?));
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

/// Target of a backup: the final name, reserved by an empty file, and the `.part` file that is
/// written first. Both are removed if the backup fails.
struct BackupFile {
    file: PathBuf,
    part: PathBuf,
    is_whole: bool,
}

impl BackupFile {
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
        let new = |path: &Path| open_private(path, OpenOptions::new().write(true).create_new(true));
        new(file).map_err(|e| not_created(file, e))?;
        let claimed = Self {
            file: file.to_owned(),
            part: part.into(),
            is_whole: false,
        };
        // Left behind by a backup that was killed.
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
        sync_folder_entry(&self.file)?;
        Ok(bytes)
    }
}

impl Drop for BackupFile {
    fn drop(&mut self) {
        if !self.is_whole {
            // Failures are harmless: the files are empty or named `.part`.
            let _ = fs::remove_file(&self.part);
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// Table to copy: its columns, and their types as letters (`n` number, `t` text, `b` bytes).
struct TableCopy {
    declare: &'static str,
    /// `FETCH` statement of the copy. Each table has its own text, because a prepared statement is
    /// bound to the columns of its first result.
    fetch: &'static str,
    insert: BulkStatement,
    kinds: &'static [u8],
}

macro_rules! table {
    ($name:literal, $columns:literal, $kinds:literal) => {
        TableCopy {
            declare: concat!(
                "DECLARE copied_",
                $name,
                " CURSOR FOR SELECT ",
                $columns,
                " FROM ",
                $name
            ),
            fetch: concat!("FETCH 500 FROM copied_", $name),
            insert: BulkStatement::new(
                concat!("INSERT INTO ", $name, " (", $columns, ") VALUES"),
                $kinds.len(),
                "",
            ),
            kinds: $kinds,
        }
    };
}

/// Every table of the schema except `meta`, which describes the database itself.
static TABLES: [TableCopy; 12] = [
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
    table!("task_request", "number, body", b"nt"),
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

/// Copies all tables from Postgres into the empty file `part`.
async fn copy_to_file(from: &Connector, part: &Path) -> Result<(), StoreError> {
    let mut server = postgres::connect(from).await?;
    let connect = sqlite::connect_options(part).create_if_missing(false);
    let mut file = DbConnection::Sqlite(Box::new(connect.connect().await?));
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
                .flat_map(|row| columns().map(move |(at, kind)| column_value(row, at, *kind)));
            let values: Vec<SqlArg<'_>> = values.collect::<Result<_, _>>()?;
            table.insert.execute(&mut file, &values).await?;
        }
    }
    file.run("COMMIT").await?;
    server.run("ROLLBACK").await?;
    file.close().await?;
    Ok(server.close().await?)
}

/// Returns the value of a column as a parameter for an insert into the copy. `kind` is the type
/// letter of [`TableCopy`].
fn column_value(row: &Row, column: usize, kind: u8) -> sqlx::Result<SqlArg<'_>> {
    match kind {
        b'n' => row.get(column).map(SqlArg::Int),
        b't' => row.get(column).map(SqlArg::Text),
        _ => row.get(column).map(SqlArg::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Goal: a column added by a migration is copied. Method: compare with the tables of a new
    /// file.
    #[tokio::test]
    async fn every_column_is_copied() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("new");
        let mut db = DbConnection::Sqlite(Box::new(
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
