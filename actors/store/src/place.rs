//! What the writer needs to know of either database.

use callboard_runtime::JournalError;

use crate::postgres::PostgresPlace;
use crate::sql::Db;
use crate::sqlite::SqlitePlace;

/// An open store's database: it gives connections, and begins transactions.
pub(crate) enum Place {
    Sqlite(SqlitePlace),
    Postgres(PostgresPlace),
}

impl Place {
    pub(crate) fn writer(&self) -> &str {
        match self {
            Self::Sqlite(place) => &place.writer,
            Self::Postgres(place) => &place.writer,
        }
    }

    pub(crate) fn size_max(&self) -> u64 {
        match self {
            Self::Sqlite(place) => place.size_max,
            Self::Postgres(place) => place.size_max,
        }
    }

    /// Begins a transaction that may write; `false` where another process has taken over.
    pub(crate) async fn begin(&self, db: &mut Db) -> Result<bool, sqlx::Error> {
        match self {
            // Others can't write: the lock is ours.
            Self::Sqlite(_) => db.run("BEGIN IMMEDIATE").await.map(|()| true),
            Self::Postgres(place) => place.begin(db).await,
        }
    }

    /// A new connection that writes, after the old one was lost.
    pub(crate) async fn reopen(&self) -> Result<Db, JournalError> {
        match self {
            Self::Sqlite(place) => place.reopen().await,
            Self::Postgres(place) => place.reopen().await,
        }
    }

    /// Closes the connection that writes, where there is one, and lets others have the store.
    pub(crate) async fn close(&self, db: Option<Db>) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(place) => place.close(db).await,
            Self::Postgres(_) => match db {
                // The server gives the lock back with the connection.
                Some(db) => db.close().await,
                None => Ok(()),
            },
        }
    }

    /// Lets a write that makes room go past the limit by a little.
    pub(crate) async fn open_reserve(&self, db: &mut Db) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(place) => place.open_reserve(db).await,
            Self::Postgres(_) => Ok(()),
        }
    }

    pub(crate) async fn close_reserve(&self, db: &mut Db) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(place) => place.close_reserve(db).await,
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Whether nothing but what makes room may be written. SQLite tells by itself, at each page.
    pub(crate) fn is_too_large(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(place) => place.is_too_large(),
        }
    }

    /// What a connection does when nothing waits.
    pub(crate) async fn tidy(&self, db: &mut Db) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(place) => place.tidy(db).await,
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Bytes of the database, without its log.
    pub(crate) async fn bytes(&self, db: &mut Db) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(place) => place.bytes(db).await,
            Self::Postgres(place) => place.bytes(db).await,
        }
    }

    /// Whether a transaction of `bytes` was refused by the limit, and not by a disk that is full.
    pub(crate) async fn is_at_limit(&self, db: &mut Db, bytes: u64) -> Result<bool, sqlx::Error> {
        // Pages hold more than what was bound: indexes, and what is split.
        let wanted = bytes.saturating_mul(3).saturating_add(AROUND_LIMIT_BYTES);
        Ok(self.bytes(db).await?.saturating_add(wanted) >= self.size_max())
    }
}

/// So near to the limit, it is the limit that was met: after a transaction is undone the file is smaller again.
const AROUND_LIMIT_BYTES: u64 = 64 * 1024;
