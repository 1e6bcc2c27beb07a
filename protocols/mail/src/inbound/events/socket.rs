//! One socket: a cursor, no queue.
