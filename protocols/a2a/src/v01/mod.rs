//! A2A 0.1, over JSON-RPC with `tasks/send` (`specification/json/a2a.json` at 0.1.0). What it shares with 0.3 is there.

mod card;
mod request;
mod task;

pub(crate) use card::*;
pub(crate) use request::*;
pub(crate) use task::*;
