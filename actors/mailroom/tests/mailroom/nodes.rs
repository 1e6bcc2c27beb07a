use std::sync::Arc;
use std::time::Duration;

use callboard_mailroom::{MailroomOptions, MemberDeclaration, ReconfigureMailroom};
use callboard_message::Principal;
use callboard_message::mail::{CheckInbox, GetAgentStatus, JoinMailroom, MemberState};
use callboard_runtime::testkit::MailStoreLayer;
use callboard_runtime::{MailStore, MemoryMailStore, Store};

use crate::kit::{Room, key, next, until_ended, way};

/// In-memory mail store that claims to be shared with other nodes.
pub struct Shared(pub MemoryMailStore);

impl MailStoreLayer for Shared {
    fn inner(&self) -> &dyn MailStore {
        &self.0
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Goal: a message posted at one node is delivered once by the node with the recipient's delivery
/// agent, and members are shared. Method: two mailrooms on one store, a member with a delivery
/// agent at the second.
#[test]
fn another_node() {
    until_ended(async |system| {
        let memory = Store::in_memory();
        let mail = Arc::new(Shared(MemoryMailStore::new(memory.audit.clone())));
        system.set_store(Store { mail, ..memory }).unwrap();
        let here = Room::of(system, &["sender", "worker"]).await;
        let members = vec![
            MemberDeclaration::new("sender"),
            MemberDeclaration::new("worker").with_delivery_agent("worker"),
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
        here.ask(&ann, JoinMailroom {}).await.unwrap();
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
        // It was active at the other node only, and read its mail there.
        assert_eq!(seen_there().await, (MemberState::Away, Some(1)));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seen_there().await.1, Some(0));
    });
}

/// Goal: a member stays as long as one node declares it, and leaves with the last. Method: two
/// mailrooms on one store that both declare it, of which first one doesn't any more, then neither.
#[test]
fn in_two_files() {
    until_ended(async |system| {
        let memory = Store::in_memory();
        let mail = Arc::new(Shared(MemoryMailStore::new(memory.audit.clone())));
        system.set_store(Store { mail, ..memory }).unwrap();
        let rooms = [
            Room::of(system, &["sender", "worker"]).await,
            Room::of(system, &["sender", "worker"]).await,
        ];
        let options = || MailroomOptions {
            members: vec![MemberDeclaration::new("sender")],
            ..MailroomOptions::default()
        };
        for (taken_out, is_there) in rooms.iter().zip([true, false]) {
            taken_out
                .agent
                .ask(ReconfigureMailroom { options: options() })
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
