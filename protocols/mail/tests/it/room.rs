//! Substitute for the mailroom: records requests and returns scripted replies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callboard_message::mail::{
    AgentLogPage, AgentLogRow, AgentLogs, AgentStatus, AgentView, BroadcastMessage, DeliveryMethod,
    DeliveryState, EndAgent, FetchMail, FetchedMail, GetAgentStatus, LogDetails, MAIL_EVENTS_TOPIC,
    MailAck, MailEvent, MailEventPage, MailMessageKind, MailView, MarkRead, MemberState,
    MessageHistory, MessageHistoryPage, NewMailEvents, NumberedMailEvent, Priority, ReadEvents,
    ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::{Failure, FailureKind, Message, Principal};
use callboard_runtime::{Agent, Context, Handlers, SyncHandler, System};
use serde::Serialize;
use serde_json::{Value, json};

/// Substitute mailroom, as tests see it.
#[derive(Clone, Default)]
pub struct Room(Arc<Script>);

#[derive(Default)]
struct Script {
    asked: Mutex<Vec<(&'static str, Value, Principal)>>,
    refuses: Mutex<Option<Failure>>,
    happened: Mutex<Vec<NumberedMailEvent>>,
    reads: AtomicUsize,
}

impl Room {
    /// Returns the requests since the last call: name, body, the caller's id.
    pub fn asked(&self) -> Vec<(&'static str, Value, String)> {
        let asked = std::mem::take(&mut *self.0.asked.lock().unwrap());
        asked
            .into_iter()
            .map(|(name, body, principal)| (name, body, principal.id))
            .collect()
    }

    /// Makes all requests fail with `failure` from now on; `None` restores replies.
    pub fn refuse(&self, failure: Option<Failure>) {
        *self.0.refuses.lock().unwrap() = failure;
    }

    /// Returns the number of requests for events.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Adds events with one sequence number, which is returned.
    pub fn happen(&self, system: &System, events: impl IntoIterator<Item = MailEvent>) -> u64 {
        let last = {
            let mut happened = self.0.happened.lock().unwrap();
            let sequence = happened.last().map_or(0, |last| last.sequence) + 1;
            happened.extend(
                events
                    .into_iter()
                    .map(|event| NumberedMailEvent { sequence, event }),
            );
            sequence
        };
        system
            .events()
            .publish(MAIL_EVENTS_TOPIC, &NewMailEvents { last });
        last
    }

    fn note<M: Message + Serialize>(&self, message: &M, cx: &Context) -> Result<(), Failure> {
        let principal = cx.principal().clone();
        // This agent counts as terminated.
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

/// Returns a sample receipt.
pub fn sent(count: Option<u64>, message: &str) -> SendReceipt {
    let (message_id, thread) = (Some("m-1".into()), Some("t-1".into()));
    SendReceipt {
        success: true,
        recipient_count: count,
        message: message.into(),
        message_id,
        thread,
        refused: vec!["full".into()],
    }
}

/// Returns a sample message as its recipient sees it.
pub fn view(id: &str) -> MailView {
    MailView {
        message_id: id.into(),
        number: 7,
        kind: MailMessageKind::Direct,
        from: "bob".into(),
        to: vec!["alice".into()],
        to_count: 1,
        thread: id.into(),
        reply_to: None,
        topic: None,
        priority: Priority::Normal,
        sent: "2026-01-01T00:00:00.000Z".into(),
        expires: "2026-01-08T00:00:00.000Z".into(),
        state: DeliveryState::Accepted,
        text: "[AGENT bob TO AGENT alice]: hello".into(),
        cut: false,
        message: None,
        receipts: None,
    }
}

fn member(id: &str, state: MemberState) -> AgentView {
    AgentView {
        trouble: None,
        agent_id: id.into(),
        display_id: id.into(),
        state,
        name: None,
        role: None,
        phase: None,
        groups: Vec::new(),
        way: DeliveryMethod::Mcp,
        unread: None,
        last_seen: None,
    }
}

impl SyncHandler<BroadcastMessage> for Room {
    fn handle(
        &mut self,
        message: BroadcastMessage,
        cx: &mut Context,
    ) -> Result<SendReceipt, Failure> {
        self.note(&message, cx)?;
        Ok(sent(Some(3), "Message broadcast to 3 agent(s)"))
    }
}

impl SyncHandler<SendMessage> for Room {
    fn handle(&mut self, message: SendMessage, cx: &mut Context) -> Result<SendReceipt, Failure> {
        self.note(&message, cx)?;
        if message.recipient_agent_id.as_deref() == Some("87654321-0000") {
            let why =
                "Failed to send message - recipient agent 87654321 may not exist or is terminated";
            return Ok(SendReceipt {
                message: why.into(),
                ..SendReceipt::default()
            });
        }
        Ok(sent(None, "Message sent to agent agent-45"))
    }
}

impl SyncHandler<ReplyMessage> for Room {
    fn handle(&mut self, message: ReplyMessage, cx: &mut Context) -> Result<SendReceipt, Failure> {
        self.note(&message, cx)?;
        Ok(sent(None, "Message sent to agent bob"))
    }
}

impl SyncHandler<GetAgentStatus> for Room {
    fn handle(
        &mut self,
        message: GetAgentStatus,
        cx: &mut Context,
    ) -> Result<AgentStatus, Failure> {
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
    fn handle(
        &mut self,
        message: MessageHistory,
        cx: &mut Context,
    ) -> Result<MessageHistoryPage, Failure> {
        self.note(&message, cx)?;
        let none = message.topic.as_deref() == Some("none");
        let messages = if none {
            Vec::new()
        } else {
            vec![view("m-2"), view("m-1")]
        };
        Ok(MessageHistoryPage {
            messages,
            next: (!none).then_some(6),
        })
    }
}

impl SyncHandler<FetchMail> for Room {
    fn handle(&mut self, message: FetchMail, cx: &mut Context) -> Result<FetchedMail, Failure> {
        self.note(&message, cx)?;
        let there = message.message_ids.iter().filter(|id| *id != "nowhere");
        let whole = |id: &String| MailView {
            message: Some("hello".into()),
            ..view(id)
        };
        Ok(FetchedMail {
            messages: there.map(whole).collect(),
        })
    }
}

impl SyncHandler<MarkRead> for Room {
    fn handle(&mut self, message: MarkRead, cx: &mut Context) -> Result<MailAck, Failure> {
        self.note(&message, cx)?;
        Ok(MailAck { success: true })
    }
}

impl SyncHandler<AgentLogs> for Room {
    fn handle(&mut self, message: AgentLogs, cx: &mut Context) -> Result<AgentLogPage, Failure> {
        self.note(&message, cx)?;
        let details = LogDetails {
            sender_id: "bob".into(),
            recipient_id: "alice".into(),
            message_type: MailMessageKind::Direct,
            message_content: "hello".into(),
            timestamp: "2026-01-01T00:00:00.000Z".into(),
        };
        let (log_type, agent_id) = ("agent_communication".into(), "alice".into());
        Ok(AgentLogPage {
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
    fn handle(&mut self, message: EndAgent, cx: &mut Context) -> Result<MailAck, Failure> {
        self.note(&message, cx)?;
        Ok(MailAck { success: true })
    }
}

impl SyncHandler<ReadEvents> for Room {
    /// Callers that don't watch see only events that name them.
    fn handle(&mut self, message: ReadEvents, cx: &mut Context) -> Result<MailEventPage, Failure> {
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
        Ok(MailEventPage {
            events: seen.cloned().collect(),
            last: last.max(message.after),
            newest,
        })
    }
}
