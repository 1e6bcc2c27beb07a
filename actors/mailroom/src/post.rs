//! Sending: what somebody says, for whom, and whether it may.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::Failure;
use callboard_message::mail::{
    BroadcastMessage, LetterKind, MAIL_BODY_BYTES_MAX, MAIL_EXPIRES_MAX, MAIL_KEY_BYTES_MAX,
    MAIL_RECIPIENTS_MAX, MAIL_TOPIC_CHARS_MAX, MailId, Priority, ReplyMessage, SendMessage, Sent,
};
use callboard_message::text::{cut_bytes, cut_chars};
use callboard_runtime::{Cx, Letter, NewLetter};

use super::Shared;
use super::conversation_delivery::ANSWER_KEY;
use super::groups::Group;
use super::member_identity::{Who, denied};
use super::members::{Member, Members};
use super::text::{DISPLAY_CHARS_MIN, LABEL_CHARS_MAX, is_label, neutral};

/// A message before it is posted.
#[derive(Clone)]
pub(super) struct Draft {
    /// Its id and expiry are set when it is posted.
    pub new: NewLetter,
    /// Recipients that its sender named; none of a broadcast. The same message is for them again.
    pub asked: BTreeSet<String>,
    /// Recipients whose box is full.
    pub refused: Vec<String>,
    pub lifetime: Duration,
    /// Its sender may choose when it expires: under the same key, the same.
    pub is_expiry_chosen: bool,
    pub turn: Turn,
}

/// Share of its sender's rate limit that a message takes.
#[derive(Clone)]
pub(super) enum Turn {
    /// Nothing: whoever says it has no limit.
    Free,
    /// One message, a broadcast where it is.
    Taken { is_broadcast: bool },
    /// There is none left, and why: it can only be what was said before.
    OnlyAgain(Failure),
}

impl Draft {
    /// Goes on with `letter`: in its thread, about its topic.
    fn answering(mut self, letter: &Letter) -> Self {
        self.new.topic.clone_from(&letter.new.topic);
        self.new.thread = Some(letter.new.thread().to_owned());
        self.new.reply_to = Some(letter.new.id.clone());
        self.is_expiry_chosen = false;
        self
    }

    fn check(&self) -> Result<(), Failure> {
        let too_long = |what: &str, most: usize, unit: &str| {
            Err(Failure::invalid(format!(
                "`{what}` is longer than {most} {unit}"
            )))
        };
        let NewLetter {
            body, topic, key, ..
        } = &self.new;
        if body.trim().is_empty() {
            return Err(Failure::invalid("`message` is empty"));
        }
        if body.len() > MAIL_BODY_BYTES_MAX {
            return too_long("message", MAIL_BODY_BYTES_MAX, "bytes");
        }
        if let Some(topic) = topic {
            if topic.chars().count() > MAIL_TOPIC_CHARS_MAX {
                return too_long("topic", MAIL_TOPIC_CHARS_MAX, "characters");
            }
            if topic.trim().is_empty() || topic.chars().any(char::is_control) {
                return Err(Failure::invalid("`topic` must be a line of text"));
            }
        }
        match key {
            Some(key) if key.is_empty() => Err(Failure::invalid("`idempotency_key` is empty")),
            Some(key) if key.len() > MAIL_KEY_BYTES_MAX => {
                too_long("idempotency_key", MAIL_KEY_BYTES_MAX, "bytes")
            }
            Some(key) if key.starts_with(ANSWER_KEY) => Err(Failure::invalid(format!(
                "`idempotency_key` may not begin with {ANSWER_KEY}"
            ))),
            _ => Ok(()),
        }
    }
}

/// What is answered where whoever it is for isn't there, as far as its sender may know.
fn is_gone(id: &str) -> Sent {
    // Nobody has checked what was sent as one.
    let id = neutral(cut_chars(id, DISPLAY_CHARS_MIN)).replace(char::is_whitespace, " ");
    let message =
        format!("Failed to send message - recipient agent {id} may not exist or is terminated");
    Sent {
        message,
        ..Sent::default()
    }
}

impl Shared {
    pub async fn broadcast(
        self: &Arc<Self>,
        message: BroadcastMessage,
        cx: &Cx,
    ) -> Result<Sent, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        let unfit = || {
            Failure::invalid(
                "`group` must be group:NAME, role:NAME or phase:NAME, as list_groups shows them",
            )
        };
        let group = message
            .group
            .map(|name| Group::parse(&name).ok_or_else(unfit))
            .transpose()?;
        let mut draft = self.draft(
            &who,
            message.message,
            message.priority,
            message.idempotency_key,
        );
        (draft.new.topic, draft.new.reply_to) = (message.topic, message.reply_to);
        self.complete(&who, &mut draft, message.expires_in_s)
            .await?;
        self.take_turn(&who, true, &mut draft)?;
        self.address_all(&who, group.as_ref(), &mut draft);
        if !who.is_guardian {
            draft.new.kind = if group.is_some() {
                LetterKind::Group
            } else {
                LetterKind::Broadcast
            };
        }
        let is_there = group
            .as_ref()
            .is_none_or(|group| self.members().has_group(&who.id, group));
        draft.new.audience = group.map_or_else(|| "all".to_owned(), |group| group.to_string());
        if !draft.new.recipients.is_empty() {
            return self.post(&who, draft).await;
        }
        let none = if is_there {
            let refused = draft.refused.clone();
            Sent {
                success: true,
                recipient_count: Some(0),
                message: told_all(0),
                refused,
                ..Sent::default()
            }
        } else {
            let why = "is not there: list_groups shows those that are";
            let message = format!(
                "Failed to broadcast message - group {} {why}",
                draft.new.audience
            );
            Sent {
                message,
                ..Sent::default()
            }
        };
        self.again_or(&who, draft, none).await
    }

    pub async fn send(self: &Arc<Self>, message: SendMessage, cx: &Cx) -> Result<Sent, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        if message.guidance.is_some() && !who.is_guardian {
            return Err(Failure::rejected("only the Guardian gives guidance"));
        }
        if message
            .guidance
            .as_ref()
            .is_some_and(|label| !is_label(label))
        {
            let why = format!(
                "`guidance` must be 1 to {LABEL_CHARS_MAX} upper-case letters, digits, _ and spaces"
            );
            return Err(Failure::invalid(why));
        }
        let (audience, to) = match (message.recipient_agent_id, message.recipient_agent_ids) {
            (Some(one), list) if list.is_empty() => ("one", vec![one]),
            (None, list) if !list.is_empty() => ("list", list),
            _ => {
                return Err(Failure::invalid(
                    "give either `recipient_agent_id` or `recipient_agent_ids`",
                ));
            }
        };
        if to.len() > MAIL_RECIPIENTS_MAX {
            return Err(Failure::invalid(format!(
                "a message has at most {MAIL_RECIPIENTS_MAX} recipients"
            )));
        }
        let mut draft = self.draft(
            &who,
            message.message,
            message.priority,
            message.idempotency_key,
        );
        (draft.new.topic, draft.new.reply_to) = (message.topic, message.reply_to);
        self.complete(&who, &mut draft, message.expires_in_s)
            .await?;
        self.take_turn(&who, false, &mut draft)?;
        (draft.new.label, draft.new.audience) = (message.guidance, audience.to_owned());
        draft.asked = to.iter().cloned().collect();
        let found = {
            let members = self.members();
            reachable(&members, &who, to, |id| members.sees(&who.id, id))
        };
        self.post_to(&who, found, draft).await
    }

    /// Posts a message to those that were `found`. Where nobody was, the answer is what it was the first time, if there was one.
    async fn post_to(
        self: &Arc<Self>,
        who: &Who,
        found: Result<(BTreeSet<String>, Vec<String>), Sent>,
        mut draft: Draft,
    ) -> Result<Sent, Failure> {
        match found {
            Ok((recipients, refused)) => {
                draft.new.recipients = recipients.into_iter().collect();
                self.post(who, Draft { refused, ..draft }).await
            }
            Err(nobody) => self.again_or(who, draft, nobody).await,
        }
    }

    pub async fn reply(self: &Arc<Self>, message: ReplyMessage, cx: &Cx) -> Result<Sent, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        self.reply_by(&who, message).await
    }

    /// What `who` answers to a message.
    pub async fn reply_by(
        self: &Arc<Self>,
        who: &Who,
        message: ReplyMessage,
    ) -> Result<Sent, Failure> {
        if self.is_ended(who) {
            return Err(denied(
                "this agent is terminated: it can neither send nor receive messages",
            ));
        }
        let letter = self.letter_of(who, &message.message_id).await?;
        let mut draft = self
            .draft(
                who,
                message.message,
                message.priority,
                message.idempotency_key,
            )
            .answering(&letter);
        draft.check()?;
        self.take_turn(who, false, &mut draft)?;
        let is_own = letter.new.sender == *who.id;
        let mut to = Vec::new();
        let found = {
            let members = self.members();
            if message.to_all || is_own {
                draft.asked.extend(letter.new.recipients.iter().cloned());
                let there = |id: &&String| {
                    **id != *who.id
                        && members.sees(&who.id, id)
                        && members.get(id).is_some_and(Member::is_open)
                };
                to.extend(letter.new.recipients.iter().filter(there).cloned());
            }
            if !is_own {
                draft.asked.insert(letter.new.sender.clone());
                to.push(letter.new.sender.clone());
            }
            // Whoever wrote may be answered, seen or not.
            let sees = |id: &str| id == letter.new.sender || members.sees(&who.id, id);
            if to.is_empty() {
                Err(is_gone(
                    letter.new.recipients.first().map_or("", String::as_str),
                ))
            } else {
                reachable(&members, who, to, sees)
            }
        };
        if found
            .as_ref()
            .is_ok_and(|(open, full)| open.len() + full.len() == 1)
        {
            draft.new.audience = "one".to_owned();
        }
        self.post_to(who, found, draft).await
    }

    fn is_ended(&self, who: &Who) -> bool {
        self.members()
            .get(&who.id)
            .is_some_and(|member| member.is_ended)
    }

    /// Keeps what a member answers where it can't say so itself: once for each letter.
    pub async fn answer(
        self: &Arc<Self>,
        letter: &Letter,
        id: &str,
        text: &str,
    ) -> Result<(), Failure> {
        let there = |member: &Member| member.is_open() && !member.is_full();
        let to = &letter.new.sender;
        let who = Who::member(id);
        if text.trim().is_empty()
            || self.is_ended(&who)
            || !self.members().get(to).is_some_and(there)
        {
            return Ok(());
        }
        let body = cut_bytes(&text.replace('\0', ""), MAIL_BODY_BYTES_MAX).to_owned();
        let key = Some(format!("{ANSWER_KEY}{}", letter.new.id));
        let mut draft = self.draft(&who, body, None, key).answering(letter);
        draft.new.audience = "one".to_owned();
        draft.new.recipients.push(to.clone());
        draft.asked.insert(to.clone());
        self.post(&who, draft).await.map(drop)
    }

    /// A message of `who` for a list of recipients, none of them named yet.
    fn draft(
        &self,
        who: &Who,
        body: String,
        priority: Option<Priority>,
        key: Option<String>,
    ) -> Draft {
        let options = self.options();
        let new = NewLetter {
            id: String::new(),
            sender: who.id.to_string(),
            kind: if who.is_guardian {
                LetterKind::Guidance
            } else {
                LetterKind::Direct
            },
            label: None,
            audience: "list".to_owned(),
            recipients: Vec::new(),
            topic: None,
            thread: None,
            reply_to: None,
            urgent: priority == Some(Priority::Urgent),
            key,
            class: options.class,
            body,
            expires: SystemTime::UNIX_EPOCH,
        };
        let (asked, refused, lifetime) = (BTreeSet::new(), Vec::new(), options.expires);
        Draft {
            new,
            asked,
            refused,
            lifetime,
            is_expiry_chosen: true,
            turn: Turn::Free,
        }
    }

    /// Checks a message, and puts it into the thread of what it goes on with.
    async fn complete(
        &self,
        who: &Who,
        draft: &mut Draft,
        expires_in_s: Option<u64>,
    ) -> Result<(), Failure> {
        draft.lifetime = expires_in_s.map_or(draft.lifetime, Duration::from_secs);
        if draft.lifetime.is_zero() || draft.lifetime > MAIL_EXPIRES_MAX {
            return Err(Failure::invalid(format!(
                "`expires_in_s` must be 1 to {}",
                MAIL_EXPIRES_MAX.as_secs()
            )));
        }
        draft.check()?;
        if let Some(before) = &draft.new.reply_to {
            let before = self.letter_of(who, before).await?;
            draft.new.thread = Some(before.new.thread().to_owned());
        }
        Ok(())
    }

    /// Takes one message of what `who` may send. Where there is none left, what has a key may still be what was sent before.
    fn take_turn(&self, who: &Who, is_broadcast: bool, draft: &mut Draft) -> Result<(), Failure> {
        if who.is_guardian {
            return Ok(());
        }
        let members = self.members();
        let Some(limit) = members.get(&who.id).map(|member| &member.limit) else {
            return Ok(());
        };
        draft.turn = match limit.take(is_broadcast) {
            Ok(()) => Turn::Taken { is_broadcast },
            Err(refused) if draft.new.key.is_some() && limit.may_repeat() => {
                Turn::OnlyAgain(refused)
            }
            Err(refused) => return Err(refused),
        };
        Ok(())
    }

    /// Notes whom a broadcast is for, and whose box is full.
    fn address_all(&self, who: &Who, group: Option<&Group>, draft: &mut Draft) {
        let members = self.members();
        let hears = |member: &&Member| {
            !member.is_ended
                && *member.id != *who.id
                && group.is_none_or(|group| member.place.is_in(group))
                && (who.is_guardian
                    || draft.new.urgent
                    || !member.mutes(&who.id, draft.new.topic.as_deref()))
        };
        let (full, open): (Vec<_>, Vec<_>) = members
            .seen_by(&who.id)
            .filter(hears)
            .partition(|member| member.is_full());
        let id = |member: &Member| member.id.to_string();
        draft.new.recipients = open.into_iter().take(MAIL_RECIPIENTS_MAX).map(id).collect();
        draft.refused = full.into_iter().map(id).collect();
    }

    /// The letter of that id, where it concerns whoever asks.
    pub async fn letter_of(&self, who: &Who, id: &str) -> Result<Arc<Letter>, Failure> {
        let unknown = || Failure::not_found("there is no such message for you");
        if MailId::parse(id).is_err() {
            return Err(unknown());
        }
        let letter = self
            .mail
            .letter(id)
            .await?
            .filter(|letter| letter.new.concerns(&who.id))
            .ok_or_else(unknown)?;
        if self.is_past(who, &letter).await? {
            Err(unknown())
        } else {
            Ok(letter)
        }
    }
}

/// Those of `to` that can be written to, and those whose box is full.
///
/// # Errors
/// The answer where one of them isn't there, or all boxes are full.
fn reachable(
    members: &Members,
    who: &Who,
    to: Vec<String>,
    sees: impl Fn(&str) -> bool,
) -> Result<(BTreeSet<String>, Vec<String>), Sent> {
    let (mut open, mut full) = (BTreeSet::new(), Vec::new());
    for id in to {
        let member = members
            .get(&id)
            .filter(|member| member.is_open() && *member.id != *who.id && sees(&id));
        let Some(member) = member else {
            return Err(is_gone(&id));
        };
        if !member.is_full() {
            open.insert(id);
        } else if !full.contains(&id) {
            full.push(id);
        }
    }
    match full.last() {
        Some(id) if open.is_empty() => {
            let shown = cut_chars(id, DISPLAY_CHARS_MIN);
            let message =
                format!("Failed to send message - the inbox of recipient agent {shown} is full");
            Err(Sent {
                message,
                refused: vec![id.clone()],
                ..Sent::default()
            })
        }
        _ => Ok((open, full)),
    }
}

/// Text of the answer to a broadcast.
pub(super) fn told_all(count: usize) -> String {
    format!("Message broadcast to {count} agent(s)")
}
