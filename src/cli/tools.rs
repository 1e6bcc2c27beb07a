//! `callboard tools`: pinned tools of upstreams, and their approval.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stdin};

use callboard_message::parse_yes_no;
use callboard_runtime::{KvStore, PinnedTool, ToolVersion, approve_tool, pinned_tools};
use clap::Subcommand;
use serde_json::{Value, json};

use super::output::RowPrinter;
use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, output};
use crate::config::{Topology, closest_name, suggestion_suffix};

/// Columns of the list.
const TOOL_COLUMNS: &str = "TOOL\tSTATE";

#[derive(Debug, Subcommand)]
pub(super) enum ToolsCommand {
    /// List the tools of an upstream that its node has seen: approved, changed and new ones.
    List(ToolListArguments),
    /// Show what is different in changed and new tools, and approve it. Exit code 4 if something is left.
    Approve(ToolApproveArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ToolListArguments {
    /// Id of the upstream, with `pin` in its table.
    upstream: String,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object for each tool and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ToolApproveArguments {
    /// Id of the upstream, with `pin` in its table.
    upstream: String,
    /// Tools to approve. Without any, all that are new or have changed.
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    #[command(flatten)]
    store: StoreArguments,
    /// Approve without a question.
    #[arg(long)]
    yes: bool,
}

/// Runs `callboard tools`.
pub(super) async fn run(command: ToolsCommand) -> CommandResult {
    match command {
        ToolsCommand::List(arguments) => list(arguments).await,
        ToolsCommand::Approve(arguments) => approve(arguments).await,
    }
}

async fn list(arguments: ToolListArguments) -> CommandResult {
    let ToolListArguments {
        upstream,
        store,
        json,
    } = arguments;
    check_upstream(&upstream, &store)?;
    let tools = store
        .with_store(async |store| pinned_tools(&*store.notes(), &upstream).await)
        .await?;
    let rows = RowPrinter::with_heading(json, TOOL_COLUMNS)?;
    for tool in tools {
        let object = json!({
            "tool": tool.name, "state": tool.state(), "approved": tool.approved, "offered": tool.offered,
        });
        rows.print_row(&object, || format!("{}\t{}", tool.name, tool.state()))?;
    }
    Ok(EXIT_ANSWERED)
}

/// Reports an upstream that the topology file doesn't declare. With `--store` there is none to compare
/// with.
///
/// # Errors
/// Usage error, also if the file can't be used.
fn check_upstream(upstream: &str, store: &StoreArguments) -> Result<(), CommandError> {
    let Some(file) = store.topology_file() else {
        return Ok(());
    };
    let topology = Topology::read(file)?;
    let declared = || topology.upstreams.iter().map(|declared| &*declared.id);
    if declared().any(|id| id == upstream) {
        return Ok(());
    }
    let nearest = suggestion_suffix(closest_name(upstream, declared()));
    Err(CommandError::file(
        file,
        format_args!("it declares no upstream {upstream}{nearest}"),
    ))
}

async fn approve(arguments: ToolApproveArguments) -> CommandResult {
    let ToolApproveArguments {
        upstream,
        tools: wanted,
        store,
        yes,
    } = arguments;
    if !yes && !stdin().is_terminal() {
        return Err(CommandError::usage(
            "there is no terminal to ask at: add --yes, after `callboard tools list`",
        ));
    }
    check_upstream(&upstream, &store)?;
    store
        .with_store(async |store| {
            let store = store.notes();
            approve_each(&*store, &upstream, &wanted, yes).await
        })
        .await
}

async fn approve_each(
    store: &dyn KvStore,
    upstream: &str,
    wanted: &[String],
    yes: bool,
) -> Result<u8, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::failed(error);
    let tools = pinned_tools(store, upstream).await;
    let tools = tools.map_err(|error| failed(&error))?;
    let unknown = wanted
        .iter()
        .find(|name| tools.iter().all(|tool| tool.name != **name));
    if let Some(unknown) = unknown {
        let names = tools.iter().map(|tool| &*tool.name);
        let nearest = suggestion_suffix(closest_name(unknown, names));
        return Err(CommandError::usage(format!(
            "{upstream} has listed no tool {unknown} since its tools are pinned{nearest}"
        )));
    }
    let is_wanted = |tool: &&PinnedTool| wanted.is_empty() || wanted.contains(&tool.name);
    let (mut approved, mut left) = (0, 0);
    for tool in tools.iter().filter(is_wanted) {
        let Some(offered) = &tool.offered else {
            continue;
        };
        output::print_line(difference(tool, offered))?;
        // Nobody has seen it: it must be named.
        if yes && offered.definition.is_none() && !wanted.contains(&tool.name) {
            left += 1;
            continue;
        }
        if !yes && !is_confirmed(&tool.name)? {
            left += 1;
            continue;
        }
        let done = approve_tool(store, upstream, &tool.name, &offered.hash).await;
        match done.map_err(|error| failed(&error))? {
            true => approved += 1,
            false => left += 1,
        }
    }
    output::print_note(format_args!("approved {approved} of {}", approved + left));
    Ok(match left {
        0 => EXIT_ANSWERED,
        _ => EXIT_FAILED,
    })
}

fn is_confirmed(tool: &str) -> std::io::Result<bool> {
    loop {
        output::print_note(format_args!("approve {tool}? (yes/no)"));
        let mut line = String::new();
        if stdin().read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if let Some(answer) = parse_yes_no(line.trim()) {
            return Ok(answer);
        }
    }
}

/// Returns the members of a tool's definition that are different, with `-` before what was approved and `+`
/// before what the server lists.
fn difference(tool: &PinnedTool, offered: &ToolVersion) -> String {
    let mut text = format!("{} ({})", tool.name, tool.state());
    let before = tool.approved.as_ref();
    let Some(now) = &offered.definition else {
        return text
            + "\n  the definition is too large to be shown: look at it at the server, and name the tool";
    };
    let before = before.and_then(|version| version.definition.as_ref());
    let members = |version: Option<&Value>| {
        let members = version.and_then(Value::as_object);
        members.cloned().unwrap_or_default()
    };
    let (before, now) = (members(before), members(Some(now)));
    let names: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), now.get(name));
        if old == new {
            continue;
        }
        for (sign, value) in [('-', old), ('+', new)] {
            if let Some(value) = value {
                // Escaped, so that invisible characters are seen.
                let value: String = value.to_string().chars().flat_map(visible).collect();
                text += &format!("\n  {sign} {name}: {value}");
            }
        }
    }
    text
}

/// Returns a character as it is shown: those beyond ASCII as `\u{…}`.
fn visible(c: char) -> Vec<char> {
    match c.is_ascii() {
        true => vec![c],
        false => c.escape_unicode().collect(),
    }
}
