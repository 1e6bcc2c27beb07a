//! What an agent says, in lines.

use std::io;
use std::path::Path;

use callboard_a2a::wire::{Message, Part, PartContent, Role, SendMessageResponse, Task};
use callboard_message::TaskState;

use crate::cli::{EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED, show};

/// Prints what people read of an answer: what the task made; else what it says; else what was said last.
pub(super) fn print(response: &SendMessageResponse, url: &str) -> io::Result<()> {
    let text = match response {
        SendMessageResponse::Message(message) => text_of(message),
        SendMessageResponse::Task(task) => text_of_task(task),
    };
    if !text.is_empty() {
        show::line(&text)?;
    }
    if let SendMessageResponse::Task(task) = response {
        match task.status.state {
            TaskState::Completed => {}
            TaskState::Submitted | TaskState::Working => {
                show::aside(format_args!("the task goes on: callboard a2a task {url} {}", task.id));
            }
            TaskState::InputRequired | TaskState::AuthRequired => {}
            state => {
                let told = format!("{state}: {}", said(task));
                show::complain(told.trim_end_matches([':', ' ']));
            }
        }
    }
    go_on(response, url);
    Ok(())
}

/// Says what the agent asks, if it does, and how to go on.
pub(super) fn go_on(response: &SendMessageResponse, url: &str) {
    let SendMessageResponse::Task(task) = response else { return };
    let what = match task.status.state {
        TaskState::InputRequired => "input required",
        TaskState::AuthRequired => "authorization required",
        _ => return,
    };
    show::aside(format_args!("[{what}] {}", said(task)));
    show::aside(format_args!("continue with: callboard a2a send {url} --task {} TEXT", task.id));
}

/// What a command ends with.
pub(super) fn exit_code(response: &SendMessageResponse) -> u8 {
    let SendMessageResponse::Task(task) = response else { return EXIT_ANSWERED };
    match task.status.state {
        TaskState::Submitted | TaskState::Working | TaskState::Completed => EXIT_ANSWERED,
        TaskState::InputRequired | TaskState::AuthRequired => EXIT_INPUT_REQUIRED,
        TaskState::Failed | TaskState::Canceled | TaskState::Rejected => EXIT_FAILED,
    }
}

pub(super) fn text_of_task(task: &Task) -> String {
    let made: Vec<String> = task.artifacts.iter().flatten().map(|artifact| texts(&artifact.parts)).collect();
    if !made.is_empty() {
        return made.join("\n");
    }
    // What else it says is said aside.
    if task.status.state != TaskState::Completed {
        return String::new();
    }
    match said(task) {
        text if !text.is_empty() => text,
        _ => answer_in_history(task),
    }
}

/// What the agent said since the user spoke last: the answer of agents that give no other.
fn answer_in_history(task: &Task) -> String {
    let history = task.history.as_deref().unwrap_or_default();
    let begin = history.iter().rposition(|said| said.role == Role::User).map_or(0, |at| at + 1);
    let texts: Vec<String> = history.iter().skip(begin).map(text_of).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

/// Whether all that a task has to say is in its history.
pub(super) fn answers_by_history(task: &Task) -> bool {
    task.status.state == TaskState::Completed && task.artifacts.is_none() && said(task).is_empty()
}

/// What it says about where it stands.
fn said(task: &Task) -> String {
    task.status.message.as_ref().map(text_of).unwrap_or_default()
}

/// A message in lines. A question's own form is for programs.
pub(super) fn text_of(message: &Message) -> String {
    let words: Vec<Part> = message.parts.iter().filter(|part| part.as_text().is_some()).cloned().collect();
    texts(if words.is_empty() { &message.parts } else { &words })
}

/// Parts in lines: text as it is, data as JSON, the others by what they are.
pub(super) fn texts(parts: &[Part]) -> String {
    let told = |part: &Part| match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Data(data) => data.get().to_owned(),
        PartContent::Url(url) => match part.filename.is_empty() {
            true => format!("[{url}]"),
            false => format!("[{}: {url}]", part.filename),
        },
        PartContent::Raw(bytes) => {
            let kind = if part.media_type.is_empty() { "file" } else { &part.media_type };
            let named = if part.filename.is_empty() { String::new() } else { format!("{}: ", part.filename) };
            format!("[{named}{kind}, {} bytes]", bytes.len())
        }
    };
    parts.iter().map(told).collect::<Vec<_>>().join("\n")
}

/// A state by its name, however its words are joined.
pub(super) fn state(name: &str) -> Result<TaskState, String> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    let plain = plain.trim_start_matches("task_state_").replace("cancelled", "canceled");
    TaskState::parse(&plain).ok_or_else(|| {
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

/// What a file holds, by its name.
pub(super) fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a state is known by the names that people and specifications write. Method: rows.
    #[test]
    fn states_have_names() {
        for name in ["input_required", "input-required", "TASK_STATE_INPUT_REQUIRED"] {
            assert_eq!(state(name), Ok(TaskState::InputRequired), "{name}");
        }
        assert_eq!(state("cancelled"), Ok(TaskState::Canceled));
        assert!(state("done").is_err());
    }
}
