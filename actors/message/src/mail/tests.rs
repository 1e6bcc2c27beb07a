use serde_json::json;

use super::*;
use crate::Message;

/// Goal: an id is what the key rings take too, and no group's name is one. Method: rows, at the limit and over it.
#[test]
fn ids() {
    let longest = "a".repeat(MemberId::CHARS_MAX);
    for id in ["a", "agent-123", "A.b_c-9", longest.as_str()] {
        assert_eq!(MemberId::parse(id).unwrap().as_str(), id);
    }
    let over = "a".repeat(MemberId::CHARS_MAX + 1);
    for text in ["", "role:x", "a b", "a/b", "é", "a\n", over.as_str()] {
        assert_eq!(MemberId::parse(text), Err(MemberIdError), "{text}");
    }
}

/// Goal: a word has one name, here and in JSON. Method: every word of every list.
#[test]
fn one_name() {
    fn check<T: Serialize + Copy + PartialEq + fmt::Debug>(
        all: &[T],
        name: fn(T) -> &'static str,
        parse: fn(&str) -> Option<T>,
    ) {
        for word in all {
            assert_eq!(serde_json::to_value(word).unwrap(), name(*word));
            assert_eq!(parse(name(*word)), Some(*word));
        }
        assert_eq!(parse("no such"), None);
    }
    check(&Priority::ALL, Priority::as_str, Priority::parse);
    check(
        &MailMessageKind::ALL,
        MailMessageKind::as_str,
        MailMessageKind::parse,
    );
    check(
        &DeliveryState::ALL,
        DeliveryState::as_str,
        DeliveryState::parse,
    );
    check(
        &MailDirection::ALL,
        MailDirection::as_str,
        MailDirection::parse,
    );
    check(&MemberState::ALL, MemberState::as_str, MemberState::parse);
    check(
        &DeliveryMethod::ALL,
        DeliveryMethod::as_str,
        DeliveryMethod::parse,
    );
}

fn read<M: Message>(json: serde_json::Value) -> Result<M, String> {
    let raw = serde_json::value::to_raw_value(&json).unwrap();
    (M::codec().unwrap().decode)(&raw).map_err(|e| e.to_string())
}

/// Goal: the agreed bodies are read, what is unknown is refused, what is left out may be. Method: a row each.
#[test]
fn bodies() {
    let sent: SendMessage =
        read(json!({ "recipient_agent_id": "agent-456", "message": "hi" })).unwrap();
    assert_eq!(
        (sent.recipient_agent_id.as_deref(), sent.message.as_str()),
        (Some("agent-456"), "hi")
    );
    read::<BroadcastMessage>(json!({ "message": "hi", "group": null })).unwrap();
    read::<ListGroups>(json!({})).unwrap();
    assert!(
        read::<BroadcastMessage>(json!({}))
            .unwrap_err()
            .contains("missing field `message`")
    );
    assert!(
        read::<BroadcastMessage>(json!({ "message": "hi", "to": "x" }))
            .unwrap_err()
            .contains("unknown field `to`")
    );
    assert!(read::<SendMessage>(json!({ "message": 7 })).is_err());
}

/// Goal: replies and events are as agreed, member by member and in order. Method: the agreed examples.
#[test]
fn replies() {
    let said = |sent: &SendReceipt| serde_json::to_string(sent).unwrap();
    let told = SendReceipt {
        success: true,
        message: "Message sent to agent agent-45".into(),
        ..SendReceipt::default()
    };
    assert_eq!(
        said(&told),
        r#"{"success":true,"message":"Message sent to agent agent-45"}"#
    );
    let all = SendReceipt {
        recipient_count: Some(3),
        message: "Message broadcast to 3 agent(s)".into(),
        ..told
    };
    assert_eq!(
        said(&all),
        r#"{"success":true,"recipient_count":3,"message":"Message broadcast to 3 agent(s)"}"#
    );
    let direct = MailEvent::AgentDirectMessage {
        sender_agent_id: "agent-123".into(),
        recipient_agent_id: "agent-456".into(),
        message_preview: "secret".into(),
    };
    assert_eq!(
        serde_json::to_string(&direct).unwrap(),
        r#"{"type":"agent_direct_message","sender_agent_id":"agent-123","recipient_agent_id":"agent-456","message_preview":"secret"}"#
    );
    let read: MailEvent = serde_json::from_str(&serde_json::to_string(&direct).unwrap()).unwrap();
    assert_eq!(
        (read, format!("{direct:?}").contains("secret")),
        (direct, false)
    );
}

/// Goal: every type of event is listed, in order. Method: the types that the schema has.
#[test]
fn kinds_of_events() {
    let schema = serde_json::to_value(schemars::schema_for!(MailEvent)).unwrap();
    let kinds = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["properties"]["type"]["const"]);
    assert!(kinds.eq(MailEvent::KINDS.iter()), "{schema}");
}

/// Goal: topics and searched texts never appear in `Debug` output. Method: each type that has one.
#[test]
fn topics_are_not_shown() {
    let (topic, topics) = (Some("secret".to_owned()), vec!["secret".to_owned()]);
    let muted = || Some(topics.clone());
    let shown = [
        format!(
            "{:?}",
            CheckInbox {
                topic: topic.clone(),
                ..CheckInbox::default()
            }
        ),
        format!(
            "{:?}",
            MessageHistory {
                topic: topic.clone(),
                text: topic,
                ..MessageHistory::default()
            }
        ),
        format!(
            "{:?}",
            MailPreferences {
                mute_topics: muted(),
                topics: muted(),
                ..MailPreferences::default()
            }
        ),
        format!(
            "{:?}",
            Preferences {
                mute_topics: topics.clone(),
                topics: topics.clone(),
                ..Preferences::default()
            }
        ),
    ];
    assert_eq!(
        shown,
        [
            "CheckInbox",
            "MessageHistory",
            "MailPreferences",
            "Preferences"
        ]
    );
}

/// Goal: tool descriptions are short, because models read them. Method: every tool's description,
/// 300 characters at most.
#[test]
fn descriptions_are_short() {
    fn check<M: Message>() {
        let said = M::codec().unwrap().description;
        assert!(
            (1..=300).contains(&said.chars().count()),
            "{} has {}",
            M::NAME,
            said.chars().count()
        );
        assert!(!M::NAME.starts_with(crate::capabilities::RESERVED_PREFIX));
    }
    check::<BroadcastMessage>();
    check::<SendMessage>();
    check::<ReplyMessage>();
    check::<CheckInbox>();
    check::<ReadMessage>();
    check::<MessageHistory>();
    check::<GetAgentStatus>();
    check::<ListGroups>();
    check::<SaveMemory>();
    check::<ReadMemory>();
    check::<MailPreferences>();
}
