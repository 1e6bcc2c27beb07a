//! A person at a terminal, or a pipe, talks to an agent of this process.
