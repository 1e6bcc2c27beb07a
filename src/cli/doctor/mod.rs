//! `callboard doctor`: checks whether a node can run on this machine, each with the remedy.
//!
//! A check is a function that returns [`DoctorCheck`]s and changes nothing. What it prints names files, programs, ids and
//! origins of URLs, never a secret.

mod clients;
mod keys;
mod listeners;
mod port_owner;
mod programs;
mod report;
mod store;
mod system;
mod upstreams;

use std::path::{Path, PathBuf};

use super::{CommandResult, EXIT_ANSWERED, EXIT_FAILED, output};
use crate::config::{CheckReport, ConfigError, Topology};
use report::{DoctorCheck, DoctorReport};

/// Topology file that is checked if none is named and this folder has it.
const TOPOLOGY_FILE_DEFAULT: &str = "callboard.toml";

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArguments {
    /// Topology file (TOML or YAML). The default is callboard.toml, if this folder has it.
    #[arg(value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Folder of the agents' data, as for `serve`. The default is the file's own folder.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
}

/// Runs the command. Exit code: 0 without errors, also with warnings, else 4.
pub(super) async fn run(arguments: DoctorArguments) -> CommandResult {
    let report = DoctorReport {
        checks: check_all(&arguments).await?,
    };
    match arguments.json {
        true => output::print_json(&report.to_json())?,
        false => output::print_line(report.to_text())?,
    }
    Ok(match report.has_errors() {
        true => EXIT_FAILED,
        false => EXIT_ANSWERED,
    })
}

/// Returns the results of all checks, in the order in which they are shown.
///
/// # Errors
/// [`ConfigError`] if the named file can't be read.
async fn check_all(arguments: &DoctorArguments) -> Result<Vec<DoctorCheck>, ConfigError> {
    let default = Path::new(TOPOLOGY_FILE_DEFAULT);
    let named = arguments.topology.as_deref();
    let file = named.or(Some(default).filter(|file| file.is_file()));
    let mut checks = vec![system::check_version()];
    let mut declared = None;
    match file {
        None => checks.push(system::missing_topology()),
        Some(file) => {
            let report = Topology::check(file)?;
            checks.push(system::check_topology(file, &report));
            declared = usable_topology(file, report);
        }
    }
    if let (Some(file), Some(topology)) = (file, &declared) {
        let state = arguments.state.as_deref().or(file.parent());
        checks.extend(listeners::check_addresses(topology, file));
        checks.extend(listeners::check_certificates(topology));
        checks.extend(keys::check_key_files(topology));
        checks.extend(upstreams::check_upstreams(topology).await);
        checks.extend(store::check_store(topology, state.unwrap_or(Path::new(""))).await);
    }
    checks.extend(clients::check_clients(declared.as_ref()));
    Ok(checks)
}

/// Returns the topology of a checked file, also of one that is right by itself and names something that this machine lacks.
fn usable_topology(file: &Path, report: CheckReport) -> Option<Topology> {
    report.topology.or_else(|| Topology::read(file).ok())
}
