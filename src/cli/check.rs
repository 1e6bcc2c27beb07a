//! `callboard check`.

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use annotate_snippets::{AnnotationKind, Level as Heading, Renderer, Snippet};
use callboard_mcp::outbound::{ClientOptions, Revision};
use callboard_message::surface::ListTools;
use serde_json::{Value, json};

use super::mcp::Server;
use super::{CheckArguments, CommandError, EXIT_ANSWERED, EXIT_FAILED, EXIT_USAGE, Outcome, show};
use crate::config::{Checked, Level, Problem, Topology, UpstreamDeclaration, UpstreamError};

/// How long one server may take to say what it has.
const WITHIN: Duration = Duration::from_secs(30);

/// Checks, and says how it ended.
pub(super) async fn run(
    CheckArguments {
        topology: file,
        json,
        connect,
    }: CheckArguments,
) -> Outcome {
    let checked = Topology::check(&file)?;
    let upstreams = checked
        .topology
        .iter()
        .filter(|_| connect)
        .flat_map(|topology| &topology.upstreams);
    let found = futures::future::join_all(upstreams.map(Found::ask)).await;
    show::raw(match json {
        true => as_json(&file, &checked, &found),
        false => for_people(&file, &checked, &found),
    })?;
    Ok(match checked.topology {
        None => EXIT_USAGE,
        Some(_) if found.iter().all(|found| found.seen.is_ok()) => EXIT_ANSWERED,
        Some(_) => EXIT_FAILED,
    })
}

/// What one upstream says.
struct Found {
    id: String,
    /// The revision, and how many tools it has, or why neither is known.
    seen: Result<(String, usize), String>,
}

impl Found {
    async fn ask(upstream: &UpstreamDeclaration) -> Self {
        let asked = async {
            let wrong = |error: UpstreamError| CommandError::usage(error.why);
            let options = ClientOptions {
                listen: false,
                ..upstream.client_options().map_err(wrong)?
            };
            let server = Server::new(upstream.endpoint().map_err(wrong)?, options, WITHIN)?;
            let tools = server.list::<ListTools>("tools").await;
            let revision = server.revision().await;
            server.end().await;
            Ok((revision, tools?.len()))
        };
        let seen: Result<_, CommandError> = asked.await;
        Self {
            id: upstream.id.clone(),
            seen: seen.map_err(|error| error.message),
        }
    }

    fn as_json(&self) -> Value {
        match &self.seen {
            Ok((revision, tools)) => {
                json!({ "id": self.id, "era": era(revision), "revision": revision, "tools": tools })
            }
            Err(why) => json!({ "id": self.id, "why": why }),
        }
    }

    /// A line below others.
    fn in_words(&self, width: usize) -> String {
        let told = match &self.seen {
            Ok((revision, tools)) => format!(
                "{} era, {revision}, {}",
                era(revision),
                counted(*tools, "tool")
            ),
            Err(why) => format!("away: {why}"),
        };
        format!("\n  {:width$}  {told}", self.id)
    }
}

fn era(revision: &str) -> &'static str {
    if revision > Revision::LATEST_LEGACY.as_str() {
        "modern"
    } else {
        "legacy"
    }
}

fn as_json(file: &Path, checked: &Checked, found: &[Found]) -> String {
    let ok = checked.topology.is_some();
    let mut object =
        json!({ "file": file.display().to_string(), "ok": ok, "problems": checked.problems });
    if !found.is_empty() {
        object["upstreams"] = found.iter().map(Found::as_json).collect();
    }
    object.to_string()
}

/// Each mistake with the line that it is in, then how many there are.
fn for_people(file: &Path, checked: &Checked, found: &[Found]) -> String {
    let renderer = if stdout().is_terminal() {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let drawn = checked
        .problems
        .iter()
        .map(|problem| drawn(file, &checked.text, problem, &renderer) + "\n\n");
    let mut out: String = drawn.collect();
    let count = |level| {
        checked
            .problems
            .iter()
            .filter(|problem| problem.level == level)
            .count()
    };
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    out.push_str(&match &checked.topology {
        Some(topology) => format!(
            "{} can be used: {}, {}, {}, {}{}",
            file.display(),
            counted(topology.agents.len(), "agent"),
            counted(topology.upstreams.len(), "upstream"),
            counted(topology.servers.len(), "server"),
            counted(topology.listeners.len(), "listener"),
            if warnings > 0 {
                format!("; {}", counted(warnings, "warning"))
            } else {
                String::new()
            },
        ),
        None => {
            format!(
                "{} can't be used: {}, {}",
                file.display(),
                counted(errors, "error"),
                counted(warnings, "warning")
            )
        }
    });
    let width = found
        .iter()
        .map(|found| found.id.chars().count())
        .max()
        .unwrap_or_default();
    out.extend(found.iter().map(|found| found.in_words(width)));
    out
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The text with stars in place of what may be secret, byte for byte, so that places in it stay where they are: whoever is shown
/// a mistake may be looked over the shoulder, or be a log.
fn without_secrets(text: &str) -> String {
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
        // What only names the place of a secret is told.
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

fn drawn(file: &Path, text: &str, problem: &Problem, renderer: &Renderer) -> String {
    let heading = match problem.level {
        Level::Error => Heading::ERROR,
        Level::Warning => Heading::WARNING,
    };
    let path = file.display().to_string();
    let shown = without_secrets(text);
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
            let told = without_secrets(line);
            assert_eq!(told, shown);
            assert_eq!(told.len(), line.len(), "{line}");
        }
    }
}
