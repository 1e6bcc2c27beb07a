//! `callboard quotas`: how much of its quotas each principal has used.

use std::time::SystemTime;

use callboard_message::time::format_rfc3339;
use callboard_runtime::{JournalError, KvStore, Quota, QuotaUsage, quota_usage, visible};
use clap::Subcommand;
use serde_json::json;

use super::output::RowPrinter;
use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED};
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
    let printer = RowPrinter::with_heading(json, "QUOTA\tPRINCIPAL\tCALLS\tTOKENS\tUSD\tRESETS")?;
    for (quota, used) in quotas.iter().zip(&used) {
        for used in used {
            let object = json!({
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
            });
            printer.print_row(&object, || row(quota, used))?;
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

/// Returns a line: quota, principal, how much of what is used, and the reset. Only models use tokens and money.
fn row(quota: &Quota, used: &QuotaUsage) -> String {
    let of = |used: String, most: Option<String>| match most {
        Some(most) => format!("{used}/{most}"),
        None => used,
    };
    let of_models = |used: String, most: Option<String>| match quota.models.is_empty() {
        true => "-".to_owned(),
        false => of(used, most),
    };
    let number = |number: u64| number.to_string();
    let usd = |usd: f64| usd.to_string();
    let cells = [
        visible(&quota.id),
        visible(&used.principal),
        of(number(used.calls), quota.calls.map(number)),
        of_models(number(used.tokens), quota.tokens.map(number)),
        of_models(usd(to_usd(used.micro_usd)), quota.usd.map(usd)),
        format_rfc3339(used.resets_at),
    ];
    cells.join("\t")
}

fn to_usd(micro_usd: u64) -> f64 {
    micro_usd as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: principals can't write to a terminal or into other cells. Method: an id with a tab and an escape
    /// sequence, at a quota of calls and one of models.
    #[test]
    fn ids_stay_in_their_cells() {
        let used = QuotaUsage {
            principal: "token:a\tb\u{1b}[2J".to_owned(),
            calls: 1,
            tokens: 20,
            micro_usd: 1_500_000,
            resets_at: SystemTime::UNIX_EPOCH,
        };
        for (limits, expected) in [
            (json!({ "calls": 9 }), "1/9\t-\t-"),
            (
                json!({ "models": ["*"], "tokens": 30, "usd": 2.5 }),
                "1\t20/30\t1.5/2.5",
            ),
        ] {
            let mut quota = json!({ "id": "q", "window": "day" });
            let limits = limits.as_object().unwrap().clone();
            quota.as_object_mut().unwrap().extend(limits);
            let quota = serde_json::from_value(quota).unwrap();
            let principal = "token:a\\u{9}b\\u{1b}[2J";
            let resets_at = "1970-01-01T00:00:00.000Z";
            let line = format!("q\t{principal}\t{expected}\t{resets_at}");
            assert_eq!(row(&quota, &used), line);
        }
    }
}
