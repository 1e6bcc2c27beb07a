//! The store that a command is about (`--topology FILE [--state DIR]` or `--store URL`), `callboard backup` and
//! `callboard directory`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use callboard_store::{
    DIRECTORY_FILE_BYTES_MAX, SqlStore, StoreOptions, Visitor, export_directory, import_directory,
};
use secrecy::SecretString;
use tempfile::NamedTempFile;

use super::{CommandError, EXIT_ANSWERED, Outcome, show};
use crate::config::{StoreDeclaration, Topology};

/// The variable with the password of a Postgres store that `--store` names.
const PASSWORD_VARIABLE: &str = "CALLBOARD_STORE_PASSWORD";

/// Which store.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArguments {
    /// The node's topology file (TOML or YAML).
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "store",
        conflicts_with = "store"
    )]
    topology: Option<PathBuf>,
    /// Where the node's agents keep their data. Without it, beside the file.
    #[arg(long, value_name = "DIR", requires = "topology")]
    state: Option<PathBuf>,
    /// The store itself, in place of a topology: sqlite:FILE or postgres://USER@HOST/DATABASE (its password in
    /// CALLBOARD_STORE_PASSWORD).
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArguments {
    /// How the store is opened.
    ///
    /// # Errors
    /// The topology is none, or its store is none.
    fn options(&self) -> Result<StoreOptions, CommandError> {
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
        declared.options(&topology.name, state)?.ok_or_else(|| {
            CommandError::usage("the node keeps in memory: there is no store to look into")
        })
    }

    /// Does `work` with the store, also beside the node that has it open.
    ///
    /// # Errors
    /// There is none, it can't be read, or the work fails.
    pub(super) async fn visit<T, E>(
        &self,
        work: impl AsyncFnOnce(&Visitor) -> Result<T, E>,
    ) -> Result<T, CommandError>
    where
        CommandError: From<E>,
    {
        let visitor = SqlStore::visit(&self.options()?).await?;
        let done = work(&visitor).await;
        visitor.close().await;
        Ok(done?)
    }
}

/// A file, and the store that is written to it or read from it.
#[derive(Debug, clap::Args)]
pub(super) struct FileArguments {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum DirectoryCommand {
    /// Write the agents of the directory to a file: JSON, with what is said of each as it came. `-` is standard output; an
    /// export never writes over a file.
    Export(FileArguments),
    /// Put each agent of such a file (`-`: standard input) into the directory. Others that are there stay.
    Import(FileArguments),
}

/// Copies the store, and says what was copied.
pub(super) async fn backup(FileArguments { file, store }: FileArguments) -> Outcome {
    let report = store
        .visit(async |visitor| visitor.backup(&file).await)
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
    show::line(format_args!(
        "backed up to {}: {} bytes, {audit}",
        file.display(),
        report.bytes
    ))?;
    Ok(EXIT_ANSWERED)
}

/// Writes the directory of agents to a file, or reads it from one.
pub(super) async fn directory(command: DirectoryCommand) -> Outcome {
    let wrong =
        |file: &Path, error| CommandError::failed(format_args!("{}: {error}", file.display()));
    match command {
        DirectoryCommand::Export(FileArguments { file, store }) => {
            let text = store
                .visit(async |visitor| export_directory(&*visitor.notes()).await)
                .await?;
            match is_standard(&file) {
                true => show::raw(text)?,
                false => write(&file, &text).map_err(|error| wrong(&file, error))?,
            }
        }
        DirectoryCommand::Import(FileArguments { file, store }) => {
            let text = read(&file).map_err(|error| wrong(&file, error))?;
            let imported = store
                .visit(async |visitor| import_directory(&*visitor.notes(), &text).await)
                .await?;
            show::line(format_args!(
                "{} new, {} changed, {} the same",
                imported.new, imported.changed, imported.same
            ))?;
        }
    }
    Ok(EXIT_ANSWERED)
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> io::Result<String> {
    // One more than is taken: a file that is too large is told so, and not read to its end.
    let bytes_max = DIRECTORY_FILE_BYTES_MAX as u64 + 1;
    let mut text = String::new();
    match is_standard(file) {
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

/// The file is there whole, or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
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
