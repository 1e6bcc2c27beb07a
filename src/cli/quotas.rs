//! `callboard quotas`: how much of its quotas each principal has used.

use std::time::SystemTime;

use callboard_message::time::format_rfc3339;
use callboard_runtime::{JournalError, KvStore, Quota, QuotaUsage, quota_usage};
use clap::Subcommand;
use serde_json::json;

use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED, output};
use crate::config::{PolicyDeclaration, Topology};

#[derive(Debug, Subcommand)]
pub(super) enum QuotasCommand {
    /// List what each principal has used of each quota in its current minute, day or month, and when that ends. A running
    /// node writes it within a second.
    List(QuotaListArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct QuotaListArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object for each quota and principal and nothing else.
    #[arg(long)]
    json: bool,
}

/// Runs `callboard quotas`.
pub(super) async fn run(QuotasCommand::List(arguments): QuotasCommand) -> CommandResult {
    let QuotaListArguments { store, json } = arguments;
    let file = store.topology_file().ok_or_else(|| {
        CommandError::usage("the topology file has the quotas: name it by --topology FILE")
    })?;
    let topology = Topology::read(file)?;
    let declared: PolicyDeclaration = topology.section().cloned().unwrap_or_default();
    let quotas = declared.quotas;
    let used = store
        .with_store(async |store| read_usage(&*store.notes(), &quotas).await)
        .await?;
    for (quota, used) in quotas.iter().zip(&used) {
        for used in used {
            match json {
                true => output::print_json(&json!({
                    "quota": quota.id,
                    "principal": used.principal,
                    "window": quota.window.as_str(),
                    "calls": used.calls,
                    "calls_max": quota.calls,
                    "tokens": used.tokens,
                    "tokens_max": quota.tokens,
                    "usd": to_usd(used.micro_usd),
                    "usd_max": quota.usd,
                    "resets_at": format_rfc3339(used.resets_at),
                }))?,
                false => output::print_line(row(quota, used))?,
            }
        }
    }
    Ok(EXIT_ANSWERED)
}

/// Returns the usage of each of these quotas.
async fn read_usage(
    store: &dyn KvStore,
    quotas: &[Quota],
) -> Result<Vec<Vec<QuotaUsage>>, JournalError> {
    let now = SystemTime::now();
    let mut used = Vec::with_capacity(quotas.len());
    for quota in quotas {
        used.push(quota_usage(store, quota, now).await?);
    }
    Ok(used)
}

/// Returns a line: quota, principal, and what is used of how much.
fn row(quota: &Quota, used: &QuotaUsage) -> String {
    let of = |name: &str, used: String, most: Option<String>| match most {
        Some(most) => format!("{name} {used}/{most}"),
        None => format!("{name} {used}"),
    };
    let most = |number: Option<u64>| number.map(|number| number.to_string());
    let mut cells = vec![
        quota.id.clone(),
        used.principal.clone(),
        of("calls", used.calls.to_string(), most(quota.calls)),
    ];
    // Only models use tokens and money.
    if !quota.models.is_empty() {
        let usd = quota.usd.map(|usd| usd.to_string());
        cells.push(of("tokens", used.tokens.to_string(), most(quota.tokens)));
        cells.push(of("usd", to_usd(used.micro_usd).to_string(), usd));
    }
    cells.push(format!("resets {}", format_rfc3339(used.resets_at)));
    cells.join("\t")
}

fn to_usd(micro_usd: u64) -> f64 {
    micro_usd as f64 / 1_000_000.0
}
