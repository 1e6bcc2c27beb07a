//! Page with the topology as a picture, and as tables for readers without it.

use callboard_runtime::visible;
use maud::{Markup, html};

use super::elements::{ROWS_MAX, badge, empty, rows_left_out, scrolling};
use super::frame::{PageFrame, page};

/// Maximum number of boxes in a column of the picture: 60. The tables have the others.
const COLUMN_MAX: usize = 60;
/// Maximum length of a label in the picture: 21 characters, which fit into a box.
const LABEL_CHARS_MAX: usize = 21;
/// Width of a box, in pixels.
const BOX_WIDTH: usize = 200;
/// Height of a box, in pixels.
const BOX_HEIGHT: usize = 40;
/// Distance of rows, in pixels.
const ROW_HEIGHT: usize = 56;
/// Distance of columns, in pixels.
const COLUMN_WIDTH: usize = 300;
/// Margin around the picture, in pixels.
const MARGIN: usize = 12;

/// Contents of the page.
pub(crate) struct TopologyPicture {
    /// Name of the node.
    pub node: String,
    /// Listeners: address, protocol, agents behind it.
    pub listeners: Vec<(String, String, Vec<String>)>,
    /// Agents: id and kind.
    pub agents: Vec<(String, String)>,
    /// Upstreams: id and state.
    pub upstreams: Vec<(String, String)>,
}

/// Renders the page of the topology.
pub(crate) fn topology(frame: &PageFrame<'_>, picture: &TopologyPicture) -> Markup {
    let content = html! {
        @if picture.listeners.is_empty() && picture.agents.is_empty() && picture.upstreams.is_empty() {
            (empty("The topology has no listener, agent or upstream."))
        } @else {
            (scrolling("Picture of the topology", drawing(picture)))
            (tables(picture))
        }
    };
    page(frame, "Topology", content)
}

fn drawing(picture: &TopologyPicture) -> Markup {
    let (listeners, upstreams) = (picture.listeners.len(), picture.upstreams.len());
    let direct = listeners.max(upstreams).min(COLUMN_MAX);
    // Below the lines from listeners to upstreams, which would seem to lead through agents.
    let above = if upstreams == 0 { 0 } else { direct };
    let agents = picture.agents.len().min(COLUMN_MAX);
    let rows = direct.max(if agents == 0 { 1 } else { above + agents });
    let width = 2 * MARGIN + 2 * COLUMN_WIDTH + BOX_WIDTH;
    let height = 2 * MARGIN + rows * ROW_HEIGHT;
    html! {
        svg.topology role="img" aria-labelledby="picture-title" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) {
            title #picture-title {
                "Listeners, agents and upstreams of " (visible(&picture.node)) ". The tables below have the same content."
            }
            @for (row, (_, _, agents)) in picture.listeners.iter().take(COLUMN_MAX).enumerate() {
                @for agent in agents {
                    @if let Some(to) = row_of(&picture.agents, agent) { (edge((0, row), (1, above + to))) }
                    @if let Some(to) = row_of(&picture.upstreams, agent) { (edge((0, row), (2, to))) }
                }
            }
            @for (row, (address, protocol, _)) in picture.listeners.iter().take(COLUMN_MAX).enumerate() {
                (node_box(0, row, address, protocol, "listener"))
            }
            @for (row, (id, kind)) in picture.agents.iter().take(COLUMN_MAX).enumerate() {
                (node_box(1, above + row, id, kind, "agent"))
            }
            @for (row, (id, state)) in picture.upstreams.iter().take(COLUMN_MAX).enumerate() {
                (node_box(2, row, id, state, upstream_class(state)))
            }
        }
    }
}

/// Returns the class of an upstream's box.
fn upstream_class(state: &str) -> &'static str {
    match state {
        "away" | "disabled" => "away",
        _ => "upstream",
    }
}

/// Returns the row of an agent or upstream in its column of the picture; `None` if it isn't in it.
fn row_of(column: &[(String, String)], id: &str) -> Option<usize> {
    let mut shown = column.iter().take(COLUMN_MAX);
    shown.position(|(known, _)| known == id)
}

/// Renders a box of a column with its name and kind.
fn node_box(column: usize, row: usize, name: &str, kind: &str, class: &str) -> Markup {
    let (x, y) = (MARGIN + column * COLUMN_WIDTH, MARGIN + row * ROW_HEIGHT);
    let label = |text: &str| {
        let text = visible(text);
        match text.char_indices().nth(LABEL_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    html! {
        g class={ "node-" (class) } {
            rect x=(x) y=(y) width=(BOX_WIDTH) height=(BOX_HEIGHT) rx="6" {}
            text x=(x + 12) y=(y + 17) { (label(name)) }
            text.kind x=(x + 12) y=(y + 32) { (label(kind)) }
        }
    }
}

/// Renders the line from a box to one of a later column. Boxes are given by column and row, and cover lines.
fn edge((from_column, from_row): (usize, usize), (to_column, to_row): (usize, usize)) -> Markup {
    let middle = |row: usize| MARGIN + row * ROW_HEIGHT + BOX_HEIGHT / 2;
    let start = MARGIN + from_column * COLUMN_WIDTH + BOX_WIDTH;
    let end = MARGIN + to_column * COLUMN_WIDTH;
    let bend = usize::midpoint(start, end);
    let (from, to) = (middle(from_row), middle(to_row));
    html! {
        path.edge d=(format!("M{start} {from} C{bend} {from} {bend} {to} {end} {to}")) {}
    }
}

fn tables(picture: &TopologyPicture) -> Markup {
    html! {
        @if !picture.listeners.is_empty() {
            section aria-labelledby="listeners-title" {
                h2 #listeners-title { "Listeners" }
                (scrolling("Table of listeners", listeners_table(picture)))
            }
        }
        @if !picture.agents.is_empty() {
            section aria-labelledby="agents-title" {
                h2 #agents-title { "Agents" }
                (scrolling("Table of agents", pairs_table(["Agent", "Kind"], &picture.agents, |kind| html! { (visible(kind)) })))
                (rows_left_out(picture.agents.len(), "All are in the file of the topology."))
            }
        }
        @if !picture.upstreams.is_empty() {
            section aria-labelledby="upstreams-title" {
                h2 #upstreams-title { "Upstreams" }
                (scrolling("Table of upstreams", pairs_table(["Upstream", "State"], &picture.upstreams, badge)))
                (rows_left_out(picture.upstreams.len(), "All are in /api/v1/upstreams."))
            }
        }
    }
}

fn listeners_table(picture: &TopologyPicture) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Address" }
                    th scope="col" { "Protocol" }
                    th scope="col" { "Agents" }
                }
            }
            tbody {
                @for (address, protocol, agents) in picture.listeners.iter().take(ROWS_MAX) {
                    tr {
                        th scope="row" { (visible(address)) }
                        td { (visible(protocol)) }
                        td { (visible(&agents.join(", "))) }
                    }
                }
            }
        }
    }
}

/// Renders a table of names and one property.
fn pairs_table(
    columns: [&str; 2],
    rows: &[(String, String)],
    cell: impl Fn(&str) -> Markup,
) -> Markup {
    html! {
        table {
            thead {
                tr {
                    @for column in columns { th scope="col" { (column) } }
                }
            }
            tbody {
                @for (name, property) in rows.iter().take(ROWS_MAX) {
                    tr {
                        th scope="row" { (visible(name)) }
                        td { (cell(property)) }
                    }
                }
            }
        }
    }
}
