//! All that the node has acknowledged, and what became of it.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::node::Client;

/// Number of letters, or tasks, that are named when they are lost or doubled.
const NAMED_MAX: usize = 5;

/// Code of the error for an unknown task (A2A 1.0, section 5.4).
const TASK_NOT_FOUND: i64 = -32001;

/// Acknowledgements of a soak, shared by its clients.
#[derive(Default)]
pub struct Ledger(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    calls: u64,
    calls_failed: u64,
    /// Calls with the answer to another call.
    calls_mixed: u64,
    /// By text.
    letters: HashMap<String, Letter>,
    /// Tasks that haven't been seen in a final state since they were acknowledged.
    open_tasks: Vec<Task>,
    tasks: u64,
    /// Texts of tasks that were acknowledged as completed.
    completed: Vec<String>,
    lost: Vec<String>,
    twice: Vec<String>,
}

#[derive(Default)]
struct Letter {
    is_acknowledged: bool,
    /// Id under which the recipient has it.
    received_as: Option<String>,
}

#[derive(Clone)]
struct Task {
    id: String,
    text: String,
    is_completed: bool,
}

/// Numbers of a soak.
#[derive(Clone, Copy)]
pub struct Totals {
    pub calls: u64,
    pub calls_failed: u64,
    pub calls_mixed: u64,
    pub letters: usize,
    pub tasks: u64,
    pub lost: usize,
    pub twice: usize,
}

impl Ledger {
    /// Counts a call; `None` if it failed, else whether the answer was its own.
    pub fn called(&self, is_own: Option<bool>) {
        let mut pages = self.0.lock();
        pages.calls += 1;
        match is_own {
            None => pages.calls_failed += 1,
            Some(false) => pages.calls_mixed += 1,
            Some(true) => {}
        }
    }

    /// Notes that the node has accepted a letter.
    pub fn letter_accepted(&self, text: String) {
        self.0
            .lock()
            .letters
            .entry(text)
            .or_default()
            .is_acknowledged = true;
    }

    /// Notes that the recipient has a letter. Under a second id it is there twice.
    pub fn letter_received(&self, text: String, id: &str) {
        let mut pages = self.0.lock();
        let letter = pages.letters.entry(text.clone()).or_default();
        let known = letter.received_as.get_or_insert_with(|| id.to_owned());
        if known != id {
            pages.twice.push(text);
        }
    }

    /// Notes the answer to a `SendMessage`: a task, completed or not yet.
    pub fn task_accepted(&self, text: String, answer: &str) {
        let answer: Value = serde_json::from_str(answer).unwrap_or_default();
        let task = &answer["result"]["task"];
        let Some(id) = task["id"].as_str() else {
            return;
        };
        let is_completed = task["status"]["state"] == "TASK_STATE_COMPLETED";
        let mut pages = self.0.lock();
        pages.tasks += 1;
        pages.open_tasks.push(Task {
            id: id.to_owned(),
            text,
            is_completed,
        });
    }

    /// Looks at all tasks that were acknowledged since the last time. Returns the number of those that aren't in a final state.
    pub async fn verify_tasks(&self, client: &Client) -> usize {
        let tasks = std::mem::take(&mut self.0.lock().open_tasks);
        let mut open = Vec::new();
        for task in tasks {
            let found = client.a2a("GetTask", &json!({ "id": task.id })).await;
            let answer: Value = found
                .ok()
                .filter(|(status, _)| *status == 200)
                .and_then(|(_, answer)| serde_json::from_str(&answer).ok())
                .unwrap_or_default();
            let state = answer["result"]["status"]["state"]
                .as_str()
                .unwrap_or_default();
            let is_unknown = answer["error"]["code"] == TASK_NOT_FOUND;
            let mut pages = self.0.lock();
            match state {
                "TASK_STATE_COMPLETED" if answer.to_string().contains(&task.text) => {
                    pages.completed.push(task.text);
                }
                // It was running when the node was killed, and its tool must not run again.
                "TASK_STATE_FAILED" if !task.is_completed => {}
                // The node is away or too busy: later.
                "" if !is_unknown => open.push(task),
                "TASK_STATE_WORKING" | "TASK_STATE_SUBMITTED" if !task.is_completed => {
                    open.push(task);
                }
                _ => {
                    let Task { text, id, .. } = task;
                    pages.lost.push(format!("{text} ({id}): {answer}"));
                }
            }
        }
        let count = open.len();
        self.0.lock().open_tasks.append(&mut open);
        count
    }

    /// Returns whether the recipient has all letters that were accepted.
    pub fn has_all_letters(&self) -> bool {
        let pages = self.0.lock();
        let mut letters = pages.letters.values();
        letters.all(|letter| !letter.is_acknowledged || letter.received_as.is_some())
    }

    /// Closes the ledger. `recorded` are the texts that the tool ran with. Prints some of what is lost or doubled.
    pub fn close(&self, recorded: &[String]) -> Totals {
        let mut pages = self.0.lock();
        let pages = &mut *pages;
        let missing = pages
            .letters
            .iter()
            .filter(|(_, letter)| letter.is_acknowledged && letter.received_as.is_none());
        pages.lost.extend(missing.map(|(text, _)| text.clone()));
        pages.lost.extend(
            pages
                .open_tasks
                .iter()
                .map(|task| format!("{}: no end", task.text)),
        );
        let mut ran: HashMap<&str, u32> = HashMap::new();
        for text in recorded {
            *ran.entry(text).or_default() += 1;
        }
        let doubled = ran.iter().filter(|(_, count)| **count > 1);
        pages
            .twice
            .extend(doubled.map(|(text, _)| (*text).to_owned()));
        let never = pages
            .completed
            .iter()
            .filter(|text| !ran.contains_key(&***text));
        pages
            .lost
            .extend(never.map(|text| format!("{text}: never ran")));
        for (kind, named) in [("lost", &pages.lost), ("twice", &pages.twice)] {
            named
                .iter()
                .take(NAMED_MAX)
                .for_each(|name| eprintln!("{kind}: {name}"));
        }
        let accepted = pages
            .letters
            .values()
            .filter(|letter| letter.is_acknowledged);
        Totals {
            calls: pages.calls,
            calls_failed: pages.calls_failed,
            calls_mixed: pages.calls_mixed,
            letters: accepted.count(),
            tasks: pages.tasks,
            lost: pages.lost.len(),
            twice: pages.twice.len(),
        }
    }
}
