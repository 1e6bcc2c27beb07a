//! How a line that is being typed could go on.

use std::sync::Arc;

use parking_lot::Mutex;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::command::COMMANDS;

/// What can be named.
#[derive(Debug, Default, Clone)]
pub(super) struct Names {
    pub(super) tools: Vec<String>,
    /// Addresses of agents that are known.
    pub(super) agents: Vec<String>,
    /// Tasks of this session, and what was sent to others.
    pub(super) tasks: Vec<String>,
}

/// The names of the moment. Its clones are one.
#[derive(Clone, Default)]
pub(super) struct Completion(Arc<Mutex<Names>>);

impl Completion {
    /// From now on these can be named.
    pub(super) fn set(&self, names: Names) {
        *self.0.lock() = names;
    }
}

/// Where the word begins that is being typed, and what it could be.
fn completions(line: &str, names: &Names) -> (usize, Vec<String>) {
    let Some(typed) = line.strip_prefix(':') else { return (line.len(), Vec::new()) };
    let Some((command, rest)) = typed.split_once(' ') else {
        let fits = |name: &&str| name.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed));
        let all = COMMANDS.iter().map(|entry| entry.name).filter(fits);
        return (0, all.map(|name| format!(":{name}")).collect());
    };
    if rest.contains(' ') {
        return (line.len(), Vec::new());
    }
    let words: Vec<&str> = match command {
        "tool" => names.tools.iter().map(String::as_str).collect(),
        "connect" => names.agents.iter().map(String::as_str).collect(),
        "task" | "artifacts" | "cancelTask" | "answer" | "memoryTask" => {
            names.tasks.iter().map(String::as_str).collect()
        }
        "session" => vec!["new", "show"],
        "memory" => vec!["clear"],
        "tasks" => vec!["all"],
        "card" => vec!["remote"],
        _ => Vec::new(),
    };
    let fitting = words.into_iter().filter(|word| word.starts_with(rest)).map(str::to_owned);
    (line.len() - rest.len(), fitting.collect())
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let names = self.0.lock();
        Ok(completions(line.get(..at).unwrap_or_default(), &names))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: commands and what they name are completed, texts are not. Method: rows.
    #[test]
    fn words_are_completed() {
        let names = Names {
            tools: vec!["echo".into(), "list_agents".into()],
            agents: vec!["http://localhost:4201".into()],
            tasks: vec!["1234-abcd".into()],
        };
        for (line, at, words) in [
            (":", 0, COMMANDS.iter().map(|entry| format!(":{}", entry.name)).collect()),
            (":mem", 0, vec![":memory".to_owned(), ":memoryTask".to_owned()]),
            (":CANCEL", 0, vec![":cancelTask".to_owned()]),
            (":tool l", 6, vec!["list_agents".to_owned()]),
            (":tool list_agents {", 19, vec![]),
            (":connect ", 9, vec!["http://localhost:4201".to_owned()]),
            (":memoryTask 12", 12, vec!["1234-abcd".to_owned()]),
            (":session s", 9, vec!["show".to_owned()]),
            (":remote l", 8, vec![]),
            ("list", 4, vec![]),
            ("ünï", 5, vec![]),
        ] {
            assert_eq!(completions(line, &names), (at, words), "{line}");
        }
    }
}
