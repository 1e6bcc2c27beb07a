use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_agents::mailroom::{Declared, MailroomOptions};
use callboard_message::Principal;
use callboard_message::mail::{AgentLogRow, CheckInbox, GetAgentStatus, Join, MemberState};
use callboard_runtime::testkit::paused;
use callboard_runtime::{
    JournalError, Letter, LetterAndCopy, LetterFilter, Mail, MailCopy, Mark, MemoryMail, NewLetter, Store, StoredEvent,
};
use futures::future::BoxFuture;

use crate::kit::{Room, end, key, next, way};

type Answer<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

/// Mail in memory that says that others write there too.
pub struct Shared(pub MemoryMail);

impl Mail for Shared {
    fn post(&self, new: NewLetter) -> Answer<'_, Arc<Letter>> {
        self.0.post(new)
    }

    fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Answer<'_, ()> {
        self.0.spread(letter, to, delivered)
    }

    fn unspread(&self, letters_max: usize) -> Answer<'_, Vec<Arc<Letter>>> {
        self.0.unspread(letters_max)
    }

    fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Answer<'_, Vec<(String, u64)>> {
        self.0.mark(marks, mark)
    }

    fn tried<'a>(&'a self, recipient: &'a str, letter: u64) -> Answer<'a, u32> {
        self.0.tried(recipient, letter)
    }

    fn open<'a>(
        &'a self,
        recipient: &'a str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Answer<'a, Vec<(Arc<Letter>, MailCopy)>> {
        self.0.open(recipient, after, undelivered, letters_max)
    }

    fn waiting(&self) -> Answer<'_, HashMap<String, u64>> {
        self.0.waiting()
    }

    fn letter<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Arc<Letter>>> {
        self.0.letter(id)
    }

    fn receipts<'a>(&'a self, letter: u64, after: Option<&'a str>, copies_max: usize) -> Answer<'a, Vec<MailCopy>> {
        self.0.receipts(letter, after, copies_max)
    }

    fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> Answer<'_, (Vec<LetterAndCopy>, Option<u64>)> {
        self.0.history(filter, before, letters_max)
    }

    fn events(&self, after: u64, events_max: usize) -> Answer<'_, Vec<(u64, StoredEvent)>> {
        self.0.events(after, events_max)
    }

    fn last_event(&self) -> Answer<'_, u64> {
        self.0.last_event()
    }

    fn tell(&self, event: StoredEvent) -> Answer<'_, u64> {
        self.0.tell(event)
    }

    fn logs<'a>(&'a self, agent: Option<&'a str>, after: u64, rows_max: usize) -> Answer<'a, Vec<AgentLogRow>> {
        self.0.logs(agent, after, rows_max)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Goal: a letter that one node takes is delivered by the node whose way leads to its recipient, once, and a member of one is
/// a member of the other. Method: two mailrooms on one store, a member with a way at the second.
#[test]
fn another_node() {
    paused(async |system| {
        let memory = Store::in_memory();
        let mail = Arc::new(Shared(MemoryMail::new(memory.audit.clone())));
        system.keep_in(Store { mail, ..memory }).unwrap();
        let here = Room::of(system, &["sender", "worker"]).await;
        let members = vec![Declared::new("sender"), Declared::new("worker").with_way("worker")];
        let there = Room::open(system, MailroomOptions { members, ..MailroomOptions::default() }).await;
        let mut seen = way(system, "worker", |_| Ok(()));
        for room in [&here, &there] {
            room.mailbox("sender").send("worker", "hello").await.unwrap();
            assert_eq!(next(&mut seen).await.message, "hello");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(seen.try_recv().is_err());
        let ann = key("ann", &[]);
        here.ask(&ann, Join {}).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(there.mailbox("sender").send("ann", "x").await.unwrap().success);
        assert_eq!(here.ask(&ann, CheckInbox::default()).await.unwrap().messages.len(), 1);
        let seen_there = async || {
            let asked = GetAgentStatus { agent_id: Some("ann".into()) };
            let agent = there.ask(&Principal::local_operator(), asked).await.unwrap().agents.remove(0);
            (agent.state, agent.unread)
        };
        // It was heard of at the other node alone, and read there.
        assert_eq!(seen_there().await, (MemberState::Away, Some(1)));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seen_there().await.1, Some(0));
        end(system).await;
    });
}
