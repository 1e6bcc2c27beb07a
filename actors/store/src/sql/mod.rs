//! Common interface to SQLite and Postgres. One SQL text serves both; if they differ, [`Sql`] holds
//! one for each.

#[cfg(not(feature = "postgres"))]
#[path = "no_postgres.rs"]
pub(crate) mod postgres;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::mail::{DeliveryState, MailMessageKind};
use callboard_message::{DataClass, TaskState};
use callboard_runtime::{OnRestart, TaskId};
use serde::Deserialize;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Database, Decode, Encode, Executor, Row as _, Sqlite, Type};

/// Database connection of the writer or of the read pool.
pub(crate) enum DbConnection {
    Sqlite(Box<SqliteConnection>),
    SqliteReader(PoolConnection<Sqlite>),
    Postgres(postgres::Connection),
}

/// SQL statement. Parameters are `$1`, `$2`, … in both databases.
///
/// If Postgres can't infer the type of a result, cast it: integers must be `BIGINT`
/// (`CAST(sum(bytes) AS BIGINT)`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }

    /// Creates a statement with the same text for both databases.
    pub(crate) const fn same(text: &'static str) -> Self {
        Self {
            sqlite: text,
            postgres: text,
        }
    }
}

impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self::same(text)
    }
}

/// Parameter bound to an SQL statement. Callers must reject texts with a NUL character first,
/// because Postgres can't store them.
#[derive(Clone, Copy)]
pub(crate) enum SqlArg<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
}

/// Array of the parameters of a statement, each as an [`SqlArg`].
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        [$($crate::sql::SqlArg::from($value)),*]
    };
}
pub(crate) use args;

macro_rules! bindable {
    ($($from:ty: $value:pat => $arg:expr;)*) => {$(
        impl<'a> From<$from> for SqlArg<'a> {
            fn from($value: $from) -> Self {
                $arg
            }
        }
    )*};
}

// A count above `i64::MAX` is bound as `i64::MAX`.
bindable! {
    i32: n => Self::Int(Some(n.into()));
    i64: n => Self::Int(Some(n));
    u32: n => Self::Int(Some(n.into()));
    u64: n => Self::Int(Some(i64::try_from(n).unwrap_or(i64::MAX)));
    usize: n => Self::from(n as u64);
    bool: flag => Self::Int(Some(flag.into()));
    SystemTime: at => Self::Int(Some(to_unix_ms(at)));
    Option<i64>: n => Self::Int(n);
    Option<SystemTime>: at => Self::Int(at.map(to_unix_ms));
    &'a str: text => Self::Text(Some(text));
    &'a String: text => Self::Text(Some(text));
    Option<&'a str>: text => Self::Text(text);
    &'a [u8]: bytes => Self::Bytes(Some(bytes));
}

/// Builds a query of one database with its parameters.
fn query<'a, DB: Database>(text: &'static str, args: &[SqlArg<'a>]) -> Query<'a, DB, DB::Arguments>
where
    Option<i64>: Encode<'a, DB> + Type<DB>,
    Option<&'a str>: Encode<'a, DB> + Type<DB>,
    Option<&'a [u8]>: Encode<'a, DB> + Type<DB>,
{
    args.iter()
        .fold(sqlx::query(text), |query, arg| match *arg {
            SqlArg::Int(value) => query.bind(value),
            SqlArg::Text(value) => query.bind(value),
            SqlArg::Bytes(value) => query.bind(value),
        })
}

enum ConnectionRef<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut postgres::Connection),
}

impl DbConnection {
    fn conn(&mut self) -> ConnectionRef<'_> {
        match self {
            Self::Sqlite(connection) => ConnectionRef::Sqlite(connection),
            Self::SqliteReader(connection) => ConnectionRef::Sqlite(connection),
            Self::Postgres(connection) => ConnectionRef::Postgres(connection),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_) | Self::SqliteReader(_))
    }

    /// Runs a statement and returns the number of affected rows.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<u64> {
        let sql = sql.into();
        match self.conn() {
            ConnectionRef::Sqlite(db) => Ok(query::<Sqlite>(sql.sqlite, args)
                .execute(db)
                .await?
                .rows_affected()),
            ConnectionRef::Postgres(db) => db.execute(sql.postgres, args).await,
        }
    }

    pub(crate) async fn rows(
        &mut self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        let sql = sql.into();
        let rows: Vec<BackendRow> = match self.conn() {
            ConnectionRef::Sqlite(db) => query::<Sqlite>(sql.sqlite, args)
                .fetch_all(db)
                .await?
                .into_iter()
                .map(BackendRow::Sqlite)
                .collect(),
            ConnectionRef::Postgres(db) => db
                .rows(sql.postgres, args)
                .await?
                .into_iter()
                .map(BackendRow::Postgres)
                .collect(),
        };
        Ok(rows
            .into_iter()
            .map(|columns| Row {
                columns,
                statement: sql.sqlite,
            })
            .collect())
    }

    /// Returns the first row, if there is one.
    pub(crate) async fn row(
        &mut self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<Option<Row>> {
        let sql = sql.into();
        let row = match self.conn() {
            ConnectionRef::Sqlite(db) => query::<Sqlite>(sql.sqlite, args)
                .fetch_optional(db)
                .await?
                .map(BackendRow::Sqlite),
            ConnectionRef::Postgres(db) => {
                db.row(sql.postgres, args).await?.map(BackendRow::Postgres)
            }
        };
        Ok(row.map(|columns| Row {
            columns,
            statement: sql.sqlite,
        }))
    }

    /// Returns the first column of the first row as an integer; 0 if there is no row or the value
    /// is NULL.
    pub(crate) async fn number(
        &mut self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<i64> {
        match self.row(sql, args).await? {
            Some(row) => Ok(row.get::<Option<i64>>(0)?.unwrap_or_default()),
            None => Ok(0),
        }
    }

    /// Returns the first column of the first row as text; empty if there is no row.
    pub(crate) async fn text(
        &mut self,
        sql: impl Into<Sql>,
        args: &[SqlArg<'_>],
    ) -> sqlx::Result<String> {
        Ok(self
            .row(sql, args)
            .await?
            .map(|row| row.get(0))
            .transpose()?
            .unwrap_or_default())
    }

    /// Runs an unprepared statement without parameters: BEGIN, PRAGMA, a migration.
    pub(crate) async fn run(&mut self, sql: impl Into<Sql>) -> sqlx::Result<()> {
        let sql = sql.into();
        self.run_text(
            if self.is_sqlite() {
                sql.sqlite
            } else {
                sql.postgres
            }
            .to_owned(),
        )
        .await
    }

    /// Runs an SQL text that was built at run time, unprepared. The text must hold only numbers and
    /// escaped file names.
    pub(crate) async fn run_text(&mut self, text: String) -> sqlx::Result<()> {
        match self.conn() {
            ConnectionRef::Sqlite(db) => db
                .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text)))
                .await
                .map(drop),
            ConnectionRef::Postgres(db) => db.run_text(text).await,
        }
    }

    /// Waits for the last statement and closes the connection; a pooled connection returns to its
    /// pool.
    pub(crate) async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::SqliteReader(_) => Ok(()),
            Self::Postgres(connection) => connection.close().await,
        }
    }
}

/// Row of a result. Columns are indexed from 0.
pub(crate) struct Row {
    columns: BackendRow,
    /// Text of the query, from which errors take the table's name.
    statement: &'static str,
}

enum BackendRow {
    Sqlite(SqliteRow),
    Postgres(postgres::Row),
}

impl Row {
    pub(crate) fn get<'r, T: FromColumn<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        T::read(self, column)
    }

    /// Parses a column that holds JSON text.
    pub(crate) fn json<'r, T: Deserialize<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        // Serde's reason is dropped, because it may quote the content.
        let parsed = serde_json::from_str(self.get(column)?);
        parsed.map_err(|_| self.unreadable(column, "it isn't the JSON that belongs there"))
    }

    /// Returns the error for an unreadable column, with the column's name and the table and key of
    /// its row. It never holds a value of another column.
    fn unreadable(&self, column: usize, why: impl Into<BoxDynError>) -> sqlx::Error {
        let names: Vec<&str> = match &self.columns {
            BackendRow::Sqlite(row) => row.columns().iter().map(sqlx::Column::name).collect(),
            BackendRow::Postgres(row) => row.names(),
        };
        // Not that of a column which is itself a query.
        let tables = self.statement.match_indices("FROM ").map(|(at, from)| {
            let (before, rest) = (&self.statement[..at], &self.statement[at + from.len()..]);
            let (open, closed) = (before.matches('(').count(), before.matches(')').count());
            let name = rest.split([' ', ')']).next().unwrap_or_default();
            (open.saturating_sub(closed), name)
        });
        let named = tables.filter(|(_, name)| name.starts_with(|c: char| c.is_ascii_lowercase()));
        let table = named.min_by_key(|(depth, _)| *depth).map(|(_, name)| name);
        let key = names
            .iter()
            .position(|name| matches!(*name, "id" | "number" | "key"))
            .and_then(|at| self.key(at));
        let (name, table) = (
            names.get(column).copied().unwrap_or_default(),
            table.unwrap_or("a row"),
        );
        let index = format!("`{name}` of {table} {}", key.unwrap_or_default());
        sqlx::Error::ColumnDecode {
            index: index.trim_end().to_owned(),
            source: why.into(),
        }
    }

    fn key(&self, column: usize) -> Option<String> {
        let number: Result<i64, _> = self.columns.get(column);
        number
            .map(|number| number.to_string())
            .or_else(|_| self.columns.get(column))
            .ok()
    }
}

impl BackendRow {
    fn get<'r, T>(&'r self, column: usize) -> sqlx::Result<T>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + postgres::Value<'r>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.get(column),
        }
    }
}

/// Type that a column can be read as.
pub(crate) trait FromColumn<'r>: Sized {
    fn read(row: &'r Row, column: usize) -> sqlx::Result<Self>;
}

macro_rules! columns {
    ($($plain:ty)*; $($type:ty: |$row:ident, $column:ident| $read:expr;)*) => {
        $(impl<'r> FromColumn<'r> for $plain {
            fn read(row: &'r Row, column: usize) -> sqlx::Result<Self> {
                row.columns.get(column).map_err(|error| match error {
                    sqlx::Error::ColumnDecode { source, .. } => row.unreadable(column, source),
                    error => error,
                })
            }
        })*
        $(impl<'r> FromColumn<'r> for $type {
            fn read($row: &'r Row, $column: usize) -> sqlx::Result<Self> {
                $read
            }
        })*
    };
}

columns! {
    i64 Option<i64> &'r str Option<&'r str> String Option<String> Vec<u8> Option<&'r [u8]>;
    // A count, or a number from 1: never negative in an intact store.
    u64: |row, column| u64::try_from(row.get::<i64>(column)?).map_err(|_| row.unreadable(column, "it is negative"));
    u32: |row, column| Ok(u32::try_from(row.get::<u64>(column)?).unwrap_or(u32::MAX));
    bool: |row, column| Ok(row.get::<i64>(column)? != 0);
    SystemTime: |row, column| row.get(column).map(from_unix_ms);
    Option<SystemTime>: |row, column| Ok(row.get::<Option<i64>>(column)?.map(from_unix_ms));
    TaskId: |row, column| TaskId::new(row.get::<&str>(column)?).map_err(|_| row.unreadable(column, "it is no task's id"));
    Option<TaskId>: |row, column| row.get::<Option<&str>>(column)?.map(|_| row.get(column)).transpose();
    TaskState: |row, column| parse_column(row, column, TaskState::parse);
    DataClass: |row, column| parse_column(row, column, DataClass::parse);
    OnRestart: |row, column| parse_column(row, column, OnRestart::parse);
    MailMessageKind: |row, column| parse_column(row, column, MailMessageKind::parse);
    DeliveryState: |row, column| parse_column(row, column, DeliveryState::parse);
}

fn parse_column<T>(row: &Row, column: usize, parse: impl Fn(&str) -> Option<T>) -> sqlx::Result<T> {
    parse(row.get(column)?)
        .ok_or_else(|| row.unreadable(column, "this version doesn't know its value"))
}

/// Row counts that a bulk statement has a text for. Few counts keep all statements prepared; large
/// ones keep the number of statements low.
const BULK_ROWS: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];

/// SQL texts of one bulk statement, one for each row count in [`BULK_ROWS`].
type StatementTexts = [String; BULK_ROWS.len()];

/// SQL statement with a list of rows: `before ($1, $2), ($3, $4), … after`. Its texts are built
/// once, at the first use.
pub(crate) struct BulkStatement {
    before: &'static str,
    columns: usize,
    after: &'static str,
    sqlite: OnceLock<StatementTexts>,
    postgres: OnceLock<StatementTexts>,
}

impl BulkStatement {
    /// Creates a bulk statement. `before` must end with `VALUES`; each row has `columns` values.
    pub(crate) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self {
            before,
            columns,
            after,
            sqlite: OnceLock::new(),
            postgres: OnceLock::new(),
        }
    }

    fn text(&self, is_sqlite: bool, rows: usize) -> String {
        let mut text = match is_sqlite {
            // With the default `OR ABORT`, SQLite copies each page to be able to undo the
            // statement's rows. That isn't needed here: an error rolls back the whole transaction.
            true => self
                .before
                .replacen("INSERT INTO", "INSERT OR FAIL INTO", 1),
            false => self.before.to_owned(),
        };
        for row in 0..rows {
            text.push_str(if row == 0 { " (" } else { ", (" });
            for column in 1..=self.columns {
                text.push_str(if column == 1 { "" } else { ", " });
                match is_sqlite {
                    // Without numbers: SQLite searches a numbered parameter among all of them at
                    // each binding.
                    true => text.push('?'),
                    false => text.push_str(&format!("${}", row * self.columns + column)),
                }
            }
            text.push(')');
        }
        text.push(' ');
        text.push_str(self.after);
        text
    }

    /// Splits the values into batches of rows, each with the SQL text for its number of rows.
    fn split_batches<'a, 'v>(
        &'static self,
        db: &DbConnection,
        mut values: &'a [SqlArg<'v>],
    ) -> Vec<(&'static str, &'a [SqlArg<'v>])> {
        let is_sqlite = db.is_sqlite();
        let texts = if is_sqlite {
            &self.sqlite
        } else {
            &self.postgres
        };
        let texts = texts.get_or_init(|| BULK_ROWS.map(|rows| self.text(is_sqlite, rows)));
        let mut cut = Vec::new();
        for (text, rows) in texts.iter().zip(BULK_ROWS) {
            while values.len() >= rows * self.columns {
                let (now, later) = values.split_at(rows * self.columns);
                cut.push((text.as_str(), now));
                values = later;
            }
        }
        cut
    }

    /// Runs the statement with `values`, given row after row.
    pub(crate) async fn execute(
        &'static self,
        db: &mut DbConnection,
        values: &[SqlArg<'_>],
    ) -> sqlx::Result<()> {
        for (text, values) in self.split_batches(db, values) {
            db.execute(text, values).await?;
        }
        Ok(())
    }

    /// Runs the statement as [`Self::execute`] does, and returns the resulting rows.
    pub(crate) async fn rows(
        &'static self,
        db: &mut DbConnection,
        values: &[SqlArg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (text, values) in self.split_batches(db, values) {
            rows.extend(db.rows(text, values).await?);
        }
        Ok(rows)
    }
}

/// Converts a time to Unix milliseconds: 0 for a time before 1970, `i64::MAX` for one too far in
/// the future.
pub(crate) fn to_unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn from_unix_ms(ms: i64) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
