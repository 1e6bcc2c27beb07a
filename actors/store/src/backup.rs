//! A copy of the store as of one moment, in a file that is a store itself, while others go on writing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use sqlx::ConnectOptions;

use crate::error::StoreError;
use crate::files::{private, sync_entry};
use crate::open::Core;
use crate::options::Where;
use crate::sql::{Db, Row};
use crate::sqlite;
use crate::{copy, postgres};

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Size of the file.
    pub bytes: u64,
    /// Each audit chain with the number of its last entry.
    pub chains: Vec<(String, u64)>,
}

/// Copies the store of `core` to `file`.
pub(crate) async fn backup(core: &Core, file: &Path) -> Result<BackupReport, StoreError> {
    let claimed = Claimed::new(file)?;
    let (at, part) = (&core.options.at, Where::Sqlite(claimed.part.clone()));
    match at {
        Where::Sqlite(path) => vacuum_into(path, &claimed.part).await.map_err(|e| e.at(at))?,
        Where::Postgres { url, password } => {
            let options = postgres::connect_options(url, password.as_ref())?;
            let copied = copy::to_file(&options, &claimed.part).await;
            copied.map_err(|e| match e.is_of_sqlite() {
                true => e.at(&part),
                false => e.at(at),
            })?;
        }
    }
    let chains = checked(&claimed.part).await.map_err(|e| e.at(&part))?;
    let file = file.to_owned();
    let kept = tokio::task::spawn_blocking(move || claimed.publish());
    let bytes = kept.await.map_err(io::Error::other).flatten();
    let bytes = bytes.map_err(|source| StoreError::NotCreated { path: file, source })?;
    Ok(BackupReport { bytes, chains })
}

async fn vacuum_into(from: &Path, part: &Path) -> Result<(), StoreError> {
    let options = sqlite::connect_options(from).read_only(true).create_if_missing(false);
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
    let rows = db.rows("SELECT substr(name, 3), last FROM stream WHERE name LIKE 'a/%' ORDER BY name", &[]).await;
    let chain = |row: &Row| Ok((row.get(0)?, row.get(1)?));
    let chains: Result<_, sqlx::Error> = rows.and_then(|rows| rows.iter().map(chain).collect());
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
            io::ErrorKind::AlreadyExists => StoreError::BackupExists { path: path.to_owned() },
            _ => StoreError::NotCreated { path: path.to_owned(), source },
        };
        let new = |path: &Path| private(path, OpenOptions::new().write(true).create_new(true));
        new(file).map_err(|e| not_created(file, e))?;
        let claimed = Self { file: file.to_owned(), part: part.into(), is_whole: false };
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
