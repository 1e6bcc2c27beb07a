//! A call's words and A2A's, both ways.

mod answer;
mod content;
mod failure;
mod question;
mod status;
