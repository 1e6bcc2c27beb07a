//! `callboard a2a card`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use callboard_a2a::card::{Jwks, verify};
use callboard_a2a::outbound::{Peer, PeerError};
use callboard_a2a::wire::{AgentCard, Wire};

use super::{CardArguments, CommandError, Outcome, show};
use crate::cli::mcp::words::first_line;
use crate::cli::{EXIT_ANSWERED, EXIT_FAILED};

pub(super) async fn run(arguments: &CardArguments) -> Outcome {
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
        false => print(&card)?,
    }
    let (told, code) = match checked {
        Some(Ok(by)) => (format!("signed by {}", by.key_id.unwrap_or(by.algorithm)), EXIT_ANSWERED),
        Some(Err(error)) if !signed.signatures.is_empty() => (format!("BAD signature: {error}"), EXIT_FAILED),
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
    let wrong = |why: &dyn std::fmt::Display| CommandError::usage(format_args!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(&error))?;
    Jwks::parse(&text).map_err(|error| wrong(&error))
}

fn print(card: &AgentCard) -> io::Result<()> {
    show::line(format_args!("name {}", first_line(&card.name)))?;
    if !card.description.is_empty() {
        show::line(format_args!("description {}", first_line(&card.description)))?;
    }
    show::line(format_args!("version {}", first_line(&card.version)))?;
    for interface in &card.supported_interfaces {
        let (binding, version) = (&interface.protocol_binding, &interface.protocol_version);
        show::line(first_line(&format!("interface {binding} {version} {}", interface.url)))?;
    }
    for skill in &card.skills {
        let told = if skill.description.is_empty() { &skill.name } else { &skill.description };
        show::line(format_args!("skill {}: {}", first_line(&skill.id), first_line(told)))?;
    }
    Ok(())
}
