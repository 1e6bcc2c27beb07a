//! Both databases as the writer and the readers see them.

use std::time::Duration;

use async_trait::async_trait;
use callboard_runtime::{JournalError, JournalResult};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use crate::error::{StoreError, journal_error, located};
use crate::sql::{Arg, Db, Row, Sql};

/// An open store's database: it gives connections, and begins transactions.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// From now on, transactions of another epoch of this writer are refused; SQLite's lock sees to that.
    fn is_epoch(&self, _epoch: i64) {}

    /// Begins a transaction that may write; `false` where another process has taken over.
    async fn begin(&self, db: &mut Db) -> sqlx::Result<bool>;

    /// A new connection that writes, after the old one was lost.
    async fn reopen(&self) -> Result<Db, StoreError>;

    /// Closes the connection that writes, where there is one, and lets others have the store.
    async fn close(&self, db: Option<Db>) -> sqlx::Result<()> {
        match db {
            Some(db) => db.close().await,
            None => Ok(()),
        }
    }

    /// Lets a write that makes room go past the limit by a little.
    async fn open_reserve(&self, _: &mut Db) -> sqlx::Result<()> {
        Ok(())
    }

    async fn close_reserve(&self, _: &mut Db) -> sqlx::Result<()> {
        Ok(())
    }

    /// Whether nothing but what makes room may be written. SQLite tells by itself, at each page.
    fn is_too_large(&self) -> bool {
        false
    }

    /// What a connection does when nothing waits.
    async fn tidy(&self, _: &mut Db) -> sqlx::Result<()> {
        Ok(())
    }

    /// Bytes of the database, without its log.
    async fn bytes(&self, db: &mut Db) -> sqlx::Result<u64>;
}

/// How long a read waits for a connection.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most rows of one read.
/// At the limit: the rest is the next page's.
pub const PAGE_MAX: usize = 1000;

/// Connections that only read. No read waits for a write.
pub(crate) struct Readers {
    pool: Pool,
    /// The file, or the database without user and password.
    place: String,
}

enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Readers {
    pub(crate) fn sqlite(options: SqliteConnectOptions, readers: u32, place: String) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(readers)
            .acquire_timeout(READER_WAIT_MAX);
        // A file doesn't go away as a server does.
        let pool = pool.test_before_acquire(false);
        let pool =
            Pool::Sqlite(pool.connect_lazy_with(options.read_only(true).create_if_missing(false)));
        Self { pool, place }
    }

    pub(crate) fn postgres(options: PgConnectOptions, readers: u32, place: String) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(readers)
            .acquire_timeout(READER_WAIT_MAX);
        let options = options.options([("default_transaction_read_only", "on")]);
        Self {
            pool: Pool::Postgres(pool.connect_lazy_with(options)),
            place,
        }
    }

    /// Whether other nodes share the store.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.pool, Pool::Postgres(_))
    }

    fn error(&self, error: sqlx::Error) -> JournalError {
        located(journal_error(error), &self.place)
    }

    /// A connection for a few short statements. Never hold it while you wait for the writer.
    async fn get(&self) -> JournalResult<Db> {
        let acquired = match &self.pool {
            Pool::Sqlite(pool) => pool.acquire().await.map(Db::SqliteReader),
            Pool::Postgres(pool) => pool.acquire().await.map(Db::PostgresReader),
        };
        acquired.map_err(|error| self.error(error))
    }

    /// One statement's rows.
    pub(crate) async fn rows(
        &self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> JournalResult<Vec<Row>> {
        self.get()
            .await?
            .rows(sql, args)
            .await
            .map_err(|error| self.error(error))
    }

    /// One statement's rows, each as `read` reads it.
    pub(crate) async fn read<T>(
        &self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
        read: impl FnMut(&Row) -> sqlx::Result<T>,
    ) -> JournalResult<Vec<T>> {
        let rows = self.rows(sql, args).await?;
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|error| self.error(error))
    }

    /// Waits for reads that are under way.
    pub(crate) async fn close(&self) {
        match &self.pool {
            Pool::Sqlite(pool) => pool.close().await,
            Pool::Postgres(pool) => pool.close().await,
        }
    }
}
