use callboard_mailroom::{
    Mailroom, MailroomError, MailroomOptions, MemberDeclaration, ReconfigureMailroom,
};
use callboard_message::mail::{
    AgentLogs, BroadcastMessage, CheckInbox, EndAgent, GetAgentStatus, JoinMailroom, LeaveMailroom,
    ListGroups, MailEvent, MailPreferences, MemberState, MessageHistory, Priority, ReadEvents,
    SendMessage,
};
use callboard_message::{DataClass, FailureKind, Principal, PrincipalKind};

use crate::kit::{Room, all, in_room, key, until_ended};

fn to(id: &str, message: &str) -> SendMessage {
    SendMessage {
        message: message.into(),
        recipient_agent_id: Some(id.into()),
        ..SendMessage::default()
    }
}

/// Goal: a caller with a key becomes a member at its first request, is announced once, and stays
/// one after a restart with its groups. Method: two keys, a second mailroom on the same store.
#[test]
fn whoever_asks_joins() {
    in_room(&[], async |room, system| {
        let (ann, bob) = (key("ann", &["mail.role:reviewer"]), key("bob", &[]));
        room.ask(&ann, JoinMailroom {}).await.unwrap();
        room.ask(&ann, ListGroups {}).await.unwrap();
        assert!(room.ask(&bob, to("ann", "hi")).await.unwrap().success);
        let joined: Vec<String> = room
            .events()
            .await
            .into_iter()
            .filter_map(|event| match event {
                MailEvent::AgentJoined { agent_id, .. } => Some(agent_id),
                _ => None,
            })
            .collect();
        assert_eq!(joined, ["ann", "bob"]);
        room.agent.kill();
        room.agent.wait_for_exit().await;
        let room = Room::of(system, &[]).await;
        let reviewers = BroadcastMessage {
            group: Some("role:reviewer".into()),
            ..all("review this")
        };
        assert_eq!(
            room.ask(&bob, reviewers).await.unwrap().recipient_count,
            Some(1)
        );
        let inbox = room.ask(&ann, CheckInbox::default()).await.unwrap();
        let texts: Vec<&str> = inbox
            .messages
            .iter()
            .map(|message| message.text.as_str())
            .collect();
        assert_eq!(
            texts,
            [
                "[AGENT bob TO AGENT ann]: hi",
                "[AGENT bob TO GROUP role:reviewer]: review this"
            ]
        );
    });
}

/// Goal: an id can be claimed by one credential kind only, and never by forging the Guardian.
/// Method: keys named like an agent of the process, the Guardian, the operator; a mailbox named
/// like a key; a key and a client certificate named like each other.
#[test]
fn one_credential_an_id() {
    in_room(&["declared"], async |room, _| {
        let worker = room.mailbox("worker");
        assert_eq!(
            room.refused(&key("worker", &[]), JoinMailroom {}).await,
            FailureKind::Denied
        );
        worker.ask(JoinMailroom {}).await.unwrap();
        assert_eq!(
            room.refused(&key("worker", &[]), JoinMailroom {}).await,
            FailureKind::Denied
        );
        for name in ["guardian", "operator", "system"] {
            assert_eq!(
                room.refused(&key(name, &[]), JoinMailroom {}).await,
                FailureKind::Denied
            );
            let refused = room.mailroom.mailbox(&room.agent, name).unwrap_err();
            assert_eq!(refused, MailroomError::ReservedId(name.into()));
        }
        room.ask(&key("declared", &[]), JoinMailroom {})
            .await
            .unwrap();
        let refused = room.mailroom.mailbox(&room.agent, "declared").unwrap_err();
        assert_eq!(refused, MailroomError::IdTaken("declared".into()));
        assert_eq!(
            room.refused(&Principal::agent("declared"), JoinMailroom {})
                .await,
            FailureKind::Denied
        );
        let certificate = |name: &str| Principal {
            kind: PrincipalKind::Certificate,
            ..key(name, &[])
        };
        room.ask(&certificate("robot"), JoinMailroom {})
            .await
            .unwrap();
        for other in [key("robot", &[]), certificate("declared")] {
            let refused = room.refused(&other, JoinMailroom {}).await;
            assert_eq!(refused, FailureKind::Denied, "{other:?}");
        }
    });
}

/// Goal: isolated agents see and reach members of their groups only, and can't tell invisible
/// agents from nonexistent ones. Method: two isolated in a group, one in none, one isolated alone.
/// Rows: P-36, X-45.
#[test]
fn groups_bound_sight() {
    in_room(&[], async |room, _| {
        let red = ["mail.group:red", "mail.apart"];
        let (a, b, c, d) = (
            key("a", &red),
            key("b", &red),
            key("c", &[]),
            key("d", &["mail.apart"]),
        );
        for who in [&a, &b, &c, &d] {
            room.ask(who, JoinMailroom {}).await.unwrap();
        }
        let seen = async |who: &Principal| {
            let status = room.ask(who, GetAgentStatus::default()).await.unwrap();
            status
                .agents
                .into_iter()
                .map(|agent| agent.agent_id)
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(&a).await, ["a", "b"]);
        assert_eq!(seen(&c).await, ["c"]);
        assert_eq!(seen(&d).await, ["d"]);
        assert_eq!(
            seen(&Principal::local_operator()).await,
            ["a", "b", "c", "d"]
        );
        let (unseen, unknown) = (
            room.ask(&c, to("a", "x")).await.unwrap(),
            room.ask(&c, to("z", "x")).await.unwrap(),
        );
        assert_eq!(
            unseen.message.replace("agent a", "agent z"),
            unknown.message
        );
        assert_eq!(
            room.ask(&a, all("x")).await.unwrap().recipient_count,
            Some(1)
        );
        assert_eq!(
            room.ask(&c, all("x")).await.unwrap().recipient_count,
            Some(0)
        );
        let groups = room.ask(&a, ListGroups {}).await.unwrap().groups;
        assert_eq!(
            groups
                .iter()
                .map(|group| (group.name.as_str(), group.count))
                .collect::<Vec<_>>(),
            [("group:red", 2)]
        );
        assert!(room.ask(&c, ListGroups {}).await.unwrap().groups.is_empty());
        assert_eq!(
            room.refused(
                &a,
                BroadcastMessage {
                    group: Some("team:red".into()),
                    ..all("x")
                }
            )
            .await,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: a message to a group that doesn't exist for the sender fails; to an existing one without
/// other active members it succeeds with no recipients. Method: groups of nobody, of invisible
/// members, of oneself and of a terminated member.
/// Rows: P-36.
#[test]
fn groups_of_nobody() {
    in_room(&[], async |room, _| {
        let (a, hidden) = (
            key("a", &["mail.role:lead"]),
            key("b", &["mail.group:red", "mail.apart"]),
        );
        let (gone, admin) = (key("c", &["mail.phase:1"]), Principal::local_operator());
        for who in [&a, &hidden, &gone] {
            room.ask(who, JoinMailroom {}).await.unwrap();
        }
        room.ask(
            &admin,
            EndAgent {
                agent_id: "c".into(),
                back: false,
            },
        )
        .await
        .unwrap();
        for (group, is_there) in [
            ("role:nobody", false),
            ("red", false),
            ("role:lead", true),
            ("phase:1", true),
        ] {
            let to_group = BroadcastMessage {
                group: Some(group.into()),
                ..all("x")
            };
            let sent = room.ask(&a, to_group).await.unwrap();
            assert_eq!((sent.success, sent.message_id), (is_there, None), "{group}");
            let told = match is_there {
                true => "Message broadcast to 0 agent(s)".to_owned(),
                false => {
                    let name = if group == "red" { "group:red" } else { group };
                    format!(
                        "Failed to broadcast message - group {name} is not there: list_groups shows those that are"
                    )
                }
            };
            assert_eq!(
                (sent.message, sent.recipient_count),
                (told, is_there.then_some(0))
            );
        }
    });
}

/// Goal: counts don't disclose invisible members. Method: one message to an isolated member and
/// another one, with its events, as its sender, each recipient and a watcher see it.
#[test]
fn counts_of_the_unseen() {
    in_room(&[], async |room, _| {
        let (sender, seen) = (key("a", &["mail.group:red"]), key("b", &[]));
        let (apart, watcher) = (
            key("c", &["mail.group:red", "mail.apart"]),
            key("d", &["mail.watch"]),
        );
        for who in [&sender, &seen, &apart, &watcher] {
            room.ask(who, JoinMailroom {}).await.unwrap();
        }
        assert_eq!(
            room.ask(&sender, all("x")).await.unwrap().recipient_count,
            Some(3)
        );
        for (who, count) in [(&sender, 3), (&seen, 2), (&apart, 1), (&watcher, 3)] {
            let history = room.ask(who, MessageHistory::default()).await.unwrap();
            assert_eq!(history.messages[0].to_count, count, "{}", who.id);
            let told = room
                .ask(who, ReadEvents::default())
                .await
                .unwrap()
                .events
                .into_iter();
            let counts: Vec<u64> = told
                .filter_map(|told| match told.event {
                    MailEvent::AgentBroadcast {
                        recipient_count, ..
                    }
                    | MailEvent::MessageAccepted {
                        recipient_count, ..
                    } => Some(recipient_count),
                    _ => None,
                })
                .collect();
            assert_eq!(counts, [count, count], "{}", who.id);
        }
    });
}

/// Goal: a caller that only watches or administers is no member, sees what its key permits, and
/// becomes a member once it sends. Method: each of such requests, the count of a broadcast, the
/// lists and the events; then it sends.
#[test]
fn observers_are_no_members() {
    in_room(&["a", "b"], async |room, _| {
        let observer = key("boss", &["mail.admin", "mail.watch"]);
        let here = async |who: &Principal| -> Vec<String> {
            let status = room.ask(who, GetAgentStatus::default()).await.unwrap();
            status
                .agents
                .into_iter()
                .map(|agent| agent.agent_id)
                .collect()
        };
        room.ask(&observer, ReadEvents::default()).await.unwrap();
        room.ask(&observer, AgentLogs::default()).await.unwrap();
        room.ask(&observer, ListGroups {}).await.unwrap();
        for back in [false, true] {
            room.ask(
                &observer,
                EndAgent {
                    agent_id: "b".into(),
                    back,
                },
            )
            .await
            .unwrap();
        }
        assert_eq!(here(&observer).await, ["a", "b"]);
        assert_eq!(
            room.mailbox("a")
                .broadcast("x")
                .await
                .unwrap()
                .recipient_count,
            Some(1)
        );
        assert!(!room.mailbox("a").send("boss", "x").await.unwrap().success);
        let joined = async || {
            let is_its = |event: &MailEvent| matches!(event, MailEvent::AgentJoined { agent_id, .. } if agent_id == "boss");
            room.events()
                .await
                .iter()
                .filter(|event| is_its(event))
                .count()
        };
        assert_eq!(joined().await, 0);
        assert_eq!(
            room.ask(&observer, all("x")).await.unwrap().recipient_count,
            Some(2)
        );
        assert_eq!((joined().await, here(&observer).await.len()), (1, 3));
        assert_eq!(
            room.mailbox("a")
                .broadcast("x")
                .await
                .unwrap()
                .recipient_count,
            Some(2)
        );
    });
}

/// Goal: muted broadcasts aren't delivered, mandatory messages are, and preferences are stored.
/// Method: muted senders and topics, only some topics, against broadcasts, direct, urgent and the
/// Guardian's; then another mailroom.
#[test]
fn muted() {
    in_room(&["loud", "quiet"], async |room, system| {
        let quiet = room.mailbox("quiet");
        quiet
            .ask(MailPreferences {
                mute_senders: Some(vec!["loud".into()]),
                ..Default::default()
            })
            .await
            .unwrap();
        let loud = room.mailbox("loud");
        assert_eq!(loud.broadcast("x").await.unwrap().recipient_count, Some(0));
        assert!(loud.send("quiet", "x").await.unwrap().success);
        let urgent = BroadcastMessage {
            priority: Some(Priority::Urgent),
            ..all("fire")
        };
        assert_eq!(loud.ask(urgent).await.unwrap().recipient_count, Some(1));
        assert_eq!(
            room.guardian()
                .broadcast("x")
                .await
                .unwrap()
                .recipient_count,
            Some(2)
        );
        let only = MailPreferences {
            mute_senders: Some(Vec::new()),
            topics: Some(vec!["api".into()]),
            ..MailPreferences::default()
        };
        quiet.ask(only).await.unwrap();
        let about = |topic: &str| BroadcastMessage {
            topic: Some(topic.into()),
            ..all("x")
        };
        room.agent.kill();
        room.agent.wait_for_exit().await;
        let room = Room::of(system, &["loud", "quiet"]).await;
        let loud = room.mailbox("loud");
        for (message, count) in [(about("api"), 1), (about("db"), 0), (all("x"), 0)] {
            assert_eq!(
                loud.ask(message).await.unwrap().recipient_count,
                Some(count)
            );
        }
        let wants = room
            .mailbox("quiet")
            .ask(MailPreferences::default())
            .await
            .unwrap();
        assert_eq!(
            (wants.topics, wants.mute_senders),
            (vec!["api".to_owned()], Vec::new())
        );
        let many = (0..=256).map(|n| n.to_string()).collect();
        let too_many = MailPreferences {
            mute_topics: Some(many),
            ..MailPreferences::default()
        };
        assert_eq!(
            room.mailbox("quiet").ask(too_many).await.unwrap_err().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: only principals with the scope can end agents; a terminated agent can do nothing but is
/// listed; it can be resumed. Method: an agent, one with the scope, the terminated one itself.
/// Rows: P-42, X-25.
#[test]
fn terminated() {
    in_room(&[], async |room, _| {
        let (ann, admin) = (key("ann", &[]), key("boss", &["mail.admin"]));
        room.ask(&ann, JoinMailroom {}).await.unwrap();
        let ending = |back| EndAgent {
            agent_id: "ann".into(),
            back,
        };
        let refused = room.ask(&ann, ending(false)).await.unwrap_err();
        assert_eq!(
            (refused.kind, refused.needed_scope()),
            (FailureKind::Denied, Some("mail.admin"))
        );
        room.ask(&admin, ending(false)).await.unwrap();
        room.ask(&admin, ending(false)).await.unwrap();
        assert_eq!(
            room.refused(&ann, CheckInbox::default()).await,
            FailureKind::Denied
        );
        let state = async || {
            let asked = GetAgentStatus {
                agent_id: Some("ann".into()),
            };
            room.ask(&admin, asked).await.unwrap().agents[0].state
        };
        assert_eq!(state().await, MemberState::Terminated);
        assert!(!room.ask(&admin, to("ann", "x")).await.unwrap().success);
        room.ask(&admin, ending(true)).await.unwrap();
        room.ask(&ann, CheckInbox::default()).await.unwrap();
        assert_eq!(state().await, MemberState::Active);
        tokio::time::sleep(std::time::Duration::from_secs(61)).await;
        assert_eq!(state().await, MemberState::Away);
        let left = room
            .events()
            .await
            .iter()
            .filter(|event| event.kind() == "agent_left")
            .count();
        assert_eq!(left, 1);
        assert_eq!(
            room.refused(
                &admin,
                EndAgent {
                    agent_id: "guardian".into(),
                    back: false
                }
            )
            .await,
            FailureKind::NotFound
        );
    });
}

/// Goal: a member that leaves is away at once, with an event, and returns with its next request.
/// Method: both, and the events.
#[test]
fn coming_and_going() {
    in_room(&[], async |room, _| {
        let ann = key("ann", &[]);
        assert_eq!(
            room.ask(&ann, JoinMailroom {}).await.unwrap().state,
            MemberState::Active
        );
        room.ask(&ann, LeaveMailroom {}).await.unwrap();
        let seen = room
            .ask(&Principal::local_operator(), GetAgentStatus::default())
            .await
            .unwrap();
        assert_eq!(seen.agents[0].state, MemberState::Away);
        room.ask(&ann, JoinMailroom {}).await.unwrap();
        let kinds: Vec<&str> = room
            .events()
            .await
            .iter()
            .map(|event| event.kind())
            .collect();
        assert_eq!(kinds, ["agent_joined", "agent_left", "agent_joined"]);
    });
}

/// Goal: an invalid configuration is rejected; a new configuration keeps the mail. Method: each
/// error; another configuration.
#[test]
fn declarations() {
    until_ended(async |system| {
        let with = |members: Vec<MemberDeclaration>| MailroomOptions {
            members,
            ..MailroomOptions::default()
        };
        let group = MemberDeclaration {
            groups: vec!["a b".into()],
            ..MemberDeclaration::new("a")
        };
        let many = MemberDeclaration {
            groups: (0..33).map(|n| n.to_string()).collect(),
            ..MemberDeclaration::new("a")
        };
        for (options, expected) in [
            (
                with(vec![MemberDeclaration::new("a b")]),
                MailroomError::InvalidId("a b".into()),
            ),
            (
                with(vec![MemberDeclaration::new("guardian")]),
                MailroomError::ReservedId("guardian".into()),
            ),
            (
                with(vec![
                    MemberDeclaration::new("a"),
                    MemberDeclaration::new("a"),
                ]),
                MailroomError::DuplicateMember("a".into()),
            ),
            (with(vec![group]), MailroomError::InvalidGroups("a".into())),
            (with(vec![many]), MailroomError::InvalidGroups("a".into())),
            (
                MailroomOptions {
                    class: DataClass::Clinical,
                    ..MailroomOptions::default()
                },
                MailroomError::ClinicalClass,
            ),
            (
                MailroomOptions {
                    expires: std::time::Duration::ZERO,
                    ..MailroomOptions::default()
                },
                MailroomError::InvalidExpiry,
            ),
        ] {
            assert_eq!(Mailroom::open(system, options).await.unwrap_err(), expected);
        }
        let room = Room::of(system, &["a", "b"]).await;
        room.mailbox("a").send("b", "x").await.unwrap();
        let apart = MemberDeclaration {
            is_isolated: true,
            ..MemberDeclaration::new("b")
        };
        room.agent
            .ask(ReconfigureMailroom {
                options: with(vec![MemberDeclaration::new("a"), apart]),
            })
            .await
            .unwrap()
            .unwrap();
        assert!(!room.mailbox("a").send("b", "y").await.unwrap().success);
        assert_eq!(room.mailbox("b").check().await.unwrap().messages.len(), 1);
    });
}
