//! The steps of a plan, in lines.

use callboard_message::RawObject;
use callboard_runtime::{Task, TaskOutcome};

use super::answer::{asked, outcome};
use super::views::{camel, one_line};

/// A step of a plan: where it stands, what it is for, and what it says or asks.
pub(super) fn lines(part: &Task) -> Vec<String> {
    let Part { id, goal, by } = Part::read(part);
    let by = if by.is_empty() { String::new() } else { format!(", by {by}") };
    let mut lines = vec![format!("  {id} ({}{by}) {}", camel(part.state), one_line(&goal)).trim_end().to_owned()];
    let asks = part.open.iter().map(|open| asked(&open.question));
    let told = match outcome(part) {
        Some(outcome) => Some(result(part).map_or(outcome, |(_, text)| text)),
        None => part.said.clone().filter(|said| !said.is_empty() && part.open.is_empty()),
    };
    lines.extend(told.map(|told| format!("    {}", one_line(&told))));
    lines.extend(asks.map(|asks| format!("    Asks: {}", one_line(&asks))));
    lines
}

/// What a step's task says of it.
#[derive(Default)]
struct Part {
    id: String,
    goal: String,
    /// A tool's name or an agent's id.
    by: String,
}

impl Part {
    fn read(part: &Task) -> Self {
        let request = part.request.as_ref().and_then(|request| RawObject::parse(request).ok()).unwrap_or_default();
        let Some(step) = request.object("step") else { return Self { id: part.id.to_string(), ..Self::default() } };
        let action = request.object("action").unwrap_or_default();
        let planned = [("local", "tool_name"), ("remote", "agent_id")];
        let planned = planned.iter().find_map(|(who, name)| action.object(who)?.text(name));
        let by = result(part).map(|(by, _)| by).or(planned).unwrap_or_default();
        Self {
            id: step.text("id").unwrap_or_else(|| part.id.to_string()),
            goal: step.text("input_message").unwrap_or_default(),
            by,
        }
    }
}

/// What a step has come to, as an entry of a list of artifacts: its id, by whom, its text.
pub(super) fn made(part: &Task) -> Option<(String, String, String)> {
    let (by, text) = result(part)?;
    Some((format!("step {}", Part::read(part).id), format!("by {by}"), text))
}

/// Who did a step, and what it came to.
fn result(part: &Task) -> Option<(String, String)> {
    let Some(TaskOutcome::Reply(reply)) = &part.outcome else { return None };
    let done = RawObject::parse(reply).ok()?;
    Some((done.text("by")?, done.text("text")?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use callboard_message::{Principal, Question};
    use callboard_runtime::{NewTask, OpenQuestion, TaskId, TaskStep};
    use serde_json::json;

    use super::super::views::{artifacts, task};
    use super::*;

    /// Goal: steps are told of while they run. Method: one that is done, one that works, one that asks, one that waits, in both
    /// views.
    #[test]
    fn steps_are_shown() {
        let step = |id: &str, action: serde_json::Value, steps: Vec<TaskStep>| {
            let body = json!({ "step": { "id": id, "input_message": format!("Do\n{id}.") }, "action": action });
            let new = NewTask {
                id: TaskId::new(format!("run-1.{id}")).unwrap(),
                request: Some(RawObject::new().with("step", &body["step"]).with("action", &body["action"]).to_raw()),
                ..NewTask::new(Principal::local_operator(), "a", "step", UNIX_EPOCH + Duration::from_secs(60))
            };
            let mut task = Task::submitted(new, 1, 0, UNIX_EPOCH);
            task.take(steps, UNIX_EPOCH).unwrap();
            Arc::new(task)
        };
        let (tool, agent) =
            (json!({ "local": { "tool_name": "echo", "params": {} } }), json!({ "remote": { "agent_id": "b" } }));
        let done = RawObject::new().with("by", "llm").with("text", "It is\ndone.").with("attempts", 2).to_raw();
        let question = Arc::new(Question::elicit("Which city?", json!({})));
        let parts = [
            step("one", tool.clone(), vec![TaskStep::Start, TaskStep::Completed(done)]),
            step("two", agent.clone(), vec![TaskStep::Start, TaskStep::Said("half".into())]),
            step("three", tool, vec![TaskStep::Start, TaskStep::Asked(OpenQuestion { key: "k".into(), question })]),
            step("four", agent, vec![]),
        ];
        let new = NewTask::new(Principal::local_operator(), "a", "b", UNIX_EPOCH + Duration::from_secs(60));
        let running = Task::submitted(new, 1, 0, UNIX_EPOCH);
        let expected = "Steps:\n  one (Completed, by llm) Do one.\n    It is done.\n  two (Working, by b) Do two.\n    half\n  \
                        three (InputRequired, by echo) Do three.\n    Asks: Which city?\n  four (Submitted, by b) Do four.\n";
        let shown = task(&running, &parts);
        assert!(shown.contains(expected), "{shown}");
        let made = artifacts(&running, &parts);
        assert_eq!(made, format!("📦 Artifacts of task {} (1):\n\n1. step one (by llm)\nIt is\ndone.", running.id));
    }
}
