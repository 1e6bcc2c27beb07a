//! What comes of something that was said, as it comes.

use callboard_message::{
    Artifact, Failure, FailureKind, Question, RawObject, SHOWN, TaskState, ToolResult,
};
use callboard_models::STREAM_ARTIFACT;
use callboard_runtime::{CANCELLED_WHY, Task, TaskOutcome};
use serde_json::value::RawValue;

use super::print::{self, Screen};
use crate::text::told;

/// Stands before what the agent says.
const HEADING: &str = "🤖 Agent response:";
/// Stands after what nobody answered.
const NEEDS_MORE: &str = "[Agent requires more input]";

/// Stands between what turned out not to be the answer and what is.
const ANEW: &str = "↺ The answer begins anew:";

/// What has been printed of one answer. Where nobody looks on, nothing is before the end: what comes early may not be the answer.
pub(super) struct Answering<'a> {
    screen: &'a Screen,
    /// How many artifacts have been looked at.
    artifacts: usize,
    shown: Shown,
}

impl<'a> Answering<'a> {
    pub(super) fn new(screen: &'a Screen) -> Self {
        Self {
            screen,
            artifacts: 0,
            shown: Shown::default(),
        }
    }

    /// Prints what is new.
    pub(super) fn news(&mut self, task: &Task) {
        if !self.screen.is_watched() {
            return;
        }
        for artifact in task.artifacts.get(self.artifacts..).unwrap_or_default() {
            if let Some((how, text)) = self.shown.take(&Artifact(artifact.clone())) {
                self.print(how, &text);
            }
        }
        self.artifacts = task.artifacts.len();
    }

    fn print(&self, how: How, text: &str) {
        match how {
            How::First => self.screen.line(HEADING),
            How::Anew => self.screen.line(ANEW),
            How::GoesOn => {}
        }
        self.screen.piece(text);
    }

    /// Prints how it ended, as far as that isn't there yet.
    pub(super) fn end(mut self, task: &Task) {
        self.news(task);
        match rest(task, &self.shown.text) {
            // What was shown begins it.
            Rest::More(more) => self.screen.piece(&more),
            Rest::Nothing => {}
            Rest::Whole(text) => {
                self.screen.end_pieces();
                self.print(self.shown.whole(), &text);
            }
            Rest::Cancelled(line) => self.screen.line(&line),
        }
        self.screen.end_pieces();
    }

    /// Prints what it waits for and nobody answers now.
    pub(super) fn waits(self, question: &Question) {
        self.screen
            .line(&format!("{HEADING}\n{}\n\n{NEEDS_MORE}", asked(question)));
    }
}

/// How a text comes after what was printed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Nothing was.
    First,
    /// It goes on with it.
    GoesOn,
    /// It stands in its place.
    Anew,
}

/// What was printed of a task's artifacts, as far as it still counts.
#[derive(Debug, Default)]
struct Shown {
    text: String,
    /// The artifact that was printed last, and how many bytes of the text are its.
    last: String,
    bytes: usize,
    /// Something was printed.
    any: bool,
    /// What was printed last counts no more.
    is_anew: bool,
}

impl Shown {
    /// What is new in an artifact.
    fn take(&mut self, artifact: &Artifact) -> Option<(How, String)> {
        let (mut new, id) = (text_of(artifact), artifact.id());
        let before = &self.text[self.text.len().saturating_sub(self.bytes)..];
        // What parts two artifacts is of neither.
        let mut between = 0;
        if self.last != id {
            (self.last, self.bytes) = (id, 0);
            if !self.text.is_empty() && !self.text.ends_with('\n') && !new.is_empty() {
                new.insert(0, '\n');
                between = 1;
            }
        } else if !artifact.is_appended() {
            // What comes to stand in the place of its pieces mostly says them again.
            match new.strip_prefix(before) {
                Some(more) => new = more.to_owned(),
                None => {
                    self.text.truncate(self.text.len() - self.bytes);
                    (self.bytes, self.is_anew) = (0, true);
                }
            }
        }
        if new.is_empty() {
            return None;
        }
        let how = match (self.is_anew, self.any) {
            (true, _) => How::Anew,
            (false, true) => How::GoesOn,
            (false, false) => How::First,
        };
        self.text.push_str(&new);
        self.bytes += new.len() - between;
        (self.any, self.is_anew) = (true, false);
        Some((how, new))
    }

    /// How the whole answer comes, where it doesn't go on with this.
    fn whole(&self) -> How {
        match self.any {
            false => How::First,
            // It comes to stand in the place of this one.
            true if self.is_anew || (self.last == STREAM_ARTIFACT && self.bytes > 0) => How::Anew,
            true => How::GoesOn,
        }
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
            let is_shown = || {
                result
                    .0
                    .object("_meta")
                    .and_then(|meta| meta.read(SHOWN))
                    .unwrap_or(false)
            };
            let text = answer_of(&result, task);
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
    match task
        .said
        .as_deref()
        .filter(|why| !why.is_empty() && *why != CANCELLED_WHY)
    {
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
        Rest::Whole(text) | Rest::Cancelled(text) if task.state.is_terminal() => Some(text),
        _ => None,
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
        Some(value) if blocks.is_empty() => print::laid_out(value),
        _ if blocks.is_empty() => "(no answer)".to_owned(),
        _ => blocks.iter().map(told).collect::<Vec<_>>().join("\n"),
    }
}

/// The same of a task's: its artifacts where it says that those hold it, and nothing more.
fn answer_of(result: &ToolResult, task: &Task) -> String {
    let texts = artifacts(task)
        .into_iter()
        .map(|(.., text)| text)
        .filter(|text| !text.is_empty());
    match result.content().is_empty()
        && !result.0.has("structuredContent")
        && !task.artifacts.is_empty()
    {
        true => texts.collect::<Vec<_>>().join("\n"),
        false => text_of_result(result),
    }
}

/// A task's artifacts as they are now: id, name and text.
pub(super) fn artifacts(task: &Task) -> Vec<(String, String, String)> {
    let mut all: Vec<(String, String, String)> = Vec::new();
    for artifact in task.artifacts.iter().cloned().map(Artifact) {
        let (id, text) = (artifact.id(), text_of(&artifact));
        match all.iter_mut().find(|(known, ..)| *known == id) {
            Some((.., there)) if artifact.is_appended() => there.push_str(&text),
            Some((.., there)) => *there = text,
            None => all.push((id, artifact.0.text("name").unwrap_or_default(), text)),
        }
    }
    all
}

/// What people read of an artifact.
fn text_of(artifact: &Artifact) -> String {
    artifact
        .content()
        .iter()
        .map(told)
        .collect::<Vec<_>>()
        .join("\n")
}

/// What a question says.
pub(super) fn asked(question: &Question) -> String {
    match question {
        Question::Elicit(form) => form.message(),
        Question::Sample(sample) => sample
            .texts()
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join("\n"),
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
        let new = NewTask::new(
            Principal::local_operator(),
            "a",
            "m",
            UNIX_EPOCH + Duration::from_secs(60),
        );
        let mut task = Task::submitted(new, 1, 0, UNIX_EPOCH);
        task.take(
            [TaskStep::Start].into_iter().chain(steps).collect(),
            UNIX_EPOCH,
        )
        .unwrap();
        task
    }

    fn completed(result: &ToolResult) -> Task {
        task(vec![TaskStep::Completed(result.0.to_raw())])
    }

    /// Goal: an answer is printed once, whatever came of it before. Method: none of it shown, its beginning, all, something else.
    #[test]
    fn an_answer_is_printed_once() {
        let paris = completed(&ToolResult::text("The capital is Paris."));
        assert_eq!(
            rest(&paris, ""),
            Rest::Whole("The capital is Paris.".into())
        );
        assert_eq!(rest(&paris, "The capital"), Rest::More(" is Paris.".into()));
        assert_eq!(
            rest(&paris, "The capital is Paris."),
            Rest::More(String::new())
        );
        assert_eq!(
            rest(&paris, "Let me see"),
            Rest::Whole("The capital is Paris.".into())
        );
        let shown = ToolResult(
            ToolResult::text("Paris")
                .0
                .with("_meta", json!({ "callboard/shown": true })),
        );
        assert_eq!(rest(&completed(&shown), "Paris\n"), Rest::Nothing);
        assert_eq!(rest(&completed(&shown), ""), Rest::Whole("Paris".into()));
    }

    /// Goal: an artifact that comes in pieces and then whole is printed once, and what turns out not to be the answer is told
    /// from what is. Method: pieces, the whole, another whole, none and then pieces, one of another id and its wholes; what still counts.
    #[test]
    fn pieces_and_the_whole() {
        let of = |id: &str, text: &str| Artifact::new(id, [Content::text(text)]);
        let (more, whole) = (
            |text: &str| of("result", text).appended(false),
            |text: &str| of("result", text),
        );
        let (a, b) = (|text: &str| of("a", text), |text: &str| of("b", text));
        use How::{Anew, First, GoesOn};
        // What comes; how each is printed; what counts then, and how the whole answer would come.
        for (artifacts, expect, counts, at_the_end) in [
            (
                vec![whole("The c"), more("ity.")],
                vec![(First, "The c"), (GoesOn, "ity.")],
                "The city.",
                Anew,
            ),
            (
                vec![whole("The"), whole("The end")],
                vec![(First, "The"), (GoesOn, " end")],
                "The end",
                Anew,
            ),
            (
                vec![whole("The"), whole("The")],
                vec![(First, "The")],
                "The",
                Anew,
            ),
            (
                vec![whole("The"), whole("A")],
                vec![(First, "The"), (Anew, "A")],
                "A",
                Anew,
            ),
            (
                vec![whole("The"), whole(""), more("The c")],
                vec![(First, "The"), (Anew, "The c")],
                "The c",
                Anew,
            ),
            (
                vec![whole("The"), whole("")],
                vec![(First, "The")],
                "",
                Anew,
            ),
            (
                vec![a("A"), b("B")],
                vec![(First, "A"), (GoesOn, "\nB")],
                "A\nB",
                GoesOn,
            ),
            (
                vec![a("A"), b("B"), b("BC")],
                vec![(First, "A"), (GoesOn, "\nB"), (GoesOn, "C")],
                "A\nBC",
                GoesOn,
            ),
            (
                vec![a("A"), b("B"), b("C")],
                vec![(First, "A"), (GoesOn, "\nB"), (Anew, "C")],
                "A\nC",
                GoesOn,
            ),
            (vec![], vec![], "", First),
        ] {
            let mut shown = Shown::default();
            let took: Vec<_> = artifacts
                .iter()
                .filter_map(|artifact| shown.take(artifact))
                .collect();
            let took: Vec<_> = took.iter().map(|(how, text)| (*how, &**text)).collect();
            assert_eq!(
                (took, &*shown.text, shown.whole()),
                (expect, counts, at_the_end),
                "{artifacts:?}"
            );
        }
    }

    /// Goal: an answer that only its artifacts hold is an answer. Method: an empty result with pieces, and one with neither.
    #[test]
    fn artifacts_may_be_all() {
        let piece = |text: &str| Artifact::new("a", [Content::text(text)]);
        let steps = [piece("Sun"), piece("ny.").appended(true)]
            .map(|artifact| TaskStep::Artifact(artifact.0));
        let end = TaskStep::Completed(ToolResult::of([]).0.to_raw());
        assert_eq!(
            outcome(&task(steps.into_iter().chain([end]).collect())).unwrap(),
            "Sunny."
        );
    }

    /// Goal: each end says what it is. Method: rejected, blocked, failed, cancelled by request and otherwise, no text.
    #[test]
    fn ends() {
        let failed = |kind| task(vec![TaskStep::Failed(Failure::new(kind, "why"))]);
        let rejected = task(vec![TaskStep::Rejected(Failure::rejected("I cannot."))]);
        assert_eq!(outcome(&rejected).unwrap(), "Task rejected: I cannot.");
        assert_eq!(
            outcome(&failed(FailureKind::Blocked)).unwrap(),
            "Task blocked: why"
        );
        assert_eq!(
            outcome(&failed(FailureKind::Unavailable)).unwrap(),
            "Task failed: why"
        );
        assert_eq!(
            outcome(&task(vec![TaskStep::cancelled()])).unwrap(),
            "⏹ Task cancelled"
        );
        let why = TaskStep::Cancelled {
            why: "not confirmed".into(),
        };
        assert_eq!(
            outcome(&task(vec![why])).unwrap(),
            "⏹ Task cancelled: not confirmed"
        );
        assert_eq!(outcome(&task(vec![])), None);
        let value = ToolResult(RawObject::of("structuredContent", json!({ "a": 1 })));
        assert_eq!(outcome(&completed(&value)).unwrap(), "{\n  \"a\": 1\n}");
        assert_eq!(
            outcome(&completed(&ToolResult::of([]))).unwrap(),
            "(no answer)"
        );
        let picture = ToolResult::of([Content::text("a"), Content::image(b"123", "image/png")]);
        assert_eq!(
            outcome(&completed(&picture)).unwrap(),
            "a\n[image, image/png, 3 bytes]"
        );
    }
}
