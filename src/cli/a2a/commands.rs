//! `callboard a2a` `send`, `stream`, `card`, `task`, `list` and `cancel`, and the lines in which they print messages and tasks.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::sync::Arc;

use callboard_a2a::card::{Jwks, verify};
use callboard_a2a::outbound::{HISTORY_MESSAGES_MAX, Peer, PeerError, Stopped};
use callboard_a2a::wire::{
    AgentCard, Artifact, GetTaskRequest, ListTasksRequest, Message, Part, PartContent, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, Task,
    TaskStatus, Wire,
};
use callboard_message::time::rfc3339;
use callboard_message::{CallId, RawObject, TaskState};
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::{CancelArguments, CardArguments, ListArguments, SendArguments, TaskArguments};
use crate::cli::mcp::terminal::{Terminal, asks};
use crate::cli::{CommandError, EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED, Outcome, show};
use crate::text::{first_line, printable};

pub(in crate::cli) async fn send(arguments: &SendArguments) -> Outcome {
    let message = message(arguments)?;
    let response = arguments.agent.within(async |peer: &Peer| {
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
        let person = Terminal::new(
            asks(arguments.ask, arguments.agent.json),
            !arguments.agent.json,
            Vec::new(),
        );
        let response = talk(peer, message, &person, &|_| {}).await?;
        Ok::<_, CommandError>(with_history(peer, response).await)
    });
    let response = response.await?;
    match arguments.agent.json {
        true => show::raw(response.to_json())?,
        false => print(&response, &arguments.agent.url)?,
    }
    Ok(exit_code(&response))
}

pub(super) async fn stream(arguments: &SendArguments) -> Outcome {
    let message = message(arguments)?;
    let shown = Shown::new(arguments.agent.json);
    let person = Terminal::new(asks(arguments.ask, arguments.agent.json), false, Vec::new());
    let talking =
        async |peer: &Peer| talk(peer, message, &person, &|event| shown.event(event)).await;
    let response = shown.end(arguments.agent.within(talking).await)?;
    go_on(&response, &arguments.agent.url);
    Ok(exit_code(&response))
}

async fn talk(
    peer: &Peer,
    message: Message,
    person: &Terminal,
    heard: &(dyn Fn(&StreamResponse) + Sync),
) -> Result<SendMessageResponse, CommandError> {
    peer.converse(message, person, heard)
        .await
        .map_err(|stopped| match stopped {
            Stopped::Peer(error) => error.into(),
            Stopped::Failed(failure) => failure.into(),
        })
}

/// The task with what was said, where it says nothing else.
async fn with_history(peer: &Peer, response: SendMessageResponse) -> SendMessageResponse {
    let SendMessageResponse::Task(task) = &response else {
        return response;
    };
    if task.history.is_some() || !answers_by_history(task) {
        return response;
    }
    let request = GetTaskRequest {
        id: task.id.clone(),
        history_length: Some(HISTORY_MESSAGES_MAX),
        ..GetTaskRequest::default()
    };
    match peer.get(request).await {
        Ok(task) => SendMessageResponse::Task(task),
        Err(_) => response,
    }
}

/// What the command line says.
fn message(arguments: &SendArguments) -> Result<Message, CommandError> {
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
        return Err(CommandError::usage("say something: TEXT, --data or --file"));
    }
    Ok(Message {
        message_id: CallId::fresh().to_string(),
        context_id: arguments.context.clone().unwrap_or_default(),
        task_id: arguments.task.clone().unwrap_or_default(),
        role: Role::User,
        parts,
        metadata: arguments
            .skill
            .as_ref()
            .map(|skill| RawObject::of("skill", skill)),
        ..Message::default()
    })
}

/// What has been printed of a stream.
struct Shown {
    json: bool,
    /// The artifact whose line is open.
    open: Mutex<Option<String>>,
}

impl Shown {
    fn new(json: bool) -> Self {
        Self {
            json,
            open: Mutex::default(),
        }
    }

    /// Prints an event as it comes. Where nobody reads any more, nothing is: the command ends by itself.
    fn event(&self, event: &StreamResponse) {
        if self.json {
            let _ = show::raw(event.to_json());
            return;
        }
        match event {
            StreamResponse::Task(task) => self.task(task),
            StreamResponse::Message(message) => {
                self.close();
                let _ = show::line(text_of(message));
            }
            StreamResponse::StatusUpdate(update) => self.status(&update.status),
            StreamResponse::ArtifactUpdate(update) => {
                self.artifact(&update.artifact, update.append, update.last_chunk)
            }
        }
    }

    fn task(&self, task: &Task) {
        for artifact in task.artifacts.iter().flatten() {
            self.artifact(artifact, false, true);
        }
        self.status(&task.status);
    }

    fn status(&self, status: &TaskStatus) {
        self.close();
        let text = status.message.as_ref().map(text_of).unwrap_or_default();
        show::aside(format!("{} {text}", status.state).trim_end());
    }

    fn artifact(&self, artifact: &Artifact, append: bool, last: bool) {
        let mut open = self.open.lock();
        let goes_on = append && open.as_ref() == Some(&artifact.artifact_id);
        let mut text = printable(&texts(&artifact.parts));
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

    /// Ends the line that is open.
    fn close(&self) {
        if self.open.lock().take().is_some() {
            let _ = show::line("");
        }
    }

    /// Ends what is printed. An answer that the agent gave as progress is printed once more, as an answer.
    fn end(
        &self,
        response: Result<SendMessageResponse, CommandError>,
    ) -> Result<SendMessageResponse, CommandError> {
        self.close();
        let response = response?;
        if let SendMessageResponse::Task(task) = &response
            && !self.json
            && answers_by_history(task)
        {
            say(&text_of_task(task))?;
        }
        Ok(response)
    }
}

/// Most tasks of one page (specification 1.0, section 3.1.4).
const PAGE_MAX: i32 = 100;

pub(super) async fn show_task(arguments: &TaskArguments) -> Outcome {
    let TaskArguments {
        agent,
        id,
        history,
        follow,
    } = arguments;
    if *follow {
        let (shown, person) = (
            Shown::new(agent.json),
            Terminal::new(false, false, Vec::new()),
        );
        let following =
            async |peer: &Peer| peer.follow(id, &person, &|event| shown.event(event)).await;
        let response = shown.end(agent.within(following).await)?;
        go_on(&response, &agent.url);
        return Ok(exit_code(&response));
    }
    let request = GetTaskRequest {
        id: id.clone(),
        history_length: Some((*history).into()),
        ..GetTaskRequest::default()
    };
    let fetching = async |peer: &Peer| {
        let task = peer.get(request).await?;
        let short = SendMessageResponse::Task(Task {
            history: None,
            ..task.clone()
        });
        let whole = if agent.json {
            short
        } else {
            with_history(peer, short).await
        };
        Ok::<_, PeerError>((task, whole))
    };
    let (task, whole) = agent.within(fetching).await?;
    if agent.json {
        show::raw(task.to_json())?;
        return Ok(exit_code(&whole));
    }
    show::line(in_line(&task))?;
    for said in task.history.iter().flatten() {
        let speaker = if said.role == Role::Agent {
            "agent"
        } else {
            "user"
        };
        show::line(format_args!("{speaker}: {}", text_of(said)))?;
    }
    print(&whole, &agent.url)?;
    Ok(exit_code(&whole))
}

pub(super) async fn list(arguments: &ListArguments) -> Outcome {
    let listed = async |peer: &Peer| {
        let (mut tasks, limit) = (Vec::<Task>::new(), i32::from(arguments.limit));
        let mut request = ListTasksRequest {
            context_id: arguments.context.clone().unwrap_or_default(),
            status: arguments.state,
            history_length: Some(0),
            ..ListTasksRequest::default()
        };
        loop {
            let left = limit.saturating_sub(i32::try_from(tasks.len()).unwrap_or(limit));
            if left <= 0 {
                return Ok::<_, PeerError>(tasks);
            }
            request.page_size = Some(left.min(PAGE_MAX));
            let page = peer.list(request.clone()).await?;
            let is_last = page.next_page_token.is_empty() || page.tasks.is_empty();
            tasks.extend(page.tasks);
            if is_last {
                return Ok(tasks);
            }
            request.page_token = page.next_page_token;
        }
    };
    let tasks = arguments.agent.within(listed).await?;
    for task in tasks.iter().take(arguments.limit.into()) {
        show::raw(if arguments.agent.json {
            task.to_json()
        } else {
            printable(&in_line(task))
        })?;
    }
    Ok(EXIT_ANSWERED)
}

pub(super) async fn cancel(CancelArguments { agent, id }: &CancelArguments) -> Outcome {
    let task = agent
        .within(async |peer: &Peer| peer.cancel(id).await)
        .await?;
    if agent.json {
        show::raw(task.to_json())?;
    }
    match task.status.state {
        TaskState::Canceled if agent.json => {}
        TaskState::Canceled => show::line(format_args!("cancelled {}", task.id))?,
        state => return Err(CommandError::failed(format_args!("the task is {state}"))),
    }
    Ok(EXIT_ANSWERED)
}

fn in_line(task: &Task) -> String {
    let updated = task.status.timestamp.map(rfc3339).unwrap_or_default();
    // A peer's ids stand in one column each.
    let plain = |id: &str| id.replace(['\t', '\n'], " ");
    format!(
        "{}\t{}\t{}\t{updated}",
        plain(&task.id),
        task.status.state,
        plain(&task.context_id)
    )
}

pub(super) async fn card(arguments: &CardArguments) -> Outcome {
    let keys = arguments.verify.as_deref().map(keys).transpose()?;
    let read = async |peer: &Peer| {
        let found = peer.public_card().await?;
        match arguments.extended {
            true => {
                let card = Arc::new(peer.extended_card().await?);
                Ok((card.clone(), card))
            }
            false => Ok::<_, PeerError>((found.card, found.as_signed)),
        }
    };
    let (card, signed) = arguments.agent.within(read).await?;
    let checked = keys.map(|keys| verify(&signed, &keys));
    match arguments.agent.json {
        true => show::raw(card.to_json())?,
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
        true if code != EXIT_ANSWERED => show::complain(&told),
        true => {}
        false => show::line(&told)?,
    }
    Ok(code)
}

fn keys(path: &Path) -> Result<Jwks, CommandError> {
    let text = std::fs::read(path).map_err(|error| CommandError::file(path, error))?;
    Jwks::parse(&text).map_err(|error| CommandError::file(path, error))
}

fn print_card(card: &AgentCard) -> io::Result<()> {
    show::line(format_args!("name {}", first_line(&card.name)))?;
    if !card.description.is_empty() {
        show::line(format_args!(
            "description {}",
            first_line(&card.description)
        ))?;
    }
    show::line(format_args!("version {}", first_line(&card.version)))?;
    for interface in &card.supported_interfaces {
        let (binding, version) = (&interface.protocol_binding, &interface.protocol_version);
        show::line(first_line(&format!(
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
        show::line(format_args!(
            "skill {}: {}",
            first_line(&skill.id),
            first_line(told)
        ))?;
    }
    Ok(())
}

/// Prints a text, if there is one.
fn say(text: &str) -> io::Result<()> {
    if text.is_empty() {
        Ok(())
    } else {
        show::line(text)
    }
}

/// Prints what people read of an answer: what the task made; else what it says; else what was said last.
fn print(response: &SendMessageResponse, url: &str) -> io::Result<()> {
    let text = match response {
        SendMessageResponse::Message(message) => text_of(message),
        SendMessageResponse::Task(task) => text_of_task(task),
    };
    say(&text)?;
    if let SendMessageResponse::Task(task) = response {
        match task.status.state {
            TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => {}
            TaskState::Submitted | TaskState::Working => {
                show::aside(format_args!(
                    "the task goes on: callboard a2a task {url} {}",
                    task.id
                ));
            }
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
fn go_on(response: &SendMessageResponse, url: &str) {
    let SendMessageResponse::Task(task) = response else {
        return;
    };
    let what = match task.status.state {
        TaskState::InputRequired => "input required",
        TaskState::AuthRequired => "authorization required",
        _ => return,
    };
    show::aside(format_args!("[{what}] {}", said(task)));
    show::aside(format_args!(
        "continue with: callboard a2a send {url} --task {} TEXT",
        task.id
    ));
}

/// What a command ends with.
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

fn text_of_task(task: &Task) -> String {
    let made: Vec<String> = task
        .artifacts
        .iter()
        .flatten()
        .map(|artifact| texts(&artifact.parts))
        .collect();
    if !made.is_empty() {
        return made.join("\n");
    }
    // What else it says is said aside.
    if task.status.state != TaskState::Completed {
        return String::new();
    }
    let said = said(task);
    if !said.is_empty() {
        return said;
    }
    // What the agent said since the user spoke last: the answer of agents that give no other.
    let history = task.history.as_deref().unwrap_or_default();
    let begin = history
        .iter()
        .rposition(|said| said.role == Role::User)
        .map_or(0, |at| at + 1);
    let texts: Vec<String> = history
        .iter()
        .skip(begin)
        .map(text_of)
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n")
}

/// Whether all that a task has to say is in its history.
fn answers_by_history(task: &Task) -> bool {
    task.status.state == TaskState::Completed && task.artifacts.is_none() && said(task).is_empty()
}

/// What it says about where it stands.
fn said(task: &Task) -> String {
    task.status
        .message
        .as_ref()
        .map(text_of)
        .unwrap_or_default()
}

/// A message in lines. A question's own form is for programs.
fn text_of(message: &Message) -> String {
    let words: Vec<Part> = message
        .parts
        .iter()
        .filter(|part| part.as_text().is_some())
        .cloned()
        .collect();
    texts(if words.is_empty() {
        &message.parts
    } else {
        &words
    })
}

/// Parts in lines: text as it is, data as JSON, the others by what they are.
fn texts(parts: &[Part]) -> String {
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

/// A state by its name, however its words are joined.
pub(super) fn state(name: &str) -> Result<TaskState, String> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    let plain = plain
        .trim_start_matches("task_state_")
        .replace("cancelled", "canceled");
    TaskState::parse(&plain).ok_or_else(|| {
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

/// What a file holds, by its name.
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
            assert_eq!(state(name), Ok(TaskState::InputRequired), "{name}");
        }
        assert_eq!(state("cancelled"), Ok(TaskState::Canceled));
        assert!(state("done").is_err());
    }
}
