//! `callboard directory`: the agents that a node's store knows of, as a file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use callboard_store::{DIRECTORY_FILE_BYTES_MAX, export_directory, import_directory};
use clap::Subcommand;
use tempfile::NamedTempFile;

use super::place::{StoreArguments, StoreFailure};
use super::show;

#[derive(Debug, Subcommand)]
pub(super) enum DirectoryCommand {
    /// Write the agents of the directory to a file: JSON, with what is said of each as it came.
    Export(DirectoryArguments),
    /// Put each agent of such a file into the directory. Others that are there stay.
    Import(DirectoryArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct DirectoryArguments {
    /// The file; `-` for standard output, or input. An export never writes over one.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
}

/// Does it, and says how it ended.
pub(super) fn run(command: &DirectoryCommand) -> u8 {
    super::place::run(async {
        match command {
            DirectoryCommand::Export(arguments) => export(arguments).await,
            DirectoryCommand::Import(arguments) => import(arguments).await,
        }
    })
}

async fn export(arguments: &DirectoryArguments) -> Result<(), StoreFailure> {
    let visitor = arguments.store.visit().await?;
    let text = export_directory(&*visitor.notes()).await;
    visitor.close().await;
    let text = text?;
    if is_standard(&arguments.file) {
        show::line(&text)?;
        return Ok(());
    }
    write(&arguments.file, &text).map_err(|source| StoreFailure::File { path: arguments.file.clone(), source })
}

async fn import(arguments: &DirectoryArguments) -> Result<(), StoreFailure> {
    let text = read(&arguments.file);
    let text = text.map_err(|source| StoreFailure::File { path: arguments.file.clone(), source })?;
    let visitor = arguments.store.visit().await?;
    let imported = import_directory(&*visitor.notes(), &text).await;
    visitor.close().await;
    let imported = imported?;
    show::line(&format!("{} new, {} changed, {} the same", imported.new, imported.changed, imported.same))?;
    Ok(())
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> io::Result<String> {
    // One more than is taken: a file that is too large is told so, and not read to its end.
    let bytes_max = DIRECTORY_FILE_BYTES_MAX as u64 + 1;
    let mut text = String::new();
    match is_standard(file) {
        true => io::stdin().lock().take(bytes_max).read_to_string(&mut text)?,
        false => File::open(file)?.take(bytes_max).read_to_string(&mut text)?,
    };
    Ok(text)
}

/// The file is there whole, or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = NamedTempFile::new_in(folder)?;
    part.write_all(text.as_bytes())?;
    part.write_all(b"\n")?;
    part.as_file().sync_all()?;
    part.persist_noclobber(file)?;
    Ok(())
}
