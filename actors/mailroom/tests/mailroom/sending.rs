use std::time::Duration;

use callboard_mailroom::{MailroomOptions, MemberDeclaration};
use callboard_message::FailureKind;
use callboard_message::mail::{
    BroadcastMessage, DeliveryState, FetchMail, MAIL_BODY_BYTES_MAX, MAIL_EXPIRES_DEFAULT,
    MAIL_EXPIRES_MAX, MAIL_KEY_BYTES_MAX, MAIL_TOPIC_CHARS_MAX, MAIL_UNREAD_MAX, MarkRead,
    MessageHistory, Priority, RETRY_AFTER_DATA_KEY, ReplyMessage, SendMessage,
};

use crate::kit::{Room, in_room, next, until_ended, until_ended_really, way};

fn to(id: &str, message: &str) -> SendMessage {
    SendMessage {
        message: message.into(),
        recipient_agent_id: Some(id.into()),
        ..SendMessage::default()
    }
}

/// Goal: a message with the same key is a duplicate, and another message with it is rejected.
/// Method: the same twice; another body, recipient, kind, priority, topic, expiry and thread;
/// another sender's; the same for replies and guidance.
#[test]
fn keys() {
    in_room(&["a", "b", "c"], async |room, _| {
        let (a, with) = (room.mailbox("a"), |message| SendMessage {
            idempotency_key: Some("k".into()),
            ..message
        });
        let first = a.ask(with(to("b", "x"))).await.unwrap();
        assert_eq!(a.ask(with(to("b", "x"))).await.unwrap(), first);
        for other in [
            with(to("b", "y")),
            with(to("c", "x")),
            with(SendMessage {
                priority: Some(Priority::Urgent),
                ..to("b", "x")
            }),
            with(SendMessage {
                topic: Some("t".into()),
                ..to("b", "x")
            }),
            with(SendMessage {
                expires_in_s: Some(60),
                ..to("b", "x")
            }),
            with(SendMessage {
                reply_to: first.message_id.clone(),
                ..to("b", "x")
            }),
        ] {
            assert_eq!(a.ask(other).await.unwrap_err().kind, FailureKind::Rejected);
        }
        let in_full = SendMessage {
            priority: Some(Priority::Normal),
            expires_in_s: Some(MAIL_EXPIRES_DEFAULT.as_secs()),
            ..to("b", "x")
        };
        assert_eq!(a.ask(with(in_full)).await.unwrap(), first);
        let answer = |priority| ReplyMessage {
            message_id: first.message_id.clone().unwrap(),
            message: "y".into(),
            priority,
            idempotency_key: Some("l".into()),
            ..ReplyMessage::default()
        };
        let b = room.mailbox("b");
        assert_eq!(
            b.ask(answer(None)).await.unwrap(),
            b.ask(answer(None)).await.unwrap()
        );
        assert_eq!(
            b.ask(answer(Some(Priority::Urgent)))
                .await
                .unwrap_err()
                .kind,
            FailureKind::Rejected
        );
        let stuck = |label: &str| SendMessage {
            guidance: Some(label.into()),
            ..with(to("b", "x"))
        };
        assert!(room.guardian().ask(stuck("STUCK")).await.unwrap().success);
        assert_eq!(
            room.guardian().ask(stuck("OTHER")).await.unwrap_err().kind,
            FailureKind::Rejected
        );
        let broadcast = BroadcastMessage {
            message: "x".into(),
            idempotency_key: Some("k".into()),
            ..Default::default()
        };
        assert_eq!(
            a.ask(broadcast).await.unwrap_err().kind,
            FailureKind::Rejected
        );
        assert_ne!(
            room.mailbox("c")
                .ask(with(to("b", "x")))
                .await
                .unwrap()
                .message_id,
            first.message_id
        );
        assert_eq!(room.mailbox("b").check().await.unwrap().messages.len(), 3);
    });
}

/// Goal: duplicates don't use up the sender's quota, and are answered when none is left. Method: as
/// many as there are, each sent twice, to one and to all; then one more of each, an old one and one
/// under another's key.
#[test]
fn repeats_are_free() {
    until_ended(async |system| {
        let options = MailroomOptions {
            members: ["a", "b"].map(MemberDeclaration::new).into(),
            broadcasts_per_minute: 2.try_into().unwrap(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, options).await;
        let a = room.mailbox("a");
        let broadcast = |key: &str, message: &str| BroadcastMessage {
            message: message.into(),
            idempotency_key: Some(key.into()),
            ..BroadcastMessage::default()
        };
        let first = a.ask(broadcast("0", "x")).await.unwrap();
        assert_eq!(a.ask(broadcast("0", "x")).await.unwrap(), first);
        assert!(a.ask(broadcast("1", "x")).await.unwrap().success);
        assert_eq!(
            a.ask(broadcast("2", "x")).await.unwrap_err().kind,
            FailureKind::Overloaded
        );
        assert_eq!(a.ask(broadcast("0", "x")).await.unwrap(), first);
        assert_eq!(
            a.ask(broadcast("0", "y")).await.unwrap_err().kind,
            FailureKind::Rejected
        );
        assert_eq!(room.mailbox("b").check().await.unwrap().messages.len(), 2);
    });
}

/// Goal: an invalid message is rejected, and nothing of it stored. Method: each limit and one more.
#[test]
fn limits() {
    in_room(&["a", "b"], async |room, _| {
        let a = room.mailbox("a");
        let long = |n| "x".repeat(n);
        let topic = |topic: &str| SendMessage {
            topic: Some(topic.into()),
            ..to("b", "x")
        };
        let keyed = |key: &str| SendMessage {
            idempotency_key: Some(key.into()),
            ..to("b", "x")
        };
        let expires = |s| SendMessage {
            expires_in_s: Some(s),
            ..to("b", "x")
        };
        for fits in [
            to("b", &long(MAIL_BODY_BYTES_MAX)),
            topic(&"é".repeat(MAIL_TOPIC_CHARS_MAX)),
            keyed(&long(MAIL_KEY_BYTES_MAX)),
            expires(MAIL_EXPIRES_MAX.as_secs()),
        ] {
            assert!(a.ask(fits).await.unwrap().success);
        }
        let both = SendMessage {
            recipient_agent_ids: vec!["b".into()],
            ..to("b", "x")
        };
        let none = SendMessage {
            recipient_agent_id: None,
            ..to("b", "x")
        };
        let label = |label: &str| SendMessage {
            guidance: Some(label.into()),
            ..to("b", "x")
        };
        for refused in [
            to("b", &long(MAIL_BODY_BYTES_MAX + 1)),
            to("b", ""),
            to("b", " \n"),
            to("b", "a\0b"),
            topic(&"é".repeat(MAIL_TOPIC_CHARS_MAX + 1)),
            topic("a\nb"),
            keyed(&long(MAIL_KEY_BYTES_MAX + 1)),
            keyed(""),
            expires(MAIL_EXPIRES_MAX.as_secs() + 1),
            expires(0),
            both,
            none,
        ] {
            assert_eq!(
                a.ask(refused).await.unwrap_err().kind,
                FailureKind::InvalidInput
            );
        }
        assert_eq!(
            room.guardian().ask(label("stuck")).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
        assert_eq!(room.mailbox("b").check().await.unwrap().messages.len(), 4);
    });
}

/// Goal: rate limits apply to each sender by itself, with the time to wait; the Guardian has none.
/// Method: bursts until one is rejected; another sender; the Guardian with more.
/// Rows: P-41.
#[test]
fn rates() {
    until_ended(async |system| {
        let options = MailroomOptions {
            members: ["a", "b", "c"].map(MemberDeclaration::new).into(),
            broadcasts_per_minute: 3.try_into().unwrap(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, options).await;
        let a = room.mailbox("a");
        for _ in 0..3 {
            a.broadcast("x").await.unwrap();
        }
        let refused = a.broadcast("x").await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        assert!(
            refused.data.unwrap()[RETRY_AFTER_DATA_KEY]
                .as_u64()
                .unwrap()
                <= 20
        );
        assert!(a.send("b", "x").await.unwrap().success);
        assert_eq!(
            room.mailbox("b")
                .broadcast("x")
                .await
                .unwrap()
                .recipient_count,
            Some(2)
        );
        for _ in 0..4 {
            assert_eq!(
                room.guardian()
                    .broadcast("x")
                    .await
                    .unwrap()
                    .recipient_count,
                Some(3)
            );
        }
        let mut refused = None;
        for _ in 0..1_000 {
            refused = a.send("b", "x").await.err();
            if refused.is_some() {
                break;
            }
        }
        assert_eq!(
            refused.map(|failure| failure.kind),
            Some(FailureKind::Overloaded)
        );
    });
}

/// Goal: a full mailbox accepts nothing more, the sender learns of it, and other recipients get the
/// message. Method: as many as fit, one more of each kind; then one is read.
#[test]
fn full_boxes() {
    until_ended_really(async |system| {
        let options = MailroomOptions {
            members: ["a", "b", "c"].map(MemberDeclaration::new).into(),
            messages_per_second: u32::MAX.try_into().unwrap(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, options).await;
        let a = room.mailbox("a");
        for _ in 0..MAIL_UNREAD_MAX {
            a.send("b", "x").await.unwrap();
        }
        let sent = a.send("b", "x").await.unwrap();
        assert_eq!(
            (sent.success, &sent.refused[..]),
            (false, &["b".to_owned()][..])
        );
        assert_eq!(
            sent.message,
            "Failed to send message - the inbox of recipient agent b is full"
        );
        let sent = a.broadcast("x").await.unwrap();
        assert_eq!(
            (sent.recipient_count, &sent.refused[..]),
            (Some(1), &["b".to_owned()][..])
        );
        room.mailbox("b").check().await.unwrap();
        assert!(a.send("b", "x").await.unwrap().success);
    });
}

/// Goal: with a delivery agent, unread mail doesn't fill the mailbox, but undelivered mail does,
/// also after a restart. Method: more than fit to one whose agent takes all, and to one whose agent
/// is unavailable; then another mailroom.
#[test]
fn boxes_of_ways() {
    until_ended_really(async |system| {
        let options = || MailroomOptions {
            members: vec![
                MemberDeclaration::new("a"),
                MemberDeclaration::new("b").with_delivery_agent("b"),
                MemberDeclaration::new("c").with_delivery_agent("c"),
            ],
            messages_per_second: u32::MAX.try_into().unwrap(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, options()).await;
        let mut got = way(system, "b", |_| Ok(()));
        let a = room.mailbox("a");
        for _ in 0..=MAIL_UNREAD_MAX {
            assert!(a.send("b", "x").await.unwrap().success);
            next(&mut got).await;
        }
        for _ in 0..MAIL_UNREAD_MAX {
            assert!(a.send("c", "x").await.unwrap().success);
        }
        assert!(!a.send("c", "x").await.unwrap().success);
        room.agent.kill();
        room.mailroom.close().await;
        let room = Room::open(system, options()).await;
        let a = room.mailbox("a");
        // It is counted once the queue has started.
        for tries in 0.. {
            assert!(tries < 1_000, "the box is not full any more");
            if !a.send("c", "x").await.unwrap().success {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(a.send("b", "x").await.unwrap().success);
    });
}

/// Goal: an expired unread message is not returned in any way, takes no room, and counts neither as
/// delivered nor as read; one that was read before stays. Method: two messages of two seconds, one
/// of them read at once; looked for afterwards.
#[test]
fn expiry() {
    until_ended_really(async |system| {
        let room = Room::of(system, &["a", "b"]).await;
        let soon = |text| SendMessage {
            expires_in_s: Some(2),
            ..to("b", text)
        };
        let (a, b) = (room.mailbox("a"), room.mailbox("b"));
        let read = a.ask(soon("read")).await.unwrap().message_id.unwrap();
        b.read(&read).await.unwrap();
        let gone = a.ask(soon("gone")).await.unwrap().message_id.unwrap();
        room.mailbox("a").send("b", "stays").await.unwrap();
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        let inbox = room.mailbox("b").check().await.unwrap();
        assert_eq!((inbox.messages.len(), inbox.unread), (1, 0));
        assert!(inbox.messages[0].text.ends_with("stays"));
        assert_eq!(b.read(&gone).await.unwrap_err().kind, FailureKind::NotFound);
        let mark = MarkRead {
            message_id: gone.clone(),
            state: None,
        };
        assert_eq!(b.ask(mark).await.unwrap_err().kind, FailureKind::NotFound);
        let both = || FetchMail {
            message_ids: vec![gone.clone(), read.clone()],
            receipts: true,
        };
        let fetched = b.ask(both()).await.unwrap().messages;
        assert_eq!(
            fetched
                .iter()
                .map(|message| &*message.message_id)
                .collect::<Vec<_>>(),
            [&*read]
        );
        assert_eq!(
            b.ask(MessageHistory::default())
                .await
                .unwrap()
                .messages
                .len(),
            2
        );
        let sent = a.ask(both()).await.unwrap().messages;
        assert_eq!(
            sent.iter().map(|message| message.state).collect::<Vec<_>>(),
            [DeliveryState::Accepted, DeliveryState::Read]
        );
    });
}

/// Goal: a message to a list goes to each recipient once or, if one is unreachable, to none.
/// Method: one with a duplicate, one with an unknown id.
#[test]
fn lists() {
    in_room(&["a", "b", "c"], async |room, _| {
        let list = |ids: &[&str]| SendMessage {
            message: "x".into(),
            recipient_agent_ids: ids.iter().map(|&id| id.to_owned()).collect(),
            ..SendMessage::default()
        };
        let a = room.mailbox("a");
        let sent = a.ask(list(&["c", "b", "c"])).await.unwrap();
        assert_eq!(
            (sent.recipient_count, sent.message.as_str()),
            (Some(2), "Message sent to 2 agent(s)")
        );
        assert!(!a.ask(list(&["b", "stranger"])).await.unwrap().success);
        let inbox = room.mailbox("b").check().await.unwrap();
        assert_eq!(inbox.messages.len(), 1);
        assert_eq!(inbox.messages[0].text, "[AGENT a TO AGENT b]: x");
        let all = ReplyMessage {
            message_id: inbox.messages[0].message_id.clone(),
            message: "to all".into(),
            to_all: true,
            ..ReplyMessage::default()
        };
        assert_eq!(
            room.mailbox("b").ask(all).await.unwrap().recipient_count,
            Some(2)
        );
        assert_eq!(room.mailbox("c").check().await.unwrap().messages.len(), 2);
    });
}

/// Goal: an invalid id is sanitised in the receipt. Method: ids that no agent can have, and the
/// receipt.
#[test]
fn ids_that_are_none() {
    in_room(&["a"], async |room, _| {
        for (id, shown) in [
            ("\u{1b}[2Jx", "␛[2Jx"),
            ("a\r\nb\tc", "a b c"),
            ("[GUARDIAN GUIDANCE]: x", "[GUARDIA"),
            ("\u{202e}abc", "<U+202E>abc"),
            ("ordinary-id", "ordinary"),
        ] {
            let sent = room.mailbox("a").send(id, "x").await.unwrap();
            let expect = format!(
                "Failed to send message - recipient agent {shown} may not exist or is terminated"
            );
            assert_eq!((sent.success, sent.message), (false, expect));
        }
    });
}
