//! `callboard a2a send` and `callboard a2a stream`: say something, and what comes of it.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use callboard_a2a::outbound::{HISTORY_MESSAGES_MAX, Peer, Stopped};
use callboard_a2a::wire::{
    Artifact, GetTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse, Task, TaskStatus, Wire,
};
use callboard_message::{CallId, RawObject};
use serde_json::value::RawValue;

use super::words::{answers_by_history, exit_code, go_on, media_type, print, text_of, text_of_task, texts};
use super::{CommandError, Outcome, SendArguments, show};
use crate::cli::mcp::terminal::Terminal;
use crate::cli::printable;

pub(in crate::cli) async fn send(arguments: &SendArguments) -> Outcome {
    let message = message(arguments)?;
    let response = arguments.agent.within(async |peer: &Peer| {
        if arguments.no_wait {
            let configuration = SendMessageConfiguration { return_immediately: true, ..Default::default() };
            let request =
                SendMessageRequest { message, configuration: Some(configuration), ..SendMessageRequest::default() };
            return Ok(peer.send(request).await?);
        }
        let person = Terminal::new(asks(arguments), !arguments.agent.json, Vec::new());
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
    let person = Terminal::new(asks(arguments), false, Vec::new());
    let talking = async |peer: &Peer| talk(peer, message, &person, &|event| shown.event(event)).await;
    let response = shown.end(arguments.agent.within(talking).await)?;
    go_on(&response, &arguments.agent.url);
    Ok(exit_code(&response))
}

fn asks(arguments: &SendArguments) -> bool {
    arguments.ask || !arguments.agent.json && stdin().is_terminal()
}

async fn talk(
    peer: &Peer,
    message: Message,
    person: &Terminal,
    heard: &(dyn Fn(&StreamResponse) + Sync),
) -> Result<SendMessageResponse, CommandError> {
    peer.converse(message, person, heard).await.map_err(|stopped| match stopped {
        Stopped::Peer(error) => error.into(),
        Stopped::Failed(failure) => failure.into(),
    })
}

/// The task with what was said, where it says nothing else.
pub(super) async fn with_history(peer: &Peer, response: SendMessageResponse) -> SendMessageResponse {
    let SendMessageResponse::Task(task) = &response else { return response };
    if task.history.is_some() || !answers_by_history(task) {
        return response;
    }
    let request =
        GetTaskRequest { id: task.id.clone(), history_length: Some(HISTORY_MESSAGES_MAX), ..GetTaskRequest::default() };
    match peer.get(request).await {
        Ok(task) => SendMessageResponse::Task(task),
        Err(_) => response,
    }
}

/// What the command line says.
fn message(arguments: &SendArguments) -> Result<Message, CommandError> {
    let mut parts: Vec<Part> = arguments.text.iter().map(Part::text).collect();
    if let Some(data) = &arguments.data {
        let data = RawValue::from_string(data.clone());
        parts
            .push(Part::data(data.map_err(|error| CommandError::usage(format_args!("--data must be JSON: {error}")))?));
    }
    for path in &arguments.files {
        parts.push(file(path)?);
    }
    if parts.is_empty() {
        return Err(CommandError::usage("say something: TEXT, --data or --file"));
    }
    let given = |id: &Option<String>| id.clone().unwrap_or_default();
    Ok(Message {
        message_id: CallId::fresh().to_string(),
        context_id: given(&arguments.context),
        task_id: given(&arguments.task),
        role: Role::User,
        parts,
        metadata: arguments.skill.as_ref().map(|skill| RawObject::new().with("skill", skill)),
        ..Message::default()
    })
}

fn file(path: &Path) -> Result<Part, CommandError> {
    let bytes =
        std::fs::read(path).map_err(|error| CommandError::usage(format_args!("{}: {error}", path.display())))?;
    let filename = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Part { filename, ..Part::raw(bytes, media_type(path)) })
}

/// What has been printed of a stream.
pub(super) struct Shown {
    json: bool,
    /// The artifact whose line is open.
    open: Mutex<Option<String>>,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        Self { json, open: Mutex::default() }
    }

    /// Prints an event as it comes. Where nobody reads any more, nothing is: the command ends by itself.
    pub(super) fn event(&self, event: &StreamResponse) {
        if self.json {
            let _ = show::raw(event.to_json());
            return;
        }
        match event {
            StreamResponse::Task(task) => self.task(task),
            StreamResponse::Message(message) => self.whole(&text_of(message)),
            StreamResponse::StatusUpdate(update) => self.status(&update.status),
            StreamResponse::ArtifactUpdate(update) => self.artifact(&update.artifact, update.append, update.last_chunk),
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
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn whole(&self, text: &str) {
        self.close();
        let _ = show::line(text);
    }

    /// Ends the line that is open.
    fn close(&self) {
        if self.open.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            let _ = show::line("");
        }
    }

    /// Ends what is printed. An answer that the agent gave as progress is printed once more, as an answer.
    pub(super) fn end(
        &self,
        response: Result<SendMessageResponse, CommandError>,
    ) -> Result<SendMessageResponse, CommandError> {
        self.close();
        let response = response?;
        if let SendMessageResponse::Task(task) = &response
            && !self.json
            && answers_by_history(task)
        {
            let text = text_of_task(task);
            if !text.is_empty() {
                show::line(text)?;
            }
        }
        Ok(response)
    }
}
