//! From a draft to a letter that is kept, and on to those whom it is for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::Failure;
use callboard_message::mail::{Deliver, Displayed, LetterKind, Sent};
use callboard_message::time::rfc3339;
use callboard_runtime::{Letter, LetterFilter};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Shared;
use super::delivery::Line;
use super::groups::shown;
use super::member_identity::Who;
use super::members::Members;
use super::post::{Draft, Turn, told_all};
use super::resources::Told;
use super::text::{Handed, prefix};

/// Of a sender's newest letters, how many are gone through for one that was sent before.
const RETRIED_AMONG_MAX: usize = 256;

/// Expiries are chosen in seconds.
const EXPIRY_ROUNDED: Duration = Duration::from_millis(500);

impl Draft {
    /// Whether it is the first one. Who of those that it is for could be reached was decided then.
    fn is_same(&self, letter: &Letter) -> bool {
        let first = &letter.new;
        let is_named = |audience: &str| matches!(audience, "one" | "list");
        let new = &self.new;
        let is_audience = if is_named(&new.audience) && is_named(&first.audience) {
            first.recipients.iter().all(|id| self.asked.contains(id))
        } else {
            first.audience == new.audience
        };
        // Its retention may be over.
        let is_body = first.body == new.body
            || (first.body.is_empty() && letter.mark.bytes == new.body.len() as u64);
        let expired_after = first
            .expires
            .duration_since(sent_at(&first.id))
            .unwrap_or_default();
        let is_expiry =
            !self.is_expiry_chosen || expired_after.abs_diff(self.lifetime) < EXPIRY_ROUNDED;
        is_body
            && is_audience
            && is_expiry
            && (first.kind, first.urgent) == (new.kind, new.urgent)
            && (&first.label, &first.topic, &first.reply_to)
                == (&new.label, &new.topic, &new.reply_to)
    }
}

/// When a letter of that id was sent: ids tell it, to the millisecond. What it expires after counts from then.
fn sent_at(id: &str) -> SystemTime {
    let sent = id
        .parse::<Uuid>()
        .ok()
        .and_then(|id| id.get_timestamp())
        .map(|sent| sent.to_unix());
    sent.map_or(UNIX_EPOCH, |(seconds, nanos)| {
        UNIX_EPOCH + Duration::new(seconds, nanos)
    })
}

impl Shared {
    /// Keeps a letter, and hands it out once it is kept.
    pub async fn post(self: &Arc<Self>, who: &Who, mut draft: Draft) -> Result<Sent, Failure> {
        if let Turn::OnlyAgain(_) = draft.turn {
            return self.again_or(who, draft, Sent::default()).await;
        }
        draft.new.id = Uuid::now_v7().to_string();
        draft.new.expires = sent_at(&draft.new.id) + draft.lifetime;
        let again = draft.new.key.is_some().then(|| draft.clone());
        let Draft { new, refused, .. } = draft;
        self.takes(&new.id);
        let room = self.clone();
        let (answer, posted) = oneshot::channel();
        // A sender that gives up doesn't keep a letter that was accepted from those whom it is for.
        tokio::spawn(async move {
            let id = new.id.clone();
            let posted = room.mail.post(new).await;
            // First: whoever sent it goes on before those many whom it is for.
            let _ = answer.send(posted.clone());
            match posted {
                Ok(letter) if letter.is_new => room.hand_out(&letter),
                _ => room.took_none(&id),
            }
        });
        let letter = posted
            .await
            .map_err(|_| Failure::internal("the message wasn't kept"))??;
        match again.filter(|_| !letter.is_new) {
            Some(again) => {
                let sent = self.sent_again(&letter, &again)?;
                self.give_back(who, &again.turn);
                Ok(sent)
            }
            None => Ok(self.sent(&letter, refused)),
        }
    }

    /// What is answered to a message that isn't kept: what it was the first time, if its sender sent it before.
    ///
    /// # Errors
    /// As [`Self::sent_before`]; that its sender may say nothing new now.
    pub async fn again_or(&self, who: &Who, draft: Draft, nobody: Sent) -> Result<Sent, Failure> {
        match (self.sent_before(who, &draft).await?, draft.turn) {
            (Some(sent), turn) => {
                self.give_back(who, &turn);
                Ok(sent)
            }
            (None, Turn::OnlyAgain(refused)) => Err(refused),
            (None, _) => Ok(nobody),
        }
    }

    /// What was said before takes nothing of what its sender may say.
    fn give_back(&self, who: &Who, turn: &Turn) {
        if let Turn::Taken { is_broadcast } = turn
            && let Some(member) = self.members().get(&who.id)
        {
            member.limit.give_back(*is_broadcast);
        }
    }

    /// What was answered to a message, where its sender sent it before, under the same key.
    ///
    /// # Errors
    /// `Rejected` where that was another message; the store's.
    async fn sent_before(&self, who: &Who, draft: &Draft) -> Result<Option<Sent>, Failure> {
        let Some(key) = &draft.new.key else {
            return Ok(None);
        };
        let filter = LetterFilter {
            of: Some(who.id.to_string()),
            sent: Some(true),
            ..LetterFilter::default()
        };
        let (letters, _) = self.mail.history(filter, 0, RETRIED_AMONG_MAX).await?;
        let first = letters
            .into_iter()
            .map(|(letter, _)| letter)
            .find(|letter| letter.new.key.as_ref() == Some(key));
        first
            .map(|letter| self.sent_again(&letter, draft))
            .transpose()
    }

    fn sent_again(&self, first: &Letter, again: &Draft) -> Result<Sent, Failure> {
        if !again.is_same(first) {
            return Err(Failure::rejected("this key was used for another message"));
        }
        let Draft {
            new,
            asked,
            refused,
            ..
        } = again;
        let missed = |id: &&String| asked.contains(*id) && !first.new.is_for(id);
        let refused: BTreeSet<_> = new
            .recipients
            .iter()
            .chain(refused)
            .filter(missed)
            .cloned()
            .collect();
        Ok(self.sent(first, refused.into_iter().collect()))
    }

    /// Hands a letter to those whom it is for, as far as they have a way, and tells those who want to know.
    fn hand_out(self: &Arc<Self>, letter: &Arc<Letter>) {
        if !letter.is_spread() {
            self.marks.spread(letter.clone());
        }
        self.tell_recipients(letter, Line::hand);
        self.marks.happened();
    }

    /// Has a letter's recipients told of it, and `hand`ed where they have a way.
    pub fn tell_recipients(
        self: &Arc<Self>,
        letter: &Arc<Letter>,
        hand: impl Fn(&Line, &Arc<Handed>),
    ) {
        let handed = Arc::new(Handed::new(letter.clone()));
        let mut told = Vec::new();
        {
            let mut members = self.members();
            for recipient in &letter.new.recipients {
                let Some(member) = members.get_mut(recipient) else {
                    continue;
                };
                member.unread += 1;
                if let Some(line) = &member.line {
                    hand(line, &handed);
                }
                told.extend(Told::of(member));
            }
        }
        for told in told {
            self.tell_mail(&handed, told);
        }
    }

    /// What is answered to whoever sent a letter.
    fn sent(&self, letter: &Letter, refused: Vec<String>) -> Sent {
        let count = letter.new.recipients.len();
        let (recipient_count, message) = match (
            letter.new.audience.as_str(),
            letter.new.recipients.as_slice(),
        ) {
            ("one", [to]) => (
                None,
                format!("Message sent to agent {}", self.members().names.display(to)),
            ),
            ("one" | "list", _) => (Some(count), format!("Message sent to {count} agent(s)")),
            _ => (Some(count), told_all(count)),
        };
        Sent {
            success: true,
            recipient_count: recipient_count.map(|count| count as u64),
            message,
            message_id: Some(letter.new.id.clone()),
            thread: Some(letter.new.thread().to_owned()),
            refused,
        }
    }

    /// A letter's text as a recipient is shown it.
    pub fn text(&self, handed: &Handed, to: &str) -> String {
        // Outside of the lock: a long body takes a while.
        handed.harmless();
        self.text_of(&self.members(), handed, to)
    }

    fn text_of(&self, members: &Members, handed: &Handed, to: &str) -> String {
        let new = &handed.letter.new;
        let to = match new.kind {
            LetterKind::Group => shown(&new.audience),
            _ => members.names.display(to),
        };
        let mut text = prefix(
            new.kind,
            members.names.display(&new.sender),
            to,
            new.label.as_deref(),
        );
        text.push_str(handed.harmless());
        text
    }

    /// A letter as it is delivered to one of its recipients.
    pub fn deliver(&self, handed: &Handed, to: &str, attempt: u32) -> Deliver {
        // Outside of the lock: a long body takes a while.
        handed.harmless();
        let members = self.members();
        let Letter {
            number,
            new,
            accepted,
            ..
        } = &*handed.letter;
        let shown = |id: &str| members.names.display(id).to_owned();
        Deliver {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: to.to_owned(),
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            urgent: new.urgent,
            sent: rfc3339(*accepted),
            attempt,
            text: self.text_of(&members, handed, to),
            message: new.body.clone(),
            display: Displayed {
                from: shown(&new.sender),
                to: shown(to),
            },
        }
    }
}
