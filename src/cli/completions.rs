//! `callboard completions` and `callboard man`: completions of shells, and manual pages.

use std::fs;
use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::aot::{Shell, generate};

use super::output::{print_line, print_raw};
use super::{Arguments, CommandError, CommandResult, EXIT_ANSWERED, LOG_HELP};

const PROGRAM: &str = "callboard";

#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArguments {
    /// Shell that reads the completions.
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArguments {
    /// Folder for the pages, one for each command. It is created if missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs `callboard completions`.
pub(super) fn run(arguments: &CompletionsArguments) -> CommandResult {
    let mut script = Vec::new();
    generate(
        arguments.shell,
        &mut visible_commands(),
        PROGRAM,
        &mut script,
    );
    print_raw(String::from_utf8_lossy(&script).trim_end())?;
    Ok(EXIT_ANSWERED)
}

/// Runs `callboard man`.
pub(super) fn run_man(arguments: &ManArguments) -> CommandResult {
    let folder = &arguments.folder;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(visible_commands(), folder))
        .map_err(|error| {
            let folder = folder.display();
            CommandError::failed(format_args!("failed to write pages to {folder}: {error}"))
        })?;
    print_line(folder.display())?;
    Ok(EXIT_ANSWERED)
}

/// Returns the command line without hidden commands, which completions would offer. Hidden options of a
/// visible command stay, and are offered.
fn visible_commands() -> Command {
    let all = Arguments::command();
    let visible = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let command = Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(LOG_HELP)
        .args(all.get_arguments().cloned())
        .subcommands(visible.cloned());
    match all.get_about() {
        Some(about) => command.about(about.clone()),
        None => command,
    }
}
