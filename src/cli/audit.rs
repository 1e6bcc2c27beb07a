//! `callboard audit`.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use callboard_message::RawObject;
use callboard_message::time::rfc3339;
use callboard_store::{
    AuditFilter, AuditLine, ChainReport, ExportError, VerifyOptions, verify_export,
};
use serde_json::json;

use super::arguments::span;
use super::show::{self, Rows};
use super::store::StoreArguments;
use super::{CommandError, EXIT_ANSWERED, EXIT_BLOCKED, Outcome};

/// Stands for standard output.
const STANDARD_OUTPUT: &str = "-";

#[derive(Debug, clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Check every entry, and name the first of each chain that was changed, removed, moved or added. Exit code: 0 all is
    /// whole, 2 usage, 3 something isn't, 4 it couldn't be read.
    Verify {
        #[command(flatten)]
        store: StoreArguments,
        #[command(flatten)]
        with: With,
        /// The public keys that count, best a copy from elsewhere. Without it, those beside the store's key.
        #[arg(long, value_name = "FILE")]
        public_key: Option<PathBuf>,
    },
    /// Check a file that `audit export` made, without the store. Exit codes as those of `verify`.
    VerifyExport {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        with: With,
        /// The public keys that count, best a copy from elsewhere.
        #[arg(long, value_name = "FILE")]
        public_key: PathBuf,
    },
    /// Show the newest entries, oldest first.
    Show {
        #[command(flatten)]
        store: StoreArguments,
        /// Only of this event, for example `denied`.
        #[arg(long)]
        event: Option<String>,
        /// Only about this agent.
        #[arg(long)]
        agent: Option<String>,
        /// Only with this principal behind them.
        #[arg(long, value_name = "ID")]
        principal: Option<String>,
        /// Only of this call.
        #[arg(long, value_name = "ID")]
        call: Option<String>,
        /// Only of this chain: a writer's name.
        #[arg(long)]
        chain: Option<String>,
        /// Only so old, for example `2h` or `7d`.
        #[arg(long, value_name = "SPAN", value_parser = span)]
        since: Option<Duration>,
        /// So many, at most 1000. Without it, 100.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Print each entry as it is kept: a JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Write all chains with their checkpoints to a file, which must not be there, or to standard output (`-`).
    Export {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        store: StoreArguments,
    },
}

/// What a chain is checked with.
#[derive(Debug, clap::Args)]
pub(super) struct With {
    /// Only this chain: a writer's name.
    #[arg(long)]
    chain: Option<String>,
    /// The anchor, best a copy from elsewhere: it knows of entries that were cut off.
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
    /// Print a JSON object for each chain and nothing else.
    #[arg(long)]
    json: bool,
}

impl With {
    fn options(self, public_keys: Option<PathBuf>) -> VerifyOptions {
        VerifyOptions {
            chain: self.chain,
            anchor: self.anchor,
            public_keys,
        }
    }
}

/// Does it, and says how it ended.
pub(super) async fn run(command: AuditCommand) -> Outcome {
    match command {
        AuditCommand::Verify {
            store,
            with,
            public_key,
        } => {
            let (json, options) = (with.json, with.options(public_key));
            tell(
                &store
                    .visit(async |visitor| visitor.verify_audit(&options).await)
                    .await?,
                json,
            )
        }
        AuditCommand::VerifyExport {
            file,
            with,
            public_key,
        } => {
            let from = File::open(&file).map_err(|e| cannot("read", &file, &e))?;
            let (json, options) = (with.json, with.options(Some(public_key)));
            tell(&verify_export(BufReader::new(from), &options)?, json)
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
                since: since.map(|since| {
                    SystemTime::now()
                        .checked_sub(since)
                        .unwrap_or(SystemTime::UNIX_EPOCH)
                }),
                entries_max: limit,
            };
            let lines = store
                .visit(async |visitor| visitor.audit_lines(&filter).await)
                .await?;
            Rows::begin(
                json,
                "AT\tENTRY\tEVENT\tAGENT\tMESSAGE\tPEER\tPRINCIPAL\tOUTCOME",
            )?;
            for line in lines {
                show::raw(if json { line.line } else { described(&line) })?;
            }
            Ok(EXIT_ANSWERED)
        }
        AuditCommand::Export { file, store } => export(&file, &store).await,
    }
}

/// Prints a line for each chain; blocked unless all are whole.
fn tell(reports: &[ChainReport], as_json: bool) -> Outcome {
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
        Rows::plain(as_json).row(&object, || plain(&report.to_string()))?;
    }
    if reports.is_empty() && !as_json {
        show::line("there is no chain")?;
    }
    let is_whole = reports.iter().all(|report| report.fault.is_none());
    Ok(if is_whole {
        EXIT_ANSWERED
    } else {
        EXIT_BLOCKED
    })
}

fn described(entry: &AuditLine) -> String {
    let object: RawObject = serde_json::from_str(&entry.line).unwrap_or_default();
    let cell = |text: Option<String>| text.map_or("-".to_owned(), |text| plain(&text));
    let member = |name: &str| cell(object.text(name));
    let columns = [
        rfc3339(entry.at),
        plain(&format!("{}:{}", entry.chain, entry.number)),
        member("event"),
        member("agent"),
        member("message"),
        member("peer"),
        cell(object.object("principal").and_then(|who| who.text("id"))),
        member("outcome"),
    ];
    columns.join("\t")
}

/// Names are others' words: none of them moves a terminal's cursor or makes a column.
fn plain(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            String::from(c)
        }
    };
    text.chars().map(shown).collect()
}

async fn export(file: &Path, store: &StoreArguments) -> Outcome {
    let mut out: Box<dyn Write + Send> = match file.to_str() {
        Some(STANDARD_OUTPUT) => Box::new(stdout()),
        _ => {
            // For its owner only.
            let new = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(file);
            Box::new(new.map_err(|e| cannot("make", file, &e))?)
        }
    };
    let exported = store.visit(async |visitor| {
        match visitor.export_audit(&mut BufWriter::new(&mut out)).await {
            Err(ExportError::Io(error)) => Err(cannot("write", file, &error)),
            exported => Ok(exported?),
        }
    });
    show::aside(format_args!("exported {} entries", exported.await?));
    Ok(EXIT_ANSWERED)
}

fn cannot(what: &str, file: &Path, error: &std::io::Error) -> CommandError {
    CommandError::failed(format_args!("failed to {what} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::plain;

    /// Goal: what others named can't write to a terminal. Method: an escape sequence, a tab, a line break.
    #[test]
    fn names_stay_in_their_column() {
        assert_eq!(plain("a\u{1b}[2J\tb\nç"), "a\\u{1b}[2J\\tb\\nç");
    }
}
