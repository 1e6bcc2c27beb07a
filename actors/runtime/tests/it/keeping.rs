use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use callboard_message::mail::MailMessageKind;
use callboard_message::{DataClass, Principal};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::*;
use tokio::sync::Semaphore;

const HOUR: Duration = Duration::from_secs(3_600);

/// Goal: a batch of records is stored as a whole or not at all. Method: a limit of three.
#[test]
fn full_streams() {
    run_with_paused_time(async |_| {
        let journal = MemoryJournal::with_capacity(3);
        let record = |stream: &str, key: &str| JournalRecord {
            stream: stream.into(),
            key: Some(key.into()),
            body: serde_json::json!(key),
        };
        assert_eq!(
            journal
                .append_all(vec![record("a", "1"), record("a", "2")])
                .await,
            Ok(vec![1, 2])
        );
        let two = vec![record("c", "1"), record("c", "2")];
        assert_eq!(
            journal.append_all(two).await,
            Err(JournalError::Full { records_max: 3 })
        );
        assert_eq!(journal.read("c", 0, 9).await, Ok(vec![]));
        assert_eq!(journal.append(record("c", "1")).await, Ok(1));
    });
}

/// Goal: bodies of guessable classes get a keyed digest, others a plain one. Method: one body in
/// each class, two stores.
#[test]
fn marks() {
    let audits = [MemoryAuditStore::default(), MemoryAuditStore::default()];
    for class in DataClass::ALL {
        let [a, b] = audits.each_ref().map(|audit| audit.digest(class, b"Maria"));
        assert_eq!(a.bytes, 5);
        assert_eq!(a == b, class < DataClass::Personal);
        let kind = if class < DataClass::Personal {
            "sha256:"
        } else {
            "hmac-sha256:"
        };
        assert!(
            a.hash.strip_prefix(kind).is_some_and(|hex| hex.len() == 64),
            "{}",
            a.hash
        );
    }
    assert_eq!(
        audits[0].digest(DataClass::Public, b"abc").hash,
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

/// Audit store that replies as configured, a limited number of times.
struct Told {
    may: Semaphore,
    errors: Mutex<VecDeque<JournalError>>,
    kept: Mutex<Vec<AuditEntry>>,
}

impl Told {
    fn new(may: usize, errors: impl IntoIterator<Item = JournalError>) -> Arc<Self> {
        let errors = Mutex::new(errors.into_iter().collect());
        Arc::new(Self {
            may: Semaphore::new(may),
            errors,
            kept: Mutex::default(),
        })
    }

    fn events(&self) -> Vec<String> {
        self.kept
            .lock()
            .unwrap()
            .iter()
            .map(|entry| entry.event.to_string())
            .collect()
    }
}

#[async_trait]
impl AuditStore for Told {
    async fn append(&self, entries: Vec<AuditEntry>) -> Result<u64, JournalError> {
        self.may.acquire().await.unwrap().forget();
        if let Some(error) = self.errors.lock().unwrap().pop_front() {
            return Err(error);
        }
        let mut kept = self.kept.lock().unwrap();
        kept.extend(entries);
        Ok(kept.len() as u64)
    }

    fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest {
        MemoryAuditStore::default().digest(class, body)
    }
}

const OFTEN: usize = 1_000;

fn named(n: usize) -> AuditEntry {
    AuditEntry::new(format!("e{n}"))
}

/// Goal: entries are stored and numbered in order, whichever way they are queued. Method: queued
/// and recorded entries mixed.
#[test]
fn the_log_keeps_order() {
    run_with_paused_time(async |_| {
        let audit = Told::new(OFTEN, []);
        let log = AuditLog::new(audit.clone());
        (0..300).for_each(|n| log.try_enqueue(named(n)));
        assert_eq!(log.record(named(300)).await, Ok(301));
        log.enqueue(named(301)).await;
        log.flush().await;
        assert_eq!(
            audit.events(),
            (0..302).map(|n| format!("e{n}")).collect::<Vec<_>>()
        );
        assert_eq!(log.lost_count(), 0);
    });
}

/// Goal: entries wait while the store has no room and are then stored in order; callers that need
/// confirmation get the error. Method: a store that is full, then unavailable, then well.
#[test]
fn the_log_waits_for_room() {
    run_with_paused_time(async |_| {
        let audit = Told::new(
            OFTEN,
            [
                JournalError::NoSpace,
                JournalError::Unavailable("away".into()),
            ],
        );
        let log = AuditLog::new(audit.clone());
        log.try_enqueue(named(0));
        assert_eq!(log.record(named(1)).await, Err(JournalError::NoSpace));
        log.try_enqueue(named(2));
        log.flush().await;
        assert_eq!(
            (audit.events(), log.lost_count()),
            (vec!["e0".to_owned(), "e2".into()], 0)
        );
    });
}

/// Goal: entries that may have been stored or never can be aren't sent again, and the gap is
/// recorded. Method: such errors.
#[test]
fn the_log_tells_gaps() {
    run_with_paused_time(async |_| {
        for error in [
            JournalError::Unknown("gone".into()),
            JournalError::Fenced { writer: "w".into() },
        ] {
            let audit = Told::new(OFTEN, [error]);
            let log = AuditLog::new(audit.clone());
            log.try_enqueue(named(0));
            log.flush().await;
            log.try_enqueue(named(1));
            log.flush().await;
            assert_eq!(
                (audit.events(), log.lost_count()),
                (vec!["audit.gap".to_owned(), "e1".into()], 1)
            );
            assert_eq!(
                audit.kept.lock().unwrap()[0].details["lost"],
                AuditValue::Number(1)
            );
        }
    });
}

/// Goal: the queue is bounded: beyond the limit `try_enqueue` loses and counts the entry, `enqueue`
/// waits. Method: a store that doesn't reply.
#[test]
fn the_log_has_a_bound() {
    run_with_paused_time(async |_| {
        let audit = Told::new(0, []);
        let log = AuditLog::new(audit.clone());
        (0..AUDIT_QUEUED_MAX).for_each(|n| log.try_enqueue(named(n)));
        assert_eq!(log.lost_count(), 0);
        log.try_enqueue(named(AUDIT_QUEUED_MAX));
        assert_eq!(log.lost_count(), 1);
        let waits = log.clone();
        let placed = tokio::spawn(async move { waits.enqueue(named(9_999)).await });
        tokio::time::sleep(HOUR).await;
        assert!(!placed.is_finished());
        audit.may.add_permits(OFTEN);
        placed.await.unwrap();
        log.flush().await;
        let events = audit.events();
        assert_eq!(events.len(), AUDIT_QUEUED_MAX + 2);
        assert_eq!(events[AUDIT_QUEUED_MAX..], ["audit.gap", "e9999"]);
    });
}

/// Goal: a system has one store, set before its first use, and its audit log uses it. Method: set
/// once, twice, and too late.
#[test]
fn a_system_has_a_store() {
    run_with_paused_time(async |system| {
        let audit = Arc::new(MemoryAuditStore::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        system.set_store(store.clone()).unwrap();
        assert_eq!(system.set_store(Store::in_memory()), Err(StoreAlreadySet));
        assert_eq!(system.store().run, store.run);
        let said = AuditEntry::new("denied")
            .with_principal(&Principal::agent("ann"))
            .with_detail("rule", "r1");
        assert_eq!(system.audit().record(said.clone()).await, Ok(1));
        assert_eq!(audit.entries(), [said]);

        let other = System::start(1).unwrap();
        assert!(other.store().tasks.worker_id().contains('#'));
        assert_eq!(other.set_store(store), Err(StoreAlreadySet));
        other.shutdown(HOUR).await;
    });
}

/// Goal: a message whose entry isn't in the audit isn't stored either, and can be posted again.
/// Method: an audit that fails once; the message twice.
#[test]
fn mail_is_stored_with_its_entry() {
    run_with_paused_time(async |_| {
        let mail = MemoryMailStore::new(Told::new(OFTEN, [JournalError::NoSpace]));
        let letter = NewMailMessage {
            id: "m-1".into(),
            sender: "ann".into(),
            kind: MailMessageKind::Direct,
            label: None,
            audience: "one".into(),
            recipients: vec!["bob".into()],
            topic: None,
            thread: None,
            reply_to: None,
            urgent: false,
            key: Some("k".into()),
            class: DataClass::Internal,
            body: "hello".into(),
            expires: SystemTime::now() + HOUR,
        };
        let refused = mail.post(letter.clone()).await;
        assert_eq!(refused.map(drop), Err(JournalError::NoSpace));
        assert!(mail.message("m-1").await.unwrap().is_none());
        assert_eq!(mail.last_event().await, Ok(0));
        let posted = mail.post(letter).await.unwrap();
        assert!(posted.is_new && posted.number == 1);
        assert_eq!(mail.unread_counts().await.unwrap()["bob"], 1);
    });
}
