//! Mail writes: messages, copies for many recipients, and receipts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use callboard_message::mail::DeliveryState;
use callboard_runtime::{
    BodyDigest, FAN_OUT_BATCH_MAX, INLINE_COPIES_MAX, JournalError, JournalResult, MailMessage,
    NewMailMessage, ReceiptUpdate,
};

use super::db_number;
use super::query::{EventRecord, append_events, lock_mail};
use super::sql::{as_list, has, json_param, mail_message, message_columns, pairs};
use crate::sql::{BulkStatement, DbConnection, Sql, SqlArg, args, from_unix_ms, to_unix_ms};
use crate::tx::{Tx, WriteOp};

/// Name of the counter that numbers messages.
const MESSAGE_COUNTER: &str = "letter";

static INSERT: BulkStatement = BulkStatement::new(
    "INSERT INTO letter (number, id, sender, key, kind, label, audience, thread, reply_to, topic, urgent, class, at_ms, \
     expires_ms, recipients, count, spread, bytes, mark, body) VALUES",
    20,
    "",
);
static INSERT_COPIES: BulkStatement = BulkStatement::new(
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) VALUES",
    6,
    "",
);
static FIND: BulkStatement = BulkStatement::new(
    concat!("SELECT ", message_columns!(), " FROM (VALUES"),
    2,
    ") AS wanted CROSS JOIN letter AS l WHERE l.sender = wanted.column1 AND l.key = wanted.column2 AND l.key IS NOT NULL",
);

pub(super) struct PostMessage {
    new: NewMailMessage,
    digest: BodyDigest,
    /// Ids of the recipients, as a JSON list.
    recipients: String,
}

/// Sender of a message, and the idempotency key that the sender chose for it.
type IdempotencyKey<'a> = (&'a str, &'a str);

impl PostMessage {
    pub(super) fn new(new: NewMailMessage, digest: BodyDigest) -> Self {
        let recipients = json_param(&new.recipients);
        Self {
            new,
            digest,
            recipients,
        }
    }

    fn idempotency_key(&self) -> Option<IdempotencyKey<'_>> {
        Some((&self.new.sender, self.new.key.as_deref()?))
    }

    fn mail_message(&self, number: u64, now_ms: i64) -> MailMessage {
        // Times are truncated to milliseconds, as stored.
        let new = NewMailMessage {
            expires: from_unix_ms(to_unix_ms(self.new.expires)),
            ..self.new.clone()
        };
        MailMessage::new_accepted(number, new, self.digest.clone(), from_unix_ms(now_ms))
    }
}

/// Returns those messages that were stored before under the same sender and idempotency key, by
/// that key.
async fn find_existing<'a>(
    posts: &'a [&mut PostMessage],
    db: &mut DbConnection,
) -> sqlx::Result<HashMap<IdempotencyKey<'a>, Arc<MailMessage>>> {
    let keys: BTreeSet<IdempotencyKey<'a>> = posts
        .iter()
        .filter_map(|post| post.idempotency_key())
        .collect();
    let values: Vec<SqlArg<'_>> = keys
        .iter()
        .flat_map(|(sender, key)| args![*sender, *key])
        .collect();
    let mut there = HashMap::new();
    for row in FIND.rows(db, &values).await? {
        let letter = mail_message(&row)?;
        let is_its = |(sender, key): &&IdempotencyKey<'a>| {
            *sender == letter.new.sender && letter.new.key.as_deref() == Some(*key)
        };
        if let Some(key) = keys.iter().find(is_its) {
            there.insert(*key, letter);
        }
    }
    Ok(there)
}

async fn insert_messages(
    tx: &mut Tx,
    kept: &[(&PostMessage, Arc<MailMessage>)],
    now_ms: i64,
) -> sqlx::Result<()> {
    let (mut letters, mut copies): (Vec<SqlArg<'_>>, Vec<SqlArg<'_>>) =
        (Vec::with_capacity(kept.len() * 20), Vec::new());
    for (post, letter) in kept {
        let new = &letter.new;
        let (nth, urgent, expires_ms) = (
            db_number(letter.number),
            i64::from(new.urgent),
            to_unix_ms(new.expires),
        );
        letters.extend::<[SqlArg<'_>; 20]>(args![
            nth,
            &new.id,
            &new.sender,
            new.key.as_deref(),
            new.kind.as_str(),
            new.label.as_deref(),
            &new.audience,
            new.thread(),
            new.reply_to.as_deref(),
            new.topic.as_deref(),
            urgent,
            new.class.as_str(),
            now_ms,
            expires_ms,
            &post.recipients,
            new.recipients.len() as u64,
            letter.copies_made,
            letter.digest.bytes,
            &letter.digest.hash,
            &new.body
        ]);
        let made = new
            .recipients
            .get(..letter.copies_made as usize)
            .unwrap_or_default();
        debug_assert!(made.len() <= INLINE_COPIES_MAX, "the others are spread");
        let accepted = DeliveryState::Accepted.as_str();
        copies.extend(made.iter().flat_map(|recipient| -> [SqlArg<'_>; 6] {
            args![recipient, nth, urgent, accepted, now_ms, expires_ms]
        }));
    }
    INSERT.execute(&mut tx.db, &letters).await?;
    INSERT_COPIES.execute(&mut tx.db, &copies).await
}

impl WriteOp for PostMessage {
    type Output = Arc<MailMessage>;
    const NAME: &'static str = "mail.post";
    const IS_MERGED: bool = true;

    fn bytes(&self) -> usize {
        self.new.body.len() + self.recipients.len()
    }

    /// Stores several messages. A message whose sender and idempotency key were used before isn't
    /// stored again: the earlier message is returned for it.
    async fn run_all(posts: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Self::Output>> {
        // Waits for messages that another node has written but not yet committed.
        lock_mail(tx).await?;
        let mut there = find_existing(&posts, &mut tx.db).await?;
        let mut keys: BTreeSet<IdempotencyKey<'_>> = there.keys().copied().collect();
        let new = posts
            .iter()
            .filter(|post| post.idempotency_key().is_none_or(|key| keys.insert(key)))
            .count() as u64;
        if new == 0 {
            return Ok(posts
                .iter()
                .filter_map(|post| there.get(&post.idempotency_key()?).cloned())
                .collect());
        }
        let mut numbers = tx.take_numbers(MESSAGE_COUNTER, new).await?..;
        let now_ms = tx.now_ms;
        let (mut letters, mut kept) = (
            Vec::with_capacity(posts.len()),
            Vec::with_capacity(posts.len()),
        );
        for post in &posts {
            if let Some(first) = post.idempotency_key().and_then(|key| there.get(&key)) {
                letters.push(Arc::new(MailMessage {
                    is_new: false,
                    ..MailMessage::clone(first)
                }));
                continue;
            }
            let letter = Arc::new(post.mail_message(numbers.next().unwrap_or(u64::MAX), now_ms));
            there.extend(post.idempotency_key().map(|key| (key, letter.clone())));
            kept.push((&**post, letter.clone()));
            letters.push(letter);
        }
        insert_messages(tx, &kept, now_ms).await?;
        let events: Vec<_> = kept
            .iter()
            .map(|(_, letter)| EventRecord::Posted {
                letter: letter.number,
            })
            .collect();
        append_events(tx, &events).await?;
        for (_, letter) in kept {
            tx.audit(letter.audit_entry());
        }
        Ok(letters)
    }
}

const FAN_OUT_SQL: Sql = Sql::new(
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_each(l.recipients) AS one \
     WHERE l.number = $1 AND one.key >= $2 AND one.key < $3 ON CONFLICT DO NOTHING",
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_array_elements_text(CAST(l.recipients AS json)) WITH ORDINALITY AS one (value, key) \
     WHERE l.number = $1 AND one.key > $2 AND one.key <= $3 ON CONFLICT DO NOTHING",
);

pub(super) struct FanOut {
    letter: i64,
    to: i64,
    /// Recipients that have received the message already, each with the number of the message.
    delivered: Vec<(String, u64)>,
}

impl FanOut {
    pub(super) fn new(letter: i64, to: i64, delivered: Vec<String>) -> Self {
        let mut delivered: Vec<_> = delivered
            .into_iter()
            .map(|to| (to, letter.unsigned_abs()))
            .collect();
        delivered.sort_unstable();
        delivered.dedup();
        Self {
            letter,
            to,
            delivered,
        }
    }
}

impl WriteOp for FanOut {
    type Output = JournalResult<()>;
    const NAME: &'static str = "mail.spread";

    fn bytes(&self) -> usize {
        FAN_OUT_BATCH_MAX * 128
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        lock_mail(tx).await?;
        let at = tx
            .db
            .row(
                "SELECT spread, count FROM letter WHERE number = $1",
                &args![self.letter],
            )
            .await?;
        let Some(at) = at else {
            return Ok(Err(JournalError::Invalid(
                "`fan_out` names a message that isn't stored",
            )));
        };
        let (from, count) = (at.get(0)?, at.get(1)?);
        let to = self.to.min(count);
        if to - from > FAN_OUT_BATCH_MAX as i64 {
            return Ok(Err(JournalError::Invalid(
                "at most 128 copies can be made at once (`FAN_OUT_BATCH_MAX`)",
            )));
        }
        if to > from {
            tx.db
                .execute(FAN_OUT_SQL, &args![self.letter, from, to])
                .await?;
            tx.db
                .execute(
                    "UPDATE letter SET spread = $2 WHERE number = $1",
                    &args![self.letter, to],
                )
                .await?;
        }
        if !self.delivered.is_empty() {
            update_receipts(tx, &self.delivered, ReceiptUpdate::Delivered).await?;
        }
        Ok(Ok(()))
    }
}

macro_rules! movable {
    ($database:ident, $wanted:literal) => {
        concat!(
            "SELECT ",
            as_list!($database, "c.recipient", "c.letter", "l.id", "l.sender"),
            " FROM ",
            pairs!($database, "$1"),
            " CROSS JOIN copy AS c JOIN letter AS l ON l.number = c.letter \
             WHERE c.recipient = pair.recipient AND c.letter = pair.letter AND ",
            $wanted
        )
    };
}
const TO_DELIVER: Sql = Sql::new(
    movable!(sqlite, "c.state = 'accepted'"),
    movable!(postgres, "c.state = 'accepted'"),
);
const TO_READ: Sql = Sql::new(
    movable!(sqlite, "c.state <> 'read'"),
    movable!(postgres, "c.state <> 'read'"),
);

macro_rules! of_pairs {
    ($database:ident, $update:literal) => {
        concat!(
            $update,
            " AND (recipient, letter) IN (SELECT recipient, letter FROM ",
            pairs!($database, "$1"),
            ")"
        )
    };
}
macro_rules! update {
    ($update:literal) => {
        Sql::new(of_pairs!(sqlite, $update), of_pairs!(postgres, $update))
    };
}
const DELIVERED: Sql =
    update!("UPDATE copy SET state = 'delivered', delivered_ms = $2 WHERE state = 'accepted'");
const READ: Sql = update!(
    "UPDATE copy SET state = 'read', delivered_ms = coalesce(delivered_ms, $2), read_ms = $2 WHERE state <> 'read'"
);

macro_rules! make {
    ($database:ident) => {
        concat!(
            "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
             SELECT pair.recipient, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms FROM ",
            pairs!($database, "$1"),
            " CROSS JOIN letter AS l WHERE l.number = pair.letter AND l.spread < l.count AND ",
            has!($database, "l.recipients", "pair.recipient"),
            " ON CONFLICT DO NOTHING"
        )
    };
}
/// Statement that inserts missing copies for the given pairs of recipient and message. Pairs whose
/// recipient isn't a recipient of the message are skipped.
const CREATE_COPIES: Sql = Sql::new(make!(sqlite), make!(postgres));

/// Marks copies as delivered or read, and appends a mail event for each message. `wanted` names
/// each copy by recipient and message number. Returns the copies whose state changed.
async fn update_receipts(
    tx: &mut Tx,
    wanted: &[(String, u64)],
    mark: ReceiptUpdate,
) -> sqlx::Result<Vec<(String, u64)>> {
    let (find, update, state) = match mark {
        ReceiptUpdate::Delivered => (TO_DELIVER, DELIVERED, DeliveryState::Delivered),
        ReceiptUpdate::Read => (TO_READ, READ, DeliveryState::Read),
    };
    let list = json_param(wanted);
    let mut found = find_movable(tx, find, &list).await?;
    // Most copies exist already, so this is tried second.
    if found.len() < wanted.len() && tx.db.execute(CREATE_COPIES, &args![&list]).await? > 0 {
        found = find_movable(tx, find, &list).await?;
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = tx.now_ms;
    tx.db.execute(update, &args![&list, now_ms]).await?;
    let mut events: BTreeMap<u64, EventRecord> = BTreeMap::new();
    for (recipient, letter, id, sender) in &found {
        let event = events.entry(*letter).or_insert_with(|| {
            let (id, sender) = (id.clone(), sender.clone());
            EventRecord::Marked {
                letter: *letter,
                id,
                sender,
                state,
                recipients: Vec::new(),
            }
        });
        if let EventRecord::Marked { recipients, .. } = event {
            recipients.push(recipient.clone());
        }
    }
    let events: Vec<EventRecord> = events.into_values().collect();
    append_events(tx, &events).await?;
    Ok(found
        .into_iter()
        .map(|(recipient, letter, ..)| (recipient, letter))
        .collect())
}

/// Copy of a message whose state may change: recipient, message number, message id and sender.
type MovableCopy = (String, u64, String, String);

/// Returns the copies whose state would change, sorted and without duplicates.
async fn find_movable(tx: &mut Tx, find: Sql, list: &str) -> sqlx::Result<Vec<MovableCopy>> {
    let row = tx.db.row(find, &args![list]).await?;
    let mut found: Vec<MovableCopy> = row.map(|row| row.json(0)).transpose()?.unwrap_or_default();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

pub(super) struct UpdateReceipts {
    wanted: Vec<(String, u64)>,
    mark: ReceiptUpdate,
}

impl UpdateReceipts {
    pub(super) fn new(wanted: &[(String, u64)], mark: ReceiptUpdate) -> Self {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        // Numbers that no message can have are skipped.
        wanted.retain(|(_, letter)| i64::try_from(*letter).is_ok());
        Self { wanted, mark }
    }
}

impl WriteOp for UpdateReceipts {
    type Output = Vec<(String, u64)>;
    const NAME: &'static str = "mail.mark";
    const IS_MERGED: bool = true;

    fn uses_reserve(&self) -> bool {
        true
    }

    fn bytes(&self) -> usize {
        self.wanted
            .iter()
            .map(|(recipient, _)| recipient.len() + 64)
            .sum()
    }

    /// Marks the copies of several operations. A copy that more than one operation names is
    /// returned only to the first.
    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Self::Output>> {
        lock_mail(tx).await?;
        let mut outputs = vec![Vec::new(); all.len()];
        // The event of a delivery precedes that of the reading.
        for to in [ReceiptUpdate::Delivered, ReceiptUpdate::Read] {
            let wanted: BTreeSet<_> = all
                .iter()
                .filter(|one| one.mark == to)
                .flat_map(|one| &one.wanted)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let wanted: Vec<_> = wanted.into_iter().cloned().collect();
            let mut moved = BTreeSet::from_iter(update_receipts(tx, &wanted, to).await?);
            for (one, output) in all
                .iter()
                .zip(&mut outputs)
                .filter(|(one, _)| one.mark == to)
            {
                output.extend(one.wanted.iter().filter_map(|copy| moved.take(copy)));
            }
        }
        Ok(outputs)
    }
}

/// Write operation that increments the delivery attempts of a copy, which is created if it is
/// missing. Returns their number; 0 if the message has no such recipient.
pub(super) struct CountAttempt {
    pub(super) recipient: String,
    pub(super) letter: i64,
}

impl WriteOp for CountAttempt {
    type Output = u32;
    const NAME: &'static str = "mail.tried";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u32> {
        const COUNT: &str = "UPDATE copy SET attempts = attempts + 1 WHERE recipient = $1 AND letter = $2 RETURNING attempts";
        // Copies are locked after the event counter, in the same order as by writers of events.
        lock_mail(tx).await?;
        let args = args![&self.recipient, self.letter];
        let mut attempts = tx.db.number(COUNT, &args).await?;
        let list = json_param(&[(&self.recipient, self.letter)]);
        if attempts == 0 && tx.db.execute(CREATE_COPIES, &args![&list]).await? > 0 {
            attempts = tx.db.number(COUNT, &args).await?;
        }
        Ok(u32::try_from(attempts).unwrap_or(u32::MAX))
    }
}
