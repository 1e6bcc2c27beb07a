//! The log of who wrote to whom: the view `agent_log`.

use callboard_message::mail::AgentLogRow;
use callboard_runtime::{JournalError, MAIL_LOG_ROWS_A_LETTER};

use crate::readers::Readers;
use crate::sql::{Row, args};

/// As the view's text says.
const ROWS_A_LETTER: i64 = MAIL_LOG_ROWS_A_LETTER as i64;

// No index knows a row's number, which is made of the letter's: so many letters have as many rows at least, but that the
// first may have been seen.
const OF_ALL: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE CAST($1 AS TEXT) IS NULL AND letter IN (SELECT number FROM letter WHERE number >= $2 ORDER BY number LIMIT $4 + 1) \
     AND number > $3 ORDER BY number LIMIT $4";
const OF_ONE: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE agent_id = $1 AND letter IN (SELECT letter FROM (SELECT letter FROM copy WHERE recipient = $1 AND letter >= $2 \
     ORDER BY letter LIMIT $4 + 1) AS made UNION SELECT number FROM letter WHERE spread < count) \
     AND number > $3 ORDER BY number LIMIT $4";

pub(super) async fn read(
    readers: &Readers,
    agent: Option<&str>,
    after: i64,
    rows_max: i64,
) -> Result<Vec<AgentLogRow>, JournalError> {
    let args = args![agent, after / ROWS_A_LETTER, after, rows_max];
    let sql = if agent.is_some() { OF_ONE } else { OF_ALL };
    let row = |row: &Row| {
        let (number, log_type, agent_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(AgentLogRow { number, log_type, agent_id, message: row.get(3)?, details: row.json(4)? })
    };
    readers.read(sql, &args, row).await
}
