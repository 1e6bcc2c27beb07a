//! Postgres driver: connections, rows and the read pool. `no_postgres.rs` has the same names for
//! builds without the feature `postgres`, so the callers need no `cfg`.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions, Connection as _, Decode, Executor, Postgres, Row as _, Type};
use url::Url;

use super::{SqlArg, query};
use crate::error::StoreError;

/// Connection options of one database.
#[derive(Clone)]
pub(crate) struct Connector(PgConnectOptions);

impl Connector {
    /// Parses a database URL and adds the password. Turns statement logging off, because statements
    /// may hold confidential values.
    pub(crate) fn new(url: &Url, password: Option<&SecretString>) -> Result<Self, StoreError> {
        let options =
            PgConnectOptions::from_url(url).map_err(|e| StoreError::Url(e.to_string()))?;
        let options = match password {
            Some(password) => options.password(password.expose_secret()),
            None => options,
        };
        Ok(Self(
            options
                .application_name("callboard")
                .statement_cache_capacity(256)
                .disable_statement_logging(),
        ))
    }

    pub(crate) async fn connect(&self) -> sqlx::Result<Connection> {
        Ok(Connection::Own(Box::new(self.0.connect().await?)))
    }

    /// Creates a pool of read-only connections. A caller waits up to `wait_max` for a free one.
    pub(crate) fn readers(self, connections_max: u32, wait_max: Duration) -> Pool {
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(wait_max);
        Pool(pool.connect_lazy_with(self.0.options([("default_transaction_read_only", "on")])))
    }
}

pub(crate) struct Pool(PgPool);

impl Pool {
    pub(crate) async fn acquire(&self) -> sqlx::Result<Connection> {
        self.0.acquire().await.map(Connection::Pooled)
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}

/// Postgres connection: owned by the writer, or borrowed from the read pool.
pub(crate) enum Connection {
    Own(Box<PgConnection>),
    Pooled(PoolConnection<Postgres>),
}

impl Connection {
    fn inner(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Pooled(connection) => connection,
        }
    }

    /// Returns the number of affected rows.
    pub(crate) async fn execute(
        &mut self,
        text: &'static str,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<u64> {
        Ok(query::<Postgres>(text, args)
            .execute(self.inner())
            .await?
            .rows_affected())
    }

    pub(crate) async fn rows(
        &mut self,
        text: &'static str,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        let rows = query::<Postgres>(text, args)
            .fetch_all(self.inner())
            .await?;
        Ok(rows.into_iter().map(Row).collect())
    }

    /// Returns the first row, if there is one.
    pub(crate) async fn row(
        &mut self,
        text: &'static str,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<Option<Row>> {
        Ok(query::<Postgres>(text, args)
            .fetch_optional(self.inner())
            .await?
            .map(Row))
    }

    /// Runs unprepared statements without parameters.
    pub(crate) async fn run_text(&mut self, text: String) -> sqlx::Result<()> {
        self.inner()
            .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text)))
            .await
            .map(drop)
    }

    /// Waits for the last statement and closes the connection; a pooled connection returns to its
    /// pool.
    pub(crate) async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::Own(connection) => connection.close().await,
            Self::Pooled(_) => Ok(()),
        }
    }
}

/// Row of a result. Columns are indexed from 0.
pub(crate) struct Row(PgRow);

impl Row {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.columns().iter().map(sqlx::Column::name).collect()
    }

    pub(crate) fn get<'r, T: Value<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        self.0.try_get(column)
    }
}

/// Type that a Postgres column can be decoded to.
pub(crate) trait Value<'r>: Decode<'r, Postgres> + Type<Postgres> {}

impl<'r, T: Decode<'r, Postgres> + Type<Postgres>> Value<'r> for T {}
