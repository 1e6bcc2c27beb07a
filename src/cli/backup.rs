//! `callboard backup`.

use std::path::PathBuf;

use super::place::{StoreArguments, StoreFailure};
use super::show;

#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// The file to make. It must not be there; it is a store itself: to restore, use it as one.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
}

/// Copies, and says what.
pub(super) fn run(arguments: &BackupArguments) -> u8 {
    super::place::run(back_up(arguments))
}

async fn back_up(arguments: &BackupArguments) -> Result<(), StoreFailure> {
    let visitor = arguments.store.visit().await?;
    let report = visitor.backup(&arguments.file).await;
    visitor.close().await;
    let report = report?;
    let chains: Vec<_> = report.chains.iter().map(|(chain, number)| format!("{chain}:{number}")).collect();
    let audit = if chains.is_empty() { "no audit".to_owned() } else { format!("audit up to {}", chains.join(", ")) };
    show::line(&format!("backed up to {}: {} bytes, {audit}", arguments.file.display(), report.bytes))?;
    Ok(())
}
