//! Tables of a node's views, and their lines within a width.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::time::{format_rfc3339, parse_rfc3339};
use callboard_runtime::visible;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::monitor::view::{
    AgentView, CallLine, Overview, QuestionView, TaskView, ToolView, UpstreamView,
};

/// Maximum width of a column other than the last one, in characters. Default 40.
const COLUMN_CHARS_MAX: usize = 40;
/// Characters between two columns.
const COLUMN_GAP: &str = "  ";
/// Width of the bar of a mailbox, in characters. Default 10.
const MAILBOX_BAR_CHARS: usize = 10;
/// Characters of the hash of a tool's definition that are shown. Default 12.
const HASH_CHARS: usize = 12;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

use Align::{Left, Right};

/// Row of a table.
#[derive(Debug)]
pub(super) struct TableRow {
    cells: Vec<String>,
    /// Whether it is about a failure or something that is away.
    pub(super) is_alert: bool,
}

impl TableRow {
    fn new(is_alert: bool, cells: impl IntoIterator<Item = String>) -> Self {
        let cells = cells.into_iter().map(|text| cell(&text)).collect();
        Self { cells, is_alert }
    }
}

/// Table of one kind of rows, such as agents.
#[derive(Debug)]
pub(super) struct Table {
    /// Headings; that of the first column names the table.
    columns: &'static [(&'static str, Align)],
    pub(super) rows: Vec<TableRow>,
}

impl Table {
    /// Returns the heading and the first `rows_max` rows as lines that aren't cut. Columns are as wide
    /// as their widest cell among these rows, up to [`COLUMN_CHARS_MAX`].
    pub(super) fn lines(&self, rows_max: usize) -> (String, Vec<String>) {
        let rows = &self.rows[..rows_max.min(self.rows.len())];
        let last = self.columns.len().saturating_sub(1);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max();
            let heading = self.columns[column].0.chars().count();
            widest.unwrap_or_default().max(heading)
        };
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| match column == last {
                true => width(column),
                false => width(column).min(COLUMN_CHARS_MAX),
            })
            .collect();
        let headings = self.columns.iter().map(|(heading, _)| *heading);
        let rows = rows
            .iter()
            .map(|row| self.line(&widths, row.cells.iter().map(String::as_str)));
        (self.line(&widths, headings), rows.collect())
    }

    /// Returns the cells of one line, each as wide as its column.
    fn line<'a>(&self, widths: &[usize], cells: impl Iterator<Item = &'a str>) -> String {
        let padded = cells
            .zip(self.columns)
            .zip(widths)
            .map(|((text, (_, align)), width)| pad(text, *align, *width));
        let line = padded.collect::<Vec<_>>().join(COLUMN_GAP);
        line.trim_end().to_owned()
    }
}

/// Returns a text of exactly `width` characters: filled with blanks, or cut.
fn pad(text: &str, align: Align, width: usize) -> String {
    let text = cut(text, width);
    match align {
        Left => format!("{text:<width$}"),
        Right => format!("{text:>width$}"),
    }
}

/// Returns a text of at most `width` characters. One that is cut ends with `…`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    match width {
        0 => kept,
        _ => kept + "…",
    }
}

/// Returns the text of a cell: characters that change a terminal are escaped; `-` stands for no text.
fn cell(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => visible(text),
    }
}

/// Returns the tables of a view, in the order of the screen.
///
/// # Errors
/// Those of a member that doesn't have the shape of its rows.
pub(super) fn tables(view: &Value, now: SystemTime) -> Result<Vec<Table>, serde_json::Error> {
    let now_ms = millis(now);
    let all = [
        rows_of(view, "agents")?.map(agents),
        rows_of(view, "calls")?.map(calls),
        rows_of(view, "questions")?.map(|rows| questions(rows, now_ms)),
        rows_of(view, "upstreams")?.map(upstreams),
        rows_of(view, "tasks")?.map(|rows| tasks(rows, now_ms)),
        rows_of(view, "tools")?.map(tools),
        rows_of(view, "approvals")?.map(|rows| approvals(rows, now_ms)),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Returns the rows of a member; `None` if the view doesn't have it.
fn rows_of<T: DeserializeOwned>(
    view: &Value,
    name: &str,
) -> Result<Option<Vec<T>>, serde_json::Error> {
    let rows = view.get(name);
    rows.map(Vec::<T>::deserialize).transpose()
}

/// Returns the line about the whole node.
pub(super) fn overview_line(overview: &Overview) -> String {
    let mut parts = vec![
        "callboard".to_owned(),
        visible(&overview.node),
        format!("up {}", duration_text(overview.uptime_s)),
        format!("{} calls/min", overview.calls_per_minute),
    ];
    if overview.failures_per_minute > 0 {
        parts.push(format!("{} failed/min", overview.failures_per_minute));
    }
    if let Some(p99) = overview.p99_ms {
        parts.push(format!("p99 {}", milliseconds_text(p99)));
    }
    let counted = [
        (overview.running as u64, "call runs", "calls run"),
        (
            overview.questions as u64,
            "question waits",
            "questions wait",
        ),
        (
            overview.upstreams_away as u64,
            "upstream away",
            "upstreams away",
        ),
        (overview.dead_letters, "dead letter", "dead letters"),
        (overview.events_dropped, "event dropped", "events dropped"),
    ];
    let counted = counted.iter().filter(|(count, ..)| *count > 0);
    parts.extend(counted.map(|(count, one, several)| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }));
    parts.join(" · ")
}

fn agents(agents: Vec<AgentView>) -> Table {
    let mut depths = HashMap::<&str, usize>::new();
    let rows = agents.iter().map(|agent| {
        let parent = agent.parent.as_deref();
        let depth = parent
            .and_then(|parent| depths.get(parent))
            .map_or(0, |depth| depth + 1);
        depths.insert(agent.id.as_str(), depth);
        let name = agent.name.as_deref().unwrap_or(&agent.id);
        let is_full = agent.mailbox_max > 0 && agent.mailbox >= agent.mailbox_max;
        let is_alert = is_full || matches!(agent.state.as_str(), "restarting" | "ended");
        let cells = [
            format!("{}{name}", "  ".repeat(depth)),
            agent.kind.clone(),
            agent.state.clone(),
            format!("{}/{}", agent.mailbox, agent.mailbox_max),
            mailbox_bar(agent.mailbox, agent.mailbox_max),
            agent.in_flight.to_string(),
            agent.calls.to_string(),
            agent.failures.to_string(),
            agent.restarts.to_string(),
            agent.last_error.clone().unwrap_or_default(),
        ];
        TableRow::new(is_alert, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("AGENTS", Left),
            ("KIND", Left),
            ("STATE", Left),
            ("MAILBOX", Right),
            ("FILL", Left),
            ("BUSY", Right),
            ("CALLS", Right),
            ("FAILED", Right),
            ("RESTARTS", Right),
            ("LAST ERROR", Left),
        ],
    }
}

/// Returns a bar of the fill of a mailbox. Each message shows at least one mark.
fn mailbox_bar(messages: u32, capacity: u32) -> String {
    let full = u64::from(capacity.max(1));
    let marks = (u64::from(messages) * MAILBOX_BAR_CHARS as u64).div_ceil(full);
    let marks = usize::try_from(marks)
        .unwrap_or(MAILBOX_BAR_CHARS)
        .min(MAILBOX_BAR_CHARS);
    let bar = ["#".repeat(marks), ".".repeat(MAILBOX_BAR_CHARS - marks)];
    bar.concat()
}

fn calls(calls: Vec<CallLine>) -> Table {
    let rows = calls.into_iter().map(|call| {
        let is_alert = !matches!(call.outcome.as_str(), "ok" | "running" | "asks" | "unknown");
        let cells = [
            time_text(call.at_ms),
            call.principal,
            call.agent,
            call.target,
            call.protocol,
            call.ms.map(milliseconds_text).unwrap_or_default(),
            call.outcome,
            call.trace,
        ];
        TableRow::new(is_alert, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("CALLS (UTC)", Left),
            ("PRINCIPAL", Left),
            ("AGENT", Left),
            ("TARGET", Left),
            ("PROTOCOL", Left),
            ("TIME", Right),
            ("OUTCOME", Left),
            ("TRACE", Left),
        ],
    }
}

fn questions(questions: Vec<QuestionView>, now_ms: u64) -> Table {
    let rows = questions.into_iter().map(|question| {
        let cells = [
            question.id,
            question.agent,
            question.principal,
            age_text(question.at_ms, now_ms),
            question.message,
        ];
        TableRow::new(false, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("QUESTIONS", Left),
            ("AGENT", Left),
            ("ASKS", Left),
            ("WAITS", Right),
            ("TEXT", Left),
        ],
    }
}

fn upstreams(upstreams: Vec<UpstreamView>) -> Table {
    let rows = upstreams.into_iter().map(|upstream| {
        let retry = upstream
            .retry_ms
            .map(|ms| duration_text(ms.div_ceil(1_000)));
        let is_alert = matches!(upstream.state.as_str(), "away" | "disabled");
        let cells = [
            upstream.name,
            upstream.state,
            retry.unwrap_or_default(),
            upstream.failures.to_string(),
        ];
        TableRow::new(is_alert, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("UPSTREAMS", Left),
            ("STATE", Left),
            ("RETRY IN", Right),
            ("FAILURES", Right),
        ],
    }
}

fn tasks(tasks: Vec<TaskView>, now_ms: u64) -> Table {
    let rows = tasks.into_iter().map(|task| {
        let is_alert = task.state == "failed";
        let cells = [
            task.id,
            task.parent,
            task.agent,
            task.owner,
            task.state,
            age_text(task.changed_ms, now_ms),
        ];
        TableRow::new(is_alert, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("TASKS", Left),
            ("PART OF", Left),
            ("AGENT", Left),
            ("OWNER", Left),
            ("STATE", Left),
            ("CHANGED", Right),
        ],
    }
}

fn tools(tools: Vec<ToolView>) -> Table {
    let rows = tools.into_iter().map(|tool| {
        let is_alert = tool.state != "approved";
        let hash = tool.offered_hash.chars().take(HASH_CHARS).collect();
        let cells = [tool.upstream, tool.tool, tool.state, hash];
        TableRow::new(is_alert, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("TOOLS OF", Left),
            ("TOOL", Left),
            ("STATE", Left),
            ("OFFERED", Left),
        ],
    }
}

/// Use of a tool that needs an approval, as far as it is shown. Arguments aren't.
#[derive(Debug, Deserialize)]
struct ApprovalRow {
    id: String,
    agent: String,
    tool: String,
    requester: String,
    #[serde(default)]
    rule: String,
    /// Time of the request (RFC 3339).
    requested_at: String,
}

fn approvals(approvals: Vec<ApprovalRow>, now_ms: u64) -> Table {
    let rows = approvals.into_iter().map(|approval| {
        let requested = parse_rfc3339(&approval.requested_at);
        let waits = requested.map(|at| age_text(millis(at), now_ms));
        let cells = [
            approval.id,
            approval.agent,
            approval.tool,
            approval.requester,
            approval.rule,
            waits.unwrap_or_default(),
        ];
        TableRow::new(false, cells)
    });
    Table {
        rows: rows.collect(),
        columns: &[
            ("APPROVALS", Left),
            ("AGENT", Left),
            ("TOOL", Left),
            ("REQUESTER", Left),
            ("RULE", Left),
            ("WAITS", Right),
        ],
    }
}

/// Returns the time since the Unix epoch in milliseconds; 0 before it.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats the time of day in UTC, as `12:01:07`; empty for a time beyond the calendar.
fn time_text(at_ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
    let text = time.map(format_rfc3339).unwrap_or_default();
    text.get(11..19).unwrap_or_default().to_owned()
}

/// Formats the current time of day in UTC.
pub(super) fn clock_text(now: SystemTime) -> String {
    time_text(millis(now))
}

/// Formats the time that has passed since `at_ms`.
fn age_text(at_ms: u64, now_ms: u64) -> String {
    duration_text(now_ms.saturating_sub(at_ms) / 1_000)
}

/// Formats a duration in its largest unit, rounded down: `42 s`, `3 min`, `5 h`, `3 d`.
fn duration_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats milliseconds: `0.4 ms`, `41 ms`, `12.5 s`.
fn milliseconds_text(ms: f64) -> String {
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else if ms < 10_000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.1} s", ms / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use callboard_gateway::approvals::PendingApproval;
    use serde_json::json;

    use super::*;

    fn agent(id: &str, parent: Option<&str>, mailbox: u32) -> Value {
        json!({
            "id": id, "name": null, "kind": "upstream", "state": "running", "mailbox": mailbox, "mailbox_max": 64,
            "in_flight": 0, "handled": 5, "restarts": 0, "last_error": null, "calls": 5, "failures": 0, "parent": parent,
        })
    }

    /// Goal: agents stand in their tree with the fill of their mailbox; a full one is an alert. Method: a parent and a part.
    #[test]
    fn agents_in_a_tree() {
        let view =
            json!({ "agents": [agent("front", None, 0), agent("github", Some("front"), 64)] });
        let tables = tables(&view, UNIX_EPOCH).unwrap();
        let (heading, rows) = tables[0].lines(10);
        assert!(
            heading.starts_with("AGENTS    KIND      STATE    MAILBOX  FILL"),
            "{heading}"
        );
        assert!(
            rows[0].starts_with("front     upstream  running     0/64  .........."),
            "{rows:?}"
        );
        assert!(
            rows[1].starts_with("  github  upstream  running    64/64  ##########"),
            "{rows:?}"
        );
        assert!(!tables[0].rows[0].is_alert && tables[0].rows[1].is_alert);
        assert_eq!(mailbox_bar(1, 1_024), "#.........");
    }

    /// Goal: a use that waits for an approval is shown with the time that it waits. Method: a row as the console has it.
    #[test]
    fn approvals_with_their_age() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let at = |seconds| format_rfc3339(now + Duration::from_secs(seconds));
        let pending = PendingApproval {
            id: "a1".to_owned(),
            requester: "api_key:bot".to_owned(),
            agent: "files".to_owned(),
            tool: "delete".to_owned(),
            purpose: String::new(),
            arguments: "{}".to_owned(),
            rule: "careful".to_owned(),
            requested_at: at(0),
            expires_at: at(600),
        };
        let view = json!({ "approvals": [pending] });
        let tables = tables(&view, now + Duration::from_secs(180)).unwrap();
        let (_, rows) = tables[0].lines(1);
        let cells: Vec<_> = rows[0].split_whitespace().collect();
        let expected = [
            "a1",
            "files",
            "delete",
            "api_key:bot",
            "careful",
            "3",
            "min",
        ];
        assert_eq!(cells, expected);
    }

    /// Goal: a name can neither move the cursor nor widen a column without a limit. Method: an escape sequence, and a name longer than
    /// the limit by one.
    #[test]
    fn cells_are_harmless() {
        let long = "a".repeat(COLUMN_CHARS_MAX + 1);
        let view = json!({ "agents": [agent("a\u{1b}[2J", None, 0), agent(&long, None, 0)] });
        let (_, rows) = tables(&view, UNIX_EPOCH).unwrap()[0].lines(10);
        assert!(rows[0].starts_with("a\\u{1b}[2J "), "{rows:?}");
        let kept = format!("{}…  ", "a".repeat(COLUMN_CHARS_MAX - 1));
        assert!(rows[1].starts_with(&kept), "{rows:?}");
        for (width, expect) in [(0, ""), (1, "…"), (3, "ab…"), (4, "abcd"), (5, "abcd")] {
            assert_eq!(cut("abcd", width), expect);
        }
    }

    /// Goal: the line about the node counts in words and leaves out what isn't there. Method: a quiet node and a busy one.
    #[test]
    fn overview_in_words() {
        let mut overview = Overview {
            node: "bridge".to_owned(),
            uptime_s: 3 * 86_400,
            calls_per_minute: 412,
            ..Overview::default()
        };
        let quiet = "callboard · bridge · up 3 d · 412 calls/min";
        assert_eq!(overview_line(&overview), quiet);
        (overview.questions, overview.upstreams_away) = (2, 1);
        overview.p99_ms = Some(4.04);
        let busy = format!("{quiet} · p99 4.0 ms · 2 questions wait · 1 upstream away");
        assert_eq!(overview_line(&overview), busy);
    }

    /// Goal: times are short and in their unit. Method: rows at the bounds of units.
    #[test]
    fn times() {
        for (seconds, expect) in [
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h"),
            (86_400, "1 d"),
        ] {
            assert_eq!(duration_text(seconds), expect);
        }
        assert_eq!(time_text(43_267_000), "12:01:07");
        for (ms, expect) in [(0.44, "0.4 ms"), (41.2, "41 ms"), (12_500.0, "12.5 s")] {
            assert_eq!(milliseconds_text(ms), expect);
        }
    }
}
