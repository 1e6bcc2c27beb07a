use callboard_mailroom::{MailroomError, MailroomOptions, MemberDeclaration, ReconfigureMailroom};
use callboard_message::mail::{
    BroadcastMessage, CheckInbox, GetAgentStatus, MailEvent, MemberState,
};
use callboard_message::{FailureKind, Principal};

use crate::kit::{Room, all, key, until_ended};

/// Goal: a holder of a declared key is a member before its first request, with the key's groups,
/// absent, and protected from agents of the same name; it leaves when the key is removed. Method:
/// keys of each kind, a broadcast to all and one to a role, an agent with a key's name, another
/// configuration.
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
                MemberDeclaration::from_key(name, &key(name, scopes).scopes)
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
                MailroomError::IdTaken(id.into())
            );
        }
        let inbox = room
            .ask(&key("b", &["mail.role:lead"]), CheckInbox::default())
            .await
            .unwrap();
        assert_eq!(inbox.messages.len(), 2);
        room.agent
            .ask(ReconfigureMailroom { options: with(2) })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            states().await,
            [("a".to_owned(), true), ("b".to_owned(), true)]
        );
        // After the removal of an unused key, an agent may take its name.
        assert_eq!(room.mailbox("d").check().await.unwrap().messages.len(), 1);
    });
}

/// Goal: a member removed from the configuration leaves, also across restarts, and returns with its
/// mail when it is declared again or sends a request. Method: one without requests and one with,
/// another configuration, another mailroom.
#[test]
fn taken_out_of_the_file() {
    until_ended(async |system| {
        let with = |ids: &[&str]| MailroomOptions {
            members: ids.iter().map(|id| MemberDeclaration::new(*id)).collect(),
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
            .ask(ReconfigureMailroom {
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
        room.agent.wait_for_exit().await;
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
            .ask(ReconfigureMailroom {
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
        room.agent.wait_for_exit().await;
        let room = Room::open(system, with(&["a"])).await;
        assert_eq!(
            here(&room).await,
            ["a", "talks"],
            "who came by itself is in no file"
        );
    });
}
