//! Page where a tool of an agent is called by hand.

use callboard_runtime::visible;
use maud::{Markup, html};
use serde_json::Value;

use super::elements::{badge, csrf_field, duration, empty, encode, text_block, visible_lines};
use super::frame::{PageFrame, page};
use crate::console::form;

/// Tool that can be called.
pub(crate) struct PlayTool {
    /// Name.
    pub name: String,
    /// Description; empty without one.
    pub description: String,
    /// JSON schema of the input.
    pub schema: Value,
}

/// Call of a tool from the page.
pub(crate) struct PlayRun {
    /// Id, for its refresh and its end.
    pub id: String,
    /// Agent.
    pub agent: String,
    /// Tool.
    pub tool: String,
    /// Whether it runs.
    pub is_running: bool,
    /// Duration in milliseconds; `None` while it runs.
    pub ms: Option<f64>,
    /// Outcome, such as `running`, `ok` or the kind of a failure.
    pub outcome: String,
    /// Result as text; empty while it runs.
    pub text: String,
    /// Result as JSON; empty while it runs.
    pub raw: String,
}

/// Contents of the page.
pub(crate) struct PlayPage {
    /// Agents whose tools the reader may call.
    pub agents: Vec<String>,
    /// Chosen agent; empty without one.
    pub agent: String,
    /// Tools of the chosen agent.
    pub tools: Vec<PlayTool>,
    /// Chosen tool; empty without one.
    pub tool: String,
    /// Latest run of the session.
    pub run: Option<PlayRun>,
}

/// Renders the page.
pub(crate) fn play(frame: &PageFrame<'_>, play: &PlayPage) -> Markup {
    let tool = play.tools.iter().find(|tool| tool.name == play.tool);
    let content = html! {
        p.hint { "A call runs as " b { (frame.viewer.name) } ", within its rules and limits, and is in the audit log." }
        (choice(play))
        @if let Some(tool) = tool { (tool_form(frame, play, tool)) }
        @if let Some(run) = &play.run { (play_run(run, frame.csrf)) }
    };
    page(frame, "Playground", content)
}

/// Renders the choice of an agent and of one of its tools. The script submits it when it changes.
fn choice(play: &PlayPage) -> Markup {
    if play.agents.is_empty() {
        return empty("No agent offers tools that you may call.");
    }
    html! {
        form.filter method="get" action="/play" data-testid="play-choice" {
            div.field {
                label for="agent" { "Agent" }
                select #agent name="agent" data-submit {
                    option value="" { "Choose…" }
                    @for agent in &play.agents {
                        option value=(agent) selected[*agent == play.agent] { (visible(agent)) }
                    }
                }
            }
            @if !play.agent.is_empty() {
                div.field {
                    label for="tool" { "Tool" }
                    select #tool name="tool" data-submit {
                        option value="" { "Choose…" }
                        @for tool in &play.tools {
                            option value=(tool.name) selected[tool.name == play.tool] { (visible(&tool.name)) }
                        }
                    }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

fn tool_form(frame: &PageFrame<'_>, play: &PlayPage, tool: &PlayTool) -> Markup {
    html! {
        section aria-labelledby="tool-title" {
            h2 #tool-title { (visible(&play.agent)) "." (visible(&tool.name)) }
            @if !tool.description.is_empty() { p.text { (visible_lines(&tool.description)) } }
            @if frame.viewer.can_act {
                form.card method="post" action="/do/play" data-testid="play-form" {
                    (csrf_field(frame.csrf))
                    input type="hidden" name="agent" value=(play.agent);
                    input type="hidden" name="tool" value=(tool.name);
                    (form::fields(&tool.schema, "play"))
                    div.actions {
                        button.primary type="submit" data-testid="play-submit" { "Run" }
                    }
                }
            } @else {
                p.hint { "A call needs the scope " code { "console.act" } "." }
            }
        }
    }
}

/// Renders a call and its result. It is fetched again each second while it runs.
pub(crate) fn play_run(run: &PlayRun, csrf: &str) -> Markup {
    let source = run
        .is_running
        .then(|| format!("/part/play-run?id={}", encode(&run.id)));
    let trigger = run.is_running.then_some("every 1s");
    html! {
        section.card #play-run aria-labelledby="run-title" data-testid="play-run" hx-get=[source] hx-trigger=[trigger]
            hx-swap="outerHTML" {
            h2 #run-title {
                (visible(&run.agent)) "." (visible(&run.tool)) " " (badge(&run.outcome))
                " " span.dim { (duration(run.ms)) }
            }
            @if run.is_running {
                p { a #run-questions href="/questions" { "Questions that it asks" } }
                form method="post" action="/do/play-cancel" {
                    (csrf_field(csrf))
                    input type="hidden" name="id" value=(run.id);
                    button.danger #run-cancel type="submit" data-testid="play-cancel" { "Cancel" }
                }
            } @else {
                @if !run.text.is_empty() { (text_block(&run.text, "Result")) }
                @if !run.raw.is_empty() {
                    details #run-raw {
                        summary { "JSON" }
                        (text_block(&run.raw, "Result as JSON"))
                    }
                }
            }
        }
    }
}
