//! The kernel: agents, mailboxes, supervision, calls. The only crate that names actix
