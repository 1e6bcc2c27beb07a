//! `callboard schema`: the JSON Schema of topology files, for editors.

use super::output::print_raw;
use super::{CommandResult, EXIT_ANSWERED};
use crate::config::topology_schema;

/// Runs `callboard schema`.
pub(super) fn run() -> CommandResult {
    print_raw(format_args!("{:#}", topology_schema()))?;
    Ok(EXIT_ANSWERED)
}
