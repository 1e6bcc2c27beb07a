//! Choice of a store (`--topology FILE [--state DIR]` or `--store URL`), `callboard backup` and
//! `callboard directory`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use callboard_store::{
    DIRECTORY_FILE_BYTES_MAX, ReadOnlyStore, SqlStore, StoreOptions, export_directory,
    import_directory,
};
use secrecy::SecretString;
use tempfile::NamedTempFile;

use super::{CommandError, CommandResult, EXIT_ANSWERED, output};
use crate::config::{StoreDeclaration, Topology};

/// Environment variable with the password of a Postgres store named by `--store`.
const PASSWORD_VARIABLE: &str = "CALLBOARD_STORE_PASSWORD";

/// Choice of a store.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArguments {
    /// Topology file of the node (TOML or YAML).
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "store",
        conflicts_with = "store"
    )]
    topology: Option<PathBuf>,
    /// Folder of the node's data. The default is the file's own folder.
    #[arg(long, value_name = "DIR", requires = "topology")]
    state: Option<PathBuf>,
    /// URL of the store, instead of a topology file: sqlite:FILE or postgres://USER@HOST/DATABASE.
    /// The password is read from CALLBOARD_STORE_PASSWORD.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArguments {
    /// Returns the options for opening the store.
    ///
    /// # Errors
    /// Usage error if the topology is invalid or its store is in memory.
    fn store_options(&self) -> Result<StoreOptions, CommandError> {
        if let Some(url) = &self.store {
            let password = std::env::var(PASSWORD_VARIABLE)
                .ok()
                .map(SecretString::from);
            return Ok(StoreOptions::parse(url, Path::new(""), password)?);
        }
        let file = self.topology.as_deref().unwrap_or(Path::new(""));
        let topology = Topology::read(file)?;
        let state = self
            .state
            .as_deref()
            .or(file.parent())
            .unwrap_or(Path::new(""));
        let declared: StoreDeclaration = topology.section().cloned().unwrap_or_default();
        declared
            .store_options(&topology.name, state)?
            .ok_or_else(|| {
                CommandError::usage("the node keeps its data in memory: there is no store to look into; add a section [store]")
            })
    }

    /// Returns the topology file; `None` with `--store`.
    pub(super) fn topology_file(&self) -> Option<&Path> {
        self.topology.as_deref()
    }

    /// Runs `work` with the opened store, which a running node may have open too.
    ///
    /// # Errors
    /// Fails if the store is missing or unreadable, or if `work` fails.
    pub(super) async fn with_store<T, E>(
        &self,
        work: impl AsyncFnOnce(&ReadOnlyStore) -> Result<T, E>,
    ) -> Result<T, CommandError>
    where
        CommandError: From<E>,
    {
        let visitor = SqlStore::open_read_only(&self.store_options()?).await?;
        let done = work(&visitor).await;
        visitor.close().await;
        Ok(done?)
    }
}

/// New file for a copy of a store.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// File to create, a SQLite store. It must not exist; only its owner can read it.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
}

/// File of a directory to write or read, and the store.
#[derive(Debug, clap::Args)]
pub(super) struct DirectoryFileArguments {
    /// JSON file of the directory, or `-` for standard output or input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum DirectoryCommand {
    /// Write the directory to a new JSON file, or to standard output (`-`). Descriptions are
    /// exported unchanged.
    Export(DirectoryFileArguments),
    /// Add the agents of an exported file (`-`: standard input) to the directory. Other agents
    /// stay.
    Import(DirectoryFileArguments),
}

/// Copies the store and prints a summary.
pub(super) async fn backup(BackupArguments { file, store }: BackupArguments) -> CommandResult {
    let report = store
        .with_store(async |visitor| visitor.backup(&file).await)
        .await?;
    let chains: Vec<_> = report
        .chains
        .iter()
        .map(|(chain, number)| format!("{chain}:{number}"))
        .collect();
    let audit = if chains.is_empty() {
        "no audit".to_owned()
    } else {
        format!("audit up to {}", chains.join(", "))
    };
    output::print_line(format_args!(
        "backed up to {}: {} bytes, {audit}",
        file.display(),
        report.bytes
    ))?;
    Ok(EXIT_ANSWERED)
}

/// Exports the directory to a file, or imports it from one.
pub(super) async fn run_directory(command: DirectoryCommand) -> CommandResult {
    let wrong =
        |file: &Path, error| CommandError::failed(format_args!("{}: {error}", file.display()));
    match command {
        DirectoryCommand::Export(DirectoryFileArguments { file, store }) => {
            let text = store
                .with_store(async |visitor| export_directory(&*visitor.notes()).await)
                .await?;
            match is_standard_stream(&file) {
                true => output::print_raw(text)?,
                false => write_new_file(&file, &text).map_err(|error| wrong(&file, error))?,
            }
        }
        DirectoryCommand::Import(DirectoryFileArguments { file, store }) => {
            let text = read_file(&file).map_err(|error| wrong(&file, error))?;
            let imported = store
                .with_store(async |visitor| import_directory(&*visitor.notes(), &text).await)
                .await?;
            output::print_line(format_args!(
                "{} new, {} changed, {} the same",
                imported.new, imported.changed, imported.same
            ))?;
        }
    }
    Ok(EXIT_ANSWERED)
}

fn is_standard_stream(file: &Path) -> bool {
    file == Path::new("-")
}

fn read_file(file: &Path) -> io::Result<String> {
    // One byte more than allowed shows that the file is too large, without reading it whole.
    let bytes_max = DIRECTORY_FILE_BYTES_MAX as u64 + 1;
    let mut text = String::new();
    match is_standard_stream(file) {
        true => io::stdin()
            .lock()
            .take(bytes_max)
            .read_to_string(&mut text)?,
        false => File::open(file)?
            .take(bytes_max)
            .read_to_string(&mut text)?,
    };
    Ok(text)
}

/// Writes a new file atomically: whole, or not at all. A line break is added. Fails if the file
/// exists already.
fn write_new_file(file: &Path, text: &str) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut part = NamedTempFile::new_in(folder)?;
    part.write_all(text.as_bytes())?;
    part.write_all(b"\n")?;
    part.as_file().sync_all()?;
    part.persist_noclobber(file)?;
    Ok(())
}
