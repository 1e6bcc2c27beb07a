//! Making the copies of a letter to many, a part at a time, so that others' writes get between.

use callboard_runtime::{JournalError, Mark, SPREAD_MAX};
use futures::future::BoxFuture;

use super::events;
use super::list::each;
use super::mark::mark;
use crate::sql::Sql;
use crate::writer::{Tx, Write};

const MAKE: Sql = each(
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

    async fn spread(&self, tx: &mut Tx) -> Result<Result<(), JournalError>, sqlx::Error> {
        events::lock(tx).await?;
        let at = tx.db().row("SELECT spread, count FROM letter WHERE number = $1", &[self.letter.into()]).await?;
        let Some(at) = at else { return Ok(Err(JournalError::Invalid("there is no such letter"))) };
        let (from, count) = (at.int(0)?, at.int(1)?);
        let to = self.to.min(count);
        if to - from > SPREAD_MAX as i64 {
            return Ok(Err(JournalError::Invalid("too many copies at once")));
        }
        if to > from {
            tx.db().execute(MAKE, &[self.letter.into(), from.into(), to.into()]).await?;
            tx.db()
                .execute("UPDATE letter SET spread = $2 WHERE number = $1", &[self.letter.into(), to.into()])
                .await?;
        }
        if !self.delivered.is_empty() {
            mark(tx, &self.delivered, Mark::Delivered).await?;
        }
        Ok(Ok(()))
    }
}

impl Write for Spread {
    type Output = Result<(), JournalError>;
    const NAME: &'static str = "mail.spread";

    fn bytes(&self) -> usize {
        SPREAD_MAX * 128
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, sqlx::Error>> {
        Box::pin(self.spread(tx))
    }
}
