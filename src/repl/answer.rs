//! Printing of a task's answer while it is written and at its end.

use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Artifact, Failure, FailureKind, Question, RawObject, TaskState,
    ToolResult,
};
use callboard_models::STREAM_ARTIFACT;
use callboard_runtime::{CANCEL_REASON_DEFAULT, Task, TaskOutcome};
use serde_json::value::RawValue;

use super::print::{self, Screen};
use crate::text::format_content;

/// Heading before the agent's answer.
const RESPONSE_HEADING: &str = "🤖 Agent response:";
/// Notice after a question that stays unanswered.
const NEEDS_MORE: &str = "[Agent requires more input]";

/// Notice before an answer that replaces the text printed so far.
const RESTARTED_LINE: &str = "↺ The answer begins anew:";

/// Printer of one answer. Without a terminal, nothing is printed before the end, because early text
/// may be replaced.
pub(super) struct AnswerPrinter<'a> {
    screen: &'a Screen,
    /// Number of artifacts already processed.
    artifacts: usize,
    printed: PrintedText,
}

impl<'a> AnswerPrinter<'a> {
    pub(super) fn new(screen: &'a Screen) -> Self {
        Self {
            screen,
            artifacts: 0,
            printed: PrintedText::default(),
        }
    }

    /// Prints the part of the answer, as far as the task's artifacts hold it, that was not printed
    /// yet. Does nothing without a terminal: then [`Self::finish`] prints the whole answer.
    pub(super) fn print_update(&mut self, task: &Task) {
        if !self.screen.is_terminal() {
            return;
        }
        for artifact in task.artifacts.get(self.artifacts..).unwrap_or_default() {
            if let Some((how, text)) = self.printed.take_new(&Artifact(artifact.clone())) {
                self.print(how, &text);
            }
        }
        self.artifacts = task.artifacts.len();
    }

    fn print(&self, how: PrintMode, text: &str) {
        match how {
            PrintMode::First => self.screen.print_line(RESPONSE_HEADING),
            PrintMode::Restarted => self.screen.print_line(RESTARTED_LINE),
            PrintMode::Continues => {}
        }
        self.screen.print_chunk(text);
    }

    /// Prints the rest of the answer and the outcome of an ended task.
    pub(super) fn finish(mut self, task: &Task) {
        self.print_update(task);
        match remaining_text(task, &self.printed.text) {
            // The text printed so far is the beginning of the answer.
            RemainingText::More(more) => self.screen.print_chunk(&more),
            RemainingText::Nothing => {}
            RemainingText::Whole(text) => {
                self.screen.end_chunks();
                self.print(self.printed.whole_answer_mode(), &text);
            }
            RemainingText::Cancelled(line) => self.screen.print_line(&line),
        }
        self.screen.end_chunks();
    }

    /// Prints a question that stays open because nobody answers it now.
    pub(super) fn print_open_question(self, question: &Question) {
        self.screen.print_line(&format!(
            "{RESPONSE_HEADING}\n{}\n\n{NEEDS_MORE}",
            question_text(question)
        ));
    }
}

/// Relation of a new text to the text printed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrintMode {
    /// Nothing was printed before.
    First,
    /// The new text continues the printed text.
    Continues,
    /// The new text replaces the printed text.
    Restarted,
}

/// Text printed so far of a task's artifacts.
#[derive(Debug, Default)]
struct PrintedText {
    text: String,
    /// Id of the last printed artifact; empty before the first.
    last_artifact: String,
    /// Number of bytes at the end of `text` that belong to `last_artifact`.
    last_artifact_bytes: usize,
    /// Whether any text was printed.
    has_printed: bool,
    /// Whether the next text replaces the printed text.
    is_restarted: bool,
}

impl PrintedText {
    /// Returns the text of an artifact that was not printed yet, and how to print it; `None` if
    /// there is no new text. Counts the text as printed.
    fn take_new(&mut self, artifact: &Artifact) -> Option<(PrintMode, String)> {
        let (mut new, id) = (artifact_text(artifact), artifact.id());
        let before = &self.text[self.text.len().saturating_sub(self.last_artifact_bytes)..];
        // Bytes of the line break between two artifacts, which belongs to neither.
        let mut between = 0;
        if self.last_artifact != id {
            (self.last_artifact, self.last_artifact_bytes) = (id, 0);
            if !self.text.is_empty() && !self.text.ends_with('\n') && !new.is_empty() {
                new.insert(0, '\n');
                between = 1;
            }
        } else if !artifact.is_appended() {
            // A whole artifact that replaces its pieces usually begins with their text.
            match new.strip_prefix(before) {
                Some(more) => new = more.to_owned(),
                None => {
                    self.text
                        .truncate(self.text.len() - self.last_artifact_bytes);
                    (self.last_artifact_bytes, self.is_restarted) = (0, true);
                }
            }
        }
        if new.is_empty() {
            return None;
        }
        let how = match (self.is_restarted, self.has_printed) {
            (true, _) => PrintMode::Restarted,
            (false, true) => PrintMode::Continues,
            (false, false) => PrintMode::First,
        };
        self.text.push_str(&new);
        self.last_artifact_bytes += new.len() - between;
        (self.has_printed, self.is_restarted) = (true, false);
        Some((how, new))
    }

    /// Returns how to print a full answer that does not continue the partial text printed so far.
    fn whole_answer_mode(&self) -> PrintMode {
        match self.has_printed {
            false => PrintMode::First,
            // The full answer replaces the partial one.
            true if self.is_restarted
                || (self.last_artifact == STREAM_ARTIFACT && self.last_artifact_bytes > 0) =>
            {
                PrintMode::Restarted
            }
            true => PrintMode::Continues,
        }
    }
}

/// Rest of an answer that is not printed yet.
#[derive(Debug, PartialEq, Eq)]
enum RemainingText {
    Nothing,
    More(String),
    Whole(String),
    /// The task was cancelled; the text is for the user.
    Cancelled(String),
}

fn remaining_text(task: &Task, shown: &str) -> RemainingText {
    match (task.state, &task.outcome) {
        (TaskState::Canceled, _) => RemainingText::Cancelled(cancelled_text(task)),
        (_, Some(TaskOutcome::Reply(reply))) => {
            let result = parse_result(reply);
            let is_shown = || {
                result
                    .0
                    .object("_meta")
                    .and_then(|meta| meta.read(ARTIFACTS_SENT_META_KEY))
                    .unwrap_or(false)
            };
            let text = answer_text(&result, task);
            match text.strip_prefix(shown) {
                _ if !shown.is_empty() && is_shown() => RemainingText::Nothing,
                Some(more) if !shown.is_empty() => RemainingText::More(more.to_owned()),
                _ => RemainingText::Whole(text),
            }
        }
        (state, Some(TaskOutcome::Failed(failure))) => {
            RemainingText::Whole(failure_text(state, failure))
        }
        (_, Some(TaskOutcome::NotKept)) => {
            RemainingText::Whole("(the answer wasn't kept)".to_owned())
        }
        (state, None) => RemainingText::Whole(format!("(the task is {state})")),
    }
}

/// Returns that a task was cancelled, with the reason unless it is the user's own request.
fn cancelled_text(task: &Task) -> String {
    match task
        .status_message
        .as_deref()
        .filter(|why| !why.is_empty() && *why != CANCEL_REASON_DEFAULT)
    {
        Some(why) => format!("⏹ Task cancelled: {why}"),
        None => "⏹ Task cancelled".to_owned(),
    }
}

fn failure_text(state: TaskState, failure: &Failure) -> String {
    let how = match (state, failure.kind) {
        (TaskState::Rejected, _) | (_, FailureKind::Rejected) => "rejected",
        (_, FailureKind::Blocked) => "blocked",
        _ => "failed",
    };
    format!("Task {how}: {}", failure.message)
}

/// Returns the outcome of an ended task as text; `None` for other tasks.
pub(super) fn outcome_text(task: &Task) -> Option<String> {
    match remaining_text(task, "") {
        RemainingText::Whole(text) | RemainingText::Cancelled(text) if task.state.is_terminal() => {
            Some(text)
        }
        _ => None,
    }
}

/// Parses an agent's reply as a tool result.
pub(super) fn parse_result(reply: &RawValue) -> ToolResult {
    ToolResult(RawObject::parse(reply).unwrap_or_default())
}

/// Returns a result's content as text; without content, its structured value.
pub(super) fn result_text(result: &ToolResult) -> String {
    let blocks = result.content();
    match result.0.get("structuredContent") {
        Some(value) if blocks.is_empty() => print::pretty_json(value),
        _ if blocks.is_empty() => "(no answer)".to_owned(),
        _ => blocks
            .iter()
            .map(format_content)
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

/// Returns the answer of a task as text: its artifacts if the result refers to them, else the
/// result's content.
fn answer_text(result: &ToolResult, task: &Task) -> String {
    let texts = artifact_rows(task)
        .into_iter()
        .map(|(.., text)| text)
        .filter(|text| !text.is_empty());
    match result.content().is_empty()
        && !result.0.has("structuredContent")
        && !task.artifacts.is_empty()
    {
        true => texts.collect::<Vec<_>>().join("\n"),
        false => result_text(result),
    }
}

/// Returns id, name and text of each artifact of a task.
pub(super) fn artifact_rows(task: &Task) -> Vec<(String, String, String)> {
    let mut all: Vec<(String, String, String)> = Vec::new();
    for artifact in task.artifacts.iter().cloned().map(Artifact) {
        let (id, text) = (artifact.id(), artifact_text(&artifact));
        match all.iter_mut().find(|(known, ..)| *known == id) {
            Some((.., there)) if artifact.is_appended() => there.push_str(&text),
            Some((.., there)) => *there = text,
            None => all.push((id, artifact.0.text("name").unwrap_or_default(), text)),
        }
    }
    all
}

/// Returns the content of an artifact as text.
fn artifact_text(artifact: &Artifact) -> String {
    artifact
        .content()
        .iter()
        .map(format_content)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the text of a question.
pub(super) fn question_text(question: &Question) -> String {
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
        let mut task = Task::new_submitted(new, 1, 0, UNIX_EPOCH);
        task.apply_all(
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
    /// Rows: B-36, B-53.
    #[test]
    fn an_answer_is_printed_once() {
        let paris = completed(&ToolResult::text("The capital is Paris."));
        assert_eq!(
            remaining_text(&paris, ""),
            RemainingText::Whole("The capital is Paris.".into())
        );
        assert_eq!(
            remaining_text(&paris, "The capital"),
            RemainingText::More(" is Paris.".into())
        );
        assert_eq!(
            remaining_text(&paris, "The capital is Paris."),
            RemainingText::More(String::new())
        );
        assert_eq!(
            remaining_text(&paris, "Let me see"),
            RemainingText::Whole("The capital is Paris.".into())
        );
        let shown = ToolResult(
            ToolResult::text("Paris")
                .0
                .with("_meta", json!({ "callboard/shown": true })),
        );
        assert_eq!(
            remaining_text(&completed(&shown), "Paris\n"),
            RemainingText::Nothing
        );
        assert_eq!(
            remaining_text(&completed(&shown), ""),
            RemainingText::Whole("Paris".into())
        );
    }

    /// Goal: an artifact that comes in pieces and then whole is printed once, and what turns out not to be the answer is told
    /// from what is. Method: pieces, the whole, another whole, none and then pieces, one of another id and its wholes; what still counts.
    #[test]
    fn pieces_and_the_whole() {
        let of = |id: &str, text: &str| Artifact::new(id, [Content::text(text)]);
        let (more, whole) = (
            |text: &str| of("result", text).appending(false),
            |text: &str| of("result", text),
        );
        let (a, b) = (|text: &str| of("a", text), |text: &str| of("b", text));
        use PrintMode::{Continues, First, Restarted};
        // What comes; how each is printed; what counts then, and how the whole answer would come.
        for (artifacts, expect, counts, at_the_end) in [
            (
                vec![whole("The c"), more("ity.")],
                vec![(First, "The c"), (Continues, "ity.")],
                "The city.",
                Restarted,
            ),
            (
                vec![whole("The"), whole("The end")],
                vec![(First, "The"), (Continues, " end")],
                "The end",
                Restarted,
            ),
            (
                vec![whole("The"), whole("The")],
                vec![(First, "The")],
                "The",
                Restarted,
            ),
            (
                vec![whole("The"), whole("A")],
                vec![(First, "The"), (Restarted, "A")],
                "A",
                Restarted,
            ),
            (
                vec![whole("The"), whole(""), more("The c")],
                vec![(First, "The"), (Restarted, "The c")],
                "The c",
                Restarted,
            ),
            (
                vec![whole("The"), whole("")],
                vec![(First, "The")],
                "",
                Restarted,
            ),
            (
                vec![a("A"), b("B")],
                vec![(First, "A"), (Continues, "\nB")],
                "A\nB",
                Continues,
            ),
            (
                vec![a("A"), b("B"), b("BC")],
                vec![(First, "A"), (Continues, "\nB"), (Continues, "C")],
                "A\nBC",
                Continues,
            ),
            (
                vec![a("A"), b("B"), b("C")],
                vec![(First, "A"), (Continues, "\nB"), (Restarted, "C")],
                "A\nC",
                Continues,
            ),
            (vec![], vec![], "", First),
        ] {
            let mut shown = PrintedText::default();
            let took: Vec<_> = artifacts
                .iter()
                .filter_map(|artifact| shown.take_new(artifact))
                .collect();
            let took: Vec<_> = took.iter().map(|(how, text)| (*how, &**text)).collect();
            assert_eq!(
                (took, &*shown.text, shown.whole_answer_mode()),
                (expect, counts, at_the_end),
                "{artifacts:?}"
            );
        }
    }

    /// Goal: an answer that only its artifacts hold is an answer. Method: an empty result with pieces, and one with neither.
    /// Rows: B-53.
    #[test]
    fn artifacts_may_be_all() {
        let piece = |text: &str| Artifact::new("a", [Content::text(text)]);
        let steps = [piece("Sun"), piece("ny.").appending(true)]
            .map(|artifact| TaskStep::Artifact(artifact.0));
        let end = TaskStep::Completed(ToolResult::from_content([]).0.to_raw());
        assert_eq!(
            outcome_text(&task(steps.into_iter().chain([end]).collect())).unwrap(),
            "Sunny."
        );
    }

    /// Goal: each end says what it is. Method: rejected, blocked, failed, cancelled by request and otherwise, no text.
    /// Rows: B-53.
    #[test]
    fn ends() {
        let failed = |kind| task(vec![TaskStep::Failed(Failure::new(kind, "why"))]);
        let rejected = task(vec![TaskStep::Rejected(Failure::rejected("I cannot."))]);
        assert_eq!(outcome_text(&rejected).unwrap(), "Task rejected: I cannot.");
        assert_eq!(
            outcome_text(&failed(FailureKind::Blocked)).unwrap(),
            "Task blocked: why"
        );
        assert_eq!(
            outcome_text(&failed(FailureKind::Unavailable)).unwrap(),
            "Task failed: why"
        );
        assert_eq!(
            outcome_text(&task(vec![TaskStep::cancelled()])).unwrap(),
            "⏹ Task cancelled"
        );
        let why = TaskStep::Cancelled {
            why: "not confirmed".into(),
        };
        assert_eq!(
            outcome_text(&task(vec![why])).unwrap(),
            "⏹ Task cancelled: not confirmed"
        );
        assert_eq!(outcome_text(&task(vec![])), None);
        let value = ToolResult(RawObject::single("structuredContent", json!({ "a": 1 })));
        assert_eq!(
            outcome_text(&completed(&value)).unwrap(),
            "{\n  \"a\": 1\n}"
        );
        assert_eq!(
            outcome_text(&completed(&ToolResult::from_content([]))).unwrap(),
            "(no answer)"
        );
        let picture =
            ToolResult::from_content([Content::text("a"), Content::image(b"123", "image/png")]);
        assert_eq!(
            outcome_text(&completed(&picture)).unwrap(),
            "a\n[image, image/png, 3 bytes]"
        );
    }
}
