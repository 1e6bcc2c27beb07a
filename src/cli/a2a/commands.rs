//! `callboard a2a` `send`, `stream`, `card`, `task`, `list` and `cancel`, and the lines in which they print messages and tasks.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::sync::Arc;

use callboard_a2a::card::{Jwks, verify_card};
use callboard_a2a::outbound::{A2aClient, A2aClientError, ConversationError, HISTORY_MESSAGES_MAX};
use callboard_a2a::wire::{
    A2aArtifact, A2aMessage, A2aTask, AgentCard, GetTaskRequest, ListTasksRequest, Part,
    PartContent, Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse, TaskStatus, WireType,
};
use callboard_message::time::format_rfc3339;
use callboard_message::{CallId, RawObject, TaskState};
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::{
    A2aCancelArguments, A2aCardArguments, A2aListArguments, A2aSendArguments, A2aTaskArguments,
};
use crate::cli::mcp::terminal::{TerminalCaller, should_ask};
use crate::cli::{
    CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED, output,
};
use crate::text::{first_line, strip_control_chars};

pub(in crate::cli) async fn send(arguments: &A2aSendArguments) -> CommandResult {
    let message = build_message(arguments)?;
    let response = arguments.agent.run_with_peer(async |peer: &A2aClient| {
        if arguments.no_wait {
            let configuration = SendMessageConfiguration {
                return_immediately: true,
                ..Default::default()
            };
            let request = SendMessageRequest {
                message,
                configuration: Some(configuration),
                ..SendMessageRequest::default()
            };
            return Ok(peer.send(request).await?);
        }
        let person = TerminalCaller::new(
            should_ask(arguments.ask, arguments.agent.json),
            !arguments.agent.json,
            Vec::new(),
        );
        let response = converse(peer, message, &person, &|_| {}).await?;
        Ok::<_, CommandError>(fetch_history_if_needed(peer, response).await)
    });
    let response = response.await?;
    match arguments.agent.json {
        true => output::print_json_text(response.to_json())?,
        false => print_response(&response, &arguments.agent.url)?,
    }
    Ok(exit_code(&response))
}

pub(super) async fn send_streaming(arguments: &A2aSendArguments) -> CommandResult {
    let message = build_message(arguments)?;
    let shown = StreamPrinter::new(arguments.agent.json);
    let person = TerminalCaller::new(
        should_ask(arguments.ask, arguments.agent.json),
        false,
        Vec::new(),
    );
    let talking = async |peer: &A2aClient| {
        converse(peer, message, &person, &|event| shown.print_event(event)).await
    };
    let response = shown.finish(arguments.agent.run_with_peer(talking).await)?;
    print_continuation(&response, &arguments.agent.url);
    Ok(exit_code(&response))
}

async fn converse(
    peer: &A2aClient,
    message: A2aMessage,
    person: &TerminalCaller,
    heard: &(dyn Fn(&StreamResponse) + Sync),
) -> Result<SendMessageResponse, CommandError> {
    peer.converse(message, person, heard)
        .await
        .map_err(|stopped| match stopped {
            ConversationError::Client(error) => error.into(),
            ConversationError::Failed(failure) => failure.into(),
        })
}

/// Returns the task with its history if the answer is only there ([`is_answer_in_history`]); other
/// responses are unchanged. A failed request returns the response without history.
async fn fetch_history_if_needed(
    peer: &A2aClient,
    response: SendMessageResponse,
) -> SendMessageResponse {
    let SendMessageResponse::Task(task) = &response else {
        return response;
    };
    if task.history.is_some() || !is_answer_in_history(task) {
        return response;
    }
    let request = GetTaskRequest {
        id: task.id.clone(),
        history_length: Some(HISTORY_MESSAGES_MAX),
        ..GetTaskRequest::default()
    };
    match peer.get_task(request).await {
        Ok(task) => SendMessageResponse::Task(task),
        Err(_) => response,
    }
}

/// Builds the message from the command line. Fails with a usage error if it is empty.
fn build_message(arguments: &A2aSendArguments) -> Result<A2aMessage, CommandError> {
    let mut parts: Vec<Part> = arguments.text.iter().map(Part::text).collect();
    if let Some(data) = &arguments.data {
        let wrong = |error| CommandError::usage(format_args!("--data must be JSON: {error}"));
        parts.push(Part::data(
            RawValue::from_string(data.clone()).map_err(wrong)?,
        ));
    }
    for path in &arguments.files {
        let bytes = std::fs::read(path).map_err(|error| CommandError::file(path, error))?;
        let filename = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        parts.push(Part {
            filename,
            ..Part::raw(bytes, media_type(path))
        });
    }
    if parts.is_empty() {
        return Err(CommandError::usage(
            "the message is empty: give TEXT, --data or --file",
        ));
    }
    Ok(A2aMessage {
        message_id: CallId::generate().to_string(),
        context_id: arguments.context.clone().unwrap_or_default(),
        task_id: arguments.task.clone().unwrap_or_default(),
        role: Role::User,
        parts,
        metadata: arguments
            .skill
            .as_ref()
            .map(|skill| RawObject::single("skill", skill)),
        ..A2aMessage::default()
    })
}

/// Printer of a stream of events.
struct StreamPrinter {
    json: bool,
    /// Id of the artifact whose text ended without a line break.
    open_artifact: Mutex<Option<String>>,
}

impl StreamPrinter {
    fn new(json: bool) -> Self {
        Self {
            json,
            open_artifact: Mutex::default(),
        }
    }

    /// Prints an event. Write errors are ignored: after a closed pipe the command ends anyway.
    fn print_event(&self, event: &StreamResponse) {
        if self.json {
            let _ = output::print_json_text(event.to_json());
            return;
        }
        match event {
            StreamResponse::Task(task) => self.print_task(task),
            StreamResponse::Message(message) => {
                self.end_open_line();
                let _ = output::print_line(message_text(message));
            }
            StreamResponse::StatusUpdate(update) => self.print_status(&update.status),
            StreamResponse::ArtifactUpdate(update) => {
                self.print_artifact(&update.artifact, update.append, update.last_chunk)
            }
        }
    }

    fn print_task(&self, task: &A2aTask) {
        for artifact in task.artifacts.iter().flatten() {
            self.print_artifact(artifact, false, true);
        }
        self.print_status(&task.status);
    }

    fn print_status(&self, status: &TaskStatus) {
        self.end_open_line();
        let text = status
            .message
            .as_ref()
            .map(message_text)
            .unwrap_or_default();
        output::print_note(format!("{} {text}", status.state).trim_end());
    }

    fn print_artifact(&self, artifact: &A2aArtifact, append: bool, last: bool) {
        let mut open = self.open_artifact.lock();
        let goes_on = append && open.as_ref() == Some(&artifact.artifact_id);
        let mut text = strip_control_chars(&parts_text(&artifact.parts));
        if open.is_some() && !goes_on {
            text.insert(0, '\n');
        }
        *open = Some(artifact.artifact_id.clone());
        if last {
            text.push('\n');
            *open = None;
        }
        let mut out = stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Prints a line break after an unfinished line.
    fn end_open_line(&self) {
        if self.open_artifact.lock().take().is_some() {
            let _ = output::print_line("");
        }
    }

    /// Prints the final response. An answer that the agent gave in messages, not in artifacts, was
    /// printed as a note: it is repeated as the answer.
    fn finish(
        &self,
        response: Result<SendMessageResponse, CommandError>,
    ) -> Result<SendMessageResponse, CommandError> {
        self.end_open_line();
        let response = response?;
        if let SendMessageResponse::Task(task) = &response
            && !self.json
            && task.artifacts.is_none()
        {
            print_if_not_empty(&task_text(task))?;
        }
        Ok(response)
    }
}

/// Maximum tasks of one page (specification 1.0, section 3.1.4).
const PAGE_TASKS_MAX: i32 = 100;

pub(super) async fn show_task(arguments: &A2aTaskArguments) -> CommandResult {
    let A2aTaskArguments {
        agent,
        id,
        history,
        follow,
    } = arguments;
    if *follow {
        let (shown, person) = (
            StreamPrinter::new(agent.json),
            TerminalCaller::new(false, false, Vec::new()),
        );
        let following = async |peer: &A2aClient| {
            peer.follow(id, &person, &|event| shown.print_event(event))
                .await
        };
        let response = shown.finish(agent.run_with_peer(following).await)?;
        print_continuation(&response, &agent.url);
        return Ok(exit_code(&response));
    }
    let request = GetTaskRequest {
        id: id.clone(),
        history_length: Some((*history).into()),
        ..GetTaskRequest::default()
    };
    let fetching = async |peer: &A2aClient| {
        let task = peer.get_task(request).await?;
        let short = SendMessageResponse::Task(A2aTask {
            history: None,
            ..task.clone()
        });
        let whole = if agent.json {
            short
        } else {
            fetch_history_if_needed(peer, short).await
        };
        Ok::<_, A2aClientError>((task, whole))
    };
    let (task, whole) = agent.run_with_peer(fetching).await?;
    if agent.json {
        output::print_json_text(task.to_json())?;
        return Ok(exit_code(&whole));
    }
    output::print_line(task_row(&task))?;
    for said in task.history.iter().flatten() {
        let speaker = if said.role == Role::Agent {
            "agent"
        } else {
            "user"
        };
        output::print_line(format_args!("{speaker}: {}", message_text(said)))?;
    }
    print_response(&whole, &agent.url)?;
    Ok(exit_code(&whole))
}

pub(super) async fn list_tasks(arguments: &A2aListArguments) -> CommandResult {
    let listed = async |peer: &A2aClient| {
        let (mut tasks, limit) = (Vec::<A2aTask>::new(), i32::from(arguments.limit));
        let mut request = ListTasksRequest {
            context_id: arguments.context.clone().unwrap_or_default(),
            status: arguments.state,
            history_length: Some(0),
            ..ListTasksRequest::default()
        };
        loop {
            let left = limit.saturating_sub(i32::try_from(tasks.len()).unwrap_or(limit));
            if left <= 0 {
                return Ok::<_, A2aClientError>(tasks);
            }
            request.page_size = Some(left.min(PAGE_TASKS_MAX));
            let page = peer.list_tasks(request.clone()).await?;
            let is_last = page.next_page_token.is_empty() || page.tasks.is_empty();
            tasks.extend(page.tasks);
            if is_last {
                return Ok(tasks);
            }
            request.page_token = page.next_page_token;
        }
    };
    let tasks = arguments.agent.run_with_peer(listed).await?;
    output::print_table_heading(arguments.agent.json, TASK_COLUMNS)?;
    for task in tasks.iter().take(arguments.limit.into()) {
        output::print_raw(if arguments.agent.json {
            task.to_json()
        } else {
            strip_control_chars(&task_row(task))
        })?;
    }
    Ok(EXIT_ANSWERED)
}

pub(super) async fn cancel_task(
    A2aCancelArguments { agent, id }: &A2aCancelArguments,
) -> CommandResult {
    let task = agent
        .run_with_peer(async |peer: &A2aClient| peer.cancel_task(id).await)
        .await?;
    if agent.json {
        output::print_json_text(task.to_json())?;
    }
    match task.status.state {
        TaskState::Canceled if agent.json => {}
        TaskState::Canceled => output::print_line(format_args!("cancelled {}", task.id))?,
        state => {
            return Err(CommandError::failed(format_args!(
                "the task wasn't cancelled: it is {state}"
            )));
        }
    }
    Ok(EXIT_ANSWERED)
}

/// Columns of [`task_row`].
const TASK_COLUMNS: &str = "ID\tSTATE\tCONTEXT\tUPDATED";

fn task_row(task: &A2aTask) -> String {
    let updated = task
        .status
        .timestamp
        .map(format_rfc3339)
        .unwrap_or_default();
    // A peer's ids stand in one column each.
    let plain = |id: &str| id.replace(['\t', '\n'], " ");
    format!(
        "{}\t{}\t{}\t{updated}",
        plain(&task.id),
        task.status.state,
        plain(&task.context_id)
    )
}

pub(super) async fn show_card(arguments: &A2aCardArguments) -> CommandResult {
    let keys = arguments.verify.as_deref().map(read_key_set).transpose()?;
    let read = async |peer: &A2aClient| {
        let found = peer.public_card().await?;
        match arguments.extended {
            true => {
                let card = Arc::new(peer.extended_card().await?);
                Ok((card.clone(), card))
            }
            false => Ok::<_, A2aClientError>((found.card, found.signed_view)),
        }
    };
    let (card, signed) = arguments.agent.run_with_peer(read).await?;
    let checked = keys.map(|keys| verify_card(&signed, &keys));
    match arguments.agent.json {
        true => output::print_json_text(card.to_json())?,
        false => print_card(&card)?,
    }
    let (told, code) = match checked {
        Some(Ok(by)) => (
            format!("signed by {}", by.key_id.unwrap_or(by.algorithm)),
            EXIT_ANSWERED,
        ),
        Some(Err(error)) if !signed.signatures.is_empty() => {
            (format!("BAD signature: {error}"), EXIT_FAILED)
        }
        Some(Err(_)) => ("not signed".to_owned(), EXIT_FAILED),
        None if signed.signatures.is_empty() => ("not signed".to_owned(), EXIT_ANSWERED),
        None => ("signed, not checked (--verify)".to_owned(), EXIT_ANSWERED),
    };
    match arguments.agent.json {
        // The object is all that is printed.
        true if code != EXIT_ANSWERED => output::print_error(&told),
        true => {}
        false => output::print_line(&told)?,
    }
    Ok(code)
}

fn read_key_set(path: &Path) -> Result<Jwks, CommandError> {
    let text = std::fs::read(path).map_err(|error| CommandError::file(path, error))?;
    Jwks::parse(&text).map_err(|error| CommandError::file(path, error))
}

fn print_card(card: &AgentCard) -> io::Result<()> {
    output::print_line(format_args!("name {}", first_line(&card.name)))?;
    if !card.description.is_empty() {
        output::print_line(format_args!(
            "description {}",
            first_line(&card.description)
        ))?;
    }
    output::print_line(format_args!("version {}", first_line(&card.version)))?;
    for interface in &card.supported_interfaces {
        let (binding, version) = (&interface.protocol_binding, &interface.protocol_version);
        output::print_line(first_line(&format!(
            "interface {binding} {version} {}",
            interface.url
        )))?;
    }
    for skill in &card.skills {
        let told = if skill.description.is_empty() {
            &skill.name
        } else {
            &skill.description
        };
        output::print_line(format_args!(
            "skill {}: {}",
            first_line(&skill.id),
            first_line(told)
        ))?;
    }
    Ok(())
}

/// Prints a text, if there is one.
fn print_if_not_empty(text: &str) -> io::Result<()> {
    if text.is_empty() {
        Ok(())
    } else {
        output::print_line(text)
    }
}

/// Prints a response for people: a direct reply, or the task's artifacts; without them, for a
/// completed task, the status text or else the agent's last messages. How a task that isn't
/// completed can be continued, or why it failed, goes to standard error.
fn print_response(response: &SendMessageResponse, url: &str) -> io::Result<()> {
    let text = match response {
        SendMessageResponse::Message(message) => message_text(message),
        SendMessageResponse::Task(task) => task_text(task),
    };
    print_if_not_empty(&text)?;
    if let SendMessageResponse::Task(task) = response {
        match task.status.state {
            TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => {}
            TaskState::Submitted | TaskState::Working => {
                output::print_note(format_args!(
                    "the task goes on: callboard a2a task {url} {}",
                    task.id
                ));
            }
            state => {
                let told = format!("{state}: {}", status_text(task));
                output::print_error(told.trim_end_matches([':', ' ']));
            }
        }
    }
    print_continuation(response, url);
    Ok(())
}

/// Prints the agent's question, if the task waits for one, and the command that continues the task.
fn print_continuation(response: &SendMessageResponse, url: &str) {
    let SendMessageResponse::Task(task) = response else {
        return;
    };
    let what = match task.status.state {
        TaskState::InputRequired => "input required",
        TaskState::AuthRequired => "authorization required",
        _ => return,
    };
    output::print_note(format_args!("[{what}] {}", status_text(task)));
    output::print_note(format_args!(
        "continue with: callboard a2a send {url} --task {} TEXT",
        task.id
    ));
}

/// Returns the exit code for a response: [`EXIT_INPUT_REQUIRED`] for a task that waits for the
/// user, [`EXIT_FAILED`] for one that ended without success, otherwise [`EXIT_ANSWERED`], also
/// while the task still runs.
fn exit_code(response: &SendMessageResponse) -> u8 {
    let SendMessageResponse::Task(task) = response else {
        return EXIT_ANSWERED;
    };
    match task.status.state {
        TaskState::Submitted | TaskState::Working | TaskState::Completed => EXIT_ANSWERED,
        TaskState::InputRequired | TaskState::AuthRequired => EXIT_INPUT_REQUIRED,
        TaskState::Failed | TaskState::Canceled | TaskState::Rejected => EXIT_FAILED,
    }
}

fn task_text(task: &A2aTask) -> String {
    let made: Vec<String> = task
        .artifacts
        .iter()
        .flatten()
        .map(|artifact| parts_text(&artifact.parts))
        .collect();
    if !made.is_empty() {
        return made.join("\n");
    }
    // The status text of other states is a note on standard error.
    if task.status.state != TaskState::Completed {
        return String::new();
    }
    let said = status_text(task);
    if !said.is_empty() {
        return said;
    }
    // Some agents answer only by messages: those since the user's last one.
    let history = task.history.as_deref().unwrap_or_default();
    let begin = history
        .iter()
        .rposition(|said| said.role == Role::User)
        .map_or(0, |at| at + 1);
    let texts: Vec<String> = history
        .iter()
        .skip(begin)
        .map(message_text)
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n")
}

/// Returns whether a completed task has neither artifacts nor a status text, so that its answer can
/// only be in the history.
fn is_answer_in_history(task: &A2aTask) -> bool {
    task.status.state == TaskState::Completed
        && task.artifacts.is_none()
        && status_text(task).is_empty()
}

/// Returns the text of the message in a task's status; empty without one.
fn status_text(task: &A2aTask) -> String {
    task.status
        .message
        .as_ref()
        .map(message_text)
        .unwrap_or_default()
}

/// Formats a message as text: its text parts, or all parts if it has none.
fn message_text(message: &A2aMessage) -> String {
    let words: Vec<Part> = message
        .parts
        .iter()
        .filter(|part| part.as_text().is_some())
        .cloned()
        .collect();
    parts_text(if words.is_empty() {
        &message.parts
    } else {
        &words
    })
}

/// Formats parts, one a line: text as it is, data as JSON, URLs and files by name and type.
fn parts_text(parts: &[Part]) -> String {
    let told = |part: &Part| match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Data(data) => data.get().to_owned(),
        PartContent::Url(url) => match part.filename.is_empty() {
            true => format!("[{url}]"),
            false => format!("[{}: {url}]", part.filename),
        },
        PartContent::Raw(bytes) => {
            let kind = if part.media_type.is_empty() {
                "file"
            } else {
                &part.media_type
            };
            let named = if part.filename.is_empty() {
                String::new()
            } else {
                format!("{}: ", part.filename)
            };
            format!("[{named}{kind}, {} bytes]", bytes.len())
        }
    };
    parts.iter().map(told).collect::<Vec<_>>().join("\n")
}

/// Parses a task state: any case, `-` or `_`, with or without `TASK_STATE_`.
pub(super) fn parse_state(name: &str) -> Result<TaskState, String> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    let plain = plain
        .trim_start_matches("task_state_")
        .replace("cancelled", "canceled");
    TaskState::parse(&plain).ok_or_else(|| {
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

/// Returns the media type of a file by its extension.
fn media_type(path: &Path) -> &'static str {
    match path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default()
    {
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
        for name in [
            "input_required",
            "input-required",
            "TASK_STATE_INPUT_REQUIRED",
        ] {
            assert_eq!(parse_state(name), Ok(TaskState::InputRequired), "{name}");
        }
        assert_eq!(parse_state("cancelled"), Ok(TaskState::Canceled));
        assert!(parse_state("done").is_err());
    }
}
