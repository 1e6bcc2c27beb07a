//! What comes of something that was said, as it comes.

use callboard_message::{Artifact, Failure, FailureKind, Question, RawObject, SHOWN, TaskState, ToolResult};
use callboard_runtime::{CANCELLED_WHY, Task, TaskOutcome};
use serde_json::value::RawValue;

use super::json;
use super::print::Screen;
use crate::cli::told;

/// Stands before what the agent says.
const HEADING: &str = "🤖 Agent response:";
/// Stands after what nobody answered.
const NEEDS_MORE: &str = "[Agent requires more input]";

/// What has been printed of one answer.
pub(super) struct Answering<'a> {
    screen: &'a Screen,
    /// How many artifacts have been looked at.
    artifacts: usize,
    /// The artifact that was printed last.
    last: String,
    /// All that was printed of them.
    shown: String,
}

impl<'a> Answering<'a> {
    pub(super) fn new(screen: &'a Screen) -> Self {
        Self { screen, artifacts: 0, last: String::new(), shown: String::new() }
    }

    /// Prints what is new.
    pub(super) fn news(&mut self, task: &Task) {
        for artifact in task.artifacts.get(self.artifacts..).unwrap_or_default() {
            self.artifact(&Artifact(artifact.clone()));
        }
        self.artifacts = task.artifacts.len();
    }

    fn artifact(&mut self, artifact: &Artifact) {
        let (mut text, goes_on) = unseen(artifact, &self.last, &self.shown);
        if text.is_empty() {
            return;
        }
        if self.shown.is_empty() {
            self.screen.line(HEADING);
        } else if !goes_on && !self.shown.ends_with('\n') {
            text.insert(0, '\n');
        }
        self.last = artifact.id();
        self.screen.piece(&text);
        self.shown.push_str(&text);
    }

    /// Ends the line that pieces were added to: something else comes in between.
    pub(super) fn pause(&mut self) {
        self.screen.end_pieces();
    }

    /// Prints how it ended, as far as that isn't there yet.
    pub(super) fn end(mut self, task: &Task) {
        self.news(task);
        match rest(task, &self.shown) {
            // What was shown begins it.
            Rest::More(more) => self.screen.piece(&more),
            Rest::Nothing => {}
            Rest::Whole(text) => {
                self.screen.end_pieces();
                if self.shown.is_empty() {
                    self.screen.line(HEADING);
                }
                self.screen.piece(&text);
            }
            Rest::Cancelled(line) => {
                self.screen.end_pieces();
                self.screen.line(&line);
            }
        }
        self.screen.end_pieces();
    }

    /// Prints what it waits for and nobody answers now.
    pub(super) fn waits(self, question: &Question) {
        self.screen.end_pieces();
        self.screen.line(&format!("{HEADING}\n{}\n\n{NEEDS_MORE}", asked(question)));
    }
}

/// What is new in an artifact, and whether it goes on where what was shown ends. `last`: the id of the one before.
fn unseen(artifact: &Artifact, last: &str, shown: &str) -> (String, bool) {
    let text = text_of(artifact);
    match last == artifact.id() {
        true if artifact.is_appended() => (text, true),
        // What comes to stand in the place of its pieces mostly says them again.
        true => text.strip_prefix(shown).map_or_else(|| (text.clone(), false), |more| (more.to_owned(), true)),
        false => (text, false),
    }
}

/// What is left to print of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    More(String),
    Whole(String),
    /// Nobody wants it any more.
    Cancelled(String),
}

fn rest(task: &Task, shown: &str) -> Rest {
    match (task.state, &task.outcome) {
        (TaskState::Canceled, _) => Rest::Cancelled(cancelled(task)),
        (_, Some(TaskOutcome::Reply(reply))) => {
            let result = result_of(reply);
            let is_shown = || result.0.object("_meta").and_then(|meta| meta.read(SHOWN)).unwrap_or(false);
            let text = text_of_result(&result);
            match text.strip_prefix(shown) {
                _ if !shown.is_empty() && is_shown() => Rest::Nothing,
                Some(more) if !shown.is_empty() => Rest::More(more.to_owned()),
                _ => Rest::Whole(text),
            }
        }
        (state, Some(TaskOutcome::Failed(failure))) => Rest::Whole(failed(state, failure)),
        (_, Some(TaskOutcome::NotKept)) => Rest::Whole("(the answer wasn't kept)".to_owned()),
        (state, None) => Rest::Whole(format!("(the task is {state})")),
    }
}

/// That a task was cancelled, and why, where that isn't what the person just wanted.
fn cancelled(task: &Task) -> String {
    match task.said.as_deref().filter(|why| !why.is_empty() && *why != CANCELLED_WHY) {
        Some(why) => format!("⏹ Task cancelled: {why}"),
        None => "⏹ Task cancelled".to_owned(),
    }
}

fn failed(state: TaskState, failure: &Failure) -> String {
    let how = match (state, failure.kind) {
        (TaskState::Rejected, _) | (_, FailureKind::Rejected) => "rejected",
        (_, FailureKind::Blocked) => "blocked",
        _ => "failed",
    };
    format!("Task {how}: {}", failure.message)
}

/// What a task came to, in lines.
pub(super) fn outcome(task: &Task) -> Option<String> {
    match rest(task, "") {
        _ if !task.state.is_terminal() => None,
        Rest::Whole(text) | Rest::More(text) | Rest::Cancelled(text) => Some(text),
        Rest::Nothing => None,
    }
}

/// A reply as a tool's result.
pub(super) fn result_of(reply: &RawValue) -> ToolResult {
    ToolResult(RawObject::parse(reply).unwrap_or_default())
}

/// What people read of a result: its blocks; the value for programs where there are none.
pub(super) fn text_of_result(result: &ToolResult) -> String {
    let blocks = result.content();
    match result.0.get("structuredContent") {
        Some(value) if blocks.is_empty() => json::laid_out(value),
        _ if blocks.is_empty() => "(no answer)".to_owned(),
        _ => blocks.iter().map(told).collect::<Vec<_>>().join("\n"),
    }
}

/// What people read of an artifact.
pub(super) fn text_of(artifact: &Artifact) -> String {
    artifact.content().iter().map(told).collect::<Vec<_>>().join("\n")
}

/// What a question says.
pub(super) fn asked(question: &Question) -> String {
    match question {
        Question::Elicit(form) => form.message(),
        Question::Sample(sample) => sample.texts().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n"),
        _ => "which folders may be used?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use callboard_message::{Content, Principal};
    use callboard_runtime::{NewTask, TaskStep};
    use serde_json::json;

    use super::*;

    fn task(steps: Vec<TaskStep>) -> Task {
        let new = NewTask::new(Principal::local_operator(), "a", "m", UNIX_EPOCH + Duration::from_secs(60));
        let mut task = Task::submitted(new, 1, 0, UNIX_EPOCH);
        task.take([TaskStep::Start].into_iter().chain(steps).collect(), UNIX_EPOCH).unwrap();
        task
    }

    fn completed(result: &ToolResult) -> Task {
        task(vec![TaskStep::Completed(result.0.to_raw())])
    }

    /// Goal: an answer is printed once, whatever came of it before. Method: none of it shown, its beginning, all, something else.
    #[test]
    fn an_answer_is_printed_once() {
        let paris = completed(&ToolResult::text("The capital is Paris."));
        assert_eq!(rest(&paris, ""), Rest::Whole("The capital is Paris.".into()));
        assert_eq!(rest(&paris, "The capital"), Rest::More(" is Paris.".into()));
        assert_eq!(rest(&paris, "The capital is Paris."), Rest::More(String::new()));
        assert_eq!(rest(&paris, "Let me see"), Rest::Whole("The capital is Paris.".into()));
        let shown = ToolResult(ToolResult::text("Paris").0.with("_meta", json!({ "callboard/shown": true })));
        assert_eq!(rest(&completed(&shown), "Paris\n"), Rest::Nothing);
        assert_eq!(rest(&completed(&shown), ""), Rest::Whole("Paris".into()));
    }

    /// Goal: an artifact that comes in pieces and then whole is printed once. Method: a piece more, the whole, another whole, one of
    /// another id.
    #[test]
    fn pieces_and_the_whole() {
        let of = |id: &str, text: &str| Artifact::new(id, [Content::text(text)]);
        let new = |artifact: Artifact| unseen(&artifact, "result", "The capital");
        assert_eq!(new(of("result", " is Paris.").appended(false)), (" is Paris.".into(), true));
        assert_eq!(new(of("result", "The capital is Paris.")), (" is Paris.".into(), true));
        assert_eq!(new(of("result", "The capital")), (String::new(), true));
        assert_eq!(new(of("result", "Paris.")), ("Paris.".into(), false));
        assert_eq!(new(of("other", "The capital")), ("The capital".into(), false));
    }

    /// Goal: each end says what it is. Method: rejected, blocked, failed, cancelled by request and otherwise, no text.
    #[test]
    fn ends() {
        let failed = |kind| task(vec![TaskStep::Failed(Failure::new(kind, "why"))]);
        let rejected = task(vec![TaskStep::Rejected(Failure::new(FailureKind::Rejected, "I cannot."))]);
        assert_eq!(outcome(&rejected).unwrap(), "Task rejected: I cannot.");
        assert_eq!(outcome(&failed(FailureKind::Blocked)).unwrap(), "Task blocked: why");
        assert_eq!(outcome(&failed(FailureKind::Unavailable)).unwrap(), "Task failed: why");
        assert_eq!(outcome(&task(vec![TaskStep::cancelled()])).unwrap(), "⏹ Task cancelled");
        let why = TaskStep::Cancelled { why: "not confirmed".into() };
        assert_eq!(outcome(&task(vec![why])).unwrap(), "⏹ Task cancelled: not confirmed");
        assert_eq!(outcome(&task(vec![])), None);
        let value = ToolResult(RawObject::new().with("structuredContent", json!({ "a": 1 })));
        assert_eq!(outcome(&completed(&value)).unwrap(), "{\n  \"a\": 1\n}");
        assert_eq!(outcome(&completed(&ToolResult::of([]))).unwrap(), "(no answer)");
        let picture = ToolResult::of([Content::text("a"), Content::image(b"123", "image/png")]);
        assert_eq!(outcome(&completed(&picture)).unwrap(), "a\n[image, image/png, 3 bytes]");
    }
}
