//! A round through the tools that every peer here has, and what must come of it.

use serde::{Deserialize, Serialize};

/// What a client got: of a server with the tools `echo`, `ask_name`, `ask_model`, `folders`, `count` and `fail`, the
/// resource `peer://greeting` and the prompt `greet`.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What the server asked in mid-call, in order.
    pub asked: Vec<String>,
    /// Done and total, of `count`.
    pub progress: Vec<(f64, f64)>,
    /// Lines of its log.
    pub logs: Vec<String>,
    /// By name.
    pub tools: Vec<String>,
    pub echo: String,
    pub ask_name: String,
    pub ask_model: String,
    pub folders: String,
    pub count: String,
    pub fail: String,
    pub resource: String,
    pub prompt: String,
}

/// What the person behind every client here answers.
pub const NAME: &str = "Ada";
/// What its model answers.
pub const CAPITAL: &str = "Paris";
/// The folder that it lends.
pub const FOLDER: &str = "file:///lent";
/// What is echoed: not ASCII only.
pub const ECHOED: &str = "tschüß";
/// What it is asked.
pub const ASKS_NAME: &str = "What is your name?";
pub const ASKS_CAPITAL: &str = "What is the capital of France?";

impl Round {
    /// A round with nothing lost. `fail` is the server's own way to say that a tool failed.
    pub fn whole(fail: &str) -> Self {
        Self {
            asked: [ASKS_NAME, ASKS_CAPITAL, "roots"].map(String::from).to_vec(),
            progress: vec![(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)],
            logs: ["at 1", "at 2", "at 3"].map(String::from).to_vec(),
            tools: ["ask_model", "ask_name", "count", "echo", "fail", "folders"].map(String::from).to_vec(),
            echo: ECHOED.to_owned(),
            ask_name: format!("Hello, {NAME}!"),
            ask_model: CAPITAL.to_owned(),
            folders: FOLDER.to_owned(),
            count: "3".to_owned(),
            fail: fail.to_owned(),
            resource: "Good morning".to_owned(),
            prompt: format!("Greet {NAME}"),
        }
    }
}
