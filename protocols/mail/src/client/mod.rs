//! A client of a mail listener.

mod events;
