//! What reads letters and copies asks the database.

use super::list::has;
use super::row::{copy_columns, letter_columns};
use crate::sql::Sql;

/// SQLite would read through all copies of a recipient otherwise, also those that it read long ago.
macro_rules! copy_open {
    (sqlite) => {
        "copy AS c INDEXED BY copy_open"
    };
    (postgres) => {
        "copy AS c"
    };
}
/// Copies of one urgency after a letter, in the order of the index.
macro_rules! made {
    ($database:ident, $urgent:literal, $after:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            letter_columns!(),
            ", ",
            copy_columns!(),
            " FROM ",
            copy_open!($database),
            " JOIN letter AS l ON l.number = c.letter WHERE c.recipient = $1 AND c.urgent = ",
            $urgent,
            " AND c.letter > ",
            $after,
            " AND c.state <> 'read' AND (c.state = 'accepted' OR $4 = 0) AND c.expires_ms > $5 \
             ORDER BY c.letter LIMIT $6) AS made_",
            $urgent
        )
    };
}
macro_rules! open {
    ($database:ident) => {
        concat!(
            made!($database, 1, "$2"),
            " UNION ALL ",
            made!($database, 0, "$3"),
            " UNION ALL SELECT * FROM (SELECT ",
            letter_columns!(),
            ", ",
            copy_columns!(),
            " FROM letter AS l LEFT JOIN copy AS c ON c.recipient = $1 AND c.letter = l.number \
             WHERE l.spread < l.count AND c.letter IS NULL AND l.expires_ms > $5 \
             AND (l.urgent = 1 AND l.number > $2 OR l.urgent = 0 AND l.number > $3) AND ",
            has!($database, "l.recipients", "$1"),
            " ORDER BY l.urgent DESC, l.number LIMIT $6) AS unmade"
        )
    };
}
pub(super) const OPEN: Sql = Sql::new(open!(sqlite), open!(postgres));

// Of the view `agent_log`. No index knows a row's number, which is made of the letter's: so many letters have as many rows
// at least, but that the first may have been seen.
pub(super) const LOGS: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE CAST($1 AS TEXT) IS NULL AND letter IN (SELECT number FROM letter WHERE number >= $2 ORDER BY number LIMIT $4 + 1) \
     AND number > $3 ORDER BY number LIMIT $4";
pub(super) const LOGS_OF_ONE: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE agent_id = $1 AND letter IN (SELECT letter FROM (SELECT letter FROM copy WHERE recipient = $1 AND letter >= $2 \
     ORDER BY letter LIMIT $4 + 1) AS made UNION SELECT number FROM letter WHERE spread < count) \
     AND number > $3 ORDER BY number LIMIT $4";
