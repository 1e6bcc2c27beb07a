//! Agent mail on a node: its mailrooms, their ways out, and who is served at a listener of mail.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use callboard_mail::inbound::MailServerOptions;
use callboard_mail::outbound::tmux::{TmuxAgent, TmuxOptions};
use callboard_mail::outbound::webhook::{WebhookAgent, WebhookOptions};
use callboard_mailroom::{Declare, Declared, Mailroom, MailroomOptions};
use callboard_message::mail::MemberWay;
use callboard_rpc::KeyStore;
use callboard_runtime::{AgentRef, System};
use secrecy::SecretString;

use super::listen::{Entrance, entrance};
use super::{NodeError, spawn};
use crate::config::{
    AgentDeclaration, Listener, MailroomDeclaration, MemberDeclaration, SECONDS_A_DAY, TmuxDeclaration, Topology,
    WebhookDeclaration,
};

/// How a mailroom is set up, as a topology declares it.
///
/// # Errors
/// It can't be.
pub(super) fn options(declared: &MailroomDeclaration, topology: &Topology) -> Result<MailroomOptions, NodeError> {
    let default = MailroomOptions::default();
    let members = declared.members.iter().map(|member| member_of(member, topology)).collect();
    let options = MailroomOptions {
        members: with_keys(members, &declared.id, topology)?,
        messages_a_second: declared.messages_a_second.unwrap_or(default.messages_a_second),
        broadcasts_a_minute: declared.broadcasts_a_minute.unwrap_or(default.broadcasts_a_minute),
        expires: declared.expires_days.map_or(default.expires, |days| Duration::from_secs(days.get() * SECONDS_A_DAY)),
        class: declared.class,
        example_ids: declared.example_ids,
    };
    options.check().map_err(|source| NodeError::Mailroom { id: declared.id.clone(), source })?;
    Ok(options)
}

/// Members, and whoever can come with a key of a listener that leads to the mailroom: what is for them waits.
///
/// # Errors
/// Such a file can't be read.
fn with_keys(mut members: Vec<Declared>, id: &str, topology: &Topology) -> Result<Vec<Declared>, NodeError> {
    let in_front = topology.listeners.iter().filter(|listener| topology.leads_to(&topology.behind(listener), id));
    let files: BTreeSet<_> = in_front.filter_map(|listener| listener.keys.as_deref()).collect();
    let mut places: HashMap<String, usize> =
        members.iter().enumerate().map(|(at, member)| (member.id.clone(), at)).collect();
    for file in files {
        // Where nothing listens, it needn't be there.
        let keys = KeyStore::load_or_new(file)?;
        let keys = keys.list().iter().filter(|key| !key.is_revoked());
        for keyed in keys.filter_map(|key| Declared::of_key(&key.name, &key.scopes)) {
            match places.get(&keyed.id).and_then(|at| members.get_mut(*at)) {
                Some(member) => member.key = keyed.key,
                None => {
                    places.insert(keyed.id.clone(), members.len());
                    members.push(keyed);
                }
            }
        }
    }
    Ok(members)
}

fn member_of(declared: &MemberDeclaration, topology: &Topology) -> Declared {
    let MemberDeclaration { id, role, phase, groups, apart } = declared.clone();
    let member = Declared { role, phase, groups, apart, ..Declared::new(&*id) };
    if !topology.has(&id) {
        // Whoever it is asks for its mail.
        return member;
    }
    let agent = topology.agents.iter().find(|agent| agent.id() == id);
    let via = match agent {
        Some(AgentDeclaration::Tmux(_)) => MemberWay::Tmux,
        Some(AgentDeclaration::Webhook(_)) => MemberWay::Webhook,
        Some(AgentDeclaration::A2a(_)) => MemberWay::A2a,
        _ => MemberWay::Agent,
    };
    Declared { via: Some(via), ..member.with_way(id) }
}

/// Starts a mailroom, with the mail that the store has.
///
/// # Errors
/// The store's.
pub(super) async fn open(
    system: &System,
    id: &str,
    options: MailroomOptions,
) -> Result<(AgentRef, Mailroom), NodeError> {
    let mailroom = Mailroom::open(system, options).await;
    let mailroom = mailroom.map_err(|source| NodeError::Mailroom { id: id.to_owned(), source })?;
    Ok((spawn(system, id, mailroom.clone()), mailroom))
}

/// Tells a mailroom how it is set up from now on. What it has goes on.
pub(super) async fn declare(mailroom: &AgentRef, options: MailroomOptions) {
    match mailroom.ask(Declare { options }).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => tracing::error!(%failure, "a mailroom doesn't take what is declared of it"),
        Err(error) => tracing::error!(%error, "a mailroom isn't there to take what is declared of it"),
    }
}

/// Starts the agent that stands for a pane.
pub(super) fn tmux(system: &System, declared: &TmuxDeclaration) -> AgentRef {
    let options = TmuxOptions {
        socket: declared.socket.clone(),
        submit: declared.submit,
        command: declared.command.clone(),
        ..TmuxOptions::new(declared.target.target().clone())
    };
    system.prepare_with(move || TmuxAgent::new(options.clone())).label(declared.id.as_str()).spawn()
}

/// Starts the agent that stands for a receiver elsewhere.
///
/// # Errors
/// Its address is refused, or its secret isn't there.
pub(super) fn webhook(system: &System, declared: &WebhookDeclaration) -> Result<AgentRef, NodeError> {
    let wrong = NodeError::declared("agent", &declared.id);
    let secret = declared.secret_env.as_ref().map(|name| {
        std::env::var(name).map(SecretString::from).map_err(|_| wrong(format!("there is no variable {name}")))
    });
    let options = WebhookOptions {
        secret: secret.transpose()?,
        allow: declared.allow.iter().map(|range| range.network()).collect(),
        ..WebhookOptions::new(declared.url.url().clone())
    };
    let agent = WebhookAgent::new(options).map_err(|error| wrong(error.to_string()))?;
    Ok(system.prepare(agent).label(declared.id.as_str()).spawn())
}

/// How a listener serves its mailroom.
pub(super) fn server_options(listener: &Listener) -> Result<MailServerOptions, NodeError> {
    let Entrance { access, hosts, origins } = entrance(listener)?;
    let mut options = MailServerOptions { access, hosts, origins, ..MailServerOptions::default() };
    if let Some(bytes) = listener.body_bytes_max {
        options.limits.body_bytes_max = bytes.get();
    }
    if let Some(seconds) = listener.call_deadline_s {
        options.call_deadline = Duration::from_secs(seconds.get());
    }
    Ok(options)
}
