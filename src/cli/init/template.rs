//! Text of the topology files that `callboard init` writes.

use std::net::SocketAddr;

use super::plan::{
    EXAMPLE_SERVER, InitPlan, MAILROOM_ID, MemberNames, NodeContents, UpstreamSource,
};
use super::server_id::server_id;
use super::{CommandError, KEY_FILE};
use crate::cli::connect::location::own_program;

/// Example that is served as the first MCP server of a gateway.
const EXAMPLE: &str = "example:agent3";

/// Lines after the first, at the top of each file.
const USAGE: &str = "\
#   callboard check FILE    reports the mistakes in this file
#   callboard serve FILE    runs the node, and applies each later version of this file
# docs/topology.md describes all sections and keys.
";

/// Console, at the end of each file.
const CONSOLE: &str = "
# A page with the agents, calls and questions of the node, at http://127.0.0.1:9090. `callboard top` shows the same in a
# terminal. To have it, remove the # of the next line.
# [console]
";

/// Returns the text of the file.
///
/// # Errors
/// Fails if the path of this program is unknown, or isn't UTF-8.
pub(super) fn render(plan: &InitPlan) -> Result<String, CommandError> {
    let (first, second) = (plan.listen, plan.second_listen());
    Ok(match &plan.contents {
        NodeContents::Gateway { server } => {
            gateway(&quote(&server_id(server)), &server_keys(server)?, first)
        }
        NodeContents::Agents { agent } => agents(&quote(agent), first, second),
        NodeContents::Mail { members } => mail(members, first, second),
    })
}

/// Returns a text as TOML writes it.
fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Returns the lines that say where a server is.
fn server_keys(server: &UpstreamSource) -> Result<String, CommandError> {
    let command = |words: &[String]| {
        let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
        format!("command = [{}]", words.join(", "))
    };
    Ok(match server {
        UpstreamSource::Example => {
            let words = [this_program()?, "stdio".to_owned(), EXAMPLE.to_owned()];
            format!(
                "# {EXAMPLE}, which comes with callboard: it stands here until you name a server of yours.\n{}",
                command(&words)
            )
        }
        UpstreamSource::Command(words) => command(words),
        UpstreamSource::Url(url) => format!("url = {}", quote(url)),
    })
}

fn this_program() -> Result<String, CommandError> {
    let failed = |why: &str| {
        CommandError::failed(format_args!(
            "failed to find out the path of callboard for the server `{EXAMPLE_SERVER}`: {why}: name a server with --server"
        ))
    };
    let path = own_program().map_err(|error| failed(&error.to_string()))?;
    let path = path.into_os_string().into_string();
    path.map_err(|_| failed("it isn't UTF-8"))
}

fn gateway(server_id: &str, server_keys: &str, listen: SocketAddr) -> String {
    format!(
        "\
# A gateway before MCP servers, written by `callboard init`.
{USAGE}
# The node. Its tasks and its audit are stored in gateway.journal.sqlite, in the folder of this file.
[node]
name = \"gateway\"

# An MCP server. `command` is a program with its arguments, and `url = \"https://…\"` in its place a server elsewhere. It is
# started, or connected to, when a client uses it first.
[[upstream]]
id = {server_id}
{server_keys}
# Questions that the server may ask during a call. It may ask none without these lines.
# supports_sampling = true       # it may ask for a language model
# supports_elicitation = true    # it may ask the person at the client
# supports_roots = true          # it may ask for the client's folders

# A second server. With several, the names of tools begin with the id of the server: files__read_file.
# [[upstream]]
# id = \"files\"
# command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/path/to/a/folder\"]

# The address for MCP clients: http://{listen}/mcp. Only programs of this machine reach it, and it asks for no key. To
# have keys: `callboard keys --keys {KEY_FILE} add NAME`, and `keys = \"{KEY_FILE}\"` here.
[[listener]]
protocol = \"mcp\"
dialect = \"mcp\"
bind = \"{listen}\"
{CONSOLE}"
    )
}

fn agents(agent: &str, listen: SocketAddr, second: SocketAddr) -> String {
    format!(
        "\
# An agent for A2A and MCP clients, written by `callboard init`.
{USAGE}
# The node. Its tasks and its audit are stored in agents.journal.sqlite, in the folder of this file.
[node]
name = \"agents\"

# The agent. It answers a request by its own tools, by other agents, or by a plan of both. Without a model, rules decide,
# and answers that only a model can write are missing.
[[agent]]
kind = \"orchestrator\"
id = {agent}
# model = \"model\"
# agents = [\"server\"]

# A language model for the agent. To use it, remove the # of these lines and of `model` above, and set the environment
# variable ANTHROPIC_API_KEY. Other providers: openai, azure_openai, openai_compatible, ollama.
# [[agent]]
# kind = \"model\"
# id = \"model\"
# provider = \"anthropic\"
# model = \"claude-sonnet-4-5\"

# An MCP server whose tools the agent may use. To use it, remove the # of these lines and of `agents` above.
# [[upstream]]
# id = \"server\"
# command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-everything\"]

# The address for A2A clients, and for `callboard ask --to http://{listen}/a2a \"echo hello\"`. Only programs of this machine
# reach it, and it asks for no key. To have keys: `callboard keys --keys {KEY_FILE} add NAME`, and `keys = \"{KEY_FILE}\"` here.
[[listener]]
protocol = \"a2a\"
bind = \"{listen}\"
agent = {agent}

# The address for MCP clients: http://{second}/mcp.
[[listener]]
protocol = \"mcp\"
dialect = \"mcp\"
bind = \"{second}\"
agent = {agent}
{CONSOLE}"
    )
}

fn mail(members: &MemberNames, listen: SocketAddr, second: SocketAddr) -> String {
    let tables: Vec<_> = members
        .iter()
        .map(|member| format!("[[agent.member]]\nid = {}\n", quote(member)))
        .collect();
    let tables = tables.join("\n");
    format!(
        "\
# Mail between coding agents, written by `callboard init`.
{USAGE}
# The node. Mail and audit are stored in mail.journal.sqlite, in the folder of this file.
[node]
name = \"mail\"

# The mailroom stores messages between its members and delivers them.
[[agent]]
kind = \"mailroom\"
id = \"{MAILROOM_ID}\"

# The members. The key of each has its name: `callboard keys --keys {KEY_FILE} add NAME` makes one for a further member.
{tables}
# The address for programs and `callboard mail`: http://{listen}. A member gives its id in CALLBOARD_AGENT, its key in
# CALLBOARD_KEY and this address in CALLBOARD_MAIL.
[[listener]]
protocol = \"mail\"
bind = \"{listen}\"
agent = \"{MAILROOM_ID}\"
keys = \"{KEY_FILE}\"

# The address for Claude Code, Codex and other MCP clients: http://{second}/mcp, with the member's key as bearer token.
[[listener]]
protocol = \"mcp\"
dialect = \"mcp\"
bind = \"{second}\"
agent = \"{MAILROOM_ID}\"
keys = \"{KEY_FILE}\"
{CONSOLE}"
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use super::*;
    use crate::config::Topology;

    fn rendered(contents: NodeContents) -> String {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 3_001));
        render(&InitPlan { contents, listen }).unwrap()
    }

    /// Returns the file with the suggestions in its comments applied: a line that is a table or a key without its #.
    fn with_suggestions(text: &str) -> String {
        let is_key = |line: &str| {
            let word = line.split(' ').next().unwrap_or_default();
            let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            line.starts_with('[') || is_name && line[word.len()..].starts_with(" = ")
        };
        let lines = text.lines().map(|line| match line.strip_prefix("# ") {
            Some(rest) if is_key(rest) => rest,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Goal: each file is a topology, as it is and with all that its comments suggest. Method: each kind of node, and servers
    /// whose words need quotes.
    #[test]
    fn files_are_topologies() {
        let command = ["my server", "a\"b", "c\\d", "line\nbreak", "é'"];
        let command = command.map(str::to_owned).to_vec();
        let url = "https://host.example/mcp?a=\"b\"".to_owned();
        for contents in [
            NodeContents::Gateway {
                server: UpstreamSource::Example,
            },
            NodeContents::Gateway {
                server: UpstreamSource::Command(command.clone()),
            },
            NodeContents::Gateway {
                server: UpstreamSource::Url(url),
            },
            NodeContents::Agents {
                agent: "assistant".to_owned(),
            },
            NodeContents::Mail {
                members: MemberNames::default(),
            },
        ] {
            let text = rendered(contents);
            let whole = with_suggestions(&text);
            assert_ne!(text, whole);
            for text in [text, whole] {
                let topology = Topology::parse(&text, false, Path::new("/"));
                topology.unwrap_or_else(|error| panic!("{error}\n{text}"));
            }
        }
        let text = rendered(NodeContents::Gateway {
            server: UpstreamSource::Command(command.clone()),
        });
        let topology = Topology::parse(&text, false, Path::new("/")).unwrap();
        assert_eq!(topology.upstreams[0].command, command);
    }
}
