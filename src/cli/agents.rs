//! `callboard agents`: the agents of a topology file, or those that are served at an address.

use callboard_a2a::outbound::{A2aClient, A2aClientError, CALL_TIMEOUT_DEFAULT, CatalogEntry};
use callboard_a2a::wire::AgentCard;
use callboard_message::RawObject;
use serde::Serialize;
use url::Url;

use super::a2a::PeerArguments;
use super::address::Address;
use super::arguments::CredentialArguments;
use super::output::RowPrinter;
use super::{CommandError, CommandResult, EXIT_ANSWERED, mcp, serve};
use crate::config::Topology;
use crate::text::{first_line, strip_control_chars};

/// Columns of the list.
const COLUMNS: &str = "ID\tKIND\tDESCRIPTION\tURL";
/// Path of MCP on a listener, for addresses without a path.
const MCP_PATH: &str = "/mcp";

#[derive(Debug, clap::Args)]
pub(super) struct AgentsArguments {
    /// A topology file, `example:NAME`, or the address of a listener: a URL or HOST:PORT.
    #[arg(value_name = "FILE|ADDRESS")]
    target: Option<String>,
    /// Print one JSON object a line and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// Limit for the whole command.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    #[command(flatten)]
    old: MembersOptions,
}

/// Hidden options and arguments that this command had while it listed the members of a mailroom. If
/// one is given, the command fails with a hint to `callboard mail members`.
#[derive(Debug, clap::Args)]
struct MembersOptions {
    #[arg(hide = true)]
    id: Option<String>,
    #[arg(long, hide = true)]
    url: Option<String>,
    #[arg(long, hide = true)]
    topology: Option<String>,
    #[arg(long, hide = true)]
    state: Option<String>,
    #[arg(long = "as", hide = true)]
    agent: Option<String>,
}

impl MembersOptions {
    fn is_used(&self) -> bool {
        let Self {
            id,
            url,
            topology,
            state,
            agent,
        } = self;
        [id, url, topology, state, agent]
            .into_iter()
            .any(Option::is_some)
    }
}

/// An agent of the list.
#[derive(Debug, Serialize)]
struct AgentRow {
    id: String,
    /// Kind in the topology file; `a2a` or `mcp` for agents at an address.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Address of its agent card, or of the MCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl AgentRow {
    fn cells(&self) -> String {
        let cell = |text: Option<&str>| {
            let text = strip_control_chars(first_line(text.unwrap_or_default())).replace('\t', " ");
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        [
            Some(&*self.id),
            Some(&*self.kind),
            self.description.as_deref(),
            self.url.as_deref(),
        ]
        .map(cell)
        .join("\t")
    }
}

/// Runs the command.
pub(super) async fn run(arguments: AgentsArguments) -> CommandResult {
    let target = match (&arguments.target, arguments.old.is_used()) {
        (Some(target), false) => Address::parse(target)?,
        _ => {
            return Err(CommandError::usage(
                "`callboard agents` needs a topology file or an address. The members of a mailroom are listed by \
                 `callboard mail members`, the new name of what `callboard agents` did before",
            ));
        }
    };
    let rows = match target {
        Address::File(file) => declared_agents(&serve::load_topology(&file, None)?.topology),
        Address::Remote(typed) => served_agents(Address::remote_url(&typed), &arguments).await?,
    };
    let printer = RowPrinter::with_heading(arguments.json, COLUMNS)?;
    for row in &rows {
        printer.print_row(row, || row.cells())?;
    }
    Ok(EXIT_ANSWERED)
}

fn declared_agents(topology: &Topology) -> Vec<AgentRow> {
    let row = |id: &str, kind: &str| AgentRow {
        id: id.to_owned(),
        kind: kind.to_owned(),
        description: topology.description(id).map(str::to_owned),
        url: None,
    };
    let agents = topology
        .agents_and_upstreams()
        .map(|agent| row(agent.id(), agent.kind()));
    agents
        .chain(
            topology
                .servers
                .iter()
                .map(|server| row(&server.id, "server")),
        )
        .collect()
}

/// Lists the agents of the A2A catalogue at `url`; without one, the agent of the card there; without that, the MCP server there.
async fn served_agents(
    url: String,
    arguments: &AgentsArguments,
) -> Result<Vec<AgentRow>, CommandError> {
    let peer = PeerArguments::new(
        url.clone(),
        arguments.credentials.clone(),
        arguments.timeout,
    );
    let read = async |peer: &A2aClient| {
        if let Some(entries) = peer.catalog().await?.filter(|entries| !entries.is_empty()) {
            return Ok(Some(entries.into_iter().map(catalog_row).collect()));
        }
        match peer.public_card().await {
            Ok(found) => Ok(Some(vec![card_row(&found.card, found.url.as_str())])),
            Err(A2aClientError::CardNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    };
    if let Some(rows) = peer.run_with_peer(read).await? {
        return Ok(rows);
    }
    let url = mcp_url(&url)?;
    let about = mcp::describe_server(
        url.clone(),
        arguments.credentials.clone(),
        arguments.timeout,
    )
    .await;
    let about = about.map_err(|error| {
        CommandError::failed(format_args!(
            "{url}: there is no catalogue of agents, no agent card and no MCP server ({}). The members of a mailroom are \
             listed by `callboard mail members`",
            error.message
        ))
    })?;
    Ok(vec![mcp_row(&about, url)])
}

/// Returns the URL of the MCP server at an address: its own path, or [`MCP_PATH`] if it has none.
pub(super) fn mcp_url(typed: &str) -> Result<String, CommandError> {
    let mut url: Url = typed.parse().map_err(|_| {
        CommandError::usage(format_args!(
            "{typed:?} is not a URL: write http://HOST:PORT"
        ))
    })?;
    if url.path() == "/" {
        url.set_path(MCP_PATH);
    }
    Ok(url.to_string())
}

fn catalog_row(entry: CatalogEntry) -> AgentRow {
    let name = entry.display_name.filter(|name| *name != entry.id);
    AgentRow {
        id: entry.id,
        kind: "a2a".to_owned(),
        description: entry.description.or(name),
        url: entry.card_url,
    }
}

fn card_row(card: &AgentCard, url: &str) -> AgentRow {
    let description = Some(card.description.clone()).filter(|text| !text.is_empty());
    AgentRow {
        id: card.name.clone(),
        kind: "a2a".to_owned(),
        description,
        url: Some(url.to_owned()),
    }
}

fn mcp_row(about: &RawObject, url: String) -> AgentRow {
    let id = about
        .object("serverInfo")
        .and_then(|info| info.text("name"))
        .unwrap_or_default();
    AgentRow {
        id,
        kind: "mcp".to_owned(),
        description: about.text("instructions"),
        url: Some(url),
    }
}
