use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::{
    JournalError, KV_KEY_BYTES_MAX, KV_SPACE_ENTRIES_MAX_DEFAULT, KV_VALUE_BYTES_MAX_DEFAULT,
    KvEntry, KvError, KvStore, MemoryKvStore,
};
use callboard_store::{
    DIRECTORY_FILE_BYTES_MAX, DIRECTORY_SPACE, DirectoryError, ImportSummary, PAGE_ROWS_MAX,
    export_directory, import_directory, import_directory_once,
};
use futures::future::join_all;

use crate::kit::{anywhere, stores};

fn body(n: usize) -> RawObject {
    RawObject::new().with("n", n)
}

/// Runs a test on the key-value store in memory and on that of each store.
async fn notes(body: impl AsyncFn(Arc<dyn KvStore>)) {
    anywhere(
        Arc::new(MemoryKvStore::default()) as Arc<dyn KvStore>,
        |opened| opened.sql.notes(),
        body,
    )
    .await;
}

/// Goal: an entry has one version at a time in its own space, and keys are sorted by bytes. Method:
/// puts with and without an expected version.
#[tokio::test]
async fn versions() {
    notes(async |notes| {
        assert_eq!(notes.put("a", "k", body(1), Some(0)).await, Ok(1));
        assert_eq!(
            notes.put("a", "k", body(2), Some(0)).await,
            Err(KvError::VersionConflict { version: 1 })
        );
        assert_eq!(notes.put("a", "k", body(2), Some(1)).await, Ok(2));
        assert_eq!(notes.put("a", "k", body(3), None).await, Ok(3));
        assert_eq!(
            notes.put("a", "none", body(3), Some(4)).await,
            Err(KvError::VersionConflict { version: 0 })
        );
        for key in ["é", "b", "B", "a", "'; --"] {
            assert_eq!(notes.put("a", key, body(0), None).await, Ok(1));
        }
        let keys = async |after, most| -> Vec<String> {
            notes
                .list("a", after, most)
                .await
                .unwrap()
                .into_iter()
                .map(|note| note.key)
                .collect()
        };
        assert_eq!(keys(None, 9).await, ["'; --", "B", "a", "b", "k", "é"]);
        assert_eq!(keys(Some("a"), 2).await, ["b", "k"]);
        let KvEntry {
            key,
            version,
            body: kept,
            ..
        } = notes.get("a", "k").await.unwrap().unwrap();
        assert_eq!((&*key, version, kept), ("k", 3, body(3)));
        assert_eq!(notes.get("b", "k").await.unwrap(), None);
        assert_eq!(
            (notes.remove("a", "k").await, notes.remove("a", "k").await),
            (Ok(true), Ok(false))
        );
        assert_eq!(notes.put("a", "k", body(1), None).await, Ok(1));
        notes.put("b", "k", body(1), None).await.unwrap();
        assert_eq!(
            (notes.clear("a").await, notes.clear("a").await),
            (Ok(6), Ok(0))
        );
        assert!(notes.get("b", "k").await.unwrap().is_some());
    })
    .await;
}

/// Goal: each limit rejects one more. Method: the largest body, the longest name, the fullest
/// space, and one more of each.
#[tokio::test]
async fn limits() {
    notes(async |notes| {
        let of = |bytes: usize| RawObject::new().with("x", "x".repeat(bytes - r#"{"x":""}"#.len()));
        assert_eq!(
            notes
                .put("a", "k", of(KV_VALUE_BYTES_MAX_DEFAULT), None)
                .await,
            Ok(1)
        );
        let refused = notes
            .put("a", "k", of(KV_VALUE_BYTES_MAX_DEFAULT + 1), None)
            .await;
        assert!(matches!(
            refused,
            Err(KvError::Journal(JournalError::TooLarge { .. }))
        ));
        assert_eq!(
            notes
                .put("a", &"x".repeat(KV_KEY_BYTES_MAX), body(1), None)
                .await,
            Ok(1)
        );
        for name in ["", "a\0", &"x".repeat(KV_KEY_BYTES_MAX + 1)] {
            assert!(notes.put("a", name, body(1), None).await.is_err());
            assert!(notes.put(name, "k", body(1), None).await.is_err());
        }
        for chunk in (0..KV_SPACE_ENTRIES_MAX_DEFAULT)
            .collect::<Vec<_>>()
            .chunks(500)
        {
            let keys: Vec<_> = chunk.iter().map(|n| format!("{n:05}")).collect();
            let put = join_all(keys.iter().map(|key| notes.put("full", key, body(1), None))).await;
            assert!(put.iter().all(|put| *put == Ok(1)));
        }
        let full = KvError::Journal(JournalError::Full {
            records_max: KV_SPACE_ENTRIES_MAX_DEFAULT,
        });
        assert_eq!(notes.put("full", "more", body(1), None).await, Err(full));
        assert_eq!(notes.put("full", "00001", body(2), None).await, Ok(2));
        assert_eq!(notes.remove("full", "00002").await, Ok(true));
        assert_eq!(notes.put("full", "more", body(1), None).await, Ok(1));
        assert_eq!(
            notes.clear("full").await,
            Ok(KV_SPACE_ENTRIES_MAX_DEFAULT as u64)
        );
    })
    .await;
}

/// Goal: of concurrent updates of one version only one succeeds, and a restart loses nothing.
/// Method: 20 clients increment with 5 attempts each.
#[tokio::test]
async fn one_wins() {
    stores(async |opened| {
        let notes = opened.sql.notes();
        notes.put("a", "count", body(0), None).await.unwrap();
        let count = async || {
            let mut counted = 0;
            while counted < 5 {
                let there = notes.get("a", "count").await.unwrap().unwrap();
                let n: usize = there.body.read("n").unwrap();
                match notes
                    .put("a", "count", body(n + 1), Some(there.version))
                    .await
                {
                    Ok(version) => {
                        assert_eq!(version, there.version + 1);
                        counted += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, KvError::VersionConflict { .. }), "{error}")
                    }
                }
            }
        };
        join_all((0..20).map(|_| count())).await;
        opened.restart().await;
        let there = opened.sql.notes().get("a", "count").await.unwrap().unwrap();
        assert_eq!((there.version, there.body), (101, body(100)));
    })
    .await;
}

/// Goal: an exported directory is imported unchanged; with `import_directory_once`, the same file
/// only once. Method: a file with numbers and escapes that a rewrite would change, more agents than
/// a page.
#[tokio::test]
async fn directory() {
    notes(async |notes| {
        let said =
            r#"{"name":"Ann \u00e9","load":1.0,"more":{"b":[ ],"a":12345678901234567890123}}"#;
        let file = format!(r#"{{"version":1,"agents":{{"ann":{said},"bob":{{}}}}}}"#);
        let new = ImportSummary {
            new: 2,
            ..ImportSummary::default()
        };
        assert_eq!(import_directory_once(&*notes, &file).await, Ok(Some(new)));
        assert_eq!(
            notes
                .get(DIRECTORY_SPACE, "ann")
                .await
                .unwrap()
                .unwrap()
                .body
                .to_raw()
                .get(),
            said
        );
        assert_eq!(export_directory(&*notes).await.unwrap(), file);
        notes
            .put(DIRECTORY_SPACE, "bob", body(1), None)
            .await
            .unwrap();
        assert_eq!(import_directory_once(&*notes, &file).await, Ok(None));
        assert_eq!(
            notes
                .get(DIRECTORY_SPACE, "bob")
                .await
                .unwrap()
                .unwrap()
                .body,
            body(1)
        );
        let again = ImportSummary {
            changed: 1,
            same: 1,
            new: 0,
        };
        assert_eq!(import_directory(&*notes, &file).await, Ok(again));

        let many: Vec<_> = (0..=PAGE_ROWS_MAX)
            .map(|n| format!(r#""agent{n:05}":{{"n":{n}}}"#))
            .collect();
        let file = format!(r#"{{"version":1,"agents":{{{}}}}}"#, many.join(","));
        notes.clear(DIRECTORY_SPACE).await.unwrap();
        assert_eq!(
            import_directory(&*notes, &file).await.unwrap().new,
            PAGE_ROWS_MAX + 1
        );
        assert_eq!(export_directory(&*notes).await.unwrap(), file);
    })
    .await;
}

/// Goal: an invalid directory file is rejected with its defect, and nothing is written. Method:
/// rows.
#[tokio::test]
async fn not_a_directory() {
    let notes = MemoryKvStore::default();
    let two = r#"{"version":2,"agents":{}}"#;
    assert_eq!(
        import_directory(&notes, two).await,
        Err(DirectoryError::OtherVersion { found: 2 })
    );
    for text in [
        "",
        "[]",
        "{}",
        r#"{"agents":[]}"#,
        r#"{"version":"1","agents":{}}"#,
        r#"{"agents":{"good":{},"bad":1}}"#,
        r#"{"agents":{"twice":{},"twice":{}}}"#,
        &" ".repeat(DIRECTORY_FILE_BYTES_MAX + 1),
    ] {
        let refused = import_directory(&notes, text).await;
        assert!(
            matches!(refused, Err(DirectoryError::NotADirectory(_))),
            "{refused:?}"
        );
    }
    assert!(
        notes
            .list(DIRECTORY_SPACE, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    let large = format!(
        r#"{{"agents":{{"big":{{"x":"{}"}}}}}}"#,
        "x".repeat(KV_VALUE_BYTES_MAX_DEFAULT)
    );
    let refused = import_directory(&notes, &large).await;
    assert!(matches!(refused, Err(DirectoryError::Agent { id, .. }) if id == "big"));
}
