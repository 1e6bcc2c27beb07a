//! Formatting of lists and details as lines.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::time::format_rfc3339;
use callboard_message::{RawObject, TaskState};
use callboard_orchestration::memory::DelegatedRequest;
use callboard_orchestration::peer_registry::{PeerAgent, PeerHealth};
use callboard_runtime::{Task, TaskOutcome};

use super::answer::{self, outcome_text, question_text};
use super::command::COMMANDS;
use super::print::{capitalize, summary_line};
use super::task_session::{request_text, session_id_of};

const HELP_FOOTER: &str = "
Anything else is said to the agent. Some commands may be typed in plain words too: connect to
HOST:PORT, list servers, show card, listen on port N, stop server, quit.
Tasks of agents elsewhere can be looked at with: callboard a2a card|send|task|list|cancel URL";

pub(super) fn help() -> String {
    let width = COMMANDS
        .iter()
        .map(|(usage, _)| usage.len())
        .max()
        .unwrap_or_default();
    let mut lines = vec!["📖 Commands:".to_owned()];
    lines.extend(
        COMMANDS
            .iter()
            .map(|(usage, about)| format!("  {usage:width$}  {about}")),
    );
    lines.push(HELP_FOOTER.to_owned());
    lines.join("\n")
}

/// Formats an agent card.
pub(super) fn card<'a>(
    [name, id, description, address]: [&str; 4],
    skills: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut lines = vec![
        "🪪 Agent card:".to_owned(),
        format!("  Name: {name}"),
        format!("  Id: {id}"),
    ];
    if !description.is_empty() {
        lines.push(format!("  Description: {}", summary_line(description)));
    }
    lines.push(format!("  Address: {address}\n  Skills:"));
    lines.extend(
        skills.map(|(name, description)| format!("    {name}: {}", summary_line(description))),
    );
    lines.join("\n")
}

/// Returns the address of a known agent.
pub(super) fn agent_address(known: &PeerAgent) -> &str {
    if known.url.is_empty() {
        "in this process"
    } else {
        &known.url
    }
}

/// Formats the known agents as a numbered list. `:connect N` takes its numbers.
pub(super) fn servers(known: &[PeerAgent]) -> String {
    if known.is_empty() {
        return "📡 No servers are known yet (:connect URL)".to_owned();
    }
    let mut lines = vec![format!("📡 Known servers ({}):", known.len())];
    for (at, known) in known.iter().enumerate() {
        let health = match known.state {
            PeerHealth::Up => "up",
            PeerHealth::Down => "down",
            PeerHealth::Unknown => "not asked yet",
        };
        lines.push(format!(
            "  {}. {} ({}) {} [{health}]",
            at + 1,
            known.name,
            known.id,
            agent_address(known)
        ));
    }
    lines.join("\n")
}

/// Formats a numbered list of tasks: id, state, request and open question, in the form of
/// [`memory`]. With `all`, each task also has its owner and scope.
pub(super) fn tasks(tasks: &[Arc<Task>], all: bool) -> String {
    let whose = if all {
        "of this agent"
    } else {
        "of this session"
    };
    let mut lines = vec![format!("📋 Tasks {whose} ({}):", tasks.len())];
    for (at, task) in tasks.iter().enumerate() {
        lines.push(format!(
            "\n{}. Task ID: {} (Status: {})",
            at + 1,
            task.id,
            camel_case_state(task.state)
        ));
        if all {
            lines.push(format!("   From: {} ({})", task.owner, task.scope));
        }
        lines.push(format!("   Request: {}", summary_line(&request_text(task))));
        if let Some(open) = task.open_questions.first() {
            lines.push(format!(
                "   Asks: {} (:answer {})",
                summary_line(&question_text(&open.question)),
                task.id
            ));
        }
    }
    lines.join("\n")
}

/// Formats all details of a task.
pub(super) fn task(task: &Task, parts: &[Arc<Task>]) -> String {
    let (status, created, updated) = (
        camel_case_state(task.state),
        format_rfc3339(task.created),
        format_rfc3339(task.updated),
    );
    let head = format!(
        "🧾 Task ID: {}\n\nStatus: {status}\nBegun: {created}\nChanged: {updated}",
        task.id
    );
    let mut lines = vec![head];
    let session = session_id_of(task);
    if !session.is_empty() {
        lines.push(format!("Session: {session}"));
    }
    if let Some(said) = task
        .status_message
        .as_deref()
        .filter(|said| !said.is_empty() && !task.state.is_terminal())
    {
        lines.push(format!("Progress: {}", summary_line(said)));
    }
    for open in &task.open_questions {
        lines.push(format!(
            "Asks: {} (:answer {})",
            summary_line(&question_text(&open.question)),
            task.id
        ));
    }
    if !parts.is_empty() {
        lines.push("Steps:".to_owned());
        lines.extend(parts.iter().flat_map(|part| step_lines(part)));
    }
    lines.push(format!("\n📤 Request:\n{}", request_text(task)));
    lines.extend(outcome_text(task).map(|outcome| format!("\n📥 Response:\n{outcome}")));
    lines.join("\n")
}

/// Formats the artifacts of a task and the results of its steps.
pub(super) fn artifacts(task: &Task, parts: &[Arc<Task>]) -> String {
    let mut all = answer::artifact_rows(task);
    all.extend(parts.iter().filter_map(|part| step_artifact(part)));
    if all.is_empty() {
        let yet = if task.state.is_terminal() { "" } else { " yet" };
        return format!("📦 Task {} has made no artifacts{yet}", task.id);
    }
    let mut lines = vec![format!("📦 Artifacts of task {} ({}):", task.id, all.len())];
    for (at, (id, name, text)) in all.iter().enumerate() {
        let name = if name.is_empty() || name == id {
            String::new()
        } else {
            format!(" ({name})")
        };
        lines.push(format!("\n{}. {id}{name}\n{text}", at + 1));
    }
    lines.join("\n")
}

/// Formats the messages and answers of a session.
pub(super) fn history(session: &str, tasks: &[Arc<Task>]) -> String {
    let mut lines = vec![format!("💬 Session {session}:")];
    for task in tasks {
        lines.push(format!("\n👤 {}", request_text(task)));
        match outcome_text(task) {
            Some(outcome) => lines.push(format!("🤖 {outcome}")),
            None => lines.push(format!(
                "   ({}, task {})",
                camel_case_state(task.state),
                task.id
            )),
        }
    }
    if tasks.is_empty() {
        lines.push("Nothing has been said yet.".to_owned());
    }
    lines.join("\n")
}

/// Formats the list of requests sent to other agents.
pub(super) fn memory(all: &[DelegatedRequest]) -> String {
    let mut lines = vec![format!(
        "🧠 Rolling Memory ({} outgoing requests):",
        all.len()
    )];
    for (at, sent) in all.iter().enumerate() {
        lines.push(format!(
            "\n{}. Task ID: {} (Status: {})",
            at + 1,
            sent.task,
            camel_case_state(sent.state)
        ));
        lines.push(format!("   Request: {}", summary_line(&sent.request)));
    }
    lines.join("\n")
}

/// Formats one request sent to another agent.
pub(super) fn memory_task(sent: &DelegatedRequest) -> String {
    let at = UNIX_EPOCH
        .checked_add(Duration::from_millis(sent.at_ms))
        .unwrap_or(SystemTime::UNIX_EPOCH);
    format!(
        "🧠 Memory Task Details for ID: {}\n\nStatus: {}\nTimestamp: {}\n\n📤 Original Request:\n{}\n\n📥 Response:\n{}",
        sent.task,
        camel_case_state(sent.state),
        format_rfc3339(at),
        sent.request,
        sent.answer.as_deref().unwrap_or("(none)"),
    )
}

/// Formats a task state in camel case, for example `InputRequired`.
pub(super) fn camel_case_state(state: TaskState) -> String {
    state.as_str().split('_').map(capitalize).collect()
}

/// Formats a step of a plan: state, purpose, and its result or question.
fn step_lines(part: &Task) -> Vec<String> {
    let PlanStep {
        id,
        goal,
        performed_by: by,
    } = PlanStep::read(part);
    let by = if by.is_empty() {
        String::new()
    } else {
        format!(", by {by}")
    };
    let mut lines = vec![
        format!(
            "  {id} ({}{by}) {}",
            camel_case_state(part.state),
            summary_line(&goal)
        )
        .trim_end()
        .to_owned(),
    ];
    let asks = part
        .open_questions
        .iter()
        .map(|open| question_text(&open.question));
    let told = match outcome_text(part) {
        Some(outcome) => Some(step_result(part).map_or(outcome, |(_, text)| text)),
        None => part
            .status_message
            .clone()
            .filter(|said| !said.is_empty() && part.open_questions.is_empty()),
    };
    lines.extend(told.map(|told| format!("    {}", summary_line(&told))));
    lines.extend(asks.map(|asks| format!("    Asks: {}", summary_line(&asks))));
    lines
}

/// Step of a plan as its task describes it.
struct PlanStep {
    id: String,
    goal: String,
    /// Name of the tool or id of the agent.
    performed_by: String,
}

impl PlanStep {
    fn read(part: &Task) -> Self {
        let request = part
            .request
            .as_ref()
            .and_then(|request| RawObject::parse(request).ok())
            .unwrap_or_default();
        let [step, action] =
            ["step", "action"].map(|member| request.object(member).unwrap_or_default());
        let planned = [("local", "tool_name"), ("remote", "agent_id")];
        let planned = planned
            .iter()
            .find_map(|(who, name)| action.object(who)?.text(name));
        let performed_by = step_result(part)
            .map(|(by, _)| by)
            .or(planned)
            .unwrap_or_default();
        Self {
            id: step.text("id").unwrap_or_else(|| part.id.to_string()),
            goal: step.text("input_message").unwrap_or_default(),
            performed_by,
        }
    }
}

/// Returns the result of a step as a row of artifacts: id, performer and text.
fn step_artifact(part: &Task) -> Option<(String, String, String)> {
    let (by, text) = step_result(part)?;
    Some((
        format!("step {}", PlanStep::read(part).id),
        format!("by {by}"),
        text,
    ))
}

/// Returns the performer and the text of a step's result.
fn step_result(part: &Task) -> Option<(String, String)> {
    let Some(TaskOutcome::Reply(reply)) = &part.outcome else {
        return None;
    };
    let done = RawObject::parse(reply).ok()?;
    Some((done.text("by")?, done.text("text")?))
}

#[cfg(test)]
mod tests {
    use callboard_message::capabilities::Converse;
    use callboard_message::{
        Artifact, Content, Message, Principal, Question, RawObject, ToolResult,
    };
    use callboard_runtime::{NewTask, OpenQuestion, TaskId, TaskStep};
    use serde_json::json;

    use super::super::print::SUMMARY_CHARS_MAX;
    use super::*;

    fn sent(task: &str, request: &str, answer: Option<&str>) -> DelegatedRequest {
        DelegatedRequest {
            task: task.into(),
            to: "weather".into(),
            request: request.into(),
            answer: answer.map(str::to_owned),
            state: TaskState::Completed,
            at_ms: 1_683_203_696_789,
        }
    }

    fn said(text: &str, steps: Vec<TaskStep>) -> Arc<Task> {
        let body = Converse::from_content([Content::text(text)])
            .0
            .with("context", "s-1");
        let new = NewTask {
            id: TaskId::new("t-1").unwrap(),
            request: Some(body.to_raw()),
            extra: RawObject::single("context", "s-1"),
            ..NewTask::new(
                Principal::local_operator(),
                "a",
                Converse::NAME,
                UNIX_EPOCH + Duration::from_secs(60),
            )
        };
        let mut task = Task::new_submitted(new, 1, 0, UNIX_EPOCH);
        task.apply_all(
            [TaskStep::Start].into_iter().chain(steps).collect(),
            UNIX_EPOCH,
        )
        .unwrap();
        Arc::new(task)
    }

    /// Goal: the memory looks as people know it. Method: the two requests of the source document, and none.
    /// Rows: B-30, B-41, B-42.
    #[test]
    fn memory_is_exact() {
        let two = [
            sent("1234-abcd-5678", "What's the weather in Paris?", None),
            sent("5678-efgh-9012", "Tell me about\nthe Eiffel Tower", None),
        ];
        let expected = "🧠 Rolling Memory (2 outgoing requests):

1. Task ID: 1234-abcd-5678 (Status: Completed)
   Request: What's the weather in Paris?

2. Task ID: 5678-efgh-9012 (Status: Completed)
   Request: Tell me about the Eiffel Tower";
        assert_eq!(memory(&two), expected);
        assert_eq!(memory(&[]), "🧠 Rolling Memory (0 outgoing requests):");
        let answer = "The current weather in Paris is sunny with a temperature of 22°C (72°F).";
        let expected = "🧠 Memory Task Details for ID: 1234-abcd-5678

Status: Completed
Timestamp: 2023-05-04T12:34:56.789Z

📤 Original Request:
What's the weather in Paris?

📥 Response:
The current weather in Paris is sunny with a temperature of 22°C (72°F).";
        assert_eq!(
            memory_task(&sent(
                "1234-abcd-5678",
                "What's the weather in Paris?",
                Some(answer)
            )),
            expected
        );
    }

    /// Goal: states have the names that this REPL is known for. Method: three of them.
    /// Rows: B-55.
    #[test]
    fn states() {
        let names = [
            TaskState::Completed,
            TaskState::InputRequired,
            TaskState::Canceled,
        ]
        .map(camel_case_state);
        assert_eq!(names, ["Completed", "InputRequired", "Canceled"]);
    }

    /// Goal: tasks are shown with what they were asked, ask and made. Method: one that asks, one that is done, their texts.
    /// Rows: B-29.
    #[test]
    fn tasks_are_shown() {
        let question = Arc::new(Question::elicit("Which city?", json!({})));
        let asking = said(
            "weather?",
            vec![TaskStep::Asked(OpenQuestion {
                key: "clarify".into(),
                question,
            })],
        );
        let list = tasks(std::slice::from_ref(&asking), false);
        assert!(
            list.starts_with(
                "📋 Tasks of this session (1):\n\n1. Task ID: t-1 (Status: InputRequired)\n"
            ),
            "{list}"
        );
        assert!(
            list.contains("   Request: weather?\n   Asks: Which city? (:answer t-1)"),
            "{list}"
        );

        let part = |text: &str, append: bool| {
            let artifact = Artifact::new("answer", [Content::text(text)]);
            TaskStep::Artifact(if append {
                artifact.appending(true).0
            } else {
                artifact.0
            })
        };
        let reply = TaskStep::Completed(ToolResult::text("Sunny.").0.to_raw());
        let done = said(
            "weather?",
            vec![part("Sun", false), part("ny.", true), reply],
        );
        assert_eq!(
            artifacts(&done, &[]),
            "📦 Artifacts of task t-1 (1):\n\n1. answer\nSunny."
        );
        assert_eq!(
            artifacts(&asking, &[]),
            "📦 Task t-1 has made no artifacts yet"
        );
        let whole = task(&done, std::slice::from_ref(&asking));
        for line in [
            "Status: Completed",
            "Session: s-1",
            "  t-1 (InputRequired)",
            "📤 Request:\nweather?",
        ] {
            assert!(whole.contains(line), "{whole}");
        }
        assert!(whole.ends_with("📥 Response:\nSunny."), "{whole}");
        assert_eq!(
            history("s-1", &[done]),
            "💬 Session s-1:\n\n👤 weather?\n🤖 Sunny."
        );
        assert_eq!(
            history("s-1", &[asking]),
            "💬 Session s-1:\n\n👤 weather?\n   (InputRequired, task t-1)"
        );
    }

    /// Goal: a list stays a list, whatever is in it. Method: a request at the bound and over it.
    #[test]
    fn long_texts_are_cut() {
        let at = "é".repeat(SUMMARY_CHARS_MAX);
        assert_eq!(summary_line(&at), at);
        assert_eq!(summary_line(&format!("{at}x")), format!("{at}…"));
    }

    /// Goal: the help names every command. Method: each in it.
    /// Rows: B-20.
    #[test]
    fn help_is_whole() {
        let help = help();
        assert!(
            COMMANDS.iter().all(|(usage, _)| help.contains(usage)),
            "{help}"
        );
    }

    /// Goal: steps are told of while they run. Method: one that is done, one that works, one that asks, one that waits, in both
    /// views.
    #[test]
    fn steps_are_shown() {
        let step = |id: &str, action: serde_json::Value, steps: Vec<TaskStep>| {
            let body = json!({ "step": { "id": id, "input_message": format!("Do\n{id}.") }, "action": action });
            let new = NewTask {
                id: TaskId::new(format!("run-1.{id}")).unwrap(),
                request: Some(
                    RawObject::single("step", &body["step"])
                        .with("action", &body["action"])
                        .to_raw(),
                ),
                ..NewTask::new(
                    Principal::local_operator(),
                    "a",
                    "step",
                    UNIX_EPOCH + Duration::from_secs(60),
                )
            };
            let mut task = Task::new_submitted(new, 1, 0, UNIX_EPOCH);
            task.apply_all(steps, UNIX_EPOCH).unwrap();
            Arc::new(task)
        };
        let (tool, agent) = (
            json!({ "local": { "tool_name": "echo", "params": {} } }),
            json!({ "remote": { "agent_id": "b" } }),
        );
        let done = RawObject::single("by", "llm")
            .with("text", "It is\ndone.")
            .with("attempts", 2)
            .to_raw();
        let question = Arc::new(Question::elicit("Which city?", json!({})));
        let parts = [
            step(
                "one",
                tool.clone(),
                vec![TaskStep::Start, TaskStep::Completed(done)],
            ),
            step(
                "two",
                agent.clone(),
                vec![TaskStep::Start, TaskStep::Said("half".into())],
            ),
            step(
                "three",
                tool,
                vec![
                    TaskStep::Start,
                    TaskStep::Asked(OpenQuestion {
                        key: "k".into(),
                        question,
                    }),
                ],
            ),
            step("four", agent, vec![]),
        ];
        let new = NewTask::new(
            Principal::local_operator(),
            "a",
            "b",
            UNIX_EPOCH + Duration::from_secs(60),
        );
        let running = Task::new_submitted(new, 1, 0, UNIX_EPOCH);
        let expected = "Steps:\n  one (Completed, by llm) Do one.\n    It is done.\n  two (Working, by b) Do two.\n    half\n  \
                        three (InputRequired, by echo) Do three.\n    Asks: Which city?\n  four (Submitted, by b) Do four.\n";
        let shown = task(&running, &parts);
        assert!(shown.contains(expected), "{shown}");
        let made = artifacts(&running, &parts);
        assert_eq!(
            made,
            format!(
                "📦 Artifacts of task {} (1):\n\n1. step one (by llm)\nIt is\ndone.",
                running.id
            )
        );
    }
}
