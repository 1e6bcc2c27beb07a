use callboard_mailroom::LISTED_TEXT_CHARS_MAX;
use callboard_message::mail::{
    CheckInbox, DeliveryState, FetchMail, MAIL_MEMORY_PAGE_MAX, MailDirection, MailEvent, MarkRead,
    MessageHistory, Priority, ReadEvents, ReadMemory, ReadMessage, SaveMemory, SendMessage,
};
use callboard_message::{FailureKind, Principal};
use callboard_runtime::KV_KEY_BYTES_MAX;

use crate::kit::in_room;

fn to(id: &str, message: &str) -> SendMessage {
    SendMessage {
        message: message.into(),
        recipient_agent_id: Some(id.into()),
        ..SendMessage::default()
    }
}

/// Goal: messages shown whole are read, once; truncated ones are delivered; peeking changes
/// nothing; urgent ones are first. Method: a short, a long and an urgent message.
/// Rows: P-37.
#[test]
fn the_inbox() {
    in_room(&["a", "b"], async |room, _| {
        let (a, b) = (room.mailbox("a"), room.mailbox("b"));
        a.send("b", "short").await.unwrap();
        a.send("b", &"é".repeat(LISTED_TEXT_CHARS_MAX))
            .await
            .unwrap();
        a.ask(SendMessage {
            priority: Some(Priority::Urgent),
            ..to("b", "fire")
        })
        .await
        .unwrap();
        let peeked = b
            .ask(CheckInbox {
                peek: true,
                ..CheckInbox::default()
            })
            .await
            .unwrap();
        assert_eq!(
            (peeked.unread, peeked.messages[0].state),
            (3, DeliveryState::Accepted)
        );
        let one = b
            .ask(CheckInbox {
                limit: Some(1),
                ..CheckInbox::default()
            })
            .await
            .unwrap();
        assert_eq!(
            (one.unread, one.more, one.messages[0].text.ends_with("fire")),
            (2, true, true)
        );
        let rest = b.check().await.unwrap();
        assert_eq!((rest.unread, rest.more, rest.messages.len()), (1, false, 2));
        let states: Vec<_> = rest
            .messages
            .iter()
            .map(|message| (message.state, message.cut))
            .collect();
        assert_eq!(
            states,
            [
                (DeliveryState::Read, false),
                (DeliveryState::Delivered, true)
            ]
        );
        assert_eq!(rest.messages[1].text.chars().count(), LISTED_TEXT_CHARS_MAX);
        let whole = b.read(&rest.messages[1].message_id).await.unwrap();
        assert_eq!((whole.state, whole.cut), (DeliveryState::Read, false));
        assert_eq!(b.check().await.unwrap().unread, 0);
        for limit in [0, 51] {
            let refused = b
                .ask(CheckInbox {
                    limit: Some(limit),
                    ..CheckInbox::default()
                })
                .await
                .unwrap_err();
            assert_eq!(refused.kind, FailureKind::InvalidInput);
        }
    });
}

/// Goal: an inbox can be filtered by sender, topic, thread and urgency, and only the messages shown
/// are read. Method: four messages and a filter each.
/// Rows: P-39.
#[test]
fn filters() {
    in_room(&["a", "b", "c"], async |room, _| {
        let thread = room
            .mailbox("a")
            .send("b", "one")
            .await
            .unwrap()
            .thread
            .unwrap();
        room.mailbox("c")
            .ask(SendMessage {
                topic: Some("api".into()),
                ..to("b", "two")
            })
            .await
            .unwrap();
        room.mailbox("c")
            .ask(SendMessage {
                priority: Some(Priority::Urgent),
                ..to("b", "three")
            })
            .await
            .unwrap();
        room.mailbox("c").send("b", "four").await.unwrap();
        let b = room.mailbox("b");
        for (filter, ends) in [
            (
                CheckInbox {
                    from: Some("a".into()),
                    peek: true,
                    ..Default::default()
                },
                "one",
            ),
            (
                CheckInbox {
                    topic: Some("api".into()),
                    ..Default::default()
                },
                "two",
            ),
            (
                CheckInbox {
                    thread: Some(thread),
                    ..Default::default()
                },
                "one",
            ),
            (
                CheckInbox {
                    urgent_only: true,
                    ..Default::default()
                },
                "three",
            ),
            (CheckInbox::default(), "four"),
        ] {
            let found = b.ask(filter).await.unwrap();
            assert_eq!(found.messages.len(), 1);
            assert!(found.messages[0].text.ends_with(ends), "{ends}");
        }
    });
}

/// Goal: a reply goes to the sender only, in a thread that both can read. Method: a conversation of
/// three, another agent that knows the ids.
/// Rows: P-34.
#[test]
fn threads() {
    in_room(&["a", "b", "c"], async |room, _| {
        let (a, b, c) = (room.mailbox("a"), room.mailbox("b"), room.mailbox("c"));
        let first = a
            .ask(SendMessage {
                topic: Some("api".into()),
                ..to("b", "one")
            })
            .await
            .unwrap();
        let id = first.message_id.unwrap();
        let second = b.reply(&id, "two").await.unwrap();
        assert_eq!(second.message, "Message sent to agent a");
        let third = a
            .ask(SendMessage {
                reply_to: second.message_id.clone(),
                ..to("b", "three")
            })
            .await
            .unwrap();
        assert_eq!(
            (second.thread.as_ref(), third.thread.as_ref()),
            (Some(&id), Some(&id))
        );
        let thread = || MessageHistory {
            thread: Some(id.clone()),
            ..MessageHistory::default()
        };
        for who in [&a, &b] {
            let found = who.ask(thread()).await.unwrap().messages;
            let texts: Vec<&str> = found
                .iter()
                .map(|message| message.text.rsplit(' ').next().unwrap())
                .collect();
            assert_eq!(texts, ["three", "two", "one"]);
            assert_eq!(found[1].topic.as_deref(), Some("api"));
        }
        assert!(c.ask(thread()).await.unwrap().messages.is_empty());
        assert_eq!(
            c.reply(&id, "x").await.unwrap_err().kind,
            FailureKind::NotFound
        );
        assert_eq!(c.read(&id).await.unwrap_err().kind, FailureKind::NotFound);
        assert_eq!(
            a.read("no such").await.unwrap_err().kind,
            FailureKind::NotFound
        );
        let spliced = SendMessage {
            reply_to: Some(id.clone()),
            ..to("a", "x")
        };
        assert_eq!(
            c.ask(spliced).await.unwrap_err().kind,
            FailureKind::NotFound
        );
    });
}

/// Goal: a sender sees the receipts of its message; a recipient doesn't see those of others.
/// Method: a broadcast that one reads and one fetches.
/// Rows: P-38, X-22.
#[test]
fn receipts() {
    in_room(&["a", "b", "c", "d"], async |room, _| {
        let id = room
            .mailbox("a")
            .broadcast("x\u{1b}")
            .await
            .unwrap()
            .message_id
            .unwrap();
        let asked = || ReadMessage {
            message_id: id.clone(),
            receipts: true,
            ..ReadMessage::default()
        };
        let read = room.mailbox("b").ask(asked()).await.unwrap();
        assert!(read.receipts.is_none() && read.message.is_none());
        let fetch = FetchMail {
            message_ids: vec![id.clone(), "x".into()],
            receipts: true,
        };
        let fetched = room
            .mailbox("c")
            .ask(fetch)
            .await
            .unwrap()
            .messages
            .remove(0);
        assert_eq!(
            (fetched.message.as_deref(), fetched.state),
            (Some("x\u{1b}"), DeliveryState::Delivered)
        );
        assert_eq!(fetched.receipts, None);
        let sent = room.mailbox("a").ask(asked()).await.unwrap();
        assert_eq!(sent.state, DeliveryState::Accepted);
        let states: Vec<_> = sent
            .receipts
            .unwrap()
            .into_iter()
            .map(|receipt| receipt.state)
            .collect();
        assert_eq!(
            states,
            [
                DeliveryState::Read,
                DeliveryState::Delivered,
                DeliveryState::Accepted
            ]
        );
        let mark = |state| MarkRead {
            message_id: id.clone(),
            state,
        };
        room.mailbox("d").ask(mark(None)).await.unwrap();
        room.mailbox("d")
            .ask(mark(Some(DeliveryState::Delivered)))
            .await
            .unwrap();
        assert_eq!(
            room.mailbox("a").ask(mark(None)).await.unwrap_err().kind,
            FailureKind::NotFound
        );
        assert_eq!(room.mailbox("d").check().await.unwrap().unread, 0);
    });
}

/// Goal: history returns messages in both directions by every filter, page by page, and nothing of
/// others. Method: a few messages, a filter each, pages of one.
/// Rows: P-35.
#[test]
fn history() {
    in_room(&["a", "b", "c"], async |room, _| {
        let (a, b) = (room.mailbox("a"), room.mailbox("b"));
        a.send("b", "first Word").await.unwrap();
        b.send("a", "second").await.unwrap();
        a.send("c", "third").await.unwrap();
        room.mailbox("c").send("b", "of others").await.unwrap();
        let count = async |filter: MessageHistory| a.ask(filter).await.unwrap().messages.len();
        let filter = MessageHistory::default;
        assert_eq!(count(filter()).await, 3);
        assert_eq!(
            count(MessageHistory {
                direction: Some(MailDirection::In),
                ..filter()
            })
            .await,
            1
        );
        assert_eq!(
            count(MessageHistory {
                direction: Some(MailDirection::Out),
                ..filter()
            })
            .await,
            2
        );
        assert_eq!(
            count(MessageHistory {
                with: Some("b".into()),
                ..filter()
            })
            .await,
            2
        );
        assert_eq!(
            count(MessageHistory {
                from: Some("b".into()),
                ..filter()
            })
            .await,
            1
        );
        assert_eq!(
            count(MessageHistory {
                text: Some("wORD".into()),
                ..filter()
            })
            .await,
            1
        );
        assert_eq!(
            count(MessageHistory {
                since: Some("2999-01-01T00:00:00Z".into()),
                ..filter()
            })
            .await,
            0
        );
        assert_eq!(
            count(MessageHistory {
                until: Some("2999-01-01T00:00:00Z".into()),
                ..filter()
            })
            .await,
            3
        );
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = a
                .ask(MessageHistory {
                    limit: Some(1),
                    after,
                    ..filter()
                })
                .await
                .unwrap();
            seen.extend(page.messages.into_iter().map(|message| message.number));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, [3, 2, 1]);
        for bad in [
            MessageHistory {
                since: Some("yesterday".into()),
                ..filter()
            },
            MessageHistory {
                limit: Some(101),
                ..filter()
            },
            MessageHistory {
                text: Some("x".repeat(129)),
                ..filter()
            },
        ] {
            assert_eq!(
                a.ask(bad).await.unwrap_err().kind,
                FailureKind::InvalidInput
            );
        }
    });
}

/// Goal: messages are found by state, sent ones by that of their last recipient. Method: received
/// and sent messages, read and not, each direction and both; pages over more than one.
#[test]
fn history_by_state() {
    in_room(&["a", "b", "c"], async |room, _| {
        let (a, b, c) = (room.mailbox("a"), room.mailbox("b"), room.mailbox("c"));
        let list = SendMessage {
            recipient_agent_ids: vec!["b".into(), "c".into()],
            message: "1".into(),
            ..SendMessage::default()
        };
        let half_read = a.ask(list).await.unwrap().message_id.unwrap();
        b.read(&half_read).await.unwrap();
        for message in ["2", "3"] {
            let sent = a.send("b", message).await.unwrap().message_id.unwrap();
            b.read(&sent).await.unwrap();
        }
        a.send("c", "4").await.unwrap();
        let got = c.send("a", "5").await.unwrap().message_id.unwrap();
        a.read(&got).await.unwrap();
        c.send("a", "6").await.unwrap();
        for (direction, state, limit, found) in [
            (MailDirection::Out, DeliveryState::Read, 50, vec!["3", "2"]),
            (MailDirection::Out, DeliveryState::Read, 1, vec!["3", "2"]),
            (
                MailDirection::Out,
                DeliveryState::Accepted,
                50,
                vec!["4", "1"],
            ),
            (MailDirection::In, DeliveryState::Read, 50, vec!["5"]),
            (MailDirection::In, DeliveryState::Accepted, 50, vec!["6"]),
            (
                MailDirection::All,
                DeliveryState::Read,
                2,
                vec!["5", "3", "2"],
            ),
            (MailDirection::All, DeliveryState::Delivered, 50, vec![]),
        ] {
            let (mut after, mut seen) = (None, Vec::new());
            loop {
                let asked = MessageHistory {
                    direction: Some(direction),
                    state: Some(state),
                    limit: Some(limit),
                    after,
                    ..MessageHistory::default()
                };
                let page = a.ask(asked).await.unwrap();
                assert!(page.messages.iter().all(|message| message.state == state));
                seen.extend(
                    page.messages
                        .into_iter()
                        .map(|message| message.text.rsplit(' ').next().unwrap().to_owned()),
                );
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, found, "{direction:?} {state:?}");
        }
    });
}

/// Goal: each caller gets the events that concern it, numbered, from any position; a watcher gets
/// all. Method: a message that is read, seen by its sender, its recipient, another, the operator;
/// then from the middle.
#[test]
fn events() {
    in_room(&["a", "b", "c"], async |room, _| {
        let id = room
            .mailbox("a")
            .send("b", "secret")
            .await
            .unwrap()
            .message_id
            .unwrap();
        room.mailbox("b").read(&id).await.unwrap();
        let kinds = async |who: &str| {
            let found = room.mailbox(who).ask(ReadEvents::default()).await.unwrap();
            let kinds = found
                .events
                .iter()
                .map(|event| event.event.kind())
                .filter(|kind| !kind.starts_with("agent_joined"));
            kinds.collect::<Vec<_>>()
        };
        let all = ["message_accepted", "agent_direct_message", "message_read"];
        assert_eq!(kinds("a").await, all);
        assert_eq!(kinds("b").await, all);
        assert!(kinds("c").await.is_empty());
        let operator = Principal::local_operator();
        let found = room.ask(&operator, ReadEvents::default()).await.unwrap();
        assert_eq!((found.last, found.newest), (5, 5));
        let after = ReadEvents {
            after: 3,
            types: vec!["message_read".into(), "message_accepted".into()],
            limit: None,
        };
        let rest = room.ask(&operator, after).await.unwrap().events;
        let rest: Vec<_> = rest
            .iter()
            .map(|event| (event.sequence, event.event.kind()))
            .collect();
        assert_eq!(rest, [(4, "message_accepted"), (5, "message_read")]);
        assert!(
            matches!(&found.events.last().unwrap().event, MailEvent::MessageRead { message_id, .. } if *message_id == id)
        );
        let too_many = ReadEvents {
            limit: Some(257),
            ..ReadEvents::default()
        };
        assert_eq!(
            room.refused(&operator, too_many).await,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: what was saved can be read back by its owner, page by page. Method: one by name, all with a
/// page's limit passed, those of a tag, another agent's, wrong requests.
/// Rows: P-9.
#[test]
fn memory_is_read_back() {
    in_room(&["a", "b"], async |room, _| {
        let (a, b) = (room.mailbox("a"), room.mailbox("b"));
        for n in 0..=MAIL_MEMORY_PAGE_MAX {
            let tag = if n % 2 == 0 { "even" } else { "odd" };
            a.ask(SaveMemory {
                content: format!("text {n}"),
                key: Some(format!("k{n:02}")),
                tags: vec![tag.into()],
                sender_agent_id: None,
            })
            .await
            .unwrap();
        }
        let one = ReadMemory {
            key: Some("k07".into()),
            ..ReadMemory::default()
        };
        let page = a.ask(one.clone()).await.unwrap();
        let [entry] = &page.entries[..] else {
            panic!("{} entries", page.entries.len());
        };
        assert_eq!((&*entry.key, &*entry.content), ("k07", "text 7"));
        assert_eq!((&*entry.tags, entry.version), (&["odd".to_owned()][..], 1));
        assert!(entry.saved.as_ref().is_some_and(|at| at.ends_with('Z')));
        assert_eq!(b.ask(one).await.unwrap_err().kind, FailureKind::NotFound);

        let page = a.ask(ReadMemory::default()).await.unwrap();
        assert_eq!(page.entries.len(), MAIL_MEMORY_PAGE_MAX);
        let rest = ReadMemory {
            after: page.next,
            ..ReadMemory::default()
        };
        let page = a.ask(rest).await.unwrap();
        assert_eq!(
            (page.entries[0].key.as_str(), page.entries.len(), page.next),
            ("k20", 1, None)
        );
        let even = ReadMemory {
            tag: Some("even".into()),
            ..ReadMemory::default()
        };
        let page = a.ask(even).await.unwrap();
        assert_eq!((page.entries.len(), page.next), (11, None));
        assert_eq!(b.ask(ReadMemory::default()).await.unwrap().entries, []);
        let wrong = ReadMemory {
            after: Some("x".repeat(KV_KEY_BYTES_MAX + 1)),
            ..ReadMemory::default()
        };
        assert_eq!(
            a.ask(wrong).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: an agent saves text under a name, for itself only. Method: a new one, the same again, one
/// without a name, one too large.
/// Rows: P-9.
#[test]
fn memory() {
    in_room(&["a"], async |room, system| {
        let a = room.mailbox("a");
        let tagged = |tags: usize, chars: usize| SaveMemory {
            content: "x".into(),
            key: Some("tagged".into()),
            tags: vec!["é".repeat(chars); tags],
            sender_agent_id: None,
        };
        let save = |content: &str, key: Option<&str>| SaveMemory {
            content: content.into(),
            key: key.map(str::to_owned),
            ..tagged(1, 6)
        };
        assert_eq!(a.ask(save("one", Some("k"))).await.unwrap().version, 1);
        assert_eq!(a.ask(save("two", Some("k"))).await.unwrap().version, 2);
        let unnamed = a.ask(save("three", None)).await.unwrap().key;
        let notes = system.store().kv.list("memory/a", None, 10).await.unwrap();
        let kept: Vec<_> = notes
            .iter()
            .map(|note| (note.key.as_str(), note.body.text("content").unwrap()))
            .collect();
        assert_eq!(
            kept,
            [
                (unnamed.as_str(), "three".to_owned()),
                ("k", "two".to_owned())
            ]
        );
        a.ask(tagged(16, 64)).await.unwrap();
        let too_long = save(&"x".repeat(16 * 1024 + 1), None);
        for bad in [
            save("", None),
            too_long,
            save("x", Some("")),
            tagged(17, 64),
            tagged(1, 65),
        ] {
            assert_eq!(
                a.ask(bad).await.unwrap_err().kind,
                FailureKind::InvalidInput
            );
        }
    });
}
