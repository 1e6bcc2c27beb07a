use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::DataClass;
use callboard_message::mail::{
    DeliveryState, MAIL_BODY_BYTES_MAX, MAIL_KEY_BYTES_MAX, MAIL_RECIPIENTS_MAX,
    MAIL_SEARCH_CHARS_MAX, MAIL_TOPIC_CHARS_MAX, MailMessageKind,
};
use callboard_runtime::{
    FAN_OUT_BATCH_MAX, JournalError, MailMessage, MailMessageFilter, MailStore, MemoryAuditStore,
    MemoryMailStore, NewMailMessage, RECEIPT_BATCH_MAX, ReceiptUpdate, StoredMailEvent,
};
use futures::future::join_all;
use uuid::Uuid;

use crate::kit::{Opened, anywhere, communications, stores};

/// Mail behaves the same in memory and in a store.
mod alike;
/// Message history and the log.
mod looking;

pub fn letter(to: &[&str], body: &str) -> NewMailMessage {
    let mut recipients: Vec<String> = to.iter().map(|to| (*to).to_owned()).collect();
    recipients.sort_unstable();
    NewMailMessage {
        id: Uuid::now_v7().to_string(),
        sender: "ann".into(),
        kind: MailMessageKind::Direct,
        label: None,
        audience: "one".into(),
        recipients,
        topic: None,
        thread: None,
        reply_to: None,
        urgent: false,
        key: None,
        class: DataClass::Personal,
        body: body.into(),
        // To the millisecond, as stored.
        expires: UNIX_EPOCH + Duration::from_millis(now_ms() + 3_600_000),
    }
}

fn now_ms() -> u64 {
    u64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap()
}

/// Returns `n` agent names.
fn crowd(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("agent-{n:05}")).collect()
}

fn to_crowd(n: usize, body: &str) -> NewMailMessage {
    NewMailMessage {
        recipients: crowd(n),
        kind: MailMessageKind::Broadcast,
        audience: "all".into(),
        ..letter(&[], body)
    }
}

fn of(opened: &Opened) -> Arc<dyn MailStore> {
    opened.sql.store().mail
}

/// Runs a test on mail in memory and on that of each store.
async fn mails(body: impl AsyncFn(Arc<dyn MailStore>)) {
    let memory: Arc<dyn MailStore> =
        Arc::new(MemoryMailStore::new(Arc::new(MemoryAuditStore::default())));
    anywhere(memory, of, body).await;
}

async fn open(mail: &Arc<dyn MailStore>, recipient: &str) -> Vec<(u64, DeliveryState)> {
    let open = mail.list_open(recipient, None, false, 1_000).await.unwrap();
    open.iter()
        .map(|(letter, copy)| (letter.number, copy.state))
        .collect()
}

fn pair(recipient: &str, letter: u64) -> (String, u64) {
    (recipient.to_owned(), letter)
}

/// Returns events without the parts that differ between stores.
async fn told(mail: &Arc<dyn MailStore>, after: u64) -> Vec<(u64, String)> {
    let events = mail.events(after, 1_000).await.unwrap();
    let told = |event| match event {
        StoredMailEvent::Posted(letter) => {
            format!("posted {} {}", letter.number, letter.preview(5))
        }
        StoredMailEvent::ReceiptsUpdated {
            message_number: letter,
            sender,
            state,
            recipients,
            id,
        } => {
            assert!(!id.is_empty());
            format!(
                "{} {letter} of {sender} {}",
                state.as_str(),
                recipients.join("+")
            )
        }
        StoredMailEvent::Joined(agent, way) => format!("joined {agent} {way}"),
        StoredMailEvent::Left(agent, why) => format!("left {agent} {why}"),
    };
    events
        .into_iter()
        .map(|(number, event)| (number, told(event)))
        .collect()
}

/// Goal: a message is stored once for each key, numbered without gaps, complete with its copies.
/// Method: the same key twice, with another body; look it up by its id.
#[tokio::test]
async fn once_a_key() {
    mails(async |mail| {
        let new = NewMailMessage {
            key: Some("k".into()),
            label: Some("STUCK".into()),
            topic: Some("rota".into()),
            thread: Some("t".into()),
            reply_to: Some("r".into()),
            urgent: true,
            ..letter(&["eve", "bob"], "hello")
        };
        let first = mail.post(new.clone()).await.unwrap();
        assert_eq!(
            (first.number, first.is_new, first.copies_made, &first.new),
            (1, true, 2, &new)
        );
        let other = NewMailMessage {
            key: Some("k".into()),
            ..letter(&["bob"], "another")
        };
        let again = mail.post(other.clone()).await.unwrap();
        assert_eq!(
            *again,
            MailMessage {
                is_new: false,
                ..(*first).clone()
            }
        );
        let of_eve = NewMailMessage {
            sender: "eve".into(),
            ..other
        };
        assert_eq!(mail.post(of_eve).await.unwrap().number, 2);
        assert_eq!(mail.post(letter(&["bob"], "3")).await.unwrap().number, 3);
        assert_eq!(mail.message(&new.id).await.unwrap(), Some(again));
        assert_eq!(mail.message("nobody's").await.unwrap(), None);
        assert_eq!(open(&mail, "eve").await, [(1, DeliveryState::Accepted)]);
        assert_eq!(
            mail.unread_counts().await.unwrap(),
            HashMap::from([pair("bob", 3), pair("eve", 1)])
        );
        assert_eq!(mail.last_event().await.unwrap(), 3);
    })
    .await;
}

/// Goal: urgent messages come first, then the older; pages continue; expired messages are skipped.
/// Method: a mixture, read whole and in pages of two.
#[tokio::test]
async fn order() {
    mails(async |mail| {
        for (n, urgent) in [false, true, false, true, false].into_iter().enumerate() {
            mail.post(NewMailMessage {
                urgent,
                ..letter(&["bob"], &n.to_string())
            })
            .await
            .unwrap();
        }
        mail.post(NewMailMessage {
            expires: UNIX_EPOCH,
            ..letter(&["bob"], "late")
        })
        .await
        .unwrap();
        let numbers = async |after, undelivered, most| -> Vec<u64> {
            let open = mail
                .list_open("bob", after, undelivered, most)
                .await
                .unwrap();
            open.iter().map(|(letter, _)| letter.number).collect()
        };
        assert_eq!(numbers(None, false, 9).await, [2, 4, 1, 3, 5]);
        assert_eq!(numbers(None, false, 3).await, [2, 4, 1]);
        assert_eq!(numbers(Some((true, 2)), false, 2).await, [4, 1]);
        assert_eq!(numbers(Some((true, 4)), false, 9).await, [1, 3, 5]);
        assert_eq!(numbers(Some((false, 1)), false, 9).await, [3, 5]);
        assert_eq!(numbers(Some((false, 5)), false, 9).await, [0; 0]);
        mail.update_receipts(
            vec![pair("bob", 4), pair("bob", 3)],
            ReceiptUpdate::Delivered,
        )
        .await
        .unwrap();
        assert_eq!(numbers(None, true, 9).await, [2, 1, 5]);
        assert_eq!(numbers(None, false, 9).await, [2, 4, 1, 3, 5]);
        mail.update_receipts(vec![pair("bob", 2)], ReceiptUpdate::Read)
            .await
            .unwrap();
        assert_eq!(numbers(None, false, 9).await, [4, 1, 3, 5]);
        assert_eq!(
            mail.unread_counts().await.unwrap(),
            HashMap::from([pair("bob", 4)])
        );
    })
    .await;
}

/// Goal: receipts never go back, are returned only when they change a copy, and exist only for
/// recipients. Method: receipts for messages to two, twice, in both orders.
#[tokio::test]
async fn marks() {
    mails(async |mail| {
        let id = mail
            .post(letter(&["bob", "eve"], "hello"))
            .await
            .unwrap()
            .new
            .id
            .clone();
        mail.post(letter(&["bob"], "two")).await.unwrap();
        let moved = mail
            .update_receipts(
                vec![pair("eve", 1), pair("bob", 1), pair("eve", 1)],
                ReceiptUpdate::Delivered,
            )
            .await
            .unwrap();
        assert_eq!(
            BTreeMap::from_iter(moved),
            BTreeMap::from([pair("bob", 1), pair("eve", 1)])
        );
        let strangers = vec![
            pair("bob", 1),
            pair("eve", 2),
            pair("ann", 1),
            pair("bob", 9),
            pair("bob", u64::MAX),
        ];
        assert_eq!(
            mail.update_receipts(strangers, ReceiptUpdate::Delivered)
                .await
                .unwrap(),
            []
        );
        assert_eq!(
            mail.update_receipts(vec![pair("bob", 2)], ReceiptUpdate::Read)
                .await
                .unwrap(),
            [pair("bob", 2)]
        );
        assert_eq!(
            mail.update_receipts(vec![pair("bob", 2)], ReceiptUpdate::Delivered)
                .await
                .unwrap(),
            []
        );
        assert_eq!(
            mail.update_receipts(vec![pair("bob", 2)], ReceiptUpdate::Read)
                .await
                .unwrap(),
            []
        );
        assert_eq!(
            mail.update_receipts(Vec::new(), ReceiptUpdate::Read)
                .await
                .unwrap(),
            []
        );
        let of_two = mail.receipts(2, None, 9).await.unwrap();
        assert!(
            of_two[0].delivered.is_some() && of_two[0].read == of_two[0].delivered,
            "what is read was delivered"
        );
        let of_one = mail.receipts(1, None, 9).await.unwrap();
        let states: Vec<_> = of_one
            .iter()
            .map(|copy| (copy.recipient.as_str(), copy.state))
            .collect();
        assert_eq!(
            states,
            [
                ("bob", DeliveryState::Delivered),
                ("eve", DeliveryState::Delivered)
            ]
        );
        assert_eq!(mail.receipts(1, Some("bob"), 9).await.unwrap(), of_one[1..]);
        assert_eq!(
            (
                mail.count_attempt("eve", 1).await.unwrap(),
                mail.count_attempt("eve", 1).await.unwrap()
            ),
            (1, 2)
        );
        assert_eq!(
            (
                mail.count_attempt("eve", 2).await.unwrap(),
                mail.receipts(1, None, 9).await.unwrap()[1].attempts
            ),
            (0, 2)
        );
        assert_eq!(
            mail.append_event(StoredMailEvent::Joined("max".into(), "mcp".into()))
                .await
                .unwrap(),
            5
        );
        let events = told(&mail, 0).await;
        let expected = [
            (1, "posted 1 hello"),
            (2, "posted 2 two"),
            (3, "delivered 1 of ann bob+eve"),
            (4, "read 2 of ann bob"),
            (5, "joined max mcp"),
        ];
        assert_eq!(
            events,
            expected.map(|(number, told)| (number, told.to_owned()))
        );
        assert_eq!(told(&mail, 4).await, &events[4..]);
        assert_eq!(mail.events(1, 2).await.unwrap().len(), 2);
        let posted = StoredMailEvent::Posted(mail.message(&id).await.unwrap().unwrap());
        assert!(matches!(
            mail.append_event(posted).await,
            Err(JournalError::Invalid(_))
        ));
    })
    .await;
}

/// Goal: a message to many is stored at once and its copies follow, which readers can't notice.
/// Method: 300 recipients; results before, during and after the copies are written, with receipts
/// in between.
#[tokio::test]
async fn spreading() {
    mails(async |mail| {
        let posted = mail.post(to_crowd(300, "all")).await.unwrap();
        assert_eq!(
            (
                posted.copies_made,
                mail.pending_fan_out(9).await.unwrap().len()
            ),
            (0, 1)
        );
        let last = "agent-00299";
        assert_eq!(open(&mail, last).await, [(1, DeliveryState::Accepted)]);
        assert_eq!(open(&mail, "agent-00300").await, []);
        assert_eq!(
            mail.unread_counts().await.unwrap().values().sum::<u64>(),
            300
        );
        assert_eq!(
            mail.receipts(1, Some("agent-00297"), 9)
                .await
                .unwrap()
                .len(),
            2
        );
        let marks = vec![pair(last, 1), pair("ann", 1)];
        assert_eq!(
            mail.update_receipts(marks, ReceiptUpdate::Delivered)
                .await
                .unwrap(),
            [pair(last, 1)]
        );
        assert_eq!(mail.count_attempt("agent-00298", 1).await.unwrap(), 1);
        assert_eq!(open(&mail, last).await, [(1, DeliveryState::Delivered)]);

        let some = vec![
            "agent-00005".to_owned(),
            "agent-00003".to_owned(),
            "ann".to_owned(),
        ];
        mail.fan_out(1, 128, some.clone()).await.unwrap();
        mail.fan_out(1, 128, some).await.unwrap();
        assert_eq!(mail.pending_fan_out(9).await.unwrap()[0].copies_made, 128);
        let too_many = mail.fan_out(1, 257, Vec::new()).await;
        assert!(
            matches!(too_many, Err(JournalError::Invalid(_))),
            "{too_many:?}"
        );
        assert!(
            mail.fan_out(1, 128, vec!["x".into(); FAN_OUT_BATCH_MAX + 1])
                .await
                .is_err()
        );
        assert!(mail.fan_out(2, 1, Vec::new()).await.is_err());
        mail.fan_out(1, 256, Vec::new()).await.unwrap();
        mail.fan_out(1, 9_999, vec![last.to_owned(), "agent-00298".to_owned()])
            .await
            .unwrap();
        assert_eq!(mail.pending_fan_out(9).await.unwrap(), []);
        let copies = mail.receipts(1, None, 1_000).await.unwrap();
        assert_eq!(
            copies
                .iter()
                .map(|copy| copy.recipient.clone())
                .collect::<Vec<_>>(),
            crowd(300)
        );
        let delivered = copies
            .iter()
            .filter(|copy| copy.state == DeliveryState::Delivered);
        let delivered: Vec<_> = delivered.map(|copy| copy.recipient.as_str()).collect();
        assert_eq!(
            delivered,
            ["agent-00003", "agent-00005", "agent-00298", last]
        );
        let expected = [
            "posted 1 all",
            "delivered 1 of ann agent-00299",
            "delivered 1 of ann agent-00003+agent-00005",
            "delivered 1 of ann agent-00298",
        ];
        assert_eq!(
            told(&mail, 0)
                .await
                .into_iter()
                .map(|(_, told)| told)
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!(
            mail.unread_counts().await.unwrap().values().sum::<u64>(),
            300
        );
    })
    .await;
}

/// Goal: invalid messages are rejected, and each limit rejects one more. Method: each limit, and
/// one more.
#[tokio::test]
async fn limits() {
    mails(async |mail| {
        let good = || letter(&["bob"], "x");
        let names = |n: usize| crowd(n);
        for bad in [
            NewMailMessage {
                class: DataClass::Clinical,
                ..good()
            },
            letter(&["bob"], "a\0b"),
            letter(&[], "x"),
            letter(&["bob", "bob"], "x"),
            letter(&["not an id"], "x"),
            NewMailMessage {
                sender: "role:x".into(),
                ..good()
            },
            NewMailMessage {
                recipients: vec!["eve".into(), "bob".into()],
                ..good()
            },
            NewMailMessage {
                recipients: names(MAIL_RECIPIENTS_MAX + 1),
                ..good()
            },
            NewMailMessage {
                topic: Some("é".repeat(MAIL_TOPIC_CHARS_MAX + 1)),
                ..good()
            },
            NewMailMessage {
                key: Some("k".repeat(MAIL_KEY_BYTES_MAX + 1)),
                ..good()
            },
            NewMailMessage {
                key: Some(String::new()),
                ..good()
            },
            letter(&["bob"], &"x".repeat(MAIL_BODY_BYTES_MAX + 1)),
        ] {
            let said = format!("{bad:?}");
            assert!(mail.post(bad).await.is_err(), "{said}");
        }
        assert_eq!(mail.last_event().await.unwrap(), 0);
        let most = NewMailMessage {
            recipients: names(MAIL_RECIPIENTS_MAX),
            topic: Some("é".repeat(MAIL_TOPIC_CHARS_MAX)),
            key: Some("k".repeat(MAIL_KEY_BYTES_MAX)),
            ..letter(&[], &"x".repeat(MAIL_BODY_BYTES_MAX))
        };
        assert_eq!(mail.post(most).await.unwrap().number, 1);
        assert!(
            mail.update_receipts(
                vec![pair("bob", 1); RECEIPT_BATCH_MAX + 1],
                ReceiptUpdate::Read
            )
            .await
            .is_err()
        );
        assert!(
            mail.update_receipts(vec![pair("bob", 1); RECEIPT_BATCH_MAX], ReceiptUpdate::Read)
                .await
                .is_ok()
        );
        let search = |n| MailMessageFilter {
            text: Some("é".repeat(n)),
            ..MailMessageFilter::default()
        };
        assert!(
            mail.history(search(MAIL_SEARCH_CHARS_MAX + 1), 0, 1)
                .await
                .is_err()
        );
        assert!(
            mail.history(search(MAIL_SEARCH_CHARS_MAX), 0, 1)
                .await
                .is_ok()
        );
    })
    .await;
    let small: Arc<dyn MailStore> = Arc::new(MemoryMailStore::with_capacity(
        Arc::new(MemoryAuditStore::default()),
        1,
    ));
    small.post(letter(&["bob"], "x")).await.unwrap();
    assert_eq!(
        small.post(letter(&["bob"], "x")).await,
        Err(JournalError::Full { records_max: 1 })
    );
}

/// Goal: a restart loses nothing, also in the middle of a broadcast. Method: restart between a
/// post, a part of its copies, and receipts.
#[tokio::test]
async fn a_restart_loses_nothing() {
    stores(async |opened| {
        let new = NewMailMessage {
            key: Some("k".into()),
            ..to_crowd(200, "all")
        };
        of(opened).post(new.clone()).await.unwrap();
        opened.restart().await;
        assert!(!of(opened).post(new).await.unwrap().is_new);
        of(opened)
            .fan_out(1, 100, vec!["agent-00000".into()])
            .await
            .unwrap();
        opened.restart().await;
        let unspread = of(opened).pending_fan_out(9).await.unwrap();
        assert_eq!(
            (
                unspread.len(),
                unspread[0].copies_made,
                unspread[0].new.recipients.len()
            ),
            (1, 100, 200)
        );
        of(opened).fan_out(1, 200, Vec::new()).await.unwrap();
        of(opened)
            .update_receipts(vec![pair("agent-00000", 1)], ReceiptUpdate::Read)
            .await
            .unwrap();
        opened.restart().await;
        assert_eq!(of(opened).unread_counts().await.unwrap().len(), 199);
        assert_eq!(opened.number("SELECT count(*) FROM copy").await, 200);
        assert_eq!(
            of(opened)
                .post(letter(&["bob"], "two"))
                .await
                .unwrap()
                .number,
            2
        );
        let events: Vec<_> = told(&of(opened), 0)
            .await
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(
            (events, of(opened).last_event().await.unwrap()),
            ((1..=4).collect(), 4)
        );
    })
    .await;
}

/// Goal: a message that many read is in memory once and never outdated. Method: two readers, before
/// and after its copies are written.
#[tokio::test]
async fn readers_share_a_letter() {
    stores(async |opened| {
        let mail = of(opened);
        mail.post(to_crowd(20, "all")).await.unwrap();
        let look = async |reader| {
            mail.list_open(reader, None, false, 9)
                .await
                .unwrap()
                .remove(0)
                .0
        };
        let (first, second) = (look("agent-00003").await, look("agent-00007").await);
        assert!(Arc::ptr_eq(&first, &second));
        mail.fan_out(1, 20, Vec::new()).await.unwrap();
        let spread = look("agent-00003").await;
        assert_eq!((first.copies_made, spread.copies_made), (0, 20));
        opened.raw("UPDATE letter SET body = NULL").await;
        assert_eq!(
            (
                look("agent-00003").await.new.body.as_str(),
                spread.new.body.as_str()
            ),
            ("", "all")
        );
    })
    .await;
}

/// Goal: with concurrent writers, numbers and events have no gap, and a key is one message. Method:
/// 32 senders, two of each name and key, beside receipts.
#[tokio::test]
async fn many_at_once() {
    stores(async |opened| {
        let mail = of(opened);
        let send = async |n: usize| {
            let new = NewMailMessage {
                sender: format!("s{}", n / 2),
                key: Some("k".into()),
                ..letter(&["bob"], &format!("{}", n / 2))
            };
            let posted = mail.post(new).await.unwrap();
            mail.update_receipts(vec![pair("bob", posted.number)], ReceiptUpdate::Read)
                .await
                .unwrap();
            (posted.is_new, posted.number)
        };
        let posted = join_all((0..32).map(send)).await;
        let mut new: Vec<_> = posted
            .iter()
            .filter(|(is_new, _)| *is_new)
            .map(|(_, number)| *number)
            .collect();
        new.sort_unstable();
        assert_eq!(new, (1..=16).collect::<Vec<_>>());
        let numbers: Vec<_> = told(&mail, 0)
            .await
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers, (1..=32).collect::<Vec<_>>());
    })
    .await;
}

/// Goal: the audit has one entry for each message, with size, hash and audience, without text.
/// Method: one to one, one again by its key, one to many, a rejected one; the audit after a
/// restart.
/// Rows: X-24.
#[tokio::test]
async fn on_record() {
    stores(async |opened| {
        let one = NewMailMessage {
            key: Some("k".into()),
            topic: Some("Maria".into()),
            ..letter(&["bob"], "Maria Silva")
        };
        let kept = of(opened).post(one.clone()).await.unwrap();
        of(opened).post(one).await.unwrap();
        of(opened).post(to_crowd(17, "Maria Silva")).await.unwrap();
        of(opened)
            .post(letter(&[], "Maria Silva"))
            .await
            .unwrap_err();
        opened.restart().await;
        let lines = communications(opened).await;
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines
                .iter()
                .all(|line| !line.contains("Maria") && line.contains(r#""peer":"ann""#)),
            "{lines:?}"
        );
        assert!(
            kept.digest.hash.starts_with("hmac-sha256:") && lines[0].contains(&kept.digest.hash),
            "{lines:?}"
        );
        assert!(
            lines[0].contains(r#""agent":"bob""#) && lines[1].contains(r#""agent":"17 agents""#),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("recipients_sha256") && !lines[1].contains("agent-00003"),
            "{lines:?}"
        );
        let events =
            "SELECT count(*) FROM record WHERE stream = 'mail/events' AND body LIKE '%Maria%'";
        assert_eq!(opened.number(events).await, 0);
    })
    .await;
}
