//! `callboard policy`: which rule decides whether somebody may use something.

use std::path::{Path, PathBuf};

use callboard_message::{Principal, PrincipalKind, RawObject};
use callboard_rpc::KeyStore;
use callboard_runtime::{AccessDecision, AccessItem, AccessTarget};
use clap::Subcommand;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::output::{self, RowPrinter};
use super::{CommandError, CommandResult, EXIT_ANSWERED, EXIT_BLOCKED};
use crate::config::{AgentDeclaration, Topology};

/// Columns of the explanation.
const COLUMNS: &str = "AGENT\tVERDICT\tREASON";

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Say which rule decides whether a principal may use an agent, tool, resource or prompt. Exit code: 0 permitted,
    /// 2 usage, 3 denied.
    Explain(ExplainArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArguments {
    /// Topology file with the rules (TOML or YAML).
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
    /// Principal: the name of a key of the file's listeners, which has the scopes of the key file, or kind and id, such as
    /// token:corp.alice or anonymous:anonymous.
    #[arg(long = "as", value_name = "WHO")]
    who: String,
    /// Scope of the principal, beside those of its key. May be repeated.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Purpose that the principal states.
    #[arg(long)]
    purpose: Option<String>,
    /// Agent or upstream. Without it, each of the file, also those that don't have the tool, resource or prompt: no agent is
    /// asked what it has.
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Tool, by the name that the agent itself gives it.
    #[arg(long, conflicts_with_all = ["resource", "prompt"])]
    tool: Option<String>,
    /// Argument of the tool: a JSON value, or a text. May be repeated. Without any, the tool's place in lists is explained.
    #[arg(long = "arg", value_name = "NAME=VALUE", requires = "tool", value_parser = parse_argument)]
    arguments: Vec<(String, Value)>,
    /// Resource, by its URI.
    #[arg(long, value_name = "URI", conflicts_with = "prompt")]
    resource: Option<String>,
    /// Prompt, by its name.
    #[arg(long)]
    prompt: Option<String>,
    /// Print one JSON object for each agent and nothing else.
    #[arg(long)]
    json: bool,
}

/// Runs `callboard policy`.
pub(super) fn run(PolicyCommand::Explain(asked): PolicyCommand) -> CommandResult {
    let topology = Topology::read(&asked.topology)?;
    let principal = principal(&asked, &topology)?;
    let arguments = (!asked.arguments.is_empty()).then(|| {
        let members = asked.arguments.iter();
        members
            .fold(RawObject::new(), |object, (name, value)| {
                object.with(name, value)
            })
            .to_raw()
    });
    let agents = match &asked.agent {
        Some(agent) if topology.agents_and_upstreams().any(|it| it.id() == agent) => vec![&**agent],
        Some(agent) => {
            return Err(CommandError::usage(format!(
                "no agent or upstream of {} is called {agent} (a virtual server is judged by its members)",
                asked.topology.display()
            )));
        }
        None => topology
            .agents_and_upstreams()
            .map(AgentDeclaration::id)
            .collect(),
    };
    let rules = topology.access_rules();
    let printer = RowPrinter::with_heading(asked.json, COLUMNS)?;
    let mut is_any_permitted = false;
    for agent in agents {
        let target = AccessTarget {
            agent,
            item: item(&asked, arguments.as_deref()),
        };
        let decision = match &rules {
            Some(rules) => rules.decide(&principal, &target),
            None => AccessDecision {
                is_permitted: true,
                approval: None,
                rule: None,
            },
        };
        is_any_permitted |= decision.is_permitted;
        let why = reason(&decision, rules.is_some());
        let object = json!({
            "agent": agent, "permitted": decision.is_permitted, "rule": decision.rule,
            "approvers": decision.approval.map(|terms| &terms.approvers),
            "why": why,
        });
        printer.print_row(&object, || {
            let verdict = if decision.is_permitted {
                "permitted"
            } else {
                "denied"
            };
            format!("{agent}\t{verdict}\t{why}")
        })?;
    }
    if asked.agent.is_none() && !asked.json {
        print_unchecked(&asked);
    }
    Ok(match is_any_permitted {
        true => EXIT_ANSWERED,
        false => EXIT_BLOCKED,
    })
}

/// Notes that the listed agents weren't asked whether they have the tool, resource or prompt.
fn print_unchecked(asked: &ExplainArguments) {
    let mut items = [
        ("tool", &asked.tool),
        ("resource", &asked.resource),
        ("prompt", &asked.prompt),
    ]
    .into_iter();
    if let Some((kind, Some(name))) = items.find(|(_, name)| name.is_some()) {
        output::print_note(format_args!(
            "agents without the {kind} `{name}` are listed too, because none is asked what it has: name one with --agent"
        ));
    }
}

fn reason(decision: &AccessDecision<'_>, has_rules: bool) -> String {
    let approval = decision.approval.map(|terms| match &terms.approvers[..] {
        _ if !decision.is_permitted => ", as clinical data isn't kept for approvers".to_owned(),
        [] => ", after an approval by the person at the caller".to_owned(),
        scopes => format!(", after an approval by {}", scopes.join(" or ")),
    });
    match (decision.rule, decision.is_permitted) {
        (Some(rule), _) => format!("by the rule {rule}{}", approval.unwrap_or_default()),
        (None, _) if !has_rules => "the file has no rules".to_owned(),
        (None, true) => "rules don't bind it".to_owned(),
        (None, false) => "no rule applies".to_owned(),
    }
}

fn item<'a>(asked: &'a ExplainArguments, arguments: Option<&'a RawValue>) -> AccessItem<'a> {
    match (&asked.tool, &asked.resource, &asked.prompt) {
        (Some(tool), ..) => AccessItem::Tool {
            name: tool.into(),
            arguments,
        },
        (_, Some(uri), _) => AccessItem::Resource(uri.into()),
        (_, _, Some(name)) => AccessItem::Prompt(name.into()),
        (None, None, None) => AccessItem::Agent,
    }
}

/// Returns the principal that is asked about.
///
/// # Errors
/// Usage error if it is no kind and id, and no key.
fn principal(asked: &ExplainArguments, topology: &Topology) -> Result<Principal, CommandError> {
    let named = asked.who.split_once(':');
    let named = named.and_then(|(kind, id)| Some((PrincipalKind::parse(kind)?, id)));
    let (kind, id, mut scopes) = match named {
        Some((kind, id)) => (kind, id.to_owned(), Vec::new()),
        None => {
            let mut files = topology.listeners.iter();
            let mut key = None;
            while let (None, Some(listener)) = (&key, files.next()) {
                if let Some(file) = &listener.keys {
                    key = find_key(file, &asked.who)?;
                }
            }
            let (id, scopes) = key.ok_or_else(|| {
                CommandError::usage(format!(
                    "no key of the listeners is called {}: write kind and id, such as token:corp.alice",
                    asked.who
                ))
            })?;
            (PrincipalKind::ApiKey, id, scopes)
        }
    };
    scopes.extend(asked.scope.iter().cloned());
    Ok(Principal {
        id,
        kind,
        scopes,
        purpose: asked.purpose.clone(),
    })
}

/// Returns id and scopes of the principal of a key; `None` if the file lacks it.
fn find_key(file: &Path, name: &str) -> Result<Option<(String, Vec<String>)>, CommandError> {
    let keys = KeyStore::load(file)?;
    let key = keys.list().iter().find(|key| key.name == name);
    Ok(key.map(|key| (key.principal_id().to_owned(), key.scopes.clone())))
}

/// Parses an argument of a tool.
fn parse_argument(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, for example path=/tmp/x")?;
    let parsed = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), parsed))
}
