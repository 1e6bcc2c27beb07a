//! Stores to try a promise on: in a file, and in a database where there is a server.

mod child;

use std::path::{Path, PathBuf};
use std::sync::Once;

pub use child::{Child, arguments, of_parent};

use callboard_store::{AuditFilter, SqlStore, StoreOptions, VerifyOptions};
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;
use url::Url;
use uuid::Uuid;

/// Where the tests find a Postgres server: a URL whose user may create databases.
pub const POSTGRES: &str = "CALLBOARD_POSTGRES";

/// An open store, empty at first.
pub struct Opened {
    pub sql: SqlStore,
    options: StoreOptions,
    /// Beside the store; its files too where it is one.
    folder: TempDir,
    database: Option<Database>,
}

/// A database of this test's own.
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

    /// The store's file, or where it would be.
    pub fn file(&self) -> PathBuf {
        self.folder().join("store.sqlite")
    }

    /// How it was opened.
    pub fn options(&self) -> StoreOptions {
        self.options.clone()
    }

    /// The store for a child process, which opens it by `of_parent`: a URL, a space, the audit key's file.
    pub fn child_store(&self) -> String {
        let key = self.folder().join("audit.key");
        match &self.database {
            None => format!("sqlite:{} {}", self.file().display(), key.display()),
            Some(Database { server, name }) => format!("{} {}", at(server, name), key.display()),
        }
    }

    /// Closes it and opens it anew, as the next process would.
    pub async fn restart(&mut self) {
        let options = self.options();
        self.restart_with(options).await;
    }

    pub async fn restart_with(&mut self, options: StoreOptions) {
        self.sql.close().await;
        self.sql = SqlStore::open(&options).await.unwrap();
        self.options = options;
    }

    /// One statement, past the store: to break it, or to look.
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
    /// One number, past the store.
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

/// A store in a file.
pub async fn in_file(change: impl FnOnce(StoreOptions) -> StoreOptions) -> Opened {
    let folder = TempDir::new().unwrap();
    let options = StoreOptions::sqlite(folder.path().join("store.sqlite"))
        .clean_every(None)
        .sign_every(None);
    open(change(options), folder, None).await
}

/// A store in a database, where there is a server; it says once where there is none.
pub async fn in_database(change: impl FnOnce(StoreOptions) -> StoreOptions) -> Option<Opened> {
    static TOLD: Once = Once::new();
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
        .clean_every(None);
    let options = options
        .sign_every(None)
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

/// The seed of a random test: `CALLBOARD_SEED`, else another each time. It is printed, and so shown where the test fails.
pub fn seed() -> u64 {
    let given = std::env::var("CALLBOARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    println!("CALLBOARD_SEED={seed}");
    seed
}

/// Runs a body on each kind of store, with an empty one of its own, and closes it.
pub async fn stores(body: impl AsyncFn(&mut Opened)) {
    stores_with(|options| options, body).await;
}

/// As [`stores`], with other options.
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

/// Runs a body on what is kept in memory, and on what each kind of store keeps.
pub async fn anywhere<T>(memory: T, of: impl Fn(&Opened) -> T, body: impl AsyncFn(T)) {
    body(memory).await;
    stores(async |opened| {
        body(of(opened)).await;
    })
    .await;
}

/// What the audit says of messages, oldest first; it is whole.
pub async fn communications(opened: &Opened) -> Vec<String> {
    let filter = AuditFilter {
        event: Some("agent_communication".into()),
        ..AuditFilter::default()
    };
    let mut lines = opened.sql.audit_lines(&filter).await.unwrap();
    lines.sort_by_key(|line| line.number);
    let reports = opened
        .sql
        .verify_audit(&VerifyOptions::default())
        .await
        .unwrap();
    assert!(
        reports.iter().all(|report| report.fault.is_none()),
        "{reports:?}"
    );
    lines.into_iter().map(|line| line.line).collect()
}

impl Opened {
    /// The first column of each row, past the store.
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

    /// Closes it and removes its database.
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
