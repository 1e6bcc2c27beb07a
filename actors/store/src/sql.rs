//! One way to ask either database. A text serves both; where they differ, [`Sql`] has one for each.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::mail::{EntryState, LetterKind};
use callboard_message::{DataClass, TaskState};
use callboard_runtime::{OnRestart, TaskId};
use serde::Deserialize;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Decode, Executor, Postgres, Row as _, Sqlite, Type};

/// A connection: the writer's own, or one of the readers'.
pub(crate) enum Db {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
    SqliteReader(PoolConnection<Sqlite>),
    PostgresReader(PoolConnection<Postgres>),
}

/// A statement. Parameters are `$1`, `$2`, … in both.
///
/// Where Postgres can't know a result's type, cast it: integers must be `BIGINT` (`CAST(sum(bytes) AS BIGINT)`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }

    /// A text that serves both.
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

/// A bound value. A text with a NUL is refused before it comes here: Postgres can't hold it.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
}

/// The values of a statement, each as an [`Arg`].
macro_rules! args {
    ($($value:expr),* $(,)?) => {
        [$($crate::sql::Arg::from($value)),*]
    };
}
pub(crate) use args;

macro_rules! bindable {
    ($($from:ty: $value:pat => $arg:expr;)*) => {$(
        impl<'a> From<$from> for Arg<'a> {
            fn from($value: $from) -> Self {
                $arg
            }
        }
    )*};
}

// A count that no column holds is bound as the largest that one does.
bindable! {
    i32: n => Self::Int(Some(n.into()));
    i64: n => Self::Int(Some(n));
    u32: n => Self::Int(Some(n.into()));
    u64: n => Self::Int(Some(i64::try_from(n).unwrap_or(i64::MAX)));
    usize: n => Self::from(n as u64);
    bool: flag => Self::Int(Some(flag.into()));
    SystemTime: at => Self::Int(Some(ms(at)));
    Option<i64>: n => Self::Int(n);
    Option<SystemTime>: at => Self::Int(at.map(ms));
    &'a str: text => Self::Text(Some(text));
    &'a String: text => Self::Text(Some(text));
    Option<&'a str>: text => Self::Text(text);
    &'a [u8]: bytes => Self::Bytes(Some(bytes));
}

/// A query of one database with its values.
macro_rules! bound {
    ($database:ty, $text:expr, $args:expr) => {
        $args
            .iter()
            .fold(sqlx::query::<$database>($text), |query, arg| match *arg {
                Arg::Int(value) => query.bind(value),
                Arg::Text(value) => query.bind(value),
                Arg::Bytes(value) => query.bind(value),
            })
    };
}

enum Conn<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Db {
    fn conn(&mut self) -> Conn<'_> {
        match self {
            Self::Sqlite(connection) => Conn::Sqlite(connection),
            Self::Postgres(connection) => Conn::Postgres(connection),
            Self::SqliteReader(connection) => Conn::Sqlite(connection),
            Self::PostgresReader(connection) => Conn::Postgres(connection),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_) | Self::SqliteReader(_))
    }

    /// How many rows were touched.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> sqlx::Result<u64> {
        let sql = sql.into();
        match self.conn() {
            Conn::Sqlite(db) => Ok(bound!(Sqlite, sql.sqlite, args)
                .execute(db)
                .await?
                .rows_affected()),
            Conn::Postgres(db) => Ok(bound!(Postgres, sql.postgres, args)
                .execute(db)
                .await?
                .rows_affected()),
        }
    }

    pub(crate) async fn rows(
        &mut self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        let sql = sql.into();
        let rows: Vec<Columns> = match self.conn() {
            Conn::Sqlite(db) => bound!(Sqlite, sql.sqlite, args)
                .fetch_all(db)
                .await?
                .into_iter()
                .map(Columns::Sqlite)
                .collect(),
            Conn::Postgres(db) => bound!(Postgres, sql.postgres, args)
                .fetch_all(db)
                .await?
                .into_iter()
                .map(Columns::Postgres)
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

    /// The first row, if there is one.
    pub(crate) async fn row(
        &mut self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> sqlx::Result<Option<Row>> {
        let sql = sql.into();
        let row = match self.conn() {
            Conn::Sqlite(db) => bound!(Sqlite, sql.sqlite, args)
                .fetch_optional(db)
                .await?
                .map(Columns::Sqlite),
            Conn::Postgres(db) => bound!(Postgres, sql.postgres, args)
                .fetch_optional(db)
                .await?
                .map(Columns::Postgres),
        };
        Ok(row.map(|columns| Row {
            columns,
            statement: sql.sqlite,
        }))
    }

    /// The first row's first column, an integer; 0 where there is no row.
    pub(crate) async fn number(
        &mut self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> sqlx::Result<i64> {
        match self.row(sql, args).await? {
            Some(row) => Ok(row.get::<Option<i64>>(0)?.unwrap_or_default()),
            None => Ok(0),
        }
    }

    /// The first row's first column, a text; empty where there is no row.
    pub(crate) async fn text(
        &mut self,
        sql: impl Into<Sql>,
        args: &[Arg<'_>],
    ) -> sqlx::Result<String> {
        Ok(self
            .row(sql, args)
            .await?
            .map(|row| row.get(0))
            .transpose()?
            .unwrap_or_default())
    }

    /// Statements without values, not prepared: BEGIN, PRAGMA, a migration.
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

    /// As [`Self::run`], with a text that was put together here: a number, an escaped file name.
    pub(crate) async fn run_text(&mut self, text: String) -> sqlx::Result<()> {
        let text = sqlx::raw_sql(sqlx::AssertSqlSafe(text));
        match self.conn() {
            Conn::Sqlite(db) => db.execute(text).await.map(drop),
            Conn::Postgres(db) => db.execute(text).await.map(drop),
        }
    }

    /// Waits for its last statement and closes it; a reader's goes back to its pool.
    pub(crate) async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
            Self::SqliteReader(_) | Self::PostgresReader(_) => Ok(()),
        }
    }
}

/// A row. Columns are counted from 0.
pub(crate) struct Row {
    columns: Columns,
    /// The text that asked for it: it names the table where the row can't be read.
    statement: &'static str,
}

enum Columns {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub(crate) fn get<'r, T: Column<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        T::read(self, column)
    }

    /// A column that holds JSON as text.
    pub(crate) fn json<'r, T: Deserialize<'r>>(&'r self, column: usize) -> sqlx::Result<T> {
        // Why it can't be read isn't told: that would quote what is in there.
        let parsed = serde_json::from_str(self.get(column)?);
        parsed.map_err(|_| self.unreadable(column, "it isn't the JSON that belongs there"))
    }

    /// The error about a column: with its name, and the table and key of its row. It never holds a value of another column.
    fn unreadable(&self, column: usize, why: impl Into<BoxDynError>) -> sqlx::Error {
        let names: Vec<&str> = match &self.columns {
            Columns::Sqlite(row) => row.columns().iter().map(sqlx::Column::name).collect(),
            Columns::Postgres(row) => row.columns().iter().map(sqlx::Column::name).collect(),
        };
        let tables = self
            .statement
            .split("FROM ")
            .skip(1)
            .filter_map(|rest| rest.split([' ', ')']).next());
        let table = tables
            .into_iter()
            .find(|table| table.starts_with(|c: char| c.is_ascii_lowercase()));
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

impl Columns {
    fn get<'r, T>(&'r self, column: usize) -> sqlx::Result<T>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}

/// What a column is read as.
pub(crate) trait Column<'r>: Sized {
    fn read(row: &'r Row, column: usize) -> sqlx::Result<Self>;
}

macro_rules! columns {
    ($($plain:ty)*; $($type:ty: |$row:ident, $column:ident| $read:expr;)*) => {
        $(impl<'r> Column<'r> for $plain {
            fn read(row: &'r Row, column: usize) -> sqlx::Result<Self> {
                row.columns.get(column).map_err(|error| match error {
                    sqlx::Error::ColumnDecode { source, .. } => row.unreadable(column, source),
                    error => error,
                })
            }
        })*
        $(impl<'r> Column<'r> for $type {
            fn read($row: &'r Row, $column: usize) -> sqlx::Result<Self> {
                $read
            }
        })*
    };
}

columns! {
    i64 Option<i64> &'r str Option<&'r str> String Option<String> Vec<u8> Option<&'r [u8]>;
    // A count or a number from 1: never negative in a store that is whole.
    u64: |row, column| u64::try_from(row.get::<i64>(column)?).map_err(|_| row.unreadable(column, "it is negative"));
    u32: |row, column| Ok(u32::try_from(row.get::<u64>(column)?).unwrap_or(u32::MAX));
    bool: |row, column| Ok(row.get::<i64>(column)? != 0);
    SystemTime: |row, column| row.get(column).map(time);
    Option<SystemTime>: |row, column| Ok(row.get::<Option<i64>>(column)?.map(time));
    TaskId: |row, column| TaskId::new(row.get::<&str>(column)?).map_err(|_| row.unreadable(column, "it is no task's id"));
    Option<TaskId>: |row, column| row.get::<Option<&str>>(column)?.map(|_| row.get(column)).transpose();
    TaskState: |row, column| word(row, column, TaskState::parse);
    DataClass: |row, column| word(row, column, DataClass::parse);
    OnRestart: |row, column| word(row, column, OnRestart::parse);
    LetterKind: |row, column| word(row, column, LetterKind::parse);
    EntryState: |row, column| word(row, column, EntryState::parse);
}

fn word<T>(row: &Row, column: usize, parse: impl Fn(&str) -> Option<T>) -> sqlx::Result<T> {
    parse(row.get(column)?).ok_or_else(|| row.unreadable(column, "there is no such word"))
}

/// Rows that one statement writes or asks for: as few statements as possible, and few texts, so that all stay prepared.
const ROWS_AT_ONCE: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];

/// Texts of one statement, by [`ROWS_AT_ONCE`].
type Texts = [String; ROWS_AT_ONCE.len()];

/// A statement with a list of rows in it: `before ($1, $2), ($3, $4), … after`. Its texts are made once.
pub(crate) struct ManyRows {
    before: &'static str,
    columns: usize,
    after: &'static str,
    sqlite: OnceLock<Texts>,
    postgres: OnceLock<Texts>,
}

impl ManyRows {
    /// `before` ends with `VALUES`; each row has `columns` values.
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
            // A statement that may have to undo its own rows keeps a copy of each page. Ours don't: an error ends the transaction.
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
                    // No numbers: each name of a parameter is searched for among all of them, at each binding.
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

    /// The texts with how many values each takes.
    fn cut<'a, 'v>(
        &'static self,
        db: &Db,
        mut values: &'a [Arg<'v>],
    ) -> Vec<(&'static str, &'a [Arg<'v>])> {
        let is_sqlite = db.is_sqlite();
        let texts = if is_sqlite {
            &self.sqlite
        } else {
            &self.postgres
        };
        let texts = texts.get_or_init(|| ROWS_AT_ONCE.map(|rows| self.text(is_sqlite, rows)));
        let mut cut = Vec::new();
        for (text, rows) in texts.iter().zip(ROWS_AT_ONCE) {
            while values.len() >= rows * self.columns {
                let (now, later) = values.split_at(rows * self.columns);
                cut.push((text.as_str(), now));
                values = later;
            }
        }
        cut
    }

    /// `values` row after row.
    pub(crate) async fn execute(
        &'static self,
        db: &mut Db,
        values: &[Arg<'_>],
    ) -> sqlx::Result<()> {
        for (text, values) in self.cut(db, values) {
            db.execute(text, values).await?;
        }
        Ok(())
    }

    /// As [`Self::execute`], with the rows that the statements answer.
    pub(crate) async fn rows(
        &'static self,
        db: &mut Db,
        values: &[Arg<'_>],
    ) -> sqlx::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (text, values) in self.cut(db, values) {
            rows.extend(db.rows(text, values).await?);
        }
        Ok(rows)
    }
}

/// Milliseconds since 1970; what is before is 0, what is too far is the latest that can be said.
pub(crate) fn ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn time(ms: i64) -> SystemTime {
    let since = Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
