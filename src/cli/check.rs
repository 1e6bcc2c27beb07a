//! `callboard check`.

use std::collections::HashMap;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use annotate_snippets::{AnnotationKind, Level as Heading, Renderer, Snippet};
use callboard_mcp::outbound::{McpClientOptions, Revision};
use callboard_message::RawObject;
use callboard_message::capabilities::ListTools;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::mcp::ServerConnection;
use super::{
    CheckArguments, CommandError, CommandResult, EXIT_ANSWERED, EXIT_FAILED, EXIT_USAGE, output,
};
use crate::config::{
    CheckReport, ConfigProblem, Severity, Topology, UpstreamDeclaration, UpstreamError,
};
use crate::text::strip_control_chars;

/// Timeout of the queries to one upstream.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `callboard check`.
pub(super) async fn run(
    CheckArguments {
        topology: file,
        json,
        connect,
        strict,
    }: CheckArguments,
) -> CommandResult {
    let mut checked = Topology::check(&file)?;
    let upstreams = checked
        .topology
        .iter()
        .filter(|_| connect)
        .flat_map(|topology| &topology.upstreams);
    let found = futures::future::join_all(upstreams.map(UpstreamReport::query)).await;
    if let Some(topology) = checked.topology.as_ref().filter(|_| connect) {
        let unreachable = unreachable_agents(topology).await;
        checked
            .problems
            .extend(unmatched_patterns(topology, &found));
        checked.problems.extend(unreachable);
    }
    if strict {
        let problems = checked.problems.iter_mut();
        problems.for_each(|problem| problem.level = Severity::Error);
    }
    let is_accepted = checked.topology.is_some() && (!strict || checked.problems.is_empty());
    output::print_raw(match json {
        true => as_json(&file, &checked, is_accepted, &found),
        false => as_text(&file, &checked, is_accepted, &found),
    })?;
    Ok(match is_accepted {
        false => EXIT_USAGE,
        true if found.iter().all(|found| found.result.is_ok()) => EXIT_ANSWERED,
        true => EXIT_FAILED,
    })
}

/// Report on one upstream.
struct UpstreamReport {
    id: String,
    /// MCP revision and tool names, or the reason why the upstream didn't answer.
    result: Result<(String, Vec<String>), String>,
}

impl UpstreamReport {
    async fn query(upstream: &UpstreamDeclaration) -> Self {
        let asked = async {
            let wrong = |error: UpstreamError| CommandError::usage(error.why);
            let options = McpClientOptions {
                listen: false,
                ..upstream.client_options().map_err(wrong)?
            };
            let server = ServerConnection::new(
                upstream.endpoint().map_err(wrong)?,
                options,
                UPSTREAM_TIMEOUT,
            )?;
            let tools = server.list_items::<ListTools>("tools").await;
            let revision = server.protocol_revision().await;
            server.close().await;
            let name = |tool: &RawValue| RawObject::parse(tool).ok()?.text("name");
            let names = tools?.into_iter().filter_map(|tool| name(&tool));
            Ok((revision, names.collect()))
        };
        let seen: Result<_, CommandError> = asked.await;
        Self {
            id: upstream.id.clone(),
            result: seen.map_err(|error| error.message),
        }
    }

    fn as_json(&self) -> Value {
        match &self.result {
            Ok((revision, tools)) => {
                json!({ "id": self.id, "era": era_of(revision), "revision": revision, "tools": tools.len() })
            }
            Err(why) => json!({ "id": self.id, "why": why }),
        }
    }

    /// Formats the report as one line, with ids padded to `width`.
    fn as_text(&self, width: usize) -> String {
        let told = match &self.result {
            Ok((revision, tools)) => format!(
                "{} era, {revision}, {}",
                era_of(revision),
                pluralize(tools.len(), "tool")
            ),
            Err(why) => format!("away: {why}"),
        };
        format!("\n  {:width$}  {told}", self.id)
    }
}

/// Warns of each agent that can't be reached now, for example a pane with a shell in the foreground.
async fn unreachable_agents(topology: &Topology) -> Vec<ConfigProblem> {
    let checks = topology.agents.iter().filter_map(|agent| {
        let check = agent.check_reachable()?;
        Some(async move { (agent.id(), check.await) })
    });
    let checked = futures::future::join_all(checks).await;
    let failed = checked
        .into_iter()
        .filter_map(|(id, checked)| Some((id, checked.err()?)));
    failed
        .map(|(id, why)| ConfigProblem {
            level: Severity::Warning,
            span: None,
            line: 0,
            column: 0,
            message: format!("{id} gets no mail now: {}", strip_control_chars(&why)),
            help: Some("mail waits until its pane accepts text".to_owned()),
        })
        .collect()
}

/// Warns of each pattern of tool names that matches none of the tools that are there. A pattern of a virtual server is checked if
/// the tools of all its members are known.
fn unmatched_patterns(topology: &Topology, found: &[UpstreamReport]) -> Vec<ConfigProblem> {
    let mut warnings = Vec::new();
    let known: HashMap<&str, (&UpstreamDeclaration, &[String])> = topology
        .upstreams
        .iter()
        .zip(found)
        .filter_map(|(upstream, report)| {
            let (_, tools) = report.result.as_ref().ok()?;
            Some((&*upstream.id, (upstream, &**tools)))
        })
        .collect();
    for (id, (upstream, tools)) in &known {
        for pattern in upstream.tools.unmatched(tools) {
            warnings.push(format!(
                "{id} has no tool that {pattern:?} in `tools` matches"
            ));
        }
    }
    for server in &topology.servers {
        let members: Option<Vec<_>> = server.members.iter().map(|id| known.get(&**id)).collect();
        for pattern in members.iter().flat_map(|_| &server.tools) {
            let is_matched = members.iter().flatten().any(|(upstream, tools)| {
                let filter = &upstream.tools;
                filter
                    .is_selected_by(pattern, &upstream.id, tools)
                    .unwrap_or(true)
            });
            if !is_matched {
                warnings.push(format!(
                    "the server {} has no tool that {pattern:?} in `tools` matches",
                    server.id
                ));
            }
        }
    }
    warnings.sort_unstable();
    let warning = |message| ConfigProblem {
        level: Severity::Warning,
        span: None,
        line: 0,
        column: 0,
        message,
        help: Some("`callboard mcp list` shows the names of a server's tools".to_owned()),
    };
    warnings.into_iter().map(warning).collect()
}

fn era_of(revision: &str) -> &'static str {
    if revision > Revision::LATEST_LEGACY.as_str() {
        "modern"
    } else {
        "legacy"
    }
}

fn as_json(
    file: &Path,
    checked: &CheckReport,
    is_accepted: bool,
    found: &[UpstreamReport],
) -> String {
    let mut object = json!({
        "file": file.display().to_string(), "ok": is_accepted, "problems": checked.problems,
    });
    if !found.is_empty() {
        object["upstreams"] = found.iter().map(UpstreamReport::as_json).collect();
    }
    object.to_string()
}

/// Formats all problems with their source lines, then a summary and a line for each upstream.
fn as_text(
    file: &Path,
    checked: &CheckReport,
    is_accepted: bool,
    found: &[UpstreamReport],
) -> String {
    let renderer = if stdout().is_terminal() {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let drawn = checked
        .problems
        .iter()
        .map(|problem| render_problem(file, &checked.text, problem, &renderer) + "\n\n");
    let mut out: String = drawn.collect();
    let count = |level| {
        checked
            .problems
            .iter()
            .filter(|problem| problem.level == level)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    out.push_str(&match &checked.topology {
        Some(_) if !is_accepted => format!(
            "{} can be used, but not with --strict: {}",
            file.display(),
            pluralize(errors, "warning")
        ),
        Some(topology) => format!(
            "{} can be used: {}, {}, {}, {}{}",
            file.display(),
            pluralize(topology.agents.len(), "agent"),
            pluralize(topology.upstreams.len(), "upstream"),
            pluralize(topology.servers.len(), "server"),
            pluralize(topology.listeners.len(), "listener"),
            if warnings > 0 {
                format!("; {}", pluralize(warnings, "warning"))
            } else {
                String::new()
            },
        ),
        None => {
            format!(
                "{} can't be used: {}, {}",
                file.display(),
                pluralize(errors, "error"),
                pluralize(warnings, "warning")
            )
        }
    });
    let width = found
        .iter()
        .map(|found| found.id.chars().count())
        .max()
        .unwrap_or_default();
    out.extend(found.iter().map(|found| found.as_text(width)));
    out
}

fn pluralize(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the text with values that may be secret replaced by stars of the same length in bytes, so
/// that positions stay valid. Reports may end up in logs.
fn mask_secrets(text: &str) -> String {
    const NAMES: [&str; 8] = [
        "key",
        "token",
        "secret",
        "password",
        "authorization",
        "bearer",
        "credential",
        "headers",
    ];
    let stars = |line: &str| {
        let Some((name, value)) = line.find(['=', ':']).map(|at| line.split_at(at)) else {
            return line.to_owned();
        };
        let (lower, whole) = (name.to_ascii_lowercase(), line.to_ascii_lowercase());
        // A value that only names the place of a secret is shown.
        let is_place = lower.trim_end().ends_with("_env") || lower.trim_end().ends_with("_file");
        if is_place || !NAMES.iter().any(|name| whole.contains(name)) {
            return line.to_owned();
        }
        let star = |c: char| {
            if c.is_alphanumeric() || !c.is_ascii() {
                "*".repeat(c.len_utf8())
            } else {
                c.to_string()
            }
        };
        format!("{name}{}", value.chars().map(star).collect::<String>())
    };
    text.split_inclusive('\n').map(stars).collect()
}

fn render_problem(file: &Path, text: &str, problem: &ConfigProblem, renderer: &Renderer) -> String {
    let heading = match problem.level {
        Severity::Error => Heading::ERROR,
        Severity::Warning => Heading::WARNING,
    };
    let path = file.display().to_string();
    let shown = mask_secrets(text);
    let mut group = match &problem.span {
        Some(span) => {
            // The first line of what spans several is enough.
            let line_end = text
                .get(span.start..)
                .and_then(|rest| rest.find('\n'))
                .map_or(text.len(), |at| span.start + at);
            let end = span.end.clamp(span.start, line_end.max(span.start));
            let annotation = AnnotationKind::Primary.span(span.start..end);
            let snippet = Snippet::source(&*shown).path(&path).annotation(annotation);
            heading.primary_title(&problem.message).element(snippet)
        }
        None => heading
            .primary_title(&problem.message)
            .element(annotate_snippets::Origin::path(&path)),
    };
    if let Some(help) = &problem.help {
        group = group.element(Heading::HELP.message(help));
    }
    renderer.render(&[group])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a mistake is shown at its place without the secret beside it. Method: rows of lines, told in as many bytes.
    #[test]
    fn secrets_are_stars() {
        for (line, shown) in [
            (
                "claude_api_key = \"sk-é1\"\n",
                "claude_api_key = \"**-***\"\n",
            ),
            ("  token: abc\n", "  token: ***\n"),
            (
                "headers = { Authorization = \"Bearer x\" }",
                "headers = { ************* = \"****** *\" }",
            ),
            (
                "upstream = { url = \"u\", bearer = \"x\" }",
                "upstream = { *** = \"*\", ****** = \"*\" }",
            ),
            (
                "api_key_env = \"ANTHROPIC_API_KEY\"",
                "api_key_env = \"ANTHROPIC_API_KEY\"",
            ),
            ("bind = \"127.0.0.1:1\"", "bind = \"127.0.0.1:1\""),
            ("[[listener]]", "[[listener]]"),
        ] {
            let told = mask_secrets(line);
            assert_eq!(told, shown);
            assert_eq!(told.len(), line.len(), "{line}");
        }
    }
}
