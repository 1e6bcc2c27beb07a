//! `callboard a2a send`.

use std::io::IsTerminal;
use std::path::Path;

use callboard_a2a::outbound::{HISTORY_MESSAGES_MAX, Peer, Stopped as Conversation};
use callboard_a2a::wire::{
    GetTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse, Wire,
};
use callboard_message::{CallId, RawObject};
use serde_json::value::RawValue;

use super::agent::{Person, peer, within};
use super::words::{answers_by_history, exit_code, media_type, print};
use super::{SendArguments, Stopped, show};

pub(super) async fn run(arguments: &SendArguments) -> Result<u8, Stopped> {
    let message = message(arguments)?;
    let peer = peer(&arguments.agent)?;
    let response = within(&arguments.agent, &peer, async {
        if arguments.no_wait {
            let configuration = SendMessageConfiguration { return_immediately: true, ..Default::default() };
            let request =
                SendMessageRequest { message, configuration: Some(configuration), ..SendMessageRequest::default() };
            return Ok(peer.send(request).await?);
        }
        let person = Person::new(asks(arguments), !arguments.agent.json);
        let response = talk(&peer, message, &person, &|_| {}).await?;
        Ok(with_history(&peer, response).await)
    })
    .await?;
    match arguments.agent.json {
        true => show::line(&response.to_json())?,
        false => print(&response, &arguments.agent.url)?,
    }
    Ok(exit_code(&response))
}

/// Whether somebody can be asked.
pub(super) fn asks(arguments: &SendArguments) -> bool {
    arguments.ask || !arguments.agent.json && std::io::stdin().is_terminal()
}

pub(super) async fn talk(
    peer: &Peer,
    message: Message,
    person: &Person,
    heard: &(dyn Fn(&StreamResponse) + Sync),
) -> Result<SendMessageResponse, Stopped> {
    peer.converse(message, person, heard).await.map_err(|stopped| match stopped {
        Conversation::Peer(error) => error.into(),
        Conversation::Failed(failure) => failure.into(),
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
pub(super) fn message(arguments: &SendArguments) -> Result<Message, Stopped> {
    let mut parts: Vec<Part> = arguments.text.iter().map(Part::text).collect();
    if let Some(data) = &arguments.data {
        let data = RawValue::from_string(data.clone());
        parts.push(Part::data(data.map_err(|error| Stopped::Usage(format!("--data must be JSON: {error}")))?));
    }
    for path in &arguments.files {
        parts.push(file(path)?);
    }
    if parts.is_empty() {
        return Err(Stopped::Usage("say something: TEXT, --data or --file".into()));
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

fn file(path: &Path) -> Result<Part, Stopped> {
    let bytes = std::fs::read(path).map_err(|error| Stopped::Usage(format!("{}: {error}", path.display())))?;
    let filename = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Part { filename, ..Part::raw(bytes, media_type(path)) })
}
