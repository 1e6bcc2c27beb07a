//! An agent in place of the mailroom: it notes what it is asked, and answers as it was told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callboard_message::mail::{
    AgentLogRow, AgentLogs, AgentStatus, AgentView, BroadcastMessage, Done, EndAgent, EntryState,
    Events, FetchMail, Fetched, GetAgentStatus, History, LetterKind, LogDetails, Logs, MAIL_TOPIC,
    MailEvent, MailHappened, MailView, MarkRead, MemberState, MemberWay, MessageHistory, Numbered,
    Priority, ReadEvents, ReplyMessage, SendMessage, Sent,
};
use callboard_message::{Failure, FailureKind, Message, Principal};
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler, System};
use serde::Serialize;
use serde_json::{Value, json};

/// What the mailroom is, for those who watch it.
#[derive(Clone, Default)]
pub struct Room(Arc<Script>);

#[derive(Default)]
struct Script {
    asked: Mutex<Vec<(&'static str, Value, Principal)>>,
    refuses: Mutex<Option<Failure>>,
    happened: Mutex<Vec<Numbered>>,
    reads: AtomicUsize,
}

impl Room {
    /// What was asked since the last look: name, body, the caller's id.
    pub fn asked(&self) -> Vec<(&'static str, Value, String)> {
        let asked = std::mem::take(&mut *self.0.asked.lock().unwrap());
        asked
            .into_iter()
            .map(|(name, body, principal)| (name, body, principal.id))
            .collect()
    }

    /// Answers everything with this from now on.
    pub fn refuse(&self, failure: Option<Failure>) {
        *self.0.refuses.lock().unwrap() = failure;
    }

    /// How often somebody asked for events.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Something happens: it has one number.
    pub fn happen(&self, system: &System, events: impl IntoIterator<Item = MailEvent>) -> u64 {
        let last = {
            let mut happened = self.0.happened.lock().unwrap();
            let sequence = happened.last().map_or(0, |last| last.sequence) + 1;
            happened.extend(events.into_iter().map(|event| Numbered { sequence, event }));
            sequence
        };
        system.events().publish(MAIL_TOPIC, &MailHappened { last });
        last
    }

    fn note<M: Message + Serialize>(&self, message: &M, cx: &Cx) -> Result<(), Failure> {
        let principal = cx.principal().clone();
        // Terminated.
        let is_gone = principal.id == "gone";
        let body = serde_json::to_value(message).unwrap();
        self.0
            .asked
            .lock()
            .unwrap()
            .push((M::NAME, body, principal));
        match self.0.refuses.lock().unwrap().clone() {
            _ if is_gone => Err(Failure::new(FailureKind::Denied, "you are terminated here")),
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Agent for Room {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<BroadcastMessage>()
            .sync::<SendMessage>()
            .sync::<ReplyMessage>()
            .sync::<GetAgentStatus>()
            .sync::<MessageHistory>()
            .sync::<FetchMail>()
            .sync::<MarkRead>()
            .sync::<AgentLogs>()
            .sync::<EndAgent>()
            .sync::<ReadEvents>();
    }
}

/// What a message sent looks like.
pub fn sent(count: Option<u64>, message: &str) -> Sent {
    let (message_id, thread) = (Some("m-1".into()), Some("t-1".into()));
    Sent {
        success: true,
        recipient_count: count,
        message: message.into(),
        message_id,
        thread,
        refused: vec!["full".into()],
    }
}

/// A message as its recipient sees it.
pub fn view(id: &str) -> MailView {
    MailView {
        message_id: id.into(),
        number: 7,
        kind: LetterKind::Direct,
        from: "bob".into(),
        to: vec!["alice".into()],
        to_count: 1,
        thread: id.into(),
        reply_to: None,
        topic: None,
        priority: Priority::Normal,
        sent: "2026-01-01T00:00:00.000Z".into(),
        expires: "2026-01-08T00:00:00.000Z".into(),
        state: EntryState::Accepted,
        text: "[AGENT bob TO AGENT alice]: hello".into(),
        cut: false,
        message: None,
        receipts: None,
    }
}

fn member(id: &str, state: MemberState) -> AgentView {
    AgentView {
        agent_id: id.into(),
        display_id: id.into(),
        state,
        name: None,
        role: None,
        phase: None,
        groups: Vec::new(),
        way: MemberWay::Mcp,
        unread: None,
        last_seen: None,
    }
}

impl SyncHandler<BroadcastMessage> for Room {
    fn handle(&mut self, message: BroadcastMessage, cx: &mut Cx) -> Result<Sent, Failure> {
        self.note(&message, cx)?;
        Ok(sent(Some(3), "Message broadcast to 3 agent(s)"))
    }
}

impl SyncHandler<SendMessage> for Room {
    fn handle(&mut self, message: SendMessage, cx: &mut Cx) -> Result<Sent, Failure> {
        self.note(&message, cx)?;
        if message.recipient_agent_id.as_deref() == Some("87654321-0000") {
            let why =
                "Failed to send message - recipient agent 87654321 may not exist or is terminated";
            return Ok(Sent {
                message: why.into(),
                ..Sent::default()
            });
        }
        Ok(sent(None, "Message sent to agent agent-45"))
    }
}

impl SyncHandler<ReplyMessage> for Room {
    fn handle(&mut self, message: ReplyMessage, cx: &mut Cx) -> Result<Sent, Failure> {
        self.note(&message, cx)?;
        Ok(sent(None, "Message sent to agent bob"))
    }
}

impl SyncHandler<GetAgentStatus> for Room {
    fn handle(&mut self, message: GetAgentStatus, cx: &mut Cx) -> Result<AgentStatus, Failure> {
        self.note(&message, cx)?;
        let mut agents = vec![
            member("alice", MemberState::Active),
            member("bob", MemberState::Away),
        ];
        agents.retain(|agent| {
            message
                .agent_id
                .as_ref()
                .is_none_or(|id| *id == agent.agent_id)
        });
        Ok(AgentStatus {
            count: agents.len() as u64,
            agents,
        })
    }
}

impl SyncHandler<MessageHistory> for Room {
    fn handle(&mut self, message: MessageHistory, cx: &mut Cx) -> Result<History, Failure> {
        self.note(&message, cx)?;
        let none = message.topic.as_deref() == Some("none");
        let messages = if none {
            Vec::new()
        } else {
            vec![view("m-2"), view("m-1")]
        };
        Ok(History {
            messages,
            next: (!none).then_some(6),
        })
    }
}

impl SyncHandler<FetchMail> for Room {
    fn handle(&mut self, message: FetchMail, cx: &mut Cx) -> Result<Fetched, Failure> {
        self.note(&message, cx)?;
        let there = message.message_ids.iter().filter(|id| *id != "nowhere");
        let whole = |id: &String| MailView {
            message: Some("hello".into()),
            ..view(id)
        };
        Ok(Fetched {
            messages: there.map(whole).collect(),
        })
    }
}

impl SyncHandler<MarkRead> for Room {
    fn handle(&mut self, message: MarkRead, cx: &mut Cx) -> Result<Done, Failure> {
        self.note(&message, cx)?;
        Ok(Done { success: true })
    }
}

impl SyncHandler<AgentLogs> for Room {
    fn handle(&mut self, message: AgentLogs, cx: &mut Cx) -> Result<Logs, Failure> {
        self.note(&message, cx)?;
        let details = LogDetails {
            sender_id: "bob".into(),
            recipient_id: "alice".into(),
            message_type: LetterKind::Direct,
            message_content: "hello".into(),
            timestamp: "2026-01-01T00:00:00.000Z".into(),
        };
        let (log_type, agent_id) = ("agent_communication".into(), "alice".into());
        Ok(Logs {
            logs: vec![AgentLogRow {
                number: 1,
                log_type,
                agent_id,
                message: "Direct message".into(),
                details,
            }],
        })
    }
}

impl SyncHandler<EndAgent> for Room {
    fn handle(&mut self, message: EndAgent, cx: &mut Cx) -> Result<Done, Failure> {
        self.note(&message, cx)?;
        Ok(Done { success: true })
    }
}

impl SyncHandler<ReadEvents> for Room {
    /// Whoever doesn't watch sees what names it.
    fn handle(&mut self, message: ReadEvents, cx: &mut Cx) -> Result<Events, Failure> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        self.note(&message, cx)?;
        let happened = self.0.happened.lock().unwrap();
        let newest = happened.last().map_or(0, |last| last.sequence);
        let last = newest.min(message.after + u64::from(message.limit.unwrap_or(256)));
        let principal = cx.principal();
        let watches = principal.scopes.iter().any(|scope| scope == "mail.watch");
        let names_it = |event: &MailEvent| {
            json!(event)
                .to_string()
                .contains(&format!("\"{}\"", principal.id))
        };
        let asked = happened
            .iter()
            .filter(|one| one.sequence > message.after && one.sequence <= last);
        let seen = asked.filter(|one| watches || names_it(&one.event));
        Ok(Events {
            events: seen.cloned().collect(),
            last: last.max(message.after),
            newest,
        })
    }
}
