//! Making the copies of a letter to many, a part at a time, so that others' writes get between.

use callboard_runtime::{JournalError, Mark, SPREAD_MAX};

use super::events;
use super::mark::mark;
use crate::sql::{Sql, args};
use crate::writer::{Tx, Write};

const MAKE: Sql = Sql::new(
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_each(l.recipients) AS one \
     WHERE l.number = $1 AND one.key >= $2 AND one.key < $3 ON CONFLICT DO NOTHING",
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_array_elements_text(CAST(l.recipients AS json)) WITH ORDINALITY AS one (value, key) \
     WHERE l.number = $1 AND one.key > $2 AND one.key <= $3 ON CONFLICT DO NOTHING",
);

pub(super) struct Spread {
    letter: i64,
    to: i64,
    /// Recipients that have it, with the letter.
    delivered: Vec<(String, u64)>,
}

impl Spread {
    pub(super) fn new(letter: i64, to: i64, delivered: Vec<String>) -> Self {
        let mut delivered: Vec<_> = delivered.into_iter().map(|to| (to, letter.unsigned_abs())).collect();
        delivered.sort_unstable();
        delivered.dedup();
        Self { letter, to, delivered }
    }
}

impl Write for Spread {
    type Output = Result<(), JournalError>;
    const NAME: &'static str = "mail.spread";

    fn bytes(&self) -> usize {
        SPREAD_MAX * 128
    }

    async fn run(&mut self, tx: &mut Tx) -> Result<Self::Output, sqlx::Error> {
        events::lock(tx).await?;
        let at = tx.db().row("SELECT spread, count FROM letter WHERE number = $1", &args![self.letter]).await?;
        let Some(at) = at else { return Ok(Err(JournalError::Invalid("there is no such letter"))) };
        let (from, count) = (at.get(0)?, at.get(1)?);
        let to = self.to.min(count);
        if to - from > SPREAD_MAX as i64 {
            return Ok(Err(JournalError::Invalid("too many copies at once")));
        }
        if to > from {
            tx.db().execute(MAKE, &args![self.letter, from, to]).await?;
            tx.db().execute("UPDATE letter SET spread = $2 WHERE number = $1", &args![self.letter, to]).await?;
        }
        if !self.delivered.is_empty() {
            mark(tx, &self.delivered, Mark::Delivered).await?;
        }
        Ok(Ok(()))
    }
}
