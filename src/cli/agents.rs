//! `callboard agents`: who has mail, and where each of them stands.

use std::io::{IsTerminal, stdout};

use callboard_message::mail::{MailId, MemberState};
use clap::{Args, Subcommand};

use super::msg::{self, MailArguments, MailFailure, words};
use super::{EXIT_ANSWERED, show};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct AgentsArguments {
    #[command(subcommand)]
    action: Option<AgentsAction>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Args)]
struct ListArguments {
    /// In this state only: active, away or terminated.
    #[arg(long, value_parser = state)]
    state: Option<MemberState>,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, Subcommand)]
enum AgentsAction {
    /// Say that an agent is terminated: it neither sends nor gets mail. Your key needs the scope mail.admin.
    End(OneArguments),
    /// Say that an agent is back.
    Back(OneArguments),
}

#[derive(Debug, Args)]
struct OneArguments {
    /// The agent.
    #[arg(value_parser = id)]
    id: MailId,
    #[command(flatten)]
    mail: MailArguments,
}

fn state(name: &str) -> Result<MemberState, String> {
    MemberState::parse(name).ok_or_else(|| {
        let all: Vec<&str> = MemberState::ALL.iter().map(|state| state.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

fn id(text: &str) -> Result<MailId, String> {
    MailId::parse(text).map_err(|error| error.to_string())
}

/// Does it, and says how it ended.
pub(super) fn run(arguments: &AgentsArguments) -> u8 {
    msg::finished(async {
        match &arguments.action {
            None => list(&arguments.list).await,
            Some(AgentsAction::End(one)) => end(one, false).await,
            Some(AgentsAction::Back(one)) => end(one, true).await,
        }
    })
}

async fn list(arguments: &ListArguments) -> Result<u8, MailFailure> {
    let status = arguments.mail.client()?.agents(arguments.state).await?;
    if stdout().is_terminal() && !arguments.mail.json {
        show::heading(words::AGENT_COLUMNS)?;
    }
    for agent in &status.agents {
        show::line(&if arguments.mail.json { words::as_json(agent)? } else { words::agent(agent) })?;
    }
    Ok(EXIT_ANSWERED)
}

async fn end(arguments: &OneArguments, back: bool) -> Result<u8, MailFailure> {
    let done = arguments.mail.client()?.end_agent(&arguments.id, back).await?;
    if arguments.mail.json {
        show::line(&words::as_json(&done)?)?;
    } else {
        let now = if back { "is back" } else { "is terminated" };
        show::line(&format!("{} {now}", arguments.id))?;
    }
    Ok(EXIT_ANSWERED)
}
