//! `callboard audit follow`: a continuous export of the audit, for log shippers.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Write, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use callboard_message::time::format_rfc3339;
use callboard_runtime::JournalResult;
use callboard_store::{AuditCursor, AuditFollowError, AuditLine, CallLine, ReadOnlyStore};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::arguments::parse_span;
use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED, output};

/// Interval of reading the store once all entries are printed.
const AUDIT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a cursor file, in bytes.
const CURSOR_BYTES_MAX: u64 = 1024 * 1024;
/// Version of the form of cursor files. Version 1 has no hashes, and is read without checking them.
const CURSOR_VERSION: u32 = 2;
/// End of the name of the file that is locked by the run that uses a cursor.
const LOCK_SUFFIX: &str = ".lock";

/// Options of `callboard audit follow`.
#[derive(Debug, clap::Args)]
pub(super) struct FollowArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// File that keeps the position after the last printed entry. The next run continues there, so
    /// that each entry is printed at least once. One run at a time uses a cursor: it locks FILE.lock.
    #[arg(long, value_name = "FILE")]
    cursor: Option<PathBuf>,
    /// Begin with the oldest entry, if the cursor file doesn't exist yet. The default is to print
    /// only entries that are added from now on.
    #[arg(long, conflicts_with = "since")]
    from_start: bool,
    /// Begin with entries up to this age, for example `2h` or `7d`, if the cursor file doesn't
    /// exist yet.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    since: Option<Duration>,
    /// Print calls too: one JSON object for each. A run without it passes the calls of its time, so
    /// that a later one with it doesn't print them.
    #[arg(long)]
    calls: bool,
    /// Print the entries that there are, and end.
    #[arg(long)]
    once: bool,
}

/// Runs `callboard audit follow`.
pub(super) async fn run(arguments: FollowArguments) -> CommandResult {
    // Held until the run has ended.
    let _lock = arguments.cursor.as_deref().map(lock_cursor).transpose()?;
    let saved = match &arguments.cursor {
        Some(file) => read_cursor(file)?,
        None => None,
    };
    arguments
        .store
        .with_store(async |store| arguments.follow(store, saved).await)
        .await
}

impl FollowArguments {
    /// Prints entries until standard output is closed; with `--once`, until all are printed.
    async fn follow(&self, store: &ReadOnlyStore, saved: Option<AuditCursor>) -> CommandResult {
        let mut cursor = match saved {
            Some(cursor) => cursor,
            None => {
                let first = self.first_cursor(store).await?;
                self.save_cursor(&first)?;
                first
            }
        };
        loop {
            let page = cursor
                .read_next(store, self.calls)
                .await
                .map_err(|error| self.follow_error(error))?;
            if page.removed > 0 {
                output::print_note(format_args!(
                    "{} audit entries were removed by retention before they were read",
                    page.removed
                ));
            }
            if page.cursor != cursor {
                match print_entries(&page.entries) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                    printed => print_lost_calls(printed?),
                }
                self.save_cursor(&page.cursor)?;
                cursor = page.cursor;
            }
            if page.has_more {
                continue;
            }
            if self.once {
                break;
            }
            tokio::time::sleep(AUDIT_POLL_INTERVAL).await;
        }
        Ok(EXIT_ANSWERED)
    }

    /// Returns the position at which to begin without a cursor file.
    async fn first_cursor(&self, store: &ReadOnlyStore) -> JournalResult<AuditCursor> {
        let since = match self.since {
            Some(span) => SystemTime::now().checked_sub(span),
            None if self.from_start => None,
            None => return AuditCursor::at_end(store).await,
        };
        AuditCursor::since(store, since.unwrap_or(SystemTime::UNIX_EPOCH)).await
    }

    /// Replaces the cursor file, if there is to be one.
    fn save_cursor(&self, cursor: &AuditCursor) -> Result<(), CommandError> {
        let Some(file) = &self.cursor else {
            return Ok(());
        };
        write_cursor(file, cursor).map_err(|error| {
            CommandError::failed(format_args!("failed to write {}: {error}", file.display()))
        })
    }

    fn follow_error(&self, error: AuditFollowError) -> CommandError {
        match (error, &self.cursor) {
            (AuditFollowError::Store(error), _) => error.into(),
            (error, Some(file)) => CommandError::file(
                file,
                format_args!("{error}; remove the file, and begin with --from-start or --since"),
            ),
            (error, None) => CommandError::failed(error),
        }
    }
}

/// Content of a cursor file.
#[derive(Deserialize)]
struct CursorContent {
    version: u32,
    chains: AuditCursor,
}

/// Locks a cursor for as long as the returned file is open.
fn lock_cursor(file: &Path) -> Result<File, CommandError> {
    let mut lock = file.as_os_str().to_owned();
    lock.push(LOCK_SUFFIX);
    let lock = PathBuf::from(lock);
    let failed = |error: io::Error| {
        CommandError::failed(format_args!("failed to write {}: {error}", lock.display()))
    };
    let opened = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&lock)
        .map_err(failed)?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(CommandError::file(
            file,
            "another run of `callboard audit follow` uses this cursor: end it, or name another file",
        )),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Reads a cursor file; `None` if it doesn't exist.
fn read_cursor(file: &Path) -> Result<Option<AuditCursor>, CommandError> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|from| from.take(CURSOR_BYTES_MAX).read_to_end(&mut text));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(CommandError::file(
                file,
                format_args!("failed to read the cursor: {error}"),
            ));
        }
        Ok(_) => {}
    }
    match serde_json::from_slice(&text) {
        Ok(CursorContent {
            version: 1..=CURSOR_VERSION,
            chains,
        }) => Ok(Some(chains)),
        _ => Err(CommandError::file(
            file,
            "this isn't a cursor of `callboard audit follow`: remove the file, and begin with --from-start or --since",
        )),
    }
}

/// Replaces a cursor file atomically.
fn write_cursor(file: &Path, cursor: &AuditCursor) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let content = json!({ "version": CURSOR_VERSION, "chains": cursor });
    let content = format!("{content}\n");
    if content.len() as u64 > CURSOR_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it would have {} bytes, {CURSOR_BYTES_MAX} are allowed: the store has too many audit chains",
            content.len()
        )));
    }
    let mut part = NamedTempFile::new_in(folder)?;
    part.write_all(content.as_bytes())?;
    part.as_file().sync_all()?;
    part.persist(file)?;
    Ok(())
}

/// Prints entries, and each call of an entry with lines about calls. Returns the number of calls
/// that have no readable line. All is written when it returns, and on the disk if standard output is
/// a file.
fn print_entries(entries: &[AuditLine]) -> io::Result<u64> {
    let mut out = BufWriter::new(stdout().lock());
    let mut lost = 0;
    for entry in entries {
        match entry.calls() {
            Some((calls, without_line)) => {
                lost += without_line;
                for call in &calls {
                    write_object(&mut out, &call_object(entry, call))?;
                }
            }
            None => write_object(&mut out, &entry_object(entry))?,
        }
    }
    out.flush()?;
    sync_stdout()?;
    Ok(lost)
}

/// Waits until standard output is on the disk, if it is a file: a cursor must not be ahead of it after
/// a power failure.
fn sync_stdout() -> io::Result<()> {
    let file = File::from(stdout().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    match file.sync_data() {
        // Files that can't be synced, such as some of virtual file systems.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Writes an object as a line that is harmless to a terminal.
fn write_object(out: &mut impl Write, object: &Value) -> io::Result<()> {
    writeln!(out, "{}", output::escape_control_chars(&object.to_string()))
}

/// Prints the number of calls that have no line, to standard error; nothing for 0.
pub(super) fn print_lost_calls(calls: u64) {
    if calls > 0 {
        output::print_note(format_args!(
            "{calls} calls of this time have no line: too many lines waited, or the store refused them"
        ));
    }
}

/// Returns the exported form of an entry: its stored members, with time, principal and details in
/// the form that calls have.
fn entry_object(entry: &AuditLine) -> Value {
    let mut object: Map<String, Value> = serde_json::from_str(&entry.line).unwrap_or_default();
    for internal in ["at_ms", "v"] {
        object.remove(internal);
    }
    if let Some(principal) = object.remove("principal") {
        let [kind, id] = ["kind", "id"].map(|name| principal[name].as_str().unwrap_or_default());
        object.insert("principal".to_owned(), format!("{kind}:{id}").into());
    }
    if let Some(details) = object.remove("more") {
        object.insert("details".to_owned(), details);
    }
    // Of a damaged entry, these are all that is known.
    object.insert("at".to_owned(), format_rfc3339(entry.at).into());
    object.insert("chain".to_owned(), entry.chain.as_str().into());
    object.insert("number".to_owned(), entry.number.into());
    Value::Object(object)
}

/// Returns the exported form of a call of an entry.
fn call_object(entry: &AuditLine, call: &CallLine) -> Value {
    json!({
        "at": format_rfc3339(call.at()), "chain": entry.chain, "number": entry.number, "event": "call",
        "principal": call.principal, "agent": call.agent, "tool": call.tool, "outcome": call.outcome,
        "ms": call.ms, "call": call.call,
    })
}
