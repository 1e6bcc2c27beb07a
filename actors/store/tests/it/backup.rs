use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callboard_runtime::{Journal, JournalRecord};
use callboard_store::{SqlStore, StoreError, StoreOptions};
use serde_json::json;

use crate::kit::{in_file, stores};

fn both(n: u64) -> Vec<JournalRecord> {
    let record = |stream: &str| JournalRecord {
        stream: stream.to_owned(),
        key: Some(format!("{n}")),
        body: json!({ "text": "it's \u{1F4E6}", "n": n }),
    };
    vec![record("left"), record("right")]
}

async fn count(journal: &dyn Journal, stream: &str) -> usize {
    let (mut after, mut found) = (0, 0);
    loop {
        let page = journal.read(stream, after, 1000).await.unwrap();
        let Some((last, _)) = page.last() else {
            return found;
        };
        found += page.len();
        after = *last;
    }
}

/// Goal: a backup during writes holds whole transactions and can be used as a store. Method: write
/// pairs meanwhile, copy from the writing and from a read-only store, count the pairs, open the
/// copies and write.
#[tokio::test]
async fn a_backup_is_whole_and_a_store() {
    stores(async |opened| {
        let journal = opened.sql.journal();
        for n in 0..200 {
            journal.append_all(both(n)).await.unwrap();
            if n % 100 == 0 {
                // Data to copy that is in the file, not in the log.
                tokio::task::yield_now().await;
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writing = {
            let (journal, stop) = (Arc::clone(&journal), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut n = 1000;
                while !stop.load(Ordering::Relaxed) {
                    journal.append_all(both(n)).await.unwrap();
                    n += 1;
                }
                n - 1000
            })
        };
        let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
        let first = opened.folder().join("it's first.sqlite");
        let second = opened.folder().join("second.sqlite");
        let report = opened.sql.backup(&first).await.unwrap();
        assert_eq!(report.bytes, fs::metadata(&first).unwrap().len());
        visitor.backup(&second).await.unwrap();
        visitor.close().await;
        stop.store(true, Ordering::Relaxed);
        assert!(writing.await.unwrap() > 0, "nothing was written meanwhile");

        let mut counted = Vec::new();
        for file in [&first, &second] {
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                assert_eq!(
                    fs::metadata(file).unwrap().permissions().mode() & 0o777,
                    0o600
                );
            }
            let options = StoreOptions::sqlite(file)
                .cleanup_interval(None)
                .audit_key(opened.folder().join("audit.key"));
            let copy = SqlStore::open(&options).await.unwrap();
            let journal = copy.journal();
            let pairs = count(&*journal, "left").await;
            assert_eq!(pairs, count(&*journal, "right").await);
            assert_eq!(
                journal.append_all(both(7)).await.unwrap(),
                [8, 8],
                "a key was lost"
            );
            assert_eq!(
                journal.append_all(both(999_999)).await.unwrap()[0],
                pairs as u64 + 1
            );
            assert_eq!(journal.read("left", 0, 1).await.unwrap()[0].1, both(0)[0]);
            copy.close().await;
            counted.push(pairs);
        }
        assert!(counted[0] >= 200 && counted[1] >= counted[0], "{counted:?}");
    })
    .await;
}

/// Goal: a backup overwrites nothing and leaves nothing incomplete. Method: an existing file, a
/// missing folder.
#[tokio::test]
async fn a_backup_writes_over_nothing() {
    let opened = in_file(|options| options).await;
    let taken = opened.folder().join("taken");
    fs::write(&taken, "mine").unwrap();
    let error = opened.sql.backup(&taken).await.unwrap_err();
    assert!(
        matches!(error, StoreError::BackupExists { .. }),
        "{error:?}"
    );
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    let error = opened
        .sql
        .backup(&opened.folder().join("none/backup"))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::NotCreated { .. }), "{error:?}");

    // State after a killed backup.
    let file = opened.folder().join("backup");
    fs::write(opened.folder().join("backup.part"), "half").unwrap();
    opened.sql.backup(&file).await.unwrap();
    assert!(!opened.folder().join("backup.part").exists());
    opened.end().await;
}

/// Goal: opening read-only neither creates nor migrates. Method: open a place without a store, an
/// empty file, a folder.
#[tokio::test]
async fn a_visit_makes_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("empty"), "").unwrap();
    for name in ["none", "empty"] {
        let error = SqlStore::open_read_only(&StoreOptions::sqlite(at(name)))
            .await
            .map(drop)
            .unwrap_err();
        assert!(
            matches!(error, StoreError::Missing { .. }),
            "{name}: {error:?}"
        );
    }
    let error = SqlStore::open_read_only(&StoreOptions::sqlite(folder.path()))
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "a visit made a file"
    );

    // Also without a node.
    let opened = in_file(|options| options).await;
    opened.sql.journal().append_all(both(1)).await.unwrap();
    opened.sql.close().await;
    let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
    assert_eq!(
        visitor.journal().read("left", 0, 10).await.unwrap().len(),
        1
    );
    visitor.close().await;
    opened.end().await;
}
