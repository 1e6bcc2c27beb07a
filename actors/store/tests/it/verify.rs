use std::fs;
use std::time::Duration;

use callboard_store::{
    AuditFault, AuditVerifyOptions, ChainReport, Retention, SqlStore, verify_export,
};

use crate::audit::{entry, report};
use crate::kit::{Opened, in_file, stores};

/// Length of the chain: `run.started`, the test's entries, `run.ended`; signed at 1, 265, 529, 793,
/// 1057, 1300.
const LAST: u64 = 1_300;

async fn filled(opened: &mut Opened) {
    let audit = opened.sql.audit();
    for at in 0..1_298 / 11 {
        audit
            .append((0..11).map(|n| entry(at * 11 + n)).collect())
            .await
            .unwrap();
    }
    opened.sql.close().await;
    // An attacker who can write to the file can do this too.
    let trigger = if opened.is_sqlite() {
        "audit_stays"
    } else {
        "audit_stays ON audit"
    };
    opened.raw(&format!("DROP TRIGGER {trigger}")).await;
}

/// Verifies through a read-only store, without writing.
async fn visited(opened: &Opened) -> ChainReport {
    let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
    let reports = visitor
        .verify_audit(&AuditVerifyOptions::default())
        .await
        .unwrap();
    visitor.close().await;
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.into_iter().next().unwrap()
}

/// Goal: changes made to the database directly are detected, with the entry's number. Method: one
/// attack after another on a fresh copy of the rows, on either database.
#[tokio::test]
async fn attacks_are_found() {
    stores(async |opened| {
        filled(opened).await;
        let good = visited(opened).await;
        assert_eq!((good.last, good.signed_up_to, &good.fault), (LAST, LAST, &None), "{good}");
        for table in ["audit", "audit_checkpoint"] {
            opened.raw(&format!("CREATE TABLE good_{table} AS SELECT * FROM {table}")).await;
        }
        let changed = |number| AuditFault::Changed { number, what: "its hash doesn't match its text" };
        let beside = |number| AuditFault::Changed { number, what: "its columns don't match its text" };
        let moved = |number, says: u64| AuditFault::Moved { number, says: format!("node:{says}") };
        let attacks: Vec<(&str, AuditFault)> = vec![
            ("UPDATE audit SET line = replace(line, 'agent 700', 'agent 701') WHERE number = 702", changed(702)),
            ("UPDATE audit SET hash = (SELECT hash FROM audit WHERE number = 3) WHERE number = 1000", changed(1000)),
            ("UPDATE audit SET agent = 'agent 1' WHERE number = 1100", beside(1100)),
            ("UPDATE audit SET at_ms = at_ms + 1 WHERE number = 2", beside(2)),
            ("UPDATE audit SET event = 'x' WHERE number = 1300", beside(1300)),
            ("UPDATE audit SET class = 'public' WHERE number = 1", beside(1)),
            ("DELETE FROM audit WHERE number = 1", AuditFault::Missing { number: 1 }),
            ("DELETE FROM audit WHERE number BETWEEN 600 AND 610", AuditFault::Missing { number: 600 }),
            ("DELETE FROM audit WHERE number < 600", AuditFault::Missing { number: 2 }),
            ("DELETE FROM audit WHERE number = 1300", AuditFault::Truncated { last: 1299, expected: LAST }),
            (
                "DELETE FROM audit WHERE number > 1200; DELETE FROM audit_checkpoint WHERE number > 1200; \
                 UPDATE stream SET last = 1200 WHERE name = 'a/node'",
                AuditFault::Truncated { last: 1200, expected: LAST },
            ),
            (
                "DELETE FROM audit; DELETE FROM audit_checkpoint; DELETE FROM stream WHERE name = 'a/node'",
                AuditFault::Truncated { last: 0, expected: LAST },
            ),
            (
                "UPDATE audit SET line = CASE number WHEN 50 THEN (SELECT line FROM good_audit WHERE number = 60) \
                 ELSE (SELECT line FROM good_audit WHERE number = 50) END WHERE number IN (50, 60)",
                moved(50, 60),
            ),
            (
                "UPDATE audit SET number = -1 WHERE number = 50; UPDATE audit SET number = 50 WHERE number = 60; \
                 UPDATE audit SET number = 60 WHERE number = -1",
                moved(50, 60),
            ),
            (
                "UPDATE audit_checkpoint SET signature = (SELECT signature FROM good_audit_checkpoint WHERE number = 265) \
                 WHERE number = 529",
                AuditFault::BadCheckpoint { number: 529 },
            ),
            (
                "UPDATE audit_checkpoint SET key_id = '0123456789abcdef' WHERE number = 793",
                AuditFault::UnknownKey { number: 793, key_id: "0123456789abcdef".to_owned() },
            ),
            (
                "INSERT INTO audit SELECT chain, 1301, at_ms, event, agent, principal, call_id, class, line, hash \
                 FROM good_audit WHERE number = 1300",
                moved(1301, 1300),
            ),
        ];
        for (attack, expected) in attacks {
            opened.raw(attack).await;
            assert_eq!(visited(opened).await.fault, Some(expected), "{attack}");
            for table in ["audit", "audit_checkpoint"] {
                opened.raw(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM good_{table}")).await;
            }
            let counter = "DELETE FROM stream WHERE name = 'a/node'; INSERT INTO stream (name, last) VALUES ('a/node', 1300)";
            opened.raw(counter).await;
        }
        assert_eq!(visited(opened).await, good);
    })
    .await;
}

/// Goal: a manipulated store continues and keeps the evidence. Method: remove the last entries and
/// every trace of them but the anchor; open it, write, close it.
#[tokio::test]
async fn a_cut_chain_stays_cut() {
    let mut opened = in_file(|options| options).await;
    filled(&mut opened).await;
    opened.raw("DELETE FROM audit WHERE number > 1200; DELETE FROM audit_checkpoint WHERE number > 1200").await;
    opened.restart().await;
    opened.sql.audit().append(vec![entry(1)]).await.unwrap();
    assert_eq!(
        report(&opened.sql).await.fault,
        Some(AuditFault::Missing { number: 1_201 })
    );
    opened.sql.close().await;

    // Also with the counter set back: the anchor has another entry 1300.
    opened.raw("DELETE FROM audit WHERE number > 1200; DELETE FROM audit_checkpoint WHERE number > 1200").await;
    opened
        .raw("UPDATE stream SET last = 1200 WHERE name = 'a/node'")
        .await;
    opened.restart().await;
    opened
        .sql
        .audit()
        .append((0..200).map(entry).collect())
        .await
        .unwrap();
    assert_eq!(
        report(&opened.sql).await.fault,
        Some(AuditFault::NotAnchored { number: LAST })
    );
    opened.end().await;
}

/// Goal: a store that was restored beside a newer anchor and continued isn't valid, though each of its checkpoints is in
/// the anchor. Method: copy a closed store, run on, restore the copy, sign an entry of the same number as before.
#[tokio::test]
async fn a_restored_store_forks_the_chain() {
    let mut opened = in_file(|options| options).await;
    opened.sql.close().await;
    let copy = opened.folder().join("copy.sqlite");
    fs::copy(opened.file(), &copy).unwrap();
    opened.restart().await;
    opened.sql.close().await;
    assert_eq!(visited(&opened).await.fault, None);

    fs::copy(&copy, opened.file()).unwrap();
    opened.restart().await;
    opened.sql.close().await;
    let fault = visited(&opened).await.fault;
    // The first run has the entries 1 and 2, each later one the entries 3 and 4.
    assert!(
        matches!(fault, Some(AuditFault::Forked { number: 3, .. })),
        "{fault:?}"
    );
    opened.end().await;
}

/// Goal: an export verifies like the store, without it. Method: export, verify with the public keys
/// and the anchor; change a byte, remove a line, cut the end; a file that isn't an export.
#[tokio::test]
async fn an_export_is_verified_without_the_store() {
    stores(async |opened| {
        filled(opened).await;
        let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
        let mut out = Vec::new();
        assert_eq!(visitor.export_audit(&mut out).await.unwrap(), LAST);
        visitor.close().await;
        let options = AuditVerifyOptions {
            public_keys: Some(opened.folder().join("audit.pub")),
            anchor: Some(opened.folder().join("audit.anchor")),
            chain: None,
        };
        let verified = |text: &str| {
            verify_export(text.as_bytes(), &options)
                .unwrap()
                .into_iter()
                .next()
                .unwrap()
        };
        let text = String::from_utf8(out).unwrap();
        assert_eq!(verified(&text), visited(opened).await);

        let with = text.replace("agent 700", "agent 701");
        assert!(
            matches!(
                verified(&with).fault,
                Some(AuditFault::Changed { number: 702, .. })
            ),
            "{}",
            verified(&with)
        );
        let without = text
            .lines()
            .filter(|line| !line.contains("agent 700"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(
            verified(&without).fault,
            Some(AuditFault::Missing { number: 702 })
        );
        let cut = text.lines().take(1_000).collect::<Vec<_>>().join("\n");
        assert!(matches!(
            verified(&cut).fault,
            Some(AuditFault::Truncated { expected: LAST, .. })
        ));
        for bad in [
            "x",
            "{\"kind\":\"entry\",\"number\":1,\"line\":\"\",\"hash\":\"\"}",
        ] {
            assert!(verify_export(bad.as_bytes(), &options).is_err(), "{bad}");
        }
        let missing = AuditVerifyOptions {
            public_keys: Some(opened.folder().join("none")),
            ..options.clone()
        };
        assert!(verify_export(text.as_bytes(), &missing).is_err());
    })
    .await;
}

/// Goal: a chain cut by retention is valid; one cut by an attacker at a checkpoint isn't. Method:
/// remove a part directly; clean the rest without a retention; remove some more.
#[tokio::test]
async fn a_chain_may_begin_after_a_signed_cut() {
    stores(async |opened| {
        filled(opened).await;
        let remove = "DELETE FROM audit WHERE number <= 265; DELETE FROM audit_checkpoint WHERE number < 265";
        opened
            .raw(&format!("BEGIN; CREATE TABLE first AS SELECT * FROM audit WHERE number <= 265; {remove}; COMMIT"))
            .await;
        assert_eq!(visited(opened).await.fault, Some(AuditFault::Missing { number: 1 }));
        opened.raw("INSERT INTO audit SELECT * FROM first").await;

        let retention = Retention { audit: Some(Duration::ZERO), ..Retention::default() };
        opened.restart_with(opened.options().retention(retention)).await;
        let mut removed = 0;
        // An entry signed in this very millisecond isn't older yet.
        while removed < LAST {
            removed += opened.sql.clean().await.unwrap().audit;
        }
        let kept = report(&opened.sql).await;
        assert_eq!((kept.first, &kept.fault), (removed + 1, &None), "{kept}");
        opened.sql.audit().append((0..600).map(entry).collect()).await.unwrap();
        let kept = report(&opened.sql).await;
        assert_eq!(kept.fault, None);
        opened.raw(&format!("DELETE FROM audit WHERE number <= {}", kept.signed_up_to)).await;
        opened.raw(&format!("DELETE FROM audit_checkpoint WHERE number < {}", kept.signed_up_to)).await;
        let fault = report(&opened.sql).await.fault;
        assert!(matches!(fault, Some(AuditFault::Missing { .. })), "{fault:?}");
    })
    .await;
}

/// Goal: a chain can be verified during writes. Method: verify in a loop beside a writer; then
/// through a read-only store.
#[tokio::test]
async fn a_living_chain_is_verified() {
    let opened = in_file(|options| options).await;
    let audit = opened.sql.audit();
    let writing = async {
        for at in 0..60 {
            audit
                .append((0..50).map(|n| entry(at * 50 + n)).collect())
                .await
                .unwrap();
        }
    };
    let looking = async {
        let mut last = 0;
        while last < 3_001 {
            let report = report(&opened.sql).await;
            assert_eq!(report.fault, None);
            assert!(report.last >= last);
            last = report.last;
        }
    };
    futures::join!(writing, looking);
    let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
    let reports = visitor
        .verify_audit(&AuditVerifyOptions::default())
        .await
        .unwrap();
    assert_eq!((reports[0].last, &reports[0].fault), (3_001, &None));
    visitor.close().await;
    assert!(
        fs::metadata(opened.folder().join("audit.anchor"))
            .unwrap()
            .len()
            > 0
    );
    opened.end().await;
}
