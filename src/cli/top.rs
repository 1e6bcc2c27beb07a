//! `callboard top`: the state of a running node in the terminal, from its console.

mod screen;
mod tables;
mod terminal;

use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::arguments::one_of_names;
use super::node_view::{ConsoleArguments, ConsoleClient, NodeViewError};
use super::{CommandError, CommandResult, EXIT_ANSWERED, output, wait_for_interrupt};
use screen::{ScreenLine, ScreenSize, render};
use terminal::{LiveTerminal, wait_for_quit_key};

/// Time between two requests for a view. Default 1 s.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of calls in their view: as many as the console gives at once. Default 1,000.
const CALLS_MAX: usize = 1_000;

/// View of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopView {
    Node,
    Agents,
    Calls,
    Questions,
    Upstreams,
    Tasks,
    Tools,
    Approvals,
}

impl TopView {
    const ALL: [Self; 8] = [
        Self::Node,
        Self::Agents,
        Self::Calls,
        Self::Questions,
        Self::Upstreams,
        Self::Tasks,
        Self::Tools,
        Self::Approvals,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Agents => "agents",
            Self::Calls => "calls",
            Self::Questions => "questions",
            Self::Upstreams => "upstreams",
            Self::Tasks => "tasks",
            Self::Tools => "tools",
            Self::Approvals => "approvals",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct TopArguments {
    #[command(flatten)]
    console: ConsoleArguments,
    /// View to show: the node with its agents, calls, questions and upstreams, or one kind of rows.
    #[arg(long, default_value = "node", value_parser = one_of_names(TopView::ALL.iter().map(|it| (it.as_str(), *it))))]
    view: TopView,
    /// Only rows that have each of these words, in any letter case. Calls have them in principal,
    /// agent, target, outcome or trace.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print the view once, as plain text. The default without a terminal.
    #[arg(long)]
    once: bool,
    /// Print the view once, as one JSON object, and nothing else.
    #[arg(long, conflicts_with = "once")]
    json: bool,
}

/// Runs the command.
pub(super) async fn run(arguments: TopArguments) -> CommandResult {
    let client = arguments.console.console_client()?;
    if arguments.json {
        output::print_json(&read_view(&client, &arguments).await?)?;
        return Ok(EXIT_ANSWERED);
    }
    if arguments.once || !LiveTerminal::is_available() {
        let view = read_view(&client, &arguments).await?;
        let size = ScreenSize {
            rows: None,
            ..LiveTerminal::size()
        };
        for line in lines(&view, size, None)? {
            output::print_line(line.text)?;
        }
        return Ok(EXIT_ANSWERED);
    }
    let interrupt = wait_for_interrupt();
    let terminal = LiveTerminal::open()?;
    tokio::select! {
        failed = refresh(&client, &arguments, &terminal) => failed,
        () = interrupt => Ok(EXIT_ANSWERED),
        () = wait_for_quit_key() => Ok(EXIT_ANSWERED),
    }
}

/// Shows the view and replaces it each [`REFRESH_INTERVAL`]. While the console can't be reached, the latest
/// view stays with the reason below it. Ends with an error only.
async fn refresh(
    client: &ConsoleClient,
    arguments: &TopArguments,
    terminal: &LiveTerminal,
) -> CommandResult {
    let mut ticks = interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut latest = None;
    loop {
        ticks.tick().await;
        let outcome = read_view(client, arguments).await;
        let clock = tables::clock_text(SystemTime::now());
        let footer = match outcome {
            Ok(view) => {
                latest = Some(view);
                format!("{clock} UTC · q quits")
            }
            Err(error) if error.is_transient() && latest.is_some() => {
                format!("{clock} UTC · {error}")
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(view) = &latest {
            let lines = lines(view, LiveTerminal::size(), Some(&footer))?;
            terminal.draw(&lines)?;
        }
    }
}

fn lines(
    view: &Value,
    size: ScreenSize,
    footer: Option<&str>,
) -> Result<Vec<ScreenLine>, CommandError> {
    let lines = render(view, SystemTime::now(), size, footer);
    lines.map_err(|_| NodeViewError::InvalidResponse.into())
}

/// Reads the chosen view as an object: the node with its members, or one member with the rows of a list.
async fn read_view(
    client: &ConsoleClient,
    arguments: &TopArguments,
) -> Result<Value, NodeViewError> {
    let name = arguments.view.as_str();
    let mut view = match arguments.view {
        TopView::Node => client.view("view", &[]).await?,
        // The node looks through all calls that it keeps, not only the latest.
        TopView::Calls => {
            let limit = CALLS_MAX.to_string();
            let query = [
                ("filter", arguments.filter.as_str()),
                ("limit", limit.as_str()),
            ];
            client.view(name, &query).await?
        }
        _ => client.view(name, &[]).await?,
    };
    if view.is_array() {
        view = Value::Object([(name.to_owned(), view)].into_iter().collect());
    }
    let Some(members) = view.as_object_mut() else {
        return Err(NodeViewError::InvalidResponse);
    };
    let words = arguments.filter.to_lowercase();
    let words: Vec<_> = words.split_whitespace().collect();
    for rows in members.values_mut().filter_map(Value::as_array_mut) {
        rows.retain(|row| has_words(row, &words));
    }
    Ok(view)
}

/// Returns whether each word occurs in one of the texts of a row. `words` are in lower case.
fn has_words(row: &Value, words: &[&str]) -> bool {
    if words.is_empty() {
        return true;
    }
    let texts = row.as_object().into_iter().flatten();
    let texts = texts.filter_map(|(_, value)| value.as_str());
    let texts: Vec<_> = texts.map(str::to_lowercase).collect();
    words
        .iter()
        .all(|word| texts.iter().any(|text| text.contains(word)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: a filter keeps the rows that have all its words, wherever they stand. Method: rows of words.
    #[test]
    fn filters() {
        let row = json!({ "agent": "GitHub", "target": "search", "ms": 41 });
        for (words, expect) in [
            (vec![], true),
            (vec!["github"], true),
            (vec!["search", "git"], true),
            (vec!["search", "jira"], false),
            (vec!["41"], false),
        ] {
            assert_eq!(has_words(&row, &words), expect, "{words:?}");
        }
    }
}
