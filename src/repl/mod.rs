//! The REPL.

mod answer;
mod ask;
mod command;
mod complete;
mod desk;
mod input;
mod json;
mod log;
mod print;
mod signals;
mod words;
