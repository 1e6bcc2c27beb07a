use callboard_mailroom::{Declare, Declared, MailroomError, MailroomOptions};
use callboard_message::mail::{
    BroadcastMessage, CheckInbox, GetAgentStatus, MailEvent, MemberState,
};
use callboard_message::{FailureKind, Principal};

use crate::kit::{Room, all, key, until_ended};

/// Goal: whoever has a key in a file is a member before it speaks, in what its key says, and away, and no agent is taken for it;
/// whose key is gone, leaves. Method: keys of each kind, a broadcast to all and one to a role, an agent of a key's name, another
/// declaration.
#[test]
fn keys_of_a_file_are_members() {
    until_ended(async |system| {
        let keys: [(&str, &[&str]); 8] = [
            ("a", &[]),
            ("b", &["mail.role:lead"]),
            ("c", &["mail.admin", "mail.group:red"]),
            ("d", &["read"]),
            ("watcher", &["mail.watch", "mail.admin"]),
            ("boss", &["mail.admin"]),
            ("voice", &["mail.guardian", "mail.role:lead"]),
            ("operator", &[]),
        ];
        let with = |count: usize| {
            let of = |(name, scopes): &(&str, &[&str])| {
                Declared::of_key(name, &key(name, scopes).scopes)
            };
            let members = keys.iter().take(count).filter_map(of).collect();
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            }
        };
        let room = Room::open(system, with(keys.len())).await;
        let a = key("a", &[]);
        assert_eq!(
            room.ask(&a, all("x")).await.unwrap().recipient_count,
            Some(3)
        );
        let leads = BroadcastMessage {
            group: Some("role:lead".into()),
            ..all("x")
        };
        assert_eq!(room.ask(&a, leads).await.unwrap().recipient_count, Some(1));
        let states = async || -> Vec<_> {
            let status = room.ask(&a, GetAgentStatus::default()).await.unwrap();
            status
                .agents
                .into_iter()
                .map(|agent| (agent.agent_id, agent.state == MemberState::Active))
                .collect()
        };
        let away = |id: &str| (id.to_owned(), false);
        assert_eq!(
            states().await,
            [("a".to_owned(), true), away("b"), away("c"), away("d")]
        );
        for id in ["b", "d"] {
            assert_eq!(
                room.refused(&Principal::agent(id), CheckInbox::default())
                    .await,
                FailureKind::Denied
            );
            assert_eq!(
                room.mailroom.mailbox(&room.agent, id).unwrap_err(),
                MailroomError::Taken(id.into())
            );
        }
        let inbox = room
            .ask(&key("b", &["mail.role:lead"]), CheckInbox::default())
            .await
            .unwrap();
        assert_eq!(inbox.messages.len(), 2);
        room.agent
            .ask(Declare { options: with(2) })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            states().await,
            [("a".to_owned(), true), ("b".to_owned(), true)]
        );
        // Whose key is gone before it was used may be an agent's.
        assert_eq!(room.mailbox("d").check().await.unwrap().messages.len(), 1);
    });
}

/// Goal: whoever is taken out of the file leaves, for good where the mailroom begins again, and is back with its mail when it is
/// declared again or says something. Method: one that said nothing and one that did, another declaration, another mailroom.
#[test]
fn taken_out_of_the_file() {
    until_ended(async |system| {
        let with = |ids: &[&str]| MailroomOptions {
            members: ids.iter().map(|id| Declared::new(*id)).collect(),
            ..MailroomOptions::default()
        };
        let room = Room::open(system, with(&["a", "quiet", "talks"])).await;
        assert!(
            room.mailbox("a")
                .send("quiet", "kept")
                .await
                .unwrap()
                .success
        );
        assert!(
            room.mailbox("talks")
                .send("quiet", "kept")
                .await
                .unwrap()
                .success
        );
        room.agent
            .ask(Declare {
                options: with(&["a"]),
            })
            .await
            .unwrap()
            .unwrap();
        let told = async |room: &Room| -> Vec<String> {
            let happened = room
                .events()
                .await
                .into_iter()
                .filter_map(|event| match event {
                    MailEvent::AgentJoined { agent_id, .. } => Some(format!("{agent_id} joined")),
                    MailEvent::AgentLeft { agent_id, reason } => {
                        Some(format!("{agent_id} {reason}"))
                    }
                    _ => None,
                });
            happened.skip(3).collect()
        };
        let here = async |room: &Room| -> Vec<String> {
            let status = room
                .mailbox("a")
                .ask(GetAgentStatus::default())
                .await
                .unwrap();
            status
                .agents
                .into_iter()
                .map(|agent| agent.agent_id)
                .collect()
        };
        let left = ["quiet undeclared", "talks undeclared"];
        assert_eq!(
            (here(&room).await, told(&room).await),
            (vec!["a".to_owned()], left.map(str::to_owned).to_vec())
        );
        room.agent.kill();
        room.agent.ended().await;
        let room = Room::open(system, with(&["a"])).await;
        assert_eq!((here(&room).await.len(), told(&room).await.len()), (1, 2));
        let sent = room.mailbox("a").send("quiet", "x").await.unwrap();
        assert_eq!(
            sent.message,
            "Failed to send message - recipient agent quiet may not exist or is terminated"
        );
        assert_eq!(
            room.mailbox("a")
                .broadcast("x")
                .await
                .unwrap()
                .recipient_count,
            Some(0)
        );
        room.agent
            .ask(Declare {
                options: with(&["a", "quiet"]),
            })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            room.mailbox("quiet").check().await.unwrap().messages.len(),
            2
        );
        assert!(
            room.mailbox("talks")
                .send("a", "back")
                .await
                .unwrap()
                .success
        );
        assert_eq!(here(&room).await, ["a", "quiet", "talks"]);
        assert_eq!(told(&room).await[2..], ["quiet joined", "talks joined"]);
        room.agent.kill();
        room.agent.ended().await;
        let room = Room::open(system, with(&["a"])).await;
        assert_eq!(
            here(&room).await,
            ["a", "talks"],
            "who came by itself is in no file"
        );
    });
}
