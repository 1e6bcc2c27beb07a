//! Pages of the stored tasks.

use std::collections::{HashMap, HashSet};

use maud::{Markup, html};

use super::elements::{
    DEPTH_MAX, ROWS_MAX, badge, csrf_field, empty, encode, rows_left_out, scrolling, time,
};
use super::frame::{PageFrame, page};
use crate::monitor::view::TaskView;

/// States that a task doesn't leave.
const ENDED: [&str; 5] = ["completed", "failed", "canceled", "cancelled", "rejected"];

/// Renders the page of the tasks.
pub(crate) fn tasks(frame: &PageFrame<'_>, tasks: &[TaskView]) -> Markup {
    let content = html! {
        div #tasks data-live hx-get="/part/tasks" hx-trigger="sse:change throttle:1s, every 5s" hx-sync="this:queue last" {
            (tasks_table(tasks))
        }
    };
    page(frame, "Tasks", content)
}

/// Renders tasks; at most [`ROWS_MAX`].
pub(crate) fn tasks_table(tasks: &[TaskView]) -> Markup {
    if tasks.is_empty() {
        return empty("No task is stored.");
    }
    let rows: Vec<(usize, &TaskView)> = tasks.iter().take(ROWS_MAX).map(|task| (0, task)).collect();
    html! {
        (scrolling("Table of tasks", table(&rows)))
        (rows_left_out(tasks.len(), "All are in /api/v1/tasks."))
    }
}

/// Renders the page of a task, with the tree of its parts.
pub(crate) fn task(frame: &PageFrame<'_>, task: &TaskView, parts: &[TaskView]) -> Markup {
    let has_ended = ENDED.contains(&task.state.as_str());
    let content = html! {
        dl.facts data-testid="task" {
            div { dt { "State" } dd { (badge(&task.state)) } }
            div { dt { "Agent" } dd { (task.agent) } }
            div { dt { "Owner" } dd { (task.owner) } }
            div { dt { "Created" } dd { (time(task.created_ms)) } }
            div { dt { "Changed" } dd { (time(task.changed_ms)) } }
            div { dt { "Id" } dd.trace { (task.id) } }
            @if !task.parent.is_empty() {
                div { dt { "Part of" } dd.trace { a href={ "/tasks/" (encode(&task.parent)) } { (task.parent) } } }
            }
        }
        @if task.state == "input_required" {
            p { a href="/questions" { "Questions that wait" } }
        }
        @if !has_ended && frame.viewer.can_act {
            form method="post" action="/do/task" data-testid="task-form" {
                (csrf_field(frame.csrf))
                input type="hidden" name="id" value=(task.id);
                button.danger type="submit" name="action" value="cancel" data-testid="cancel-task" { "Cancel the task" }
            }
        }
        @if !parts.is_empty() {
            section aria-labelledby="parts-title" {
                h2 #parts-title { "Parts" }
                (scrolling("Table of parts", table(&tree(&task.id, parts))))
                (rows_left_out(parts.len(), "All are in /api/v1/tasks."))
            }
        }
        p { a href="/tasks" { "All tasks" } }
    };
    page(frame, &format!("Task of {}", task.agent), content)
}

/// Returns the parts of a task with their level, each below the one that it is a part of; at most [`ROWS_MAX`].
fn tree<'a>(root: &'a str, parts: &'a [TaskView]) -> Vec<(usize, &'a TaskView)> {
    let mut children: HashMap<&str, Vec<&TaskView>> = HashMap::new();
    for part in parts {
        children.entry(&part.parent).or_default().push(part);
    }
    let mut rows = Vec::new();
    let mut reached = HashSet::from([root]);
    let mut pending: Vec<(usize, &TaskView)> = Vec::new();
    let mut next = Some((0, root));
    while let Some((depth, id)) = next {
        for part in children.get(id).into_iter().flatten().rev().copied() {
            if reached.insert(part.id.as_str()) {
                pending.push((depth, part));
            }
        }
        let row = pending.pop().filter(|_| rows.len() < ROWS_MAX);
        rows.extend(row);
        next = row.map(|(depth, part)| (depth + 1, part.id.as_str()));
    }
    rows
}

/// Renders tasks with their levels.
fn table(rows: &[(usize, &TaskView)]) -> Markup {
    html! {
        table data-testid="tasks" {
            thead {
                tr {
                    th scope="col" { "Task" }
                    th scope="col" { "State" }
                    th scope="col" { "Agent" }
                    th scope="col" { "Owner" }
                    th scope="col" { "Created" }
                    th scope="col" { "Changed" }
                }
            }
            tbody {
                @for (depth, task) in rows {
                    tr {
                        th.trace scope="row" {
                            span class={ "d" (depth.min(&DEPTH_MAX)) } {
                                a id={ "task-" (task.id) } href={ "/tasks/" (encode(&task.id)) } data-testid="task-link" {
                                    (task.id)
                                }
                            }
                        }
                        td { (badge(&task.state)) }
                        td { (task.agent) }
                        td { (task.owner) }
                        td.nowrap { (time(task.created_ms)) }
                        td.nowrap { (time(task.changed_ms)) }
                    }
                }
            }
        }
    }
}
