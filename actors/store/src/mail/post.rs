//! Taking a letter in.

use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{BodyMark, COPIES_AT_ONCE_MAX, Letter, NewLetter};
use futures::future::BoxFuture;

use super::events::{self, Kept};
use super::row::{letter, letter_columns};
use super::{list, number};
use crate::clock::{ms, time};
use crate::sql::{Arg, ManyRows};
use crate::writer::{Tx, Write};

/// The counter of letters.
const COUNTER: &str = "letter";

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO letter (number, id, sender, key, kind, label, audience, thread, reply_to, topic, urgent, class, at_ms, \
     expires_ms, recipients, count, spread, bytes, mark, body) VALUES",
    20,
    "",
);
static INSERT_COPIES: ManyRows =
    ManyRows::new("INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) VALUES", 6, "");
const FIND: &str = concat!("SELECT ", letter_columns!(), " FROM letter AS l WHERE l.sender = $1 AND l.key = $2");

pub(super) struct Post {
    new: NewLetter,
    mark: BodyMark,
    /// Its recipients, as JSON.
    recipients: String,
}

impl Post {
    pub(super) fn new(new: NewLetter, mark: BodyMark) -> Self {
        let recipients = list::written(&new.recipients);
        Self { new, mark, recipients }
    }

    async fn post(&self, tx: &mut Tx) -> Result<Arc<Letter>, sqlx::Error> {
        // What another node has taken in and not yet committed is waited for.
        events::lock(tx).await?;
        if let Some(key) = &self.new.key {
            let there = tx.db().row(FIND, &[(&self.new.sender).into(), key.into()]).await?;
            if let Some(there) = there {
                return letter(&there);
            }
        }
        let nth = tx.numbers(COUNTER, 1).await?;
        let now_ms = tx.now_ms();
        // Its times are as the store has them.
        let new = NewLetter { expires: time(ms(self.new.expires)), ..self.new.clone() };
        let letter = Letter::accepted(nth, new, self.mark.clone(), time(now_ms));
        self.insert(tx, &letter, now_ms).await?;
        events::append(tx, &[Kept::Posted { letter: nth }]).await?;
        tx.audit(letter.audit_entry());
        Ok(Arc::new(letter))
    }

    async fn insert(&self, tx: &mut Tx, letter: &Letter, now_ms: i64) -> Result<(), sqlx::Error> {
        let new = &letter.new;
        let (nth, urgent, expires_ms) = (number(letter.number), i64::from(new.urgent), ms(new.expires));
        let values: [Arg<'_>; 20] = [
            nth.into(),
            (&new.id).into(),
            (&new.sender).into(),
            new.key.as_deref().into(),
            new.kind.as_str().into(),
            new.label.as_deref().into(),
            (&new.audience).into(),
            new.thread().into(),
            new.reply_to.as_deref().into(),
            new.topic.as_deref().into(),
            urgent.into(),
            new.class.as_str().into(),
            now_ms.into(),
            expires_ms.into(),
            (&self.recipients).into(),
            number(new.recipients.len() as u64).into(),
            i64::from(letter.spread).into(),
            number(letter.mark.bytes).into(),
            (&letter.mark.hash).into(),
            (&new.body).into(),
        ];
        INSERT.execute(tx.db(), &values).await?;
        let made = new.recipients.get(..letter.spread as usize).unwrap_or_default();
        debug_assert!(made.len() <= COPIES_AT_ONCE_MAX, "the others are spread");
        let accepted = EntryState::Accepted.as_str();
        let copies: Vec<Arg<'_>> = made
            .iter()
            .flat_map(|recipient| {
                [recipient.into(), nth.into(), urgent.into(), accepted.into(), now_ms.into(), expires_ms.into()]
            })
            .collect();
        INSERT_COPIES.execute(tx.db(), &copies).await
    }
}

impl Write for Post {
    type Output = Arc<Letter>;
    const NAME: &'static str = "mail.post";

    fn bytes(&self) -> usize {
        self.new.body.len() + self.recipients.len()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, sqlx::Error>> {
        Box::pin(self.post(tx))
    }
}
