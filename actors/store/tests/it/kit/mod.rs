//! Stores to test on: a SQLite file, and a Postgres database if there is a server.

mod child;

use std::path::{Path, PathBuf};
use std::sync::Once;

pub use child::{Child, arguments, of_parent};

use callboard_store::{AuditFilter, AuditVerifyOptions, SqlStore, StoreOptions};
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;
use url::Url;
use uuid::Uuid;

/// Environment variable with the URL of a Postgres server; its user must be allowed to create
/// databases.
pub const POSTGRES: &str = "CALLBOARD_POSTGRES";
/// Whether the crate under test was built with Postgres. The tests' own driver always is.
pub const WITH_POSTGRES: bool = cfg!(feature = "postgres");

/// Open store of a test, initially empty.
pub struct Opened {
    pub sql: SqlStore,
    options: StoreOptions,
    /// Folder beside the store; it holds the file of a SQLite store.
    folder: TempDir,
    database: Option<Database>,
}

/// Postgres database of one test.
struct Database {
    server: Url,
    name: String,
}

impl Opened {
    pub fn is_sqlite(&self) -> bool {
        self.database.is_none()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the SQLite file, whether or not there is one.
    pub fn file(&self) -> PathBuf {
        self.folder().join("store.sqlite")
    }

    /// Returns the options that the store was opened with.
    pub fn options(&self) -> StoreOptions {
        self.options.clone()
    }

    /// Returns the value that lets a child open the store with `of_parent`: a URL, a space, the
    /// path of the audit key.
    pub fn child_store(&self) -> String {
        let key = self.folder().join("audit.key");
        match &self.database {
            None => format!("sqlite:{} {}", self.file().display(), key.display()),
            Some(Database { server, name }) => format!("{} {}", at(server, name), key.display()),
        }
    }

    /// Closes and reopens the store, as the next process would.
    pub async fn restart(&mut self) {
        let options = self.options();
        self.restart_with(options).await;
    }

    pub async fn restart_with(&mut self, options: StoreOptions) {
        self.sql.close().await;
        self.sql = SqlStore::open(&options).await.unwrap();
        self.options = options;
    }

    /// Runs one statement directly on the database, to damage or inspect it.
    pub async fn raw(&self, sql: &str) {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        match &self.database {
            None => {
                let mut db = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(self.file())
                    .connect()
                    .await
                    .unwrap();
                db.execute(sql).await.unwrap();
                db.close().await.unwrap();
            }
            Some(Database { server, name }) => {
                let mut db = sqlx::PgConnection::connect(at(server, name).as_str())
                    .await
                    .unwrap();
                db.execute(sql).await.unwrap();
                db.close().await.unwrap();
            }
        }
    }
}

impl Opened {
    /// Returns the number from one query directly on the database.
    pub async fn number(&self, sql: &str) -> i64 {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match &self.database {
            None => {
                let mut db = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(self.file())
                    .connect()
                    .await
                    .unwrap();
                let number = sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap();
                db.close().await.unwrap();
                number
            }
            Some(Database { server, name }) => {
                let mut db = sqlx::PgConnection::connect(at(server, name).as_str())
                    .await
                    .unwrap();
                let number = sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap();
                db.close().await.unwrap();
                number
            }
        }
    }
}

/// Opens a store in a new SQLite file.
pub async fn in_file(change: impl FnOnce(StoreOptions) -> StoreOptions) -> Opened {
    let folder = TempDir::new().unwrap();
    let options = StoreOptions::sqlite(folder.path().join("store.sqlite"))
        .cleanup_interval(None)
        .sign_interval(None);
    open(change(options), folder, None).await
}

/// Opens a store in a new Postgres database; `None` without a server (reported once) or without the
/// feature.
pub async fn in_database(change: impl FnOnce(StoreOptions) -> StoreOptions) -> Option<Opened> {
    static TOLD: Once = Once::new();
    if !WITH_POSTGRES {
        return None;
    }
    let Ok(server) = std::env::var(POSTGRES) else {
        TOLD.call_once(|| {
            eprintln!(
                "{POSTGRES} is unset: nothing is tried on Postgres (`cargo xtask test` sets it)"
            )
        });
        return None;
    };
    let server = Url::parse(&server).unwrap();
    let name = format!("t{}", Uuid::new_v4().simple());
    on_server(&server, format!("CREATE DATABASE {name}")).await;
    let folder = TempDir::new().unwrap();
    let options = StoreOptions::postgres(at(&server, &name).as_str(), None)
        .unwrap()
        .cleanup_interval(None);
    let options = options
        .sign_interval(None)
        .audit_key(folder.path().join("audit.key"));
    Some(open(change(options), folder, Some(Database { server, name })).await)
}

async fn open(options: StoreOptions, folder: TempDir, database: Option<Database>) -> Opened {
    let sql = SqlStore::open(&options).await.unwrap();
    Opened {
        sql,
        options,
        folder,
        database,
    }
}

/// Returns the seed of a random test: `CALLBOARD_SEED` or a random one. It is printed, so a failure
/// shows it.
pub fn seed() -> u64 {
    let given = std::env::var("CALLBOARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    println!("CALLBOARD_SEED={seed}");
    seed
}

/// Runs a test on an empty store of each kind, and closes it.
pub async fn stores(body: impl AsyncFn(&mut Opened)) {
    stores_with(|options| options, body).await;
}

/// Runs a test as [`stores`] does, with changed options.
pub async fn stores_with(
    change: impl Fn(StoreOptions) -> StoreOptions,
    body: impl AsyncFn(&mut Opened),
) {
    for opened in [Some(in_file(&change).await), in_database(&change).await] {
        let Some(mut opened) = opened else { continue };
        body(&mut opened).await;
        opened.end().await;
    }
}

/// Runs a test on an implementation in memory, and on that of each kind of store.
pub async fn anywhere<T>(memory: T, of: impl Fn(&Opened) -> T, body: impl AsyncFn(T)) {
    body(memory).await;
    stores(async |opened| {
        body(of(opened)).await;
    })
    .await;
}

/// Verifies the audit. Returns its entries about messages, oldest first.
pub async fn communications(opened: &Opened) -> Vec<String> {
    let filter = AuditFilter {
        event: Some("agent_communication".into()),
        ..AuditFilter::default()
    };
    let mut lines = opened.sql.audit_lines(&filter).await.unwrap();
    lines.sort_by_key(|line| line.number);
    let reports = opened
        .sql
        .verify_audit(&AuditVerifyOptions::default())
        .await
        .unwrap();
    assert!(
        reports.iter().all(|report| report.fault.is_none()),
        "{reports:?}"
    );
    lines.into_iter().map(|line| line.line).collect()
}

impl Opened {
    /// Returns the first column of each row, directly from the database.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match &self.database {
            None => {
                let mut db = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(self.file())
                    .connect()
                    .await
                    .unwrap();
                let texts = sqlx::query_scalar(sql).fetch_all(&mut db).await.unwrap();
                db.close().await.unwrap();
                texts
            }
            Some(Database { server, name }) => {
                let mut db = sqlx::PgConnection::connect(at(server, name).as_str())
                    .await
                    .unwrap();
                let texts = sqlx::query_scalar(sql).fetch_all(&mut db).await.unwrap();
                db.close().await.unwrap();
                texts
            }
        }
    }

    /// Closes the connection and drops the database.
    pub async fn end(self) {
        self.sql.close().await;
        if let Some(Database { server, name }) = self.database {
            on_server(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}

fn at(server: &Url, database: &str) -> Url {
    let mut url = server.clone();
    url.set_path(database);
    url
}

async fn on_server(server: &Url, statement: String) {
    let mut db = sqlx::PgConnection::connect(server.as_str()).await.unwrap();
    db.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement)))
        .await
        .unwrap();
    db.close().await.unwrap();
}
