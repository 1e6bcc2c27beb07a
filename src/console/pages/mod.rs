//! Pages of the console, rendered as HTML.
//!
//! A function that takes a [`PageFrame`] returns a whole page, unless it is listed here. The others return parts, which
//! the browser fetches again by `GET /part/{name}` when the node has changed:
//!
//! | part | query | function |
//! |---|---|---|
//! | `counts` | | [`counts`] |
//! | `agents` | | [`agents_table`] |
//! | `calls` | `filter` | [`calls_table`] |
//! | `timeline` | `call` | [`timeline_steps`] |
//! | `questions-list` | | [`questions_list`] |
//! | `question` | `id` | [`question_form`]; nothing if the question has gone |
//! | `tasks` | | [`tasks_table`] |
//! | `upstreams` | | [`upstreams_table`] |
//! | `play-run` | `id` | [`play_run`] |
//!
//! Forms with text fields lie outside of the parts, so that an update destroys no input. No page holds a script or a
//! style of its own, and nothing is loaded from another server. Texts from outside are escaped, and their hidden
//! characters are shown as escapes.

mod approvals;
mod connect;
mod dashboard;
mod difference;
mod elements;
mod frame;
mod login;
mod mail;
mod play;
mod questions;
mod tasks;
mod timeline;
mod tools;
mod topology;
mod upstreams;

pub(crate) use approvals::approvals;
pub(crate) use connect::{ConnectTarget, connect};
pub(crate) use dashboard::{agents_table, calls_table, dashboard};
pub(crate) use frame::{PageFrame, Viewer, counts, message};
pub(crate) use login::login;
pub(crate) use mail::{MailLine, MailPage, MailThreadLine, mail};
pub(crate) use play::{PlayPage, PlayRun, PlayTool, play, play_run};
pub(crate) use questions::{question_form, questions, questions_list};
pub(crate) use tasks::{task, tasks, tasks_table};
pub(crate) use timeline::{timeline, timeline_steps};
pub(crate) use tools::tools;
pub(crate) use topology::{TopologyPicture, topology};
pub(crate) use upstreams::{upstreams, upstreams_table};

#[cfg(test)]
mod tests;
