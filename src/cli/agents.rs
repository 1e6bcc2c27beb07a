//! `callboard agents`: who has mail, and where each of them stands.

use callboard_message::mail::{MailId, MemberState};
use clap::{Args, Subcommand};

use super::arguments::one_of;
use super::msg::{MailArguments, read};
use super::show::Rows;
use super::{EXIT_ANSWERED, Outcome};

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
    #[arg(long, value_parser = one_of(MemberState::ALL.iter().map(|it| (it.as_str(), *it))))]
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

fn id(text: &str) -> Result<MailId, String> {
    MailId::parse(text).map_err(|error| error.to_string())
}

/// Does it, and says how it ended.
pub(super) async fn run(arguments: &AgentsArguments) -> Outcome {
    match &arguments.action {
        None => list(&arguments.list).await,
        Some(AgentsAction::End(one)) => end(one, false).await,
        Some(AgentsAction::Back(one)) => end(one, true).await,
    }
}

async fn list(arguments: &ListArguments) -> Outcome {
    let status = arguments.mail.client()?.agents(arguments.state).await?;
    let rows = Rows::begin(arguments.mail.json, read::AGENT_COLUMNS)?;
    for agent in &status.agents {
        rows.row(agent, || read::agent(agent))?;
    }
    Ok(EXIT_ANSWERED)
}

async fn end(OneArguments { id, mail }: &OneArguments, back: bool) -> Outcome {
    let done = mail.client()?.end_agent(id, back).await?;
    let now = if back { "is back" } else { "is terminated" };
    Rows::plain(mail.json).row(&done, || format!("{id} {now}"))?;
    Ok(EXIT_ANSWERED)
}
