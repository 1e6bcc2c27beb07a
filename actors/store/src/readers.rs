//! The connections that only read. No read waits for a write.

use std::time::Duration;

use callboard_runtime::JournalError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use crate::error::journal_error;
use crate::sql::{Arg, Db, Row, Sql};

/// How long a read waits for a connection.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most rows of one read.
pub const PAGE_MAX: usize = 1000;

#[derive(Clone)]
pub(crate) enum Readers {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Readers {
    pub(crate) fn sqlite(options: SqliteConnectOptions, readers: u32) -> Self {
        let pool = SqlitePoolOptions::new().max_connections(readers).acquire_timeout(READER_WAIT_MAX);
        // A file doesn't go away as a server does.
        let pool = pool.test_before_acquire(false);
        Self::Sqlite(pool.connect_lazy_with(options.read_only(true).create_if_missing(false)))
    }

    pub(crate) fn postgres(options: PgConnectOptions, readers: u32) -> Self {
        let pool = PgPoolOptions::new().max_connections(readers).acquire_timeout(READER_WAIT_MAX);
        Self::Postgres(pool.connect_lazy_with(options.options([("default_transaction_read_only", "on")])))
    }

    /// A connection for a few short statements. Never hold it while you wait for the writer.
    pub(crate) async fn get(&self) -> Result<Db, JournalError> {
        match self {
            Self::Sqlite(pool) => pool.acquire().await.map(Db::SqliteReader),
            Self::Postgres(pool) => pool.acquire().await.map(Db::PostgresReader),
        }
        .map_err(|e| journal_error(&e))
    }

    /// One statement's rows.
    pub(crate) async fn rows(&self, sql: impl Into<Sql>, args: &[Arg<'_>]) -> Result<Vec<Row>, JournalError> {
        self.get().await?.rows(sql, args).await.map_err(|e| journal_error(&e))
    }

    /// One statement's rows, each as `read` reads it.
    pub(crate) async fn read<T>(
        &self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
        read: impl FnMut(&Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, JournalError> {
        let rows = self.rows(sql, args).await?;
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|e| journal_error(&e))
    }

    /// Waits for reads that are under way.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
