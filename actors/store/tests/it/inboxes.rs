use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::DataClass;
use callboard_runtime::{
    ENTRIES_AT_ONCE_MAX, ENTRY_BYTES_MAX_DEFAULT, EntryFilter, EntryState, INBOX_ENTRIES_MAX_DEFAULT, Inboxes,
    JournalError, Mark, MemoryAudit, MemoryInboxes, NewEntry,
};
use futures::future::join_all;

use crate::kit::{Opened, anywhere, communications, stores};

const HOUR: Duration = Duration::from_secs(3_600);

fn entry(recipient: &str, body: &str) -> NewEntry {
    NewEntry {
        recipient: recipient.into(),
        sender: "ann".into(),
        kind: "direct".into(),
        topic: Some("rota".into()),
        reply_to: Some(7),
        key: None,
        class: DataClass::Internal,
        body: body.into(),
        expires: SystemTime::now() + HOUR,
    }
}

fn of(opened: &Opened) -> Arc<dyn Inboxes> {
    opened.sql.store().inboxes
}

/// Runs a body on inboxes in memory and on those of each store.
async fn inboxes(body: impl AsyncFn(Arc<dyn Inboxes>)) {
    let memory: Arc<dyn Inboxes> = Arc::new(MemoryInboxes::new(Arc::new(MemoryAudit::default())));
    anywhere(memory, of, body).await;
}

/// Goal: an entry is kept once per key, numbered by recipient, and handed out until it is marked. Method: a broadcast to two,
/// sent twice, and twice the same within one call.
#[tokio::test]
async fn accepted_delivered_read() {
    inboxes(async |inboxes| {
        let both = || ["bob", "eve"].map(|to| NewEntry { key: Some("k".into()), ..entry(to, "hello") }).to_vec();
        let first = inboxes.accept(both()).await.unwrap();
        assert_eq!(first.iter().map(|e| (e.number, e.is_new)).collect::<Vec<_>>(), [(1, true), (1, true)]);
        assert!(inboxes.accept(both()).await.unwrap().iter().all(|e| !e.is_new && e.number == 1));
        let twins = [
            vec![entry("bob", "again")],
            both()[..1].to_vec(),
            vec![NewEntry { key: Some("t".into()), ..entry("bob", "t") }; 2],
        ];
        let twins = inboxes.accept(twins.concat()).await.unwrap();
        let numbers: Vec<_> = twins.iter().map(|e| (e.number, e.is_new)).collect();
        assert_eq!(numbers, [(2, true), (1, false), (3, true), (3, false)]);

        let handed = inboxes.deliver("bob", 1, Duration::ZERO).await.unwrap();
        assert_eq!((handed.len(), handed[0].number, handed[0].attempts), (1, 1, 1));
        assert_eq!((&*handed[0].new.body, handed[0].new.reply_to, &handed[0].mark), ("hello", Some(7), &first[0].mark));
        let handed = inboxes.deliver("bob", 9, HOUR).await.unwrap();
        assert_eq!(handed.iter().map(|e| (e.number, e.attempts)).collect::<Vec<_>>(), [(1, 2), (2, 1), (3, 1)]);
        assert!(inboxes.deliver("bob", 9, HOUR).await.unwrap().is_empty());
        assert!(inboxes.deliver("nobody", 9, HOUR).await.unwrap().is_empty());
        assert_eq!(inboxes.waiting("bob").await.unwrap(), 3);
        assert_eq!(inboxes.mark("bob", &[1, 2], Mark::Delivered).await.unwrap(), 2);
        assert_eq!(inboxes.mark("bob", &[1, 2, 3, 4, u64::MAX], Mark::Read).await.unwrap(), 3);
        assert_eq!(inboxes.mark("bob", &[1, 2, 3], Mark::Delivered).await.unwrap(), 0);
        assert_eq!(inboxes.mark("bob", &[], Mark::Read).await.unwrap(), 0);
        assert_eq!((inboxes.waiting("bob").await.unwrap(), inboxes.waiting("eve").await.unwrap()), (0, 1));
    })
    .await;
}

/// Goal: the log shows what is asked for, in order, page by page. Method: filters over two inboxes.
#[tokio::test]
async fn history() {
    inboxes(async |inboxes| {
        let other =
            |recipient| NewEntry { kind: "reply".into(), topic: None, sender: "eve".into(), ..entry(recipient, "x") };
        let mixed = vec![entry("bob", "1"), other("bob"), entry("bob", "3"), entry("ann", "1"), other("bob")];
        inboxes.accept(mixed).await.unwrap();
        inboxes.mark("bob", &[1], Mark::Read).await.unwrap();
        let seen = async |filter, after, most| -> Vec<(String, u64)> {
            let seen = inboxes.history(filter, after, most).await.unwrap();
            seen.into_iter().map(|entry| (entry.new.recipient, entry.number)).collect()
        };
        let bob = |numbers: &[u64]| numbers.iter().map(|n| ("bob".to_owned(), *n)).collect::<Vec<_>>();
        let all = EntryFilter::default;
        let of_bob = || EntryFilter { recipient: Some("bob".into()), ..all() };
        assert_eq!(seen(of_bob(), 0, 9).await, bob(&[1, 2, 3, 4]));
        assert_eq!(seen(of_bob(), 1, 2).await, bob(&[2, 3]));
        assert_eq!(seen(EntryFilter { sender: Some("eve".into()), ..of_bob() }, 0, 9).await, bob(&[2, 4]));
        assert_eq!(seen(EntryFilter { topic: Some("rota".into()), ..of_bob() }, 0, 9).await, bob(&[1, 3]));
        assert_eq!(seen(EntryFilter { kind: Some("reply".into()), ..of_bob() }, 2, 9).await, bob(&[4]));
        assert_eq!(seen(EntryFilter { states: vec![EntryState::Read], ..all() }, 0, 9).await, bob(&[1]));
        let unread = EntryFilter { states: vec![EntryState::Accepted, EntryState::Delivered], ..of_bob() };
        assert_eq!(seen(unread, 0, 9).await, bob(&[2, 3, 4]));
        let everything = seen(all(), 0, 9).await;
        assert_eq!((everything.len(), &everything[0].0[..]), (5, "ann"));
        assert!(seen(all(), 99_999_999_999_999, 9).await.is_empty());
    })
    .await;
}

/// Goal: what was accepted and not marked is there after a restart, and numbers and keys go on. Method: restart between every
/// two steps.
#[tokio::test]
async fn a_restart_loses_nothing() {
    stores(async |mut opened| {
        let keyed = || vec![NewEntry { key: Some("k".into()), ..entry("bob", "hello") }];
        let kept = of(&opened).accept(keyed()).await.unwrap().remove(0);
        opened.restart().await;
        let again = of(&opened).accept(keyed()).await.unwrap().remove(0);
        assert_eq!(again, callboard_runtime::Entry { is_new: false, ..kept });
        assert_eq!(of(&opened).accept(vec![entry("bob", "two")]).await.unwrap()[0].number, 2);
        assert_eq!(of(&opened).deliver("bob", 1, Duration::ZERO).await.unwrap()[0].number, 1);
        opened.restart().await;
        let handed = of(&opened).deliver("bob", 9, Duration::ZERO).await.unwrap();
        assert_eq!(handed.iter().map(|e| (e.number, e.attempts)).collect::<Vec<_>>(), [(1, 2), (2, 1)]);
        of(&opened).mark("bob", &[1], Mark::Read).await.unwrap();
        opened.restart().await;
        let handed = of(&opened).deliver("bob", 9, HOUR).await.unwrap();
        assert_eq!(handed.iter().map(|e| e.number).collect::<Vec<_>>(), [2]);
        assert_eq!(of(&opened).waiting("bob").await.unwrap(), 1);
        opened
    })
    .await;
}

/// Goal: however many send, deliver and mark at once, numbers have no gap and each entry is handed out once in its time.
/// Method: 32 senders to three inboxes, and four who fetch from one.
#[tokio::test]
async fn many_at_once() {
    stores(async |opened| {
        let inboxes = of(&opened);
        let names = ["a", "b", "c"];
        let sent = (0..96).map(|n| {
            let entries = names[..=n % 3].iter().map(|to| entry(to, "x")).collect();
            inboxes.accept(entries)
        });
        let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in join_all(sent).await.into_iter().flat_map(Result::unwrap) {
            numbers.entry(entry.new.recipient).or_default().push(entry.number);
        }
        for (name, last) in names.into_iter().zip([96, 64, 32]) {
            let of_one = numbers.get_mut(name).unwrap();
            of_one.sort_unstable();
            assert_eq!(*of_one, (1..=last).collect::<Vec<_>>());
        }
        let fetched = join_all((0..8).map(|_| inboxes.deliver("a", 20, HOUR))).await;
        let mut fetched: Vec<_> = fetched.into_iter().flat_map(Result::unwrap).map(|entry| entry.number).collect();
        fetched.sort_unstable();
        assert_eq!(fetched, (1..=96).collect::<Vec<_>>());
        opened
    })
    .await;
}

/// Goal: what can't be kept is refused whole, and limits hold at one more. Method: bad entries beside good ones; a full inbox.
#[tokio::test]
async fn limits() {
    inboxes(async |inboxes| {
        for bad in [
            NewEntry { class: DataClass::Clinical, ..entry("bob", "x") },
            entry("bob", "a\0b"),
            entry("", "x"),
            entry("bob", &"x".repeat(ENTRY_BYTES_MAX_DEFAULT + 1)),
        ] {
            assert!(inboxes.accept(vec![entry("bob", "good"), bad]).await.is_err());
        }
        assert!(inboxes.accept(vec![entry("bob", "x"); ENTRIES_AT_ONCE_MAX + 1]).await.is_err());
        assert_eq!(inboxes.accept(Vec::new()).await.unwrap(), []);
        assert_eq!(inboxes.waiting("bob").await.unwrap(), 0);
        let expired = NewEntry { expires: SystemTime::UNIX_EPOCH, ..entry("bob", "late") };
        inboxes.accept(vec![expired]).await.unwrap();
        assert!(inboxes.deliver("bob", 9, HOUR).await.unwrap().is_empty());
        for _ in 0..INBOX_ENTRIES_MAX_DEFAULT / 250 {
            inboxes.accept(vec![entry("bob", "x"); 250]).await.unwrap();
        }
        let full = JournalError::Full { records_max: INBOX_ENTRIES_MAX_DEFAULT };
        assert_eq!(inboxes.accept(vec![entry("eve", "x"), entry("bob", "x")]).await.unwrap_err(), full);
        assert_eq!(inboxes.waiting("eve").await.unwrap(), 0);
        assert_eq!(inboxes.mark("bob", &[2], Mark::Read).await.unwrap(), 1);
        assert_eq!(inboxes.accept(vec![entry("bob", "x")]).await.unwrap()[0].number, 10_002);
    })
    .await;
}

/// Goal: each entry that is taken in is on record once, with its size and hash and never its body; one that is refused isn't.
/// Method: a plain one, a personal one, a twin, a refused call; what the audit says of them after a restart.
#[tokio::test]
async fn on_record() {
    stores(async |mut opened| {
        let personal = NewEntry { class: DataClass::Personal, key: Some("k".into()), ..entry("eve", "Maria Silva") };
        let kept = of(&opened).accept(vec![entry("bob", "abc"), personal.clone()]).await.unwrap();
        of(&opened).accept(vec![personal]).await.unwrap();
        of(&opened).accept(vec![entry("bob", "x"), entry("", "x")]).await.unwrap_err();
        opened.restart().await;
        let lines = communications(&opened).await;
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("Maria") && line.contains(r#""peer":"ann""#)), "{lines:?}");
        assert!(lines[0].contains(r#""agent":"bob""#) && lines[0].contains("sha256:ba7816bf8f01cfea"), "{lines:?}");
        assert!(kept[1].mark.hash.starts_with("hmac-sha256:") && lines[1].contains(&kept[1].mark.hash), "{lines:?}");
        opened
    })
    .await;
}
