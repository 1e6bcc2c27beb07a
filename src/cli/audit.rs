//! `callboard audit`.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use callboard_message::RawObject;
use callboard_message::time::format_rfc3339;
use callboard_store::{
    AUDIT_LINES_DEFAULT, AuditFilter, AuditLine, AuditVerifyOptions, CallFilter, CallLine,
    ChainReport, ExportError, PAGE_ROWS_MAX, verify_export,
};
use serde_json::json;

use super::arguments::parse_span;
use super::audit_follow::{self, FollowArguments};
use super::output::{self, RowPrinter};
use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED, EXIT_BLOCKED};

/// File name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

#[derive(Debug, clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Verify every entry, and report the first of each chain that was changed, removed, moved or
    /// added. Exit code: 0 intact, 2 usage, 3 damaged, 4 unreadable.
    Verify {
        #[command(flatten)]
        store: StoreArguments,
        #[command(flatten)]
        with: VerifyArguments,
        /// File of trusted public keys, preferably a copy stored elsewhere. The default is the file
        /// beside the store's key.
        #[arg(long, value_name = "FILE")]
        public_key: Option<PathBuf>,
    },
    /// Verify a file from `audit export` without the store. Exit codes as for `verify`.
    VerifyExport {
        /// Exported file.
        file: PathBuf,
        #[command(flatten)]
        with: VerifyArguments,
        /// File of trusted public keys, preferably a copy stored elsewhere.
        #[arg(long, value_name = "FILE")]
        public_key: PathBuf,
    },
    /// Print the newest entries, oldest first.
    Show {
        #[command(flatten)]
        store: StoreArguments,
        /// Only entries of this event, for example `denied`.
        #[arg(long)]
        event: Option<String>,
        /// Only entries about this agent.
        #[arg(long)]
        agent: Option<String>,
        /// Only entries caused by this principal.
        #[arg(long, value_name = "ID")]
        principal: Option<String>,
        /// Only entries of this call.
        #[arg(long, value_name = "ID")]
        call: Option<String>,
        /// Only entries of this chain (the name of its writer).
        #[arg(long)]
        chain: Option<String>,
        /// Only entries up to this age, for example `2h` or `7d`.
        #[arg(long, value_name = "SPAN", value_parser = parse_span)]
        since: Option<Duration>,
        /// Maximum number of entries, at most 1000. The default is 100.
        #[arg(long, value_name = "N", value_parser = parse_limit)]
        limit: Option<usize>,
        /// Print each entry as stored, one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Print the newest calls, oldest first: who called which tool, and its outcome.
    Calls(CallsArguments),
    /// Print entries as they are stored, one JSON object a line, for log shippers. A cursor file lets
    /// the next run continue.
    Follow(FollowArguments),
    /// Export all chains with their checkpoints to a new file, or to standard output (`-`).
    Export {
        /// File to create.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        store: StoreArguments,
    },
}

/// Options of `callboard audit calls`.
#[derive(Debug, clap::Args)]
pub(super) struct CallsArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Only calls by this principal: its id, or kind and id, such as api_key:alice.
    #[arg(long, value_name = "ID")]
    principal: Option<String>,
    /// Only calls of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only the call with this id.
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// Only calls up to this age, for example `2h` or `7d`.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    since: Option<Duration>,
    /// Maximum number of calls, at most 1000. The default is 100.
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    limit: Option<usize>,
    /// Print one JSON object for each call and nothing else.
    #[arg(long)]
    json: bool,
}

/// Options of `callboard audit verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArguments {
    /// Only this chain (the name of its writer).
    #[arg(long)]
    chain: Option<String>,
    /// Anchor file, preferably a copy stored elsewhere. With it, removed last entries are detected.
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
    /// Print one JSON object for each chain and nothing else.
    #[arg(long)]
    json: bool,
}

impl VerifyArguments {
    fn verify_options(self, public_keys: Option<PathBuf>) -> AuditVerifyOptions {
        AuditVerifyOptions {
            chain: self.chain,
            anchor: self.anchor,
            public_keys,
        }
    }
}

/// Parses the number of entries of one list: 1 to [`PAGE_ROWS_MAX`].
fn parse_limit(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|limit| (1..=PAGE_ROWS_MAX).contains(limit))
        .ok_or_else(|| {
            format!(
                "write 1 to {PAGE_ROWS_MAX}; narrow the list with --since, or use `audit export` for all entries"
            )
        })
}

/// Runs `callboard audit`.
pub(super) async fn run(command: AuditCommand) -> CommandResult {
    match command {
        AuditCommand::Verify {
            store,
            with,
            public_key,
        } => {
            let (json, options) = (with.json, with.verify_options(public_key));
            print_reports(
                &store
                    .with_store(async |visitor| visitor.verify_audit(&options).await)
                    .await?,
                json,
            )
        }
        AuditCommand::VerifyExport {
            file,
            with,
            public_key,
        } => {
            let from = File::open(&file).map_err(|e| file_error("read", &file, &e))?;
            let (json, options) = (with.json, with.verify_options(Some(public_key)));
            print_reports(&verify_export(BufReader::new(from), &options)?, json)
        }
        AuditCommand::Show {
            store,
            event,
            agent,
            principal,
            call,
            chain,
            since,
            limit,
            json,
        } => {
            let filter = AuditFilter {
                chain,
                event,
                agent,
                principal,
                call,
                since: since.map(time_before),
                entries_max: limit,
            };
            let lines = store
                .with_store(async |visitor| visitor.audit_lines(&filter).await)
                .await?;
            RowPrinter::with_heading(
                json,
                "AT\tENTRY\tEVENT\tAGENT\tMESSAGE\tPEER\tPRINCIPAL\tOUTCOME",
            )?;
            for line in lines {
                output::print_raw(if json { line.line } else { entry_row(&line) })?;
            }
            Ok(EXIT_ANSWERED)
        }
        AuditCommand::Calls(arguments) => show_calls(arguments).await,
        AuditCommand::Follow(arguments) => audit_follow::run(arguments).await,
        AuditCommand::Export { file, store } => export_chains(&file, &store).await,
    }
}

/// Returns the time that was so long ago.
fn time_before(span: Duration) -> SystemTime {
    SystemTime::now()
        .checked_sub(span)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Prints a line for each call.
async fn show_calls(arguments: CallsArguments) -> CommandResult {
    let CallsArguments {
        store,
        principal,
        agent,
        tool,
        call,
        since,
        limit,
        json,
    } = arguments;
    let filter = CallFilter {
        principal,
        agent,
        tool,
        call,
        since: since.map(time_before),
        lines_max: limit.unwrap_or(AUDIT_LINES_DEFAULT),
    };
    let (calls, lost) = store
        .with_store(async |visitor| visitor.audit_calls(&filter).await)
        .await?;
    let printer = RowPrinter::with_heading(json, "AT\tPRINCIPAL\tAGENT\tTOOL\tOUTCOME\tMS\tCALL")?;
    for call in calls {
        let at = format_rfc3339(call.at());
        let CallLine {
            principal,
            agent,
            tool,
            outcome,
            ms,
            call,
            ..
        } = &call;
        let object = json!({
            "at": at, "principal": principal, "agent": agent, "tool": tool, "outcome": outcome, "ms": ms, "call": call,
        });
        printer.print_row(&object, || {
            escape_cells(&[&at, principal, agent, tool, outcome, &ms.to_string(), call])
        })?;
    }
    audit_follow::print_lost_calls(lost);
    Ok(EXIT_ANSWERED)
}

/// Returns the cells of a row, with tabs in between.
fn escape_cells(cells: &[&str]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| escape_control_chars(cell))
        .collect();
    cells.join("\t")
}

/// Prints a line for each chain. Returns [`EXIT_BLOCKED`] unless all are intact.
fn print_reports(reports: &[ChainReport], as_json: bool) -> CommandResult {
    for report in reports {
        let ChainReport {
            chain,
            first,
            last,
            checkpoints,
            signed_up_to,
            fault,
            ..
        } = report;
        let fault = fault
            .as_ref()
            .map(|fault| json!({ "number": fault.number(), "why": fault.to_string() }));
        let object = json!({
            "chain": chain, "ok": fault.is_none(), "first": first, "last": last, "checkpoints": checkpoints,
            "signed_up_to": signed_up_to, "fault": fault,
        });
        RowPrinter::without_heading(as_json)
            .print_row(&object, || escape_control_chars(&report.to_string()))?;
    }
    if reports.is_empty() && !as_json {
        output::print_line("there is no chain")?;
    }
    let is_whole = reports.iter().all(|report| report.fault.is_none());
    Ok(if is_whole {
        EXIT_ANSWERED
    } else {
        EXIT_BLOCKED
    })
}

fn entry_row(entry: &AuditLine) -> String {
    let object: RawObject = serde_json::from_str(&entry.line).unwrap_or_default();
    let cell =
        |text: Option<String>| text.map_or("-".to_owned(), |text| escape_control_chars(&text));
    let member = |name: &str| cell(object.text(name));
    let columns = [
        format_rfc3339(entry.at),
        escape_control_chars(&format!("{}:{}", entry.chain, entry.number)),
        member("event"),
        member("agent"),
        member("message"),
        member("peer"),
        cell(object.object("principal").and_then(|who| who.text("id"))),
        member("outcome"),
    ];
    columns.join("\t")
}

/// Escapes a name for a table cell: without control characters and tabs.
fn escape_control_chars(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            String::from(c)
        }
    };
    text.chars().map(shown).collect()
}

async fn export_chains(file: &Path, store: &StoreArguments) -> CommandResult {
    let mut out: Box<dyn Write + Send> = match file.to_str() {
        Some(STANDARD_OUTPUT) => Box::new(stdout()),
        _ => {
            // For its owner only.
            let new = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(file);
            Box::new(new.map_err(|e| file_error("make", file, &e))?)
        }
    };
    let exported = store.with_store(async |visitor| {
        match visitor.export_audit(&mut BufWriter::new(&mut out)).await {
            Err(ExportError::Io(error)) => Err(file_error("write", file, &error)),
            exported => Ok(exported?),
        }
    });
    output::print_note(format_args!("exported {} entries", exported.await?));
    Ok(EXIT_ANSWERED)
}

fn file_error(what: &str, file: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format_args!("failed to {what} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::escape_control_chars;

    /// Goal: what others named can't write to a terminal. Method: an escape sequence, a tab, a line break.
    #[test]
    fn names_stay_in_their_column() {
        assert_eq!(
            escape_control_chars("a\u{1b}[2J\tb\nç"),
            "a\\u{1b}[2J\\tb\\nç"
        );
    }
}
