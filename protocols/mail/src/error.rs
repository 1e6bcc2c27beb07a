//! Errors of the listener and of the client: what to do next.
