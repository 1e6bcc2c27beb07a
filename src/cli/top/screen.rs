//! Screen of `callboard top`: the lines of a view, within the size of a terminal.

use std::time::SystemTime;

use callboard_runtime::visible;
use serde::Deserialize;
use serde_json::Value;

use super::tables::{Table, cut, overview_line, tables};
use crate::monitor::view::Overview;

/// Emphasis of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStyle {
    Plain,
    /// Line about the whole node.
    Title,
    /// Headings of a table.
    Heading,
    /// Row about a failure, or about something that is away.
    Alert,
}

/// Line of a screen, without escape sequences.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub(super) text: String,
    pub(super) style: LineStyle,
}

/// Size of a screen in characters; `None` for no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScreenSize {
    pub(super) columns: Option<usize>,
    pub(super) rows: Option<usize>,
}

/// Returns the lines of a view: its title, its tables, and `footer` if there is one. Rows that have no room
/// are counted in a line below their table.
///
/// # Errors
/// Those of a member of the view that doesn't have the shape of its rows.
pub(super) fn render(
    view: &Value,
    now: SystemTime,
    size: ScreenSize,
    footer: Option<&str>,
) -> Result<Vec<ScreenLine>, serde_json::Error> {
    let tables = tables(view, now)?;
    let mut lines = vec![(title(view)?, LineStyle::Title)];
    // Title, headings and footer.
    let fixed = 1 + tables.len() + usize::from(footer.is_some());
    // A table without rows has a line that says so.
    let wanted: Vec<_> = tables.iter().map(|table| table.rows.len().max(1)).collect();
    let shares = match size.rows {
        Some(rows) => share_rows(&wanted, rows.saturating_sub(fixed)),
        None => wanted,
    };
    for (table, share) in tables.iter().zip(shares) {
        lines.extend(table_lines(table, share));
    }
    if let Some(rows) = size.rows {
        lines.truncate(rows.saturating_sub(usize::from(footer.is_some())));
    }
    lines.extend(footer.map(|footer| (visible(footer), LineStyle::Plain)));
    let line = |(text, style): (String, LineStyle)| ScreenLine {
        text: size
            .columns
            .map_or_else(|| text.clone(), |columns| cut(&text, columns)),
        style,
    };
    Ok(lines.into_iter().map(line).collect())
}

/// Returns the title of a view: the summary of the node, or the names of its members.
fn title(view: &Value) -> Result<String, serde_json::Error> {
    if let Some(overview) = view.get("overview") {
        return Ok(overview_line(&Overview::deserialize(overview)?));
    }
    let members = view.as_object().into_iter().flatten();
    let counted = members.map(|(name, rows)| {
        let count = rows.as_array().map_or(0, Vec::len);
        format!(" · {count} {}", visible(name))
    });
    Ok(format!("callboard{}", counted.collect::<String>()))
}

/// Returns the heading and the rows of a table in at most `share` lines below the heading.
fn table_lines(table: &Table, share: usize) -> Vec<(String, LineStyle)> {
    let count = table.rows.len();
    let shown = match count > share {
        true => share.saturating_sub(1),
        false => count,
    };
    let (heading, rows) = table.lines(shown);
    let mut lines = vec![(heading, LineStyle::Heading)];
    lines.extend(rows.into_iter().zip(&table.rows).map(|(text, row)| {
        let style = match row.is_alert {
            true => LineStyle::Alert,
            false => LineStyle::Plain,
        };
        (text, style)
    }));
    let below = match (count, count - shown) {
        (0, _) => Some("none".to_owned()),
        (_, 0) => None,
        (_, more) => Some(format!("… {more} more")),
    };
    // A table without a share has a heading only.
    let below = below.filter(|_| share > 0);
    lines.extend(below.map(|text| (text, LineStyle::Plain)));
    lines
}

/// Divides `total` rows among tables: each gets the same number until it has as many as it wants.
fn share_rows(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    let mut left = total;
    while left > 0 {
        let before = left;
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            if left > 0 && *share < *wanted {
                *share += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    fn texts(view: &Value, rows: Option<usize>, footer: Option<&str>) -> Vec<String> {
        let size = ScreenSize {
            columns: Some(30),
            rows,
        };
        let lines = render(view, UNIX_EPOCH, size, footer).unwrap();
        lines.into_iter().map(|line| line.text).collect()
    }

    fn upstream(name: &str, state: &str) -> Value {
        json!({ "name": name, "state": state, "retry_ms": null, "failures": 0, "detail": null })
    }

    /// Goal: tables share the rows of a screen, and rows that have no room are counted. Method: two tables on screens of several
    /// heights, down to none.
    #[test]
    fn tables_share_a_screen() {
        let upstreams: Vec<_> = (0..9)
            .map(|at| upstream(&format!("u{at}"), "connected"))
            .collect();
        let view = json!({ "questions": [], "upstreams": upstreams });
        let whole = texts(&view, None, None);
        assert_eq!(whole[0], "callboard · 0 questions · 9 u…");
        assert_eq!(whole.len(), 1 + 2 + 1 + 9);
        let cut = texts(&view, Some(8), Some("q quits"));
        assert_eq!(cut.len(), 8);
        assert_eq!(cut[2], "none");
        assert_eq!(cut[6..], ["… 7 more", "q quits"], "{cut:?}");
        for rows in 0..12 {
            assert!(texts(&view, Some(rows), None).len() <= rows);
        }
    }

    /// Goal: rows are given to whoever wants them, and none twice. Method: tables of one row, many and none.
    #[test]
    fn shares() {
        for (wanted, total, expect) in [
            (vec![1, 9], 4, vec![1, 3]),
            (vec![9, 9], 5, vec![3, 2]),
            (vec![1, 1], 9, vec![1, 1]),
            (vec![5], 0, vec![0]),
            (vec![], 3, vec![]),
        ] {
            assert_eq!(share_rows(&wanted, total), expect);
        }
    }

    /// Goal: an upstream that is away or disabled stands out, and no other. Method: an upstream of each state.
    #[test]
    fn alerts() {
        use LineStyle::{Alert, Plain};
        let states = [
            ("connected", Plain),
            ("connecting", Plain),
            ("apart", Plain),
            ("unknown", Plain),
            ("away", Alert),
            ("disabled", Alert),
        ];
        let upstreams = states.map(|(state, _)| upstream("a", state));
        let view = json!({ "upstreams": upstreams });
        let lines = render(&view, UNIX_EPOCH, ScreenSize::default(), None).unwrap();
        let styles: Vec<_> = lines.iter().map(|line| line.style).skip(2).collect();
        assert_eq!(styles, states.map(|(_, style)| style));
    }
}
