//! `callboard a2a stream`, and following a task.

use std::io::{Write, stdout};
use std::sync::{Mutex, PoisonError};

use callboard_a2a::wire::{Artifact, SendMessageResponse, StreamResponse, Task, TaskStatus, Wire};

use super::agent::{Person, peer, within};
use super::send::{asks, message, talk};
use super::words::{answers_by_history, exit_code, go_on, text_of, text_of_task, texts};
use super::{SendArguments, Stopped, show};
use crate::cli::mcp::words::printable;

pub(super) async fn run(arguments: &SendArguments) -> Result<u8, Stopped> {
    let message = message(arguments)?;
    let peer = peer(&arguments.agent)?;
    let shown = Shown::new(arguments.agent.json);
    let response = within(&arguments.agent, &peer, async {
        let person = Person::new(asks(arguments), false);
        talk(&peer, message, &person, &|event| shown.event(event)).await
    })
    .await;
    let response = shown.end(response)?;
    go_on(&response, &arguments.agent.url);
    Ok(exit_code(&response))
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
            let _ = show::line(&event.to_json());
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
        show::aside(printable(&format!("{} {text}", status.state)).trim_end());
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
        let _ = show::line(&printable(text));
    }

    /// Ends the line that is open.
    fn close(&self) {
        if self.open.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            let _ = show::line("");
        }
    }

    /// Ends what is printed. An answer that the agent gave as progress is printed once more, as an answer.
    pub(super) fn end(&self, response: Result<SendMessageResponse, Stopped>) -> Result<SendMessageResponse, Stopped> {
        self.close();
        match &response {
            Ok(SendMessageResponse::Task(task)) if !self.json && answers_by_history(task) => {
                let text = text_of_task(task);
                if !text.is_empty() {
                    show::line(&printable(&text))?;
                }
            }
            _ => {}
        }
        response
    }
}
