//! `callboard approvals`: uses of tools that wait for somebody's approval.

use callboard_gateway::approvals::PendingApproval;
use callboard_message::Principal;
use callboard_runtime::{ApprovalDecision, approvals, decide_approval};
use clap::Subcommand;

use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED, output};

#[derive(Debug, Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List the uses of tools that wait for an approval, with their arguments and requesters.
    List(ApprovalListArguments),
    /// Approve a use: it runs once, with the arguments that were listed.
    Approve(ApprovalArguments),
    /// Deny a use.
    Deny(ApprovalArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ApprovalListArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object for each use and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ApprovalArguments {
    /// Id, from the list.
    id: String,
    #[command(flatten)]
    store: StoreArguments,
    /// Reason, which the requester of a denied use is told.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Runs `callboard approvals`.
pub(super) async fn run(command: ApprovalsCommand) -> CommandResult {
    match command {
        ApprovalsCommand::List(arguments) => list(arguments).await,
        ApprovalsCommand::Approve(arguments) => decide(arguments, true).await,
        ApprovalsCommand::Deny(arguments) => decide(arguments, false).await,
    }
}

async fn list(arguments: ApprovalListArguments) -> CommandResult {
    let ApprovalListArguments { store, json } = arguments;
    let operator = Principal::local_operator();
    let pending = store
        .with_store(async |store| approvals(&*store.notes(), &operator).await)
        .await?;
    for approval in pending.iter().map(PendingApproval::from) {
        match json {
            true => output::print_json(&approval)?,
            false => output::print_line(format_args!(
                "{}\n  {} wants to run {} of {} (rule {}, until {})\n  {}",
                approval.id,
                approval.requester,
                approval.tool,
                approval.agent,
                approval.rule,
                approval.expires_at,
                approval.arguments
            ))?,
        }
    }
    Ok(EXIT_ANSWERED)
}

async fn decide(arguments: ApprovalArguments, is_approved: bool) -> CommandResult {
    let ApprovalArguments { id, store, reason } = arguments;
    let operator = Principal::local_operator();
    let decision = ApprovalDecision {
        is_approved,
        reason,
    };
    let decided = store
        .with_store(async |store| {
            let decided = decide_approval(&*store.notes(), &id, decision, &operator).await;
            decided.map_err(CommandError::failed)
        })
        .await?;
    let done = if is_approved { "approved" } else { "denied" };
    output::print_note(format_args!(
        "{done} {} of {} for {}:{}",
        decided.tool, decided.agent, decided.requester_kind, decided.requester
    ));
    Ok(EXIT_ANSWERED)
}
