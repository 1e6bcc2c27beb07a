//! Frame of every page: head, summary of the node, navigation, help.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::elements::{csrf_field, long_time};
use crate::monitor::view::Overview;

/// Reader of a page.
pub(crate) struct Viewer {
    /// Kind and id of the principal.
    pub name: String,
    /// Whether texts of calls and questions are shown.
    pub can_see_content: bool,
    /// Whether actions are offered.
    pub can_act: bool,
    /// Whether there is a session, which can be ended.
    pub is_signed_in: bool,
}

/// Context that a page is rendered in.
pub(crate) struct PageFrame<'a> {
    /// Summary of the node.
    pub overview: &'a Overview,
    /// Reader.
    pub viewer: &'a Viewer,
    /// Token against forged requests, for forms.
    pub csrf: &'a str,
    /// Path of the page.
    pub path: &'a str,
}

/// Page of the navigation.
struct NavigationEntry {
    path: &'static str,
    label: &'static str,
    /// Key that opens the page after `g`.
    key: &'static str,
}

const NAVIGATION: [NavigationEntry; 10] = [
    entry("/", "Agents", "a"),
    entry("/questions", "Questions", "q"),
    entry("/approvals", "Approvals", "v"),
    entry("/tools", "Tools", "t"),
    entry("/tasks", "Tasks", "k"),
    entry("/upstreams", "Upstreams", "u"),
    entry("/mail", "Mail", "m"),
    entry("/play", "Playground", "p"),
    entry("/connect", "Connect", "c"),
    entry("/topology", "Topology", "o"),
];

/// Settings of htmx: no evaluation of texts as code, no styles in the page, no storage of pages in the browser.
const HTMX_CONFIG: &str = r#"{"allowEval":false,"allowScriptTags":false,"includeIndicatorStyles":false,"historyEnabled":false,"selfRequestsOnly":true}"#;
/// Icon of the page, within the page.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect \
    width='16' height='16' rx='4' fill='%234653c9'/%3E%3Cpath d='M4 5h8M4 8h5M4 11h7' stroke='white' \
    stroke-width='1.6' stroke-linecap='round'/%3E%3C/svg%3E";

const fn entry(path: &'static str, label: &'static str, key: &'static str) -> NavigationEntry {
    NavigationEntry { path, label, key }
}

/// Renders the head of a page. Addresses of assets have the version, because browsers keep them.
pub(super) fn head(title: &str) -> Markup {
    let asset = |file: &str| format!("/assets/{file}?v={}", env!("CARGO_PKG_VERSION"));
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="htmx-config" content=(HTMX_CONFIG);
            title { (title) " · callboard" }
            link rel="icon" href=(ICON);
            link rel="stylesheet" href=(asset("style.css"));
            script src=(asset("htmx.min.js")) defer {}
            script src=(asset("htmx-sse.min.js")) defer {}
            script src=(asset("console.js")) defer {}
        }
    }
}

/// Renders a page around its content, which begins with the heading.
pub(super) fn page(frame: &PageFrame<'_>, title: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body hx-ext="sse" sse-connect="/feed" {
                a.skip href="#main" { "Skip to content" }
                (header(frame))
                (navigation(frame))
                main #main tabindex="-1" {
                    h1 { (title) }
                    (content)
                }
                (help())
            }
        }
    }
}

fn header(frame: &PageFrame<'_>) -> Markup {
    let viewer = frame.viewer;
    html! {
        header.top {
            a.brand href="/" { "callboard" }
            span.node { (frame.overview.node) }
            div #counts data-live hx-get="/part/counts" hx-trigger="sse:change" hx-sync="this:queue last" {
                (counts(frame.overview))
            }
            p.visually-hidden #announcement role="status" aria-live="polite" {}
            div.tools {
                span.feed #feed-state data-state="connecting" { "connecting" }
                button #pause type="button" aria-pressed="false" aria-keyshortcuts="p" { "Pause" }
                button #help-open type="button" aria-keyshortcuts="?" { "Keys" }
                @if viewer.is_signed_in {
                    span.viewer { (viewer.name) }
                    form method="post" action="/logout" {
                        (csrf_field(frame.csrf))
                        button type="submit" data-testid="logout" { "Sign out" }
                    }
                } @else {
                    span.viewer { (if viewer.can_act { viewer.name.as_str() } else { "read only" }) }
                    a href="/login" { "Sign in" }
                }
            }
        }
    }
}

fn navigation(frame: &PageFrame<'_>) -> Markup {
    let is_here = |path: &str| match path {
        "/" => frame.path == "/" || frame.path.starts_with("/calls/"),
        path => frame.path == path || frame.path.starts_with(&format!("{path}/")),
    };
    html! {
        nav.pages aria-label="Pages" {
            @for entry in &NAVIGATION {
                a href=(entry.path) data-key=(entry.key) aria-current=[is_here(entry.path).then_some("page")] {
                    (entry.label)
                }
            }
        }
    }
}

fn help() -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.keys {
                @for entry in &NAVIGATION {
                    dt { kbd { "g" } " " kbd { (entry.key) } }
                    dd { (entry.label) }
                }
                dt { kbd { "/" } }
                dd { "Filter or search" }
                dt { kbd { "p" } }
                dd { "Pause or resume updates" }
                dt { kbd { "?" } }
                dd { "This help" }
            }
            form method="dialog" {
                button type="submit" { "Close" }
            }
        }
    }
}

/// Renders the summary of the node.
pub(crate) fn counts(overview: &Overview) -> Markup {
    let number = |count: usize, one: &str, several: &str| {
        PreEscaped(format!(
            "<b>{count}</b> {}",
            if count == 1 { one } else { several }
        ))
    };
    html! {
        ul.counts #counts-list data-questions=(overview.questions) data-away=(overview.upstreams_away) {
            li { "up " b { (long_time(overview.uptime_s)) } }
            li { b { (overview.calls_per_minute) } " calls/min" }
            @if overview.failures_per_minute > 0 {
                li.bad { b { (overview.failures_per_minute) } " failed/min" }
            }
            @if let Some(p99_ms) = overview.p99_ms {
                li { "p99 " b { (format!("{p99_ms:.1} ms")) } }
            }
            @if overview.running > 0 {
                li { b { (overview.running) } " running" }
            }
            @if overview.questions > 0 {
                li.warn { a #counts-questions href="/questions" { (number(overview.questions, "question waits", "questions wait")) } }
            }
            @if overview.upstreams_away > 0 {
                li.bad { a #counts-away href="/upstreams" { (number(overview.upstreams_away, "upstream away", "upstreams away")) } }
            }
            @if overview.dead_letters > 0 {
                li.warn { b { (overview.dead_letters) } " messages lost" }
            }
            @if overview.events_dropped > 0 {
                li.warn { b { (overview.events_dropped) } " events dropped" }
            }
            @if overview.exchanges_unrecorded > 0 {
                li { b { (overview.exchanges_unrecorded) } " exchanges counted, not listed" }
            }
        }
    }
}

/// Renders an outcome or an error as a page.
pub(crate) fn message(frame: &PageFrame<'_>, title: &str, text: &str) -> Markup {
    page(
        frame,
        title,
        html! {
            p.message data-testid="message" { (text) }
            p { a href="/" { "To the agents" } }
        },
    )
}
