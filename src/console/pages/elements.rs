//! Elements that several pages have: times, badges, hidden fields, texts from outside.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_runtime::visible;
use maud::{Markup, html};
use url::form_urlencoded::byte_serialize;

/// Maximum number of rows of a table: 500. A line below it says how many are left out.
pub(super) const ROWS_MAX: usize = 500;
/// Maximum indentation of a row in a tree, in levels; the style sheet has a class for each.
pub(super) const DEPTH_MAX: usize = 6;

/// Renders the field against forged requests, which every form that is posted has.
pub(super) fn csrf_field(csrf: &str) -> Markup {
    html! { input type="hidden" name="csrf" value=(csrf); }
}

/// Percent-encodes a text for a segment of a path or a value of a query.
pub(super) fn encode(text: &str) -> String {
    byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// Returns a text of several lines in which hidden characters are escaped.
pub(super) fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// Renders a time of day, in UTC; the script shows it in the browser's time zone, with the date as a title.
pub(super) fn time(at_ms: u64) -> Markup {
    let seconds = at_ms / 1_000 % 86_400;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    html! { time data-ms=(at_ms) { (format!("{hours:02}:{minutes:02}:{seconds:02}")) } }
}

/// Renders the time since a moment; the script counts on.
pub(super) fn age(since_ms: u64) -> Markup {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = Duration::from_millis(since_ms);
    let passed = now.unwrap_or_default().saturating_sub(since);
    html! { span.age data-since=(since_ms) { (long_time(passed.as_secs())) } }
}

/// Formats a time in its largest unit, such as `42 s`, `3 min`, `5 h` or `12 d`.
pub(super) fn long_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats a duration in milliseconds; `…` while it runs.
pub(super) fn duration(ms: Option<f64>) -> String {
    match ms {
        None => "…".to_owned(),
        Some(ms) if ms < 10.0 => format!("{ms:.1} ms"),
        Some(ms) if ms < 10_000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.1} s", ms / 1_000.0),
    }
}

/// Formats a size.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Renders a state or an outcome, with the colour of its meaning.
pub(super) fn badge(state: &str) -> Markup {
    let tone = match state {
        "ok" | "connected" | "approved" | "completed" | "accept" | "answered" => "good",
        "running" | "working" | "submitted" | "inbound" | "outbound" | "local" | "connecting"
        | "apart" | "unknown" => "plain",
        "asks" | "asking" | "question" | "input_required" | "auth_required" | "new" | "changed"
        | "pending" | "starting" | "restarting" | "draining" | "decline" | "cancel"
        | "canceled" | "cancelled" => "warn",
        "ended" => "dim",
        _ => "bad",
    };
    html! { span.badge.(tone) { (state.replace('_', " ")) } }
}

/// Renders the line below a table that says how many rows are left out; nothing without any.
pub(super) fn rows_left_out(count: usize, remedy: &str) -> Markup {
    html! {
        @if count > ROWS_MAX {
            p.hint { (count - ROWS_MAX) " more aren't shown. " (remedy) }
        }
    }
}

/// Renders the line of an empty list.
pub(super) fn empty(text: &str) -> Markup {
    html! { p.empty { (text) } }
}

/// Renders preformatted text, which scrolls within its own box.
pub(super) fn text_block(text: &str, label: &str) -> Markup {
    html! { pre tabindex="0" role="region" aria-label=(label) { (visible_lines(text)) } }
}

/// Renders a box that a wide table scrolls in. Its id comes from the label, so that focus and position survive an update.
pub(super) fn scrolling(label: &str, content: Markup) -> Markup {
    let id = label.to_lowercase().replace(' ', "-");
    html! { div.scroll #(id) tabindex="0" role="region" aria-label=(label) { (content) } }
}
