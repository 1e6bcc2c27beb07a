use std::sync::Arc;
use std::time::Duration;

use callboard_mailroom::{Mailbox, Mailroom, MailroomOptions, MemberDeclaration};
use callboard_message::mail::{BroadcastMessage, DeliverMessage, MailEvent, ReadEvents};
use callboard_message::{Failure, FailureKind, Message, Principal, PrincipalKind};
use callboard_runtime::testkit::{Probe, run_with_paused_time, run_with_real_time};
use callboard_runtime::{AgentRef, CallContext, System};
use tokio::sync::mpsc;

/// Maximum time that a test waits for a condition, on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// A running mailroom.
pub struct Room {
    pub mailroom: Mailroom,
    pub agent: AgentRef,
}

impl Room {
    pub async fn open(system: &System, options: MailroomOptions) -> Self {
        let mailroom = Mailroom::open(system, options).await.unwrap();
        let agent = system.spawn(mailroom.clone());
        Self { mailroom, agent }
    }

    /// Opens a mailroom with these members, without groups.
    pub async fn of(system: &System, ids: &[&str]) -> Self {
        let members = ids.iter().map(|id| MemberDeclaration::new(*id)).collect();
        Self::open(
            system,
            MailroomOptions {
                members,
                ..MailroomOptions::default()
            },
        )
        .await
    }

    pub fn mailbox(&self, id: &str) -> Mailbox {
        self.mailroom.mailbox(&self.agent, id).unwrap()
    }

    pub fn guardian(&self) -> Mailbox {
        self.mailroom.guardian(&self.agent)
    }

    /// Sends a request as the given principal.
    pub async fn ask<T, M>(&self, principal: &Principal, message: M) -> Result<T, Failure>
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let call = CallContext::new(Arc::new(principal.clone()));
        self.agent
            .ask(message)
            .within_call(Some(Arc::new(call)))
            .await
            .map_err(Failure::from)?
    }

    /// Returns the failure kind of a request that must fail.
    pub async fn refused<T, M>(&self, principal: &Principal, message: M) -> FailureKind
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        self.ask(principal, message)
            .await
            .err()
            .expect("it was allowed")
            .kind
    }

    /// Returns all events, as seen by a watcher.
    pub async fn events(&self) -> Vec<MailEvent> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let asked = ReadEvents {
                after,
                ..ReadEvents::default()
            };
            let found = self.ask(&Principal::local_operator(), asked).await.unwrap();
            after = found.last;
            all.extend(found.events.into_iter().map(|numbered| numbered.event));
            if found.last == found.newest {
                return all;
            }
        }
    }

    /// Waits until `count` deliveries have been recorded.
    pub async fn delivered(&self, count: usize) {
        let all = async {
            loop {
                let delivered = self.events().await.into_iter().map(|event| match event {
                    MailEvent::MessageDelivered {
                        recipient_agent_ids,
                        ..
                    } => recipient_agent_ids.len(),
                    _ => 0,
                });
                if delivered.sum::<usize>() >= count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, all)
            .await
            .expect("not all was delivered");
    }
}

/// Returns the principal of a key with this name and these scopes.
pub fn key(name: &str, scopes: &[&str]) -> Principal {
    let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
    Principal {
        kind: PrincipalKind::ApiKey,
        scopes,
        ..Principal::agent(name)
    }
}

/// Returns a broadcast to all.
pub fn all(message: &str) -> BroadcastMessage {
    BroadcastMessage {
        message: message.into(),
        ..BroadcastMessage::default()
    }
}

/// Registers a delivery agent in the directory; `reply` returns the result of each delivery.
pub fn way(
    system: &System,
    name: &str,
    reply: impl FnMut(&DeliverMessage) -> Result<(), Failure> + Send + 'static,
) -> mpsc::Receiver<DeliverMessage> {
    let (agent, seen) = Probe::spawn(system, reply);
    system.directory().register(name, &agent).unwrap();
    seen
}

/// Returns the next delivery.
pub async fn next(seen: &mut mpsc::Receiver<DeliverMessage>) -> DeliverMessage {
    tokio::time::timeout(SOON, seen.recv())
        .await
        .expect("nothing was delivered")
        .unwrap()
}

pub fn away() -> Failure {
    Failure::unavailable("away")
}

/// Runs a test in a mailroom with these members, with time paused, and stops the system's agents.
pub fn in_room(ids: &[&str], test: impl AsyncFnOnce(Room, &System)) {
    until_ended(async |system| test(Room::of(system, ids).await, system).await);
}

/// Runs a test with time paused, and stops the system's agents.
pub fn until_ended(test: impl AsyncFnOnce(&System)) {
    run_with_paused_time(async |system| {
        test(system).await;
        end(system).await;
    });
}

/// Runs a test in real time, and stops the system's agents.
pub fn until_ended_really(test: impl AsyncFnOnce(&System)) {
    run_with_real_time(async |system| {
        test(system).await;
        end(system).await;
    });
}

/// Stops the system's agents.
pub async fn end(system: &System) {
    system.shutdown(Duration::from_secs(5)).await;
}
