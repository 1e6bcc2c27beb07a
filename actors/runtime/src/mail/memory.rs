use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::mail::{AgentLogRow, DeliveryState, LogDetails};
use callboard_message::time::format_rfc3339;

use super::{
    FAN_OUT_BATCH_MAX, MAIL_LOG_ROWS_PER_MESSAGE, MAIL_PAGE_MAX, MAIL_SCAN_MAX, MailCopy,
    MailHistoryPage, MailMessage, MailMessageFilter, MailMessageWithCopy, MailStore,
    NewMailMessage, RECEIPT_BATCH_MAX, ReceiptUpdate, StoredMailEvent,
};
use crate::audit::AuditStore;
use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Default maximum number of messages in a [`MemoryMailStore`].
const MEMORY_MAIL_MAX_DEFAULT: usize = 100_000;
/// Maximum number of events in a [`MemoryMailStore`]; beyond it the oldest are dropped.
const EVENTS_MAX: usize = 100_000;

/// In-memory mail store; lasts as long as the process. Bodies stay until then: no retention
/// applies.
pub struct MemoryMailStore {
    audit: Arc<dyn AuditStore>,
    messages_max: usize,
    /// Held while a message is posted: it is stored once its entry is in the audit.
    posting: tokio::sync::Mutex<()>,
    state: Mutex<MailState>,
}

#[derive(Default)]
struct MailState {
    /// All messages, indexed by number minus one.
    messages: Vec<Arc<MailMessage>>,
    by_id: HashMap<String, u64>,
    by_key: HashMap<(String, String), u64>,
    /// Copies of all recipients, by recipient name and message number. Includes copies that
    /// [`MailStore::fan_out`] hasn't reached yet.
    copies: HashMap<String, BTreeMap<u64, MailCopy>>,
    events: VecDeque<StoredMailEvent>,
    last_event: u64,
}

impl MemoryMailStore {
    /// Creates a store that writes an entry to `audit` for each message.
    pub fn new(audit: Arc<dyn AuditStore>) -> Self {
        Self::with_capacity(audit, MEMORY_MAIL_MAX_DEFAULT)
    }

    /// Creates a store for `messages_max` messages. Beyond that, posting fails with
    /// [`JournalError::Full`].
    pub fn with_capacity(audit: Arc<dyn AuditStore>, messages_max: usize) -> Self {
        Self {
            audit,
            messages_max,
            posting: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Returns the message that is to be stored, or the first one with its key.
    fn accept(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>> {
        new.check()?;
        let state = self.state.lock();
        if let Some(first) = key_of(&new)
            .and_then(|key| state.by_key.get(&key))
            .and_then(|number| state.message_at(*number))
        {
            return Ok(first);
        }
        if state.by_id.contains_key(&new.id) {
            return Err(JournalError::Store(
                "a message with this id is stored already: give each message a new id".to_owned(),
            ));
        }
        if state.messages.len() >= self.messages_max {
            return Err(JournalError::Full {
                records_max: self.messages_max,
            });
        }
        let number = state.messages.len() as u64 + 1;
        let digest = self.audit.digest(new.class, new.body.as_bytes());
        let message = MailMessage::new_accepted(number, new, digest, SystemTime::now());
        Ok(Arc::new(message))
    }

    fn store_message(&self, message: &MailMessage) {
        let number = message.number;
        let mut state = self.state.lock();
        for recipient in &message.new.recipients {
            let copy = message.new_copy(recipient);
            state
                .copies
                .entry(recipient.clone())
                .or_default()
                .insert(number, copy);
        }
        state.by_id.insert(message.new.id.clone(), number);
        state
            .by_key
            .extend(key_of(&message.new).map(|key| (key, number)));
        let first = Arc::new(MailMessage {
            is_new: false,
            ..message.clone()
        });
        state.messages.push(first.clone());
        state.append_event(StoredMailEvent::Posted(first));
    }
}

/// Returns sender and idempotency key of a message; `None` without a key.
fn key_of(new: &NewMailMessage) -> Option<(String, String)> {
    Some((new.sender.clone(), new.key.clone()?))
}

impl MailState {
    fn message_at(&self, number: u64) -> Option<Arc<MailMessage>> {
        self.messages
            .get(usize::try_from(number.checked_sub(1)?).ok()?)
            .cloned()
    }

    fn append_event(&mut self, event: StoredMailEvent) {
        self.last_event += 1;
        self.events.push_back(event);
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Advances the given copies (recipient, message number) to `state`, appends one event for each
    /// message, and returns the copies that changed.
    fn update_receipts(
        &mut self,
        updates: Vec<(String, u64)>,
        state: DeliveryState,
    ) -> Vec<(String, u64)> {
        let now = SystemTime::now();
        let mut by_message: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut moved = Vec::new();
        for (recipient, message) in updates {
            let copy = self
                .copies
                .get_mut(&recipient)
                .and_then(|copies| copies.get_mut(&message));
            let Some(copy) = copy.filter(|copy| copy.state < state) else {
                continue;
            };
            copy.state = state;
            copy.delivered.get_or_insert(now);
            copy.read = (state == DeliveryState::Read).then_some(now);
            by_message
                .entry(message)
                .or_default()
                .push(recipient.clone());
            moved.push((recipient, message));
        }
        for (message, mut recipients) in by_message {
            recipients.sort_unstable();
            let Some(of) = self.message_at(message) else {
                continue;
            };
            let (id, sender) = (of.new.id.clone(), of.new.sender.clone());
            self.append_event(StoredMailEvent::ReceiptsUpdated {
                message_number: message,
                id,
                sender,
                state,
                recipients,
            });
        }
        moved
    }

    fn copy_of(&self, recipient: Option<&str>, message: u64) -> Option<MailCopy> {
        self.copies.get(recipient?)?.get(&message).cloned()
    }

    fn rows(&self, agent: Option<&str>) -> impl Iterator<Item = AgentLogRow> {
        self.messages.iter().flat_map(move |message| {
            let new = &message.new;
            let of =
                move |recipient: &&String| agent.is_none_or(|agent| agent == recipient.as_str());
            (0..)
                .zip(&new.recipients)
                .filter(move |(_, recipient)| of(recipient))
                .map(|(nth, recipient)| AgentLogRow {
                    number: message.number * MAIL_LOG_ROWS_PER_MESSAGE + nth,
                    log_type: "agent_communication".to_owned(),
                    agent_id: recipient.clone(),
                    message: message.summary(),
                    details: LogDetails {
                        sender_id: new.sender.clone(),
                        recipient_id: recipient.clone(),
                        message_type: new.kind,
                        message_content: message.log_excerpt(),
                        timestamp: format_rfc3339(message.accepted),
                    },
                })
        })
    }
}

#[async_trait]
impl MailStore for MemoryMailStore {
    async fn post(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>> {
        let _turn = self.posting.lock().await;
        let message = self.accept(new)?;
        if message.is_new {
            self.audit.append(vec![message.audit_entry()]).await?;
            self.store_message(&message);
        }
        Ok(message)
    }

    async fn fan_out(&self, message: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        let mut state = self.state.lock();
        let stored = state.message_at(message).ok_or(JournalError::Invalid(
            "`fan_out` names a message that isn't stored",
        ))?;
        let to = to.min(u32::try_from(stored.new.recipients.len()).unwrap_or(u32::MAX));
        if to.saturating_sub(stored.copies_made) as usize > FAN_OUT_BATCH_MAX
            || delivered.len() > FAN_OUT_BATCH_MAX
        {
            return Err(JournalError::Invalid(
                "at most 128 copies can be made at once (`FAN_OUT_BATCH_MAX`)",
            ));
        }
        let to = to.max(stored.copies_made);
        let delivered = delivered
            .into_iter()
            .map(|recipient| (recipient, message))
            .collect();
        drop(stored);
        if let Some(message) = state.messages.get_mut(
            usize::try_from(message)
                .unwrap_or_default()
                .saturating_sub(1),
        ) {
            Arc::make_mut(message).copies_made = to;
        }
        state.update_receipts(delivered, DeliveryState::Delivered);
        Ok(())
    }

    async fn pending_fan_out(&self, messages_max: usize) -> JournalResult<Vec<Arc<MailMessage>>> {
        let state = self.state.lock();
        let unspread = state
            .messages
            .iter()
            .filter(|message| !message.is_fanned_out());
        Ok(unspread
            .take(messages_max.min(MAIL_PAGE_MAX))
            .cloned()
            .collect())
    }

    async fn update_receipts(
        &self,
        updates: Vec<(String, u64)>,
        update: ReceiptUpdate,
    ) -> JournalResult<Vec<(String, u64)>> {
        if updates.len() > RECEIPT_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 256 receipts can be stored at once (`RECEIPT_BATCH_MAX`)",
            ));
        }
        let state = match update {
            ReceiptUpdate::Delivered => DeliveryState::Delivered,
            ReceiptUpdate::Read => DeliveryState::Read,
        };
        Ok(self.state.lock().update_receipts(updates, state))
    }

    async fn count_attempt(&self, recipient: &str, message: u64) -> JournalResult<u32> {
        let mut state = self.state.lock();
        let copy = state
            .copies
            .get_mut(recipient)
            .and_then(|copies| copies.get_mut(&message));
        Ok(copy.map_or(0, |copy| {
            copy.attempts += 1;
            copy.attempts
        }))
    }

    async fn list_open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        messages_max: usize,
    ) -> JournalResult<Vec<MailMessageWithCopy>> {
        let now = SystemTime::now();
        let state = self.state.lock();
        let below = if undelivered {
            DeliveryState::Delivered
        } else {
            DeliveryState::Read
        };
        let copies = state
            .copies
            .get(recipient)
            .into_iter()
            .flat_map(BTreeMap::values);
        let waiting = copies
            .filter(|copy| copy.state < below)
            .filter_map(|copy| Some((state.message_at(copy.message_number)?, copy)));
        let place = |message: &MailMessage| (!message.new.urgent, message.number);
        let later = |message: &MailMessage| {
            after.is_none_or(|(urgent, number)| place(message) > (!urgent, number))
        };
        let mut open: Vec<_> = waiting
            .filter(|(message, _)| message.new.expires > now && later(message))
            .map(|(message, copy)| (message, copy.clone()))
            .collect();
        open.sort_by_key(|(message, _)| place(message));
        open.truncate(messages_max.min(MAIL_PAGE_MAX));
        Ok(open)
    }

    async fn unread_counts(&self) -> JournalResult<HashMap<String, u64>> {
        let now = SystemTime::now();
        let state = self.state.lock();
        let is_unread = |copy: &&MailCopy| {
            copy.state < DeliveryState::Read
                && state
                    .message_at(copy.message_number)
                    .is_some_and(|message| message.new.expires > now)
        };
        let waiting = state.copies.iter().map(|(name, copies)| {
            let waiting = copies.values().filter(is_unread).count() as u64;
            (name.clone(), waiting)
        });
        Ok(waiting.filter(|(_, waiting)| *waiting > 0).collect())
    }

    async fn message(&self, id: &str) -> JournalResult<Option<Arc<MailMessage>>> {
        let state = self.state.lock();
        Ok(state
            .by_id
            .get(id)
            .and_then(|number| state.message_at(*number)))
    }

    async fn receipts(
        &self,
        message: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        let state = self.state.lock();
        let stored = state.message_at(message);
        let recipients = stored.iter().flat_map(|message| &message.new.recipients);
        let later =
            recipients.filter(|recipient| after.is_none_or(|after| recipient.as_str() > after));
        let copies = later.filter_map(|recipient| state.copy_of(Some(recipient), message));
        Ok(copies.take(copies_max.min(MAIL_PAGE_MAX)).collect())
    }

    async fn history(
        &self,
        filter: MailMessageFilter,
        before: u64,
        messages_max: usize,
    ) -> JournalResult<MailHistoryPage> {
        filter.check()?;
        let state = self.state.lock();
        let of = filter.member.as_deref();
        let below = |message: &&Arc<MailMessage>| before == 0 || message.number < before;
        let concerned = |message: &&Arc<MailMessage>| of.is_none_or(|of| message.new.concerns(of));
        let (mut found, mut looked) = (Vec::new(), 0);
        for message in state.messages.iter().rev().filter(below).filter(concerned) {
            if found.len() >= messages_max.min(MAIL_PAGE_MAX) || looked >= MAIL_SCAN_MAX {
                return Ok((found, Some(message.number + 1)));
            }
            looked += 1;
            let copy = state.copy_of(of, message.number);
            if filter.matches(message, copy.as_ref()) {
                found.push((Arc::clone(message), copy));
            }
        }
        Ok((found, None))
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredMailEvent)>> {
        let state = self.state.lock();
        let first = state.last_event + 1 - state.events.len() as u64;
        let skip = usize::try_from(after.saturating_sub(first - 1)).unwrap_or(usize::MAX);
        let events = (first..)
            .zip(&state.events)
            .skip(skip)
            .take(events_max.min(MAIL_PAGE_MAX));
        let told = |event: &StoredMailEvent| match event {
            // With the current number of copies.
            StoredMailEvent::Posted(message) => state
                .message_at(message.number)
                .map(StoredMailEvent::Posted),
            event => Some(event.clone()),
        };
        Ok(events
            .filter_map(|(number, event)| Some((number, told(event)?)))
            .collect())
    }

    async fn last_event(&self) -> JournalResult<u64> {
        Ok(self.state.lock().last_event)
    }

    async fn append_event(&self, event: StoredMailEvent) -> JournalResult<u64> {
        event.check_appendable()?;
        let mut state = self.state.lock();
        state.append_event(event);
        Ok(state.last_event)
    }

    async fn log_rows(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        let state = self.state.lock();
        Ok(state
            .rows(agent)
            .filter(|row| row.number > after)
            .take(rows_max.min(MAIL_PAGE_MAX))
            .collect())
    }
}
