use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use callboard_message::Principal;
use callboard_runtime::{JournalError, JournalRecord, NewTask, TaskId};
use callboard_store::{SqlStore, StoreError, StoreOptions};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;

use crate::kit::{Child, WITH_POSTGRES, in_database, in_file, stores};

fn options(path: &Path) -> StoreOptions {
    StoreOptions::sqlite(path).cleanup_interval(None)
}

async fn refused(path: &Path) -> StoreError {
    match SqlStore::open(&options(path)).await {
        Err(error) => error,
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

/// Creates and closes a file with 2,000 records.
async fn filled() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("store.sqlite");
    let store = SqlStore::open(&options(&file)).await.unwrap();
    for _ in 0..10 {
        let record = |n: usize| JournalRecord {
            stream: "s".to_owned(),
            key: Some(format!("{n}")),
            body: json!("x".repeat(n)),
        };
        store
            .journal()
            .append_all((0..200).map(record).collect())
            .await
            .unwrap();
    }
    store.close().await;
    (folder, file)
}

async fn raw(path: &Path, sql: &'static str) {
    let mut db = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap();
    for sql in ["PRAGMA ignore_check_constraints = ON", sql] {
        db.execute(sqlx::raw_sql(sql)).await.unwrap();
    }
    db.close().await.unwrap();
}

/// Goal: a missing or empty file becomes a new store, for its owner only. Method: open both, check
/// the permissions.
#[tokio::test]
async fn what_is_missing_is_made() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a/b/store.sqlite");
    SqlStore::open(&options(&file)).await.unwrap().close().await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
    let empty = folder.path().join("empty.sqlite");
    fs::write(&empty, "").unwrap();
    SqlStore::open(&options(&empty))
        .await
        .unwrap()
        .close()
        .await;
    assert!(fs::metadata(&empty).unwrap().len() > 0);
}

/// Goal: a store that was emptied doesn't begin anew unnoticed. Method: a signed store emptied;
/// another writer, a new key, a moved anchor and another file begin a new one.
#[tokio::test]
async fn what_was_lost_is_told() {
    let (folder, file) = filled().await;
    let anchor = folder.path().join("audit.anchor");
    let remove_all = || {
        for side in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{side}", file.display()));
        }
    };
    remove_all();
    fs::write(&file, "").unwrap();
    let error = refused(&file).await;
    assert!(matches!(error, StoreError::Lost { .. }), "{error:?}");
    let told = refused(&file).await.to_string();
    assert!(
        told.contains(&*anchor.to_string_lossy()) && told.contains("restore a backup"),
        "{told}"
    );
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    for options in [
        options(&file).writer("other"),
        options(&file).audit_key_new(true),
    ] {
        SqlStore::open(&options).await.unwrap().close().await;
        remove_all();
        fs::write(&file, "").unwrap();
    }
    let other = folder.path().join("other.sqlite");
    SqlStore::open(&options(&other))
        .await
        .unwrap()
        .close()
        .await;
    fs::rename(&anchor, folder.path().join("old.anchor")).unwrap();
    SqlStore::open(&options(&file)).await.unwrap().close().await;
}

/// Goal: a file that isn't a store is named and left unchanged. Method: a text, another program's
/// database, one without an id, a folder.
#[tokio::test]
async fn another_file_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("text"), "to whom it may concern\n".repeat(500)).unwrap();
    fs::write(at("short"), "x").unwrap();
    raw(&at("clinic"), "CREATE TABLE patient (id TEXT); PRAGMA application_id = 0x636c6e63; PRAGMA journal_mode = WAL")
        .await;
    raw(
        &at("plain"),
        "CREATE TABLE patient (id TEXT); INSERT INTO patient VALUES ('p')",
    )
    .await;
    for name in ["text", "short", "clinic", "plain"] {
        let before = fs::read(at(name)).unwrap();
        let error = refused(&at(name)).await;
        assert!(
            matches!(error, StoreError::NotAStore { .. }),
            "{name}: {error:?}"
        );
        assert_eq!(fs::read(at(name)).unwrap(), before, "{name} was changed");
    }
    fs::create_dir(at("folder")).unwrap();
    let error = refused(&at("folder")).await;
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
}

/// Goal: a damaged file is named and left unchanged. Method: flip a page's first bytes, cut the
/// file in half.
#[tokio::test]
async fn a_damaged_file_is_named() {
    let (_folder, file) = filled().await;
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    let pages = whole.len() / 4096;
    for page in [pages / 3, pages / 2] {
        flipped[page * 4096..page * 4096 + 16].fill(0xff);
    }
    for (what, bytes) in [
        ("flipped", flipped),
        ("cut", whole[..pages / 2 * 4096].to_vec()),
    ] {
        fs::write(&file, &bytes).unwrap();
        let error = refused(&file).await;
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{what}: {error:?}"
        );
        assert_eq!(
            fs::read(&file).unwrap(),
            bytes,
            "the {what} file was changed"
        );
    }
    fs::write(&file, &whole).unwrap();
    let store = SqlStore::open(&options(&file)).await.unwrap();
    assert_eq!(store.journal().read("s", 0, 1000).await.unwrap().len(), 200);
    store.close().await;
}

/// Goal: the error for an unreadable row names file, table, row and column, without its content.
/// Method: an invalid word, number and JSON, in a task and in a record.
#[tokio::test]
async fn an_unreadable_row_is_named() {
    let (_folder, file) = filled().await;
    let store = SqlStore::open(&options(&file)).await.unwrap();
    let expires = SystemTime::now() + Duration::from_secs(60);
    let new = NewTask {
        id: TaskId::new("t-1").unwrap(),
        ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
    };
    store.store().tasks.create_all(vec![new]).await.unwrap();
    for (sql, said) in [
        (
            "UPDATE task SET state = 'a secret'",
            "`state` of task t-1: this version doesn't know its value",
        ),
        (
            "UPDATE task SET state = 'submitted', last_event = -1",
            "`last_event` of task t-1: it is negative",
        ),
        (
            "UPDATE task SET body = '{\"principal\":\"a secret\"}'",
            "`body` of task t-1: it isn't the JSON",
        ),
        (
            "UPDATE record SET body = 'a secret' WHERE number = 7",
            "`body` of record 7: it isn't the JSON",
        ),
    ] {
        raw(&file, sql).await;
        let error = match sql.contains("record") {
            true => store.journal().read("s", 0, 1000).await.unwrap_err(),
            false => store
                .store()
                .tasks
                .get(&TaskId::new("t-1").unwrap())
                .await
                .unwrap_err(),
        };
        let told = error.to_string();
        assert!(
            matches!(error, JournalError::Damaged(_)) && told.contains(said),
            "{sql}: {told}"
        );
        assert!(
            told.contains(&file.display().to_string()) && !told.contains("secret"),
            "{told}"
        );
    }
    store.close().await;
}

/// Goal: a file that is damaged while the store is open is named. Method: overwrite it before the
/// first write connection.
#[tokio::test]
async fn a_file_damaged_while_open_is_named() {
    let (_folder, file) = filled().await;
    let visitor = SqlStore::open_read_only(&options(&file)).await.unwrap();
    fs::write(&file, vec![0xff; 8192]).unwrap();
    let error = visitor.notes().clear("space").await.unwrap_err();
    let told = error.to_string();
    assert!(
        matches!(error, JournalError::Damaged(_)) && told.contains(&file.display().to_string()),
        "{told}"
    );
    visitor.close().await;
}

/// Goal: an older program leaves a newer store unchanged, and names both versions. Method: raise
/// the version by one; open for writing and for reading.
#[tokio::test]
async fn a_newer_store_is_left_alone() {
    let is_newer = |error: StoreError| {
        assert!(
            matches!(
                error,
                StoreError::NewerSchema {
                    found: 6,
                    known: 5,
                    ..
                }
            ),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(
            said.contains("has schema 6; this callboard knows 5: run the newer version"),
            "{said}"
        );
    };
    let (_folder, file) = filled().await;
    raw(&file, "PRAGMA user_version = 6").await;
    let before = fs::read(&file).unwrap();
    is_newer(refused(&file).await);
    is_newer(
        SqlStore::open_read_only(&options(&file))
            .await
            .map(drop)
            .unwrap_err(),
    );
    assert_eq!(fs::read(&file).unwrap(), before);

    let Some(opened) = in_database(|options| options).await else {
        return;
    };
    opened.sql.close().await;
    opened
        .raw("UPDATE meta SET value = '6' WHERE name = 'schema'")
        .await;
    is_newer(
        SqlStore::open(&opened.options())
            .await
            .map(drop)
            .unwrap_err(),
    );
    is_newer(
        SqlStore::open_read_only(&opened.options())
            .await
            .map(drop)
            .unwrap_err(),
    );
    opened.end().await;
}

/// Goal: a store of an earlier version is migrated with its data. Method: the first schema with a
/// record and an entry of an inbox; newer tables work, also after a restart; inboxes and their
/// counters are removed.
#[tokio::test]
async fn an_older_store_is_migrated() {
    const RECORD: &str = "INSERT INTO stream (name, last) VALUES ('r/s', 1); \
         INSERT INTO record (stream, number, at_ms, body) VALUES ('s', 1, 1, '7'); \
         INSERT INTO stream (name, last) VALUES ('i/bob', 1); \
         INSERT INTO inbox (recipient, number, sender, kind, class, state, at_ms, due_ms, expires_ms, bytes, mark) \
         VALUES ('bob', 1, 'ann', 'direct', 'internal', 'accepted', 1, 1, 1, 0, '')";
    // Fails if either still exists.
    const GONE: &str =
        "CREATE TABLE inbox (number INTEGER); INSERT INTO stream (name, last) VALUES ('i/bob', 1)";
    let is_kept = async |store: &SqlStore| {
        let records = store.journal().read("s", 0, 9).await.unwrap();
        assert_eq!((records.len(), &records[0].1.body), (1, &json!(7)));
        let mail = store.store().mail;
        let posted = mail
            .post(crate::mail::letter(&["bob"], "hello"))
            .await
            .unwrap();
        assert_eq!(mail.unread_counts().await.unwrap()["bob"], posted.number);
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("store.sqlite");
    raw(
        &file,
        concat!(
            include_str!("../../src/schema/sqlite/0001.sql"),
            "; PRAGMA journal_mode = WAL"
        ),
    )
    .await;
    raw(&file, RECORD).await;
    for _ in 0..2 {
        let store = SqlStore::open(&options(&file)).await.unwrap();
        is_kept(&store).await;
        store.close().await;
    }
    raw(&file, GONE).await;

    let Some(mut opened) = in_database(|options| options).await else {
        return;
    };
    opened.sql.close().await;
    opened
        .raw("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        .await;
    opened
        .raw(include_str!("../../src/schema/postgres/0001.sql"))
        .await;
    opened
        .raw("INSERT INTO meta (name, value) VALUES ('schema', '1')")
        .await;
    opened.raw(RECORD).await;
    for _ in 0..2 {
        opened.restart().await;
        is_kept(&opened.sql).await;
    }
    opened.raw(GONE).await;
    opened.end().await;
}

/// Goal: an interrupted first start is no damage. Method: leave the schema's transaction in the log
/// only, as a process does that dies before the checkpoint.
#[tokio::test]
async fn a_first_start_that_was_cut_short_is_taken_up() {
    let opened = in_file(|options| options).await;
    let folder = TempDir::new().unwrap();
    for name in ["store.sqlite", "store.sqlite-wal", "audit.key"] {
        fs::copy(opened.folder().join(name), folder.path().join(name)).unwrap();
    }
    let copied = folder.path().join("store.sqlite");
    let options = options(&copied).audit_key(opened.folder().join("audit.key"));
    SqlStore::open(&options).await.unwrap().close().await;
    opened.end().await;
}

/// Goal: a second writer fails with the first one's process id. Method: a second process holds the
/// store, ends, and the first gets it at once with all acknowledged data.
#[tokio::test]
async fn two_processes_on_one_store() {
    stores(async |opened| {
        opened.sql.close().await;
        let mut child = Child::start(
            "open::child",
            &[("CALLBOARD_TEST_STORE", opened.child_store())],
        );
        assert_eq!(child.line(), "open");
        let error = SqlStore::open(&opened.options())
            .await
            .map(drop)
            .unwrap_err();
        let StoreError::InUse { pid, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(!opened.is_sqlite() || *pid == Some(child.id()), "{pid:?}");
        child.kill();
        let next = SqlStore::open(&opened.options()).await.unwrap();
        assert_eq!(next.journal().read("s", 0, 10).await.unwrap().len(), 1);
        next.close().await;
    })
    .await;
}

/// Goal: a second opening in this process keeps the first one's locks. (Closing a file releases all
/// of a process's POSIX locks on it; SQLite's locks keep other processes from removing the log.)
/// Method: try, then count this process's locks.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_opening_takes_no_locks() {
    use std::os::unix::fs::MetadataExt;
    let opened = in_file(|options| options).await;
    opened
        .sql
        .journal()
        .append(JournalRecord {
            stream: "s".to_owned(),
            key: None,
            body: json!(1),
        })
        .await
        .unwrap();
    let inode = format!(":{} ", fs::metadata(opened.file()).unwrap().ino());
    let locks = || {
        fs::read_to_string("/proc/locks")
            .unwrap()
            .lines()
            .filter(|line| line.contains(&inode))
            .count()
    };
    let before = locks();
    assert!(before > 0, "SQLite holds no lock");
    let error = refused(&opened.file()).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    SqlStore::open_read_only(&opened.options())
        .await
        .unwrap()
        .close()
        .await;
    assert_eq!(locks(), before);
    opened.end().await;
}

#[tokio::test]
#[ignore = "a child of the open tests"]
async fn child() {
    let store = SqlStore::open(&crate::kit::of_parent("CALLBOARD_TEST_STORE"))
        .await
        .unwrap();
    store
        .journal()
        .append(JournalRecord {
            stream: "s".to_owned(),
            key: None,
            body: json!(1),
        })
        .await
        .unwrap();
    println!("open");
    std::future::pending::<()>().await;
}

/// Goal: two nodes share a Postgres database under two names. Method: a second store with another
/// name beside the first; numbers continue without gaps.
#[tokio::test]
async fn two_writers_on_one_database() {
    let Some(opened) = in_database(|options| options).await else {
        return;
    };
    let other = SqlStore::open(&opened.options().writer("other"))
        .await
        .unwrap();
    let record = |n: u64| JournalRecord {
        stream: "s".to_owned(),
        key: Some(format!("{}", n / 2)),
        body: json!(n),
    };
    let (one, two) = (opened.sql.journal(), other.journal());
    let writes = (0..200).map(|n| {
        if n % 2 == 0 {
            one.append(record(n))
        } else {
            two.append(record(n))
        }
    });
    let numbers: Vec<u64> = futures::future::join_all(writes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(
        numbers.chunks(2).all(|pair| pair[0] == pair[1]),
        "{numbers:?}"
    );
    let read = one.read("s", 0, 1000).await.unwrap();
    assert_eq!(
        read.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (1..=100).collect::<Vec<_>>()
    );
    other.close().await;
    opened.end().await;
}

/// Goal: a path without write permission is named. Method: as a user other than root, a read-only
/// file and a read-only folder.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn rights_that_lack_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, file) = filled().await;
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
    };
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    let before = fs::read(&file).unwrap();
    set(&file, 0o444);
    set(&locked, 0o555);
    set(folder.path(), 0o755);
    for (path, expected) in [
        (file.clone(), "ReadOnly"),
        (locked.join("store.sqlite"), "NotCreated"),
    ] {
        let Some(mut child) = Child::start_as_nobody("open::rights_child", &path) else {
            return eprintln!("skipped: `setpriv` doesn't give rights away here");
        };
        let said = child.line();
        assert!(said.starts_with(expected), "{said}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "a child of the open tests"]
async fn rights_child() {
    let path = std::env::var("CALLBOARD_TEST_STORE").unwrap();
    println!("{:?}", refused(Path::new(&path)).await);
}

/// Goal: a URL that would send a password unencrypted or names no store is rejected; a Postgres URL
/// names the feature if it is missing. Method: rows of URLs.
#[test]
fn urls() {
    let parse = |url: &str| StoreOptions::parse(url, Path::new("/state"), None);
    for good in ["sqlite:journal.sqlite", "sqlite:///var/lib/journal.sqlite"] {
        assert!(parse(good).is_ok(), "{good}");
    }
    for good in [
        "postgres://user@localhost/db",
        "postgres://user@127.0.0.1:5433/db",
        "postgres://user@db.example/db?sslmode=verify-full",
        "postgresql://user@db.example/db?sslmode=disable",
    ] {
        match parse(good) {
            Ok(options) => assert!(
                WITH_POSTGRES && options.place().starts_with("postgres://"),
                "{good}"
            ),
            Err(error) => {
                assert!(
                    !WITH_POSTGRES && error.to_string().contains("`store-postgres`"),
                    "{good}: {error:?}"
                )
            }
        }
    }
    for bad in [
        "",
        "memory",
        "sqlite:",
        "mysql://localhost/db",
        "postgres://user:secret@localhost/db",
        "postgres://user@localhost/db?password=secret",
        "postgres://user@db.example/db",
        "postgres://user@db.example/db?sslmode=require",
        "postgres://user@localhost/db?host=db.example",
    ] {
        let error = parse(bad).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Url(_)), "{bad}: {error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(
        parse("sqlite:journal.sqlite").unwrap().place(),
        "/state/journal.sqlite"
    );
    if WITH_POSTGRES {
        assert_eq!(
            parse("postgres://me@localhost/db").unwrap().place(),
            "postgres://localhost/db"
        );
    }
}
