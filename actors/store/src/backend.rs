//! Interface of the two databases to the writer, and the read pool.

use std::time::Duration;

use async_trait::async_trait;
use callboard_runtime::{JournalError, JournalResult};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use crate::error::{StoreError, journal_error, with_place};
use crate::sql::postgres::{self, Connector};
use crate::sql::{DbConnection, Row, Sql, SqlArg};

/// Room that a transaction may use in a store near its size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteRoom {
    /// The size limit.
    Limit,
    /// The size limit and the reserve: one sixteenth of the limit, at least 1 MiB.
    Reserve,
    /// The size limit and twice the reserve on SQLite; no limit on Postgres. For cleanup.
    Cleanup,
}

/// Share of the size limit that the reserve has at least: one sixteenth.
pub(crate) const SIZE_RESERVE_DIVISOR: u64 = 16;
/// Minimum size, in bytes, of the reserve: the room beyond the size limit for writes that end
/// running work or free space ([`WriteRoom`]).
pub(crate) const SIZE_RESERVE_BYTES_MIN: u64 = 1024 * 1024;

/// Returns the size of the reserve of a store with this size limit, in bytes.
pub(crate) fn reserve_bytes(size_max: u64) -> u64 {
    (size_max / SIZE_RESERVE_DIVISOR).max(SIZE_RESERVE_BYTES_MIN)
}

/// Database-specific part of an open store: opens its write connection and begins its transactions.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Sets the fencing epoch of this process. From then on, transactions of this process fail if
    /// another process has opened the store under the same writer name, with a newer epoch. SQLite
    /// ignores it because its lock file excludes other writers.
    fn set_epoch(&self, _epoch: i64) {}

    /// Begins a write transaction. Returns `false` if another process has taken over this writer's
    /// name.
    async fn begin(&self, db: &mut DbConnection) -> sqlx::Result<bool>;

    /// Counts a committed transaction of `writes` writes with `bytes` of data. By default does nothing.
    fn on_committed(&self, _writes: u64, _bytes: u64) {}

    /// Opens a new write connection after the previous one was lost.
    async fn reopen(&self) -> Result<DbConnection, StoreError>;

    /// Closes the write connection, if there is one, and releases the writer lock.
    async fn close(&self, db: Option<DbConnection>) -> sqlx::Result<()> {
        match db {
            Some(db) => db.close().await,
            None => Ok(()),
        }
    }

    /// Raises the size limit to what `room` permits, until [`Self::close_reserve`]: for a
    /// transaction of writes that free space, which need pages first, or that end and record running
    /// work. By default does nothing.
    async fn open_reserve(&self, _: &mut DbConnection, _room: WriteRoom) -> sqlx::Result<()> {
        Ok(())
    }

    async fn close_reserve(&self, _: &mut DbConnection) -> sqlx::Result<()> {
        Ok(())
    }

    /// Returns whether the store is over the limit of such writes. Always `false` on SQLite, which
    /// enforces the limit itself at each page.
    fn is_over_limit(&self, _room: WriteRoom) -> bool {
        false
    }

    /// Runs periodic maintenance on the write connection. Called while the write queue is empty. By
    /// default does nothing.
    async fn maintain(&self, _: &mut DbConnection) -> sqlx::Result<()> {
        Ok(())
    }

    /// Returns the size of the database in bytes, without its write-ahead log.
    async fn size_bytes(&self, db: &mut DbConnection) -> sqlx::Result<u64>;
}

/// Maximum wait of a read for a free connection. After it, the read fails with `Unavailable`.
const READ_CONNECTION_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum rows that one read returns. Further rows are returned by the next read.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Pool of read-only connections. Reads never wait for a write.
pub(crate) struct ReadPool {
    pool: BackendPool,
    /// File path, or database URL without user and password.
    place: String,
}

enum BackendPool {
    Sqlite(SqlitePool),
    Postgres(postgres::Pool),
}

impl ReadPool {
    pub(crate) fn sqlite(options: SqliteConnectOptions, readers: u32, place: String) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(readers)
            .acquire_timeout(READ_CONNECTION_WAIT_MAX);
        // A file doesn't become unreachable as a server does, so connections need no test.
        let pool = pool.test_before_acquire(false);
        let pool = BackendPool::Sqlite(
            pool.connect_lazy_with(options.read_only(true).create_if_missing(false)),
        );
        Self { pool, place }
    }

    pub(crate) fn postgres(connector: Connector, readers: u32, place: String) -> Self {
        Self {
            pool: BackendPool::Postgres(connector.readers(readers, READ_CONNECTION_WAIT_MAX)),
            place,
        }
    }

    /// Returns whether other nodes may use the same store, as with Postgres.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.pool, BackendPool::Postgres(_))
    }

    fn error(&self, error: sqlx::Error) -> JournalError {
        with_place(journal_error(error), &self.place)
    }

    /// Acquires a connection for a few short statements. Callers must not hold it while they wait
    /// for a write.
    async fn connection(&self) -> JournalResult<DbConnection> {
        let acquired = match &self.pool {
            BackendPool::Sqlite(pool) => pool.acquire().await.map(DbConnection::SqliteReader),
            BackendPool::Postgres(pool) => pool.acquire().await.map(DbConnection::Postgres),
        };
        acquired.map_err(|error| self.error(error))
    }

    /// Runs one query and returns its rows.
    pub(crate) async fn rows(
        &self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> JournalResult<Vec<Row>> {
        self.connection()
            .await?
            .rows(sql, args)
            .await
            .map_err(|error| self.error(error))
    }

    /// Returns whether a query has a row.
    pub(crate) async fn has_row(
        &self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> JournalResult<bool> {
        Ok(!self.rows(sql, args).await?.is_empty())
    }

    /// Runs one query and maps each row with `read`.
    pub(crate) async fn read<T>(
        &self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
        read: impl FnMut(&Row) -> sqlx::Result<T>,
    ) -> JournalResult<Vec<T>> {
        let rows = self.rows(sql, args).await?;
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|error| self.error(error))
    }

    /// Closes the pool after running reads have finished.
    pub(crate) async fn close(&self) {
        match &self.pool {
            BackendPool::Sqlite(pool) => pool.close().await,
            BackendPool::Postgres(pool) => pool.close().await,
        }
    }
}
