//! The server behind a mail listener.
