//! What the mailroom said, as HTTP.
