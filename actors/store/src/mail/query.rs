//! Letters that a filter leaves (first whose they are, by an index, then the rest), and the stream of events.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{
    JournalResult, Letter, LetterAndCopy, LetterFilter, LetterPage, MAIL_EVENTS_STREAM,
    MAIL_LOOKED_MAX, StoredEvent,
};
use serde::{Deserialize, Serialize};

use super::SqlMail;
use super::sql::{copy_columns, has, letter_columns, numbers, written};
use crate::append::counter;
use crate::place::Readers;
use crate::sql::{Arg, ManyRows, Sql, args};
use crate::tx::{Tx, Write};

/// One row with a list of the numbers that a query answers.
macro_rules! listed {
    (sqlite, $($query:expr),+) => {
        concat!("SELECT json_group_array(number) FROM (", $($query),+, ")")
    };
    (postgres, $($query:expr),+) => {
        concat!("SELECT CAST(coalesce(json_agg(number), '[]') AS TEXT) FROM (", $($query),+, ") AS found")
    };
}
macro_rules! of_one {
    ($database:ident) => {
        listed!(
            $database,
            "SELECT number FROM (SELECT letter AS number FROM copy WHERE recipient = $1 AND letter < $2 \
             ORDER BY letter DESC LIMIT $3) AS got UNION SELECT number FROM (SELECT number FROM letter \
             WHERE sender = $1 AND number < $2 ORDER BY number DESC LIMIT $3) AS sent UNION SELECT number FROM \
             (SELECT l.number FROM letter AS l WHERE l.spread < l.count AND l.number < $2 AND ",
            has!($database, "l.recipients", "$1"),
            " ORDER BY l.number DESC LIMIT $3) AS unmade ORDER BY number DESC LIMIT $3"
        )
    };
}
macro_rules! by_column {
    ($wanted:literal) => {
        Sql::new(
            listed!(
                sqlite,
                "SELECT number FROM letter WHERE ",
                $wanted,
                " AND number < $2 ORDER BY number DESC LIMIT $3"
            ),
            listed!(
                postgres,
                "SELECT number FROM letter WHERE ",
                $wanted,
                " AND number < $2 ORDER BY number DESC LIMIT $3"
            ),
        )
    };
}
const OF_ONE: Sql = Sql::new(of_one!(sqlite), of_one!(postgres));
const OF_THREAD: Sql = by_column!("thread = $1");
const OF_SENDER: Sql = by_column!("sender = $1");
const OF_ALL: Sql = by_column!("CAST($1 AS TEXT) IS NULL");

/// Whether `$2` got it.
macro_rules! got {
    ($database:ident) => {
        concat!(
            "(c.letter IS NOT NULL OR l.spread < l.count AND ",
            has!($database, "l.recipients", "$2"),
            ")"
        )
    };
}
macro_rules! wanted {
    ($database:ident, $body_has:literal) => {
        concat!(
            "SELECT ",
            letter_columns!(),
            ", ",
            copy_columns!(),
            " FROM letter AS l LEFT JOIN copy AS c ON c.recipient = $2 AND c.letter = l.number WHERE l.number IN ",
            numbers!($database, "$1"),
            " AND (CAST($2 AS TEXT) IS NULL OR l.sender = $2 AND coalesce(CAST($3 AS BIGINT), 1) = 1 \
             OR coalesce(CAST($3 AS BIGINT), 0) = 0 AND ",
            got!($database),
            ") AND (CAST($4 AS TEXT) IS NULL OR l.sender = $2 AND ",
            has!($database, "l.recipients", "$4"),
            " OR l.sender = $4 AND ",
            got!($database),
            ") AND (CAST($5 AS TEXT) IS NULL OR l.sender = $5) AND (CAST($6 AS TEXT) IS NULL OR l.topic = $6) \
             AND (CAST($7 AS TEXT) IS NULL OR l.thread = $7) AND (CAST($8 AS BIGINT) IS NULL OR l.at_ms >= $8) \
             AND (CAST($9 AS BIGINT) IS NULL OR l.at_ms < $9) AND (CAST($10 AS TEXT) IS NULL OR ",
            $body_has,
            ") AND (CAST($11 AS TEXT) IS NULL OR ",
            got!($database),
            " AND coalesce(c.state, 'accepted') = $11) ORDER BY l.number DESC LIMIT $12"
        )
    };
}
// Of letters' cases only ASCII's are looked past, by both.
const WANTED: Sql = Sql::new(
    wanted!(sqlite, "instr(lower(l.body), $10) > 0"),
    wanted!(
        postgres,
        "position(CAST($10 AS TEXT) in lower(l.body COLLATE \"C\")) > 0"
    ),
);

pub(super) async fn find_letters(
    mail: &SqlMail,
    filter: &LetterFilter,
    before: i64,
    letters_max: i64,
) -> JournalResult<LetterPage> {
    let is_plain = *filter
        == LetterFilter {
            of: filter.of.clone(),
            ..LetterFilter::default()
        };
    let looked_max = if is_plain {
        letters_max + 1
    } else {
        super::number(MAIL_LOOKED_MAX)
    };
    let readers = &mail.core.readers;
    let looked = candidates(readers, filter, before, looked_max).await?;
    let list = written(&looked);
    let text = filter.text.as_ref().map(|text| text.to_ascii_lowercase());
    let of = filter.of.as_deref();
    let args: [Arg<'_>; 12] = args![
        &list,
        of,
        filter.sent.map(i64::from),
        filter.with.as_deref(),
        filter.sender.as_deref(),
        filter.topic.as_deref(),
        filter.thread.as_deref(),
        filter.since,
        filter.until,
        text.as_deref(),
        filter.state.map(|state| state.as_str()),
        letters_max
    ];
    let found: Vec<LetterAndCopy> = match looked.is_empty() {
        true => Vec::new(),
        false => {
            readers
                .read(WANTED, &args, |row| mail.held.letter_and_copy(row, of))
                .await?
        }
    };
    let is_all = (looked.len() as i64) < looked_max;
    let last = looked.last().copied();
    let next = match found.last() {
        // A full page: there may be more of those that were looked at.
        Some((letter, _)) if found.len() as i64 == letters_max => {
            Some(letter.number).filter(|number| !is_all || last.is_some_and(|last| last < *number))
        }
        _ => last.filter(|_| !is_all),
    };
    Ok((found, next))
}

/// Numbers of letters to look at, newest first.
async fn candidates(
    readers: &Readers,
    filter: &LetterFilter,
    before: i64,
    looked_max: i64,
) -> JournalResult<Vec<u64>> {
    let (sql, of) = match filter {
        LetterFilter {
            thread: Some(thread),
            ..
        } => (OF_THREAD, Some(thread)),
        LetterFilter { of: Some(of), .. } => (OF_ONE, Some(of)),
        LetterFilter {
            sender: Some(sender),
            ..
        } => (OF_SENDER, Some(sender)),
        _ => (OF_ALL, None),
    };
    let args = args![of.map(String::as_str), before, looked_max];
    let numbers = readers.read(sql, &args, |row| row.json(0)).await?;
    let mut numbers: Vec<u64> = numbers.into_iter().next().unwrap_or_default();
    numbers.sort_unstable_by(|one, next| next.cmp(one));
    Ok(numbers)
}

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO record (stream, number, at_ms, body) VALUES",
    4,
    "",
);
const LETTERS: Sql = Sql::new(
    concat!(
        "SELECT ",
        letter_columns!(),
        " FROM letter AS l WHERE l.number IN ",
        numbers!(sqlite, "$1")
    ),
    concat!(
        "SELECT ",
        letter_columns!(),
        " FROM letter AS l WHERE l.number IN ",
        numbers!(postgres, "$1")
    ),
);

/// An event as it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Kept {
    Posted {
        letter: u64,
    },
    Marked {
        letter: u64,
        id: String,
        sender: String,
        state: EntryState,
        recipients: Vec<String>,
    },
    Joined {
        agent: String,
        way: String,
    },
    Left {
        agent: String,
        why: String,
    },
}

impl Kept {
    /// As it is answered; `None` where its letter is gone.
    fn told(self, letters: &HashMap<u64, Arc<Letter>>) -> Option<StoredEvent> {
        Some(match self {
            Self::Posted { letter } => StoredEvent::Posted(Arc::clone(letters.get(&letter)?)),
            Self::Marked {
                letter,
                id,
                sender,
                state,
                recipients,
            } => StoredEvent::Marked {
                letter,
                id,
                sender,
                state,
                recipients,
            },
            Self::Joined { agent, way } => StoredEvent::Joined(agent, way),
            Self::Left { agent, why } => StoredEvent::Left(agent, why),
        })
    }
}

/// Appends events in this transaction; answers the last one's number.
pub(super) async fn append_events(tx: &mut Tx, events: &[Kept]) -> sqlx::Result<u64> {
    let first = tx
        .numbers(&counter(MAIL_EVENTS_STREAM), events.len() as u64)
        .await?;
    let now_ms = tx.now_ms;
    let bodies: Vec<String> = events.iter().map(written).collect();
    let values: Vec<Arg<'_>> = (super::number(first)..)
        .zip(&bodies)
        .flat_map(|(number, body)| args![MAIL_EVENTS_STREAM, number, now_ms, body])
        .collect();
    INSERT.execute(&mut tx.db, &values).await?;
    Ok(first + events.len() as u64 - 1)
}

/// Has other nodes' mail wait for this transaction: whoever writes mail does so before it looks, so that two never wait for
/// each other's rows.
pub(super) async fn lock_mail(tx: &mut Tx) -> sqlx::Result<()> {
    if !tx.db.is_sqlite() {
        tx.numbers(&counter(MAIL_EVENTS_STREAM), 0).await?;
    }
    Ok(())
}

/// An event that no letter gives rise to.
pub(super) struct Tell {
    event: Option<Kept>,
}

impl Tell {
    pub(super) fn new(event: StoredEvent) -> Self {
        let event = match event {
            StoredEvent::Joined(agent, way) => Some(Kept::Joined { agent, way }),
            StoredEvent::Left(agent, why) => Some(Kept::Left { agent, why }),
            // Refused before it came here.
            StoredEvent::Posted(_) | StoredEvent::Marked { .. } => None,
        };
        Self { event }
    }
}

impl Write for Tell {
    type Output = u64;
    const NAME: &'static str = "mail.tell";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        append_events(tx, self.event.as_slice()).await
    }
}

/// Events after a number. Those of letters that are gone are left out; a page is empty only at the end.
pub(super) async fn read_events(
    mail: &SqlMail,
    mut after: i64,
    events_max: i64,
) -> JournalResult<Vec<(u64, StoredEvent)>> {
    let readers = &mail.core.readers;
    loop {
        let sql = "SELECT number, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![MAIL_EVENTS_STREAM, after, events_max];
        let kept: Vec<(u64, Kept)> = readers
            .read(sql, &args, |row| Ok((row.get(0)?, row.json(1)?)))
            .await?;
        let Some((last, _)) = kept.last() else {
            return Ok(Vec::new());
        };
        after = super::number(*last);
        let posted: Vec<u64> = kept
            .iter()
            .filter_map(|(_, event)| match event {
                Kept::Posted { letter } => Some(*letter),
                _ => None,
            })
            .collect();
        let found = match posted.is_empty() {
            true => Vec::new(),
            false => {
                readers
                    .read(LETTERS, &args![&written(&posted)], |row| {
                        mail.held.letter(row)
                    })
                    .await?
            }
        };
        let found: HashMap<u64, Arc<Letter>> = found
            .into_iter()
            .map(|letter| (letter.number, letter))
            .collect();
        let events: Vec<_> = kept
            .into_iter()
            .filter_map(|(number, event)| Some((number, event.told(&found)?)))
            .collect();
        if !events.is_empty() {
            return Ok(events);
        }
    }
}

/// The newest event's number.
pub(super) async fn last_event(readers: &Readers) -> JournalResult<u64> {
    let name = counter(MAIL_EVENTS_STREAM);
    let last = readers
        .read(
            "SELECT last FROM stream WHERE name = $1",
            &args![&name],
            |row| row.get(0),
        )
        .await?;
    Ok(last.into_iter().next().unwrap_or_default())
}
