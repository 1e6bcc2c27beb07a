//! A round through the tools that the peers here have, and what must come of it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Answer of the user behind every client.
pub const NAME: &str = "Ada";
/// Answer of the client's model.
pub const CAPITAL: &str = "Paris";
/// The folder that it lends.
pub const FOLDER: &str = "file:///lent";
/// Echoed text with non-ASCII characters.
pub const ECHOED: &str = "tschüß";
/// Questions of the servers.
pub const ASKS_NAME: &str = "What is your name?";
pub const ASKS_CAPITAL: &str = "What is the capital of France?";

/// One thing for a client to do.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Under which it tells what came of it.
    pub label: &'static str,
    pub kind: Kind,
    /// Of a tool or prompt; a resource's address.
    pub name: &'static str,
    pub arguments: Value,
    /// Whether it's enough that what is said and asked holds what is wanted.
    #[serde(skip)]
    pub loose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The names, in order.
    Tools,
    Tool,
    Resource,
    Prompt,
    /// A tool that is cancelled once it tells progress.
    GiveUp,
}

/// Results of a client.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub steps: BTreeMap<String, Heard>,
    /// Lines of the server's log.
    pub logs: Vec<String>,
    /// Why it went no further.
    #[serde(default)]
    pub broken: Option<String>,
}

/// Result of a step.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// The text, after `error: ` if the tool reported an error.
    pub said: String,
    /// Questions of the server during the call, sorted.
    pub asked: Vec<String>,
    /// Done and total.
    pub progress: Vec<(f64, f64)>,
}

impl Heard {
    pub fn said(text: impl Into<String>) -> Self {
        Self {
            said: text.into(),
            ..Self::default()
        }
    }

    pub fn after(self, asked: &[&str]) -> Self {
        let mut asked: Vec<String> = asked.iter().map(|asked| (*asked).to_owned()).collect();
        asked.sort();
        Self { asked, ..self }
    }

    pub fn telling(self, progress: &[(f64, f64)]) -> Self {
        Self {
            progress: progress.to_vec(),
            ..self
        }
    }
}

fn step(label: &'static str, kind: Kind, arguments: Value) -> Step {
    Step {
        label,
        kind,
        name: label,
        arguments,
        loose: false,
    }
}

/// Steps with what must come of each.
pub type Plan = Vec<(Step, Heard)>;

pub fn steps(plan: &Plan) -> impl Iterator<Item = &Step> {
    plan.iter().map(|(step, _)| step)
}

/// The list of the tools.
pub fn tools(names: &[&str]) -> (Step, Heard) {
    (
        step("tools", Kind::Tools, json!({})),
        Heard::said(names.join(" ")),
    )
}

/// Plan for every peer. `fail` is the server's own form of a failed tool.
pub fn plain(fail: &str) -> Plan {
    let greeting = Step {
        name: "peer://greeting",
        ..step("resource", Kind::Resource, json!({}))
    };
    let greet = Step {
        name: "greet",
        ..step("prompt", Kind::Prompt, json!({ "name": NAME }))
    };
    let tool = |name, arguments| step(name, Kind::Tool, arguments);
    vec![
        (tool("echo", json!({ "text": ECHOED })), Heard::said(ECHOED)),
        (
            tool("ask_name", json!({})),
            Heard::said(format!("Hello, {NAME}!")).after(&[ASKS_NAME]),
        ),
        (
            tool("ask_model", json!({})),
            Heard::said(CAPITAL).after(&[ASKS_CAPITAL]),
        ),
        (
            tool("folders", json!({})),
            Heard::said(FOLDER).after(&["roots"]),
        ),
        (
            tool("count", json!({ "to": 3 })),
            Heard::said("3").telling(&[(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)]),
        ),
        (tool("fail", json!({})), Heard::said(fail)),
        (greeting, Heard::said("Good morning")),
        (greet, Heard::said(format!("Greet {NAME}"))),
    ]
}

/// Additional plan for peers that can ask more: three questions in one call, a follow-up question,
/// questions of a prompt and of a resource.
pub fn asking() -> Plan {
    let asked = Step {
        name: "peer://asked/sea",
        ..step("ask_resource", Kind::Resource, json!({}))
    };
    let ask_and_greet = Step {
        name: "ask_and_greet",
        ..step("ask_prompt", Kind::Prompt, json!({}))
    };
    let sure = format!("Sure, {NAME}?");
    let all = format!("{NAME}, {CAPITAL}, {FOLDER}");
    vec![
        (
            step("ask_all", Kind::Tool, json!({})),
            Heard::said(all).after(&[ASKS_NAME, ASKS_CAPITAL, "roots"]),
        ),
        (
            step("ask_twice", Kind::Tool, json!({})),
            Heard::said(format!("Sure, {NAME}!")).after(&[ASKS_NAME, &sure]),
        ),
        (
            asked,
            Heard::said(format!("sea: {NAME}")).after(&[ASKS_NAME]),
        ),
        (
            ask_and_greet,
            Heard::said(format!("Greet {NAME}")).after(&[ASKS_NAME]),
        ),
    ]
}

/// Plan for the reference server. It shows the tools that ask only after it knows the client's
/// capabilities, so its list isn't compared; it has no prompt or resource that asks, and reports no
/// cancelled calls.
pub fn everything() -> Plan {
    let loose = |name, kind, arguments| Step {
        loose: true,
        ..step(name, kind, arguments)
    };
    let resource = Step {
        name: "demo://resource/dynamic/text/1",
        ..loose("resource", Kind::Resource, json!({}))
    };
    let fail = Step {
        name: "get-sum",
        ..loose("fail", Kind::Tool, json!({ "a": "one" }))
    };
    let tool = |name, arguments| loose(name, Kind::Tool, arguments);
    vec![
        (
            tool("echo", json!({ "message": ECHOED })),
            Heard::said(format!("Echo: {ECHOED}")),
        ),
        (
            tool("trigger-elicitation-request", json!({})),
            Heard::said("User provided")
                .after(&["Please provide inputs for the following fields:"]),
        ),
        (
            tool("trigger-sampling-request", json!({ "prompt": "Which?" })),
            Heard::said(CAPITAL).after(&["Resource trigger-sampling-request context: Which?"]),
        ),
        (tool("get-roots-list", json!({})), Heard::said(FOLDER)),
        (
            tool(
                "trigger-long-running-operation",
                json!({ "duration": 0.2, "steps": 2 }),
            ),
            Heard::said("operation completed").telling(&[(1.0, 2.0), (2.0, 2.0)]),
        ),
        (fail, Heard::said("error: ")),
        (resource, Heard::said("Resource 1")),
        (
            loose("simple-prompt", Kind::Prompt, json!({})),
            Heard::said("This is a simple prompt"),
        ),
    ]
}

/// A call that the client gives up: the server, when it hears so, writes the file.
pub fn giving_up(file: &Path) -> Plan {
    let wait = step("wait", Kind::GiveUp, json!({ "file": file }));
    vec![(wait, Heard::said("given up").telling(&[(0.0, 1.0)]))]
}

/// Log lines of `count`.
const LINES: [&str; 3] = ["at 1", "at 2", "at 3"];

/// First words of a difference in log lines.
pub const LOGGED: &str = "logged: ";

impl Round {
    /// Returns the missing and wrong results, one a line; empty if all of the plan succeeded.
    pub fn differences(&self, plan: &Plan) -> Vec<String> {
        let mut lines: Vec<String> = self
            .broken
            .iter()
            .map(|why| format!("broken: {why}"))
            .collect();
        for (step, wanted) in plan {
            match self.steps.get(step.label) {
                None => lines.push(format!("{}: not reached", step.label)),
                Some(heard) if step.fits(wanted, heard) => {}
                Some(heard) => {
                    lines.push(format!("{}: {heard:?} in place of {wanted:?}", step.label))
                }
            }
        }
        let counts = plan.iter().any(|(step, _)| step.label == "count");
        if counts && self.logs != LINES {
            lines.push(format!("{LOGGED}{:?}", self.logs));
        }
        lines
    }

    /// Takes the beginning of a step's progress for all of it.
    pub fn forgive_progress(&mut self, plan: &Plan) {
        for (step, wanted) in plan {
            if let Some(heard) = self
                .steps
                .get_mut(step.label)
                .filter(|heard| wanted.progress.starts_with(&heard.progress))
            {
                heard.progress.clone_from(&wanted.progress);
            }
        }
    }

    /// Takes the first of the lines for all of them.
    pub fn forgive_lines(&mut self) {
        if LINES.map(str::to_owned).starts_with(&self.logs) {
            self.logs = LINES.map(str::to_owned).to_vec();
        }
    }

    #[track_caller]
    pub fn assert_whole(&self, plan: &Plan) {
        let differences = self.differences(plan);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

impl Step {
    fn fits(&self, wanted: &Heard, heard: &Heard) -> bool {
        match self.loose {
            true => {
                let asked = wanted.asked.iter().all(|asked| heard.asked.contains(asked));
                heard.said.contains(&wanted.said) && asked && heard.progress == wanted.progress
            }
            false => heard == wanted,
        }
    }
}
