use std::sync::Arc;
use std::time::Duration;

use callboard_mailroom::{Declare, Declared, MailroomOptions};
use callboard_message::Principal;
use callboard_message::mail::{CheckInbox, GetAgentStatus, Join, MemberState};
use callboard_runtime::testkit::MailLayer;
use callboard_runtime::{Mail, MemoryMail, Store};

use crate::kit::{Room, key, next, until_ended, way};

/// Mail in memory that says that others write there too.
pub struct Shared(pub MemoryMail);

impl MailLayer for Shared {
    fn behind(&self) -> &dyn Mail {
        &self.0
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Goal: a letter that one node takes is delivered by the node whose way leads to its recipient, once, and a member of one is
/// a member of the other. Method: two mailrooms on one store, a member with a way at the second.
#[test]
fn another_node() {
    until_ended(async |system| {
        let memory = Store::in_memory();
        let mail = Arc::new(Shared(MemoryMail::new(memory.audit.clone())));
        system.keep_in(Store { mail, ..memory }).unwrap();
        let here = Room::of(system, &["sender", "worker"]).await;
        let members = vec![
            Declared::new("sender"),
            Declared::new("worker").with_way("worker"),
        ];
        let there = Room::open(
            system,
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            },
        )
        .await;
        let mut seen = way(system, "worker", |_| Ok(()));
        for room in [&here, &there] {
            room.mailbox("sender")
                .send("worker", "hello")
                .await
                .unwrap();
            assert_eq!(next(&mut seen).await.message, "hello");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(seen.try_recv().is_err());
        let ann = key("ann", &[]);
        here.ask(&ann, Join {}).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            there
                .mailbox("sender")
                .send("ann", "x")
                .await
                .unwrap()
                .success
        );
        assert_eq!(
            here.ask(&ann, CheckInbox::default())
                .await
                .unwrap()
                .messages
                .len(),
            1
        );
        let seen_there = async || {
            let asked = GetAgentStatus {
                agent_id: Some("ann".into()),
            };
            let agent = there
                .ask(&Principal::local_operator(), asked)
                .await
                .unwrap()
                .agents
                .remove(0);
            (agent.state, agent.unread)
        };
        // It was heard of at the other node alone, and read there.
        assert_eq!(seen_there().await, (MemberState::Away, Some(1)));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seen_there().await.1, Some(0));
    });
}

/// Goal: a member is there as long as one node's file has it, and leaves with the last. Method: two mailrooms on one store that both
/// declare it, of which first one doesn't any more, then neither.
#[test]
fn in_two_files() {
    until_ended(async |system| {
        let memory = Store::in_memory();
        let mail = Arc::new(Shared(MemoryMail::new(memory.audit.clone())));
        system.keep_in(Store { mail, ..memory }).unwrap();
        let rooms = [
            Room::of(system, &["sender", "worker"]).await,
            Room::of(system, &["sender", "worker"]).await,
        ];
        let options = || MailroomOptions {
            members: vec![Declared::new("sender")],
            ..MailroomOptions::default()
        };
        for (taken_out, is_there) in rooms.iter().zip([true, false]) {
            taken_out
                .agent
                .ask(Declare { options: options() })
                .await
                .unwrap()
                .unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
            for room in &rooms {
                assert_eq!(
                    room.mailbox("sender")
                        .send("worker", "x")
                        .await
                        .unwrap()
                        .success,
                    is_there
                );
            }
        }
    });
}
