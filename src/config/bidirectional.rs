//! The bidirectional agent's file, read as a topology: one orchestrator behind one listener.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use callboard_message::DataClass;
use callboard_models::{ModelConfig, Remote, ScriptedConfig};
use secrecy::SecretString;
use serde::Deserialize;

use super::Entry;
use super::address::WebUrl;
use super::decode::decode_as;
use super::kinds::{AgentKind, EXECUTE_COMMAND, ModelDeclaration, OrchestratorDeclaration};
use super::listener::Listener;
use super::problem::{Level, Problems};
use super::tree::{Key, Tree, Value};

/// The agent's id where the file has none.
pub const BIDIRECTIONAL_ID_DEFAULT: &str = "bidirectional-agent";
/// Its name where the file has none.
pub const BIDIRECTIONAL_NAME_DEFAULT: &str = "Bidirectional A2A Agent";
/// Where it listens where the file doesn't say.
pub const BIDIRECTIONAL_PORT_DEFAULT: u16 = 8_080;
/// The model of a file that has a key.
pub const CLAUDE_MODEL_DEFAULT: &str = "claude-sonnet-4-5";
/// The variables that may hold its key, the first that is set.
pub const CLAUDE_KEY_VARIABLES: [&str; 2] = ["CLAUDE_API_KEY", "ANTHROPIC_API_KEY"];
/// The id of its model.
const MODEL_ID: &str = "claude";
/// The sections of such a file, beside those at the top level.
const SECTIONS: [&str; 6] = ["server", "client", "llm", "mode", "tools", "scripted"];
/// What tells it from others: one of these, and no `[node]`.
const SIGNS: [&str; 3] = ["mode", "llm", "client"];
/// Switches, which may stand at the top level, in `[mode]` or in `[llm]`.
const SWITCHES: [&str; 4] = [
    "experimental_clarification",
    "experimental_decomposition",
    "experimental_decompose",
    "max_risk",
];
/// The old name of one of them, and the one that it has.
const RENAMED: (&str, &str) = ("experimental_decompose", "experimental_decomposition");

/// How such a file's agent is talked to by a person.
#[derive(Debug, Clone, Default)]
pub struct ModeDeclaration {
    /// Whether that is what the file is for; `serve` doesn't care.
    pub repl: bool,
    /// Where what was typed and printed is kept.
    pub repl_log_file: Option<PathBuf>,
    /// The word of the prompt.
    pub prompt: Option<String>,
    /// The agent to connect to at the start.
    pub target_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Server {
    port: Option<u16>,
    bind_address: Option<IpAddr>,
    agent_id: Option<String>,
    agent_name: Option<String>,
    agent_description: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Client {
    target_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Llm {
    claude_api_key: Option<SecretString>,
    system_prompt: Option<String>,
    model: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Mode {
    repl: Option<bool>,
    repl_log_file: Option<PathBuf>,
    prompt: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tools {
    enabled: Option<Vec<String>>,
    agent_directory_path: Option<PathBuf>,
    agent_directory_allow: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Switches {
    experimental_clarification: bool,
    experimental_decomposition: bool,
    max_risk: Option<f64>,
}

/// The same in our words.
pub(super) struct Translated {
    pub(super) name: String,
    pub(super) mode: ModeDeclaration,
    pub(super) agents: Vec<Entry<Box<dyn AgentKind>>>,
    pub(super) listener: Entry<Listener>,
}

/// Whether it is such a file.
pub(super) fn is_one(root: &Tree) -> bool {
    let has = |name: &&str| root.get(name).is_some();
    let port = root.at(&["server", "port"]).is_some();
    !has(&"node") && !has(&"external_mcp") && (port || SIGNS.iter().any(has))
}

/// The names that such a file may have at its top level.
pub(super) fn is_known(name: &str) -> bool {
    SECTIONS.contains(&name) || SWITCHES.contains(&name)
}

/// Takes what it says out of `root`. `None` where it can't be read; that is reported.
pub(super) fn translate(
    root: &mut Tree,
    folder: &Path,
    problems: &mut Problems<'_>,
) -> Option<Translated> {
    let fingerprint = root.fingerprint();
    let mut switches = switches(root, problems);
    let mut take = |name: &str| root.take(name).map_or_else(Tree::empty, |(_, tree)| tree);
    let [mut server, mut client, mut llm, mut mode, mut tools] =
        ["server", "client", "llm", "mode", "tools"].map(&mut take);
    let scripted = root.take("scripted").map(|(_, tree)| tree);
    let parts = (
        decode_as::<Server>(&mut server, "[server]", Level::Warning, problems),
        decode_as::<Client>(&mut client, "[client]", Level::Warning, problems),
        decode_as::<Llm>(&mut llm, "[llm]", Level::Warning, problems),
        decode_as::<Mode>(&mut mode, "[mode]", Level::Warning, problems),
        decode_as::<Tools>(&mut tools, "[tools]", Level::Warning, problems),
        decode_as::<Switches>(&mut switches, "the switches", Level::Warning, problems),
    );
    let (
        Some(server_said),
        Some(client),
        Some(llm_said),
        Some(mode),
        Some(tools_said),
        Some(switched),
    ) = parts
    else {
        return None;
    };
    let id = server_said
        .agent_id
        .clone()
        .unwrap_or_else(|| BIDIRECTIONAL_ID_DEFAULT.to_owned());
    let model = model(&llm_said, &llm, scripted, problems);
    let listener = listener(&server_said, &server, &id, problems);
    let mut defaults = Tree::of_texts(&server.span, [("id", &id)]);
    let declared = OrchestratorDeclaration {
        name: Some(
            server_said
                .agent_name
                .unwrap_or_else(|| BIDIRECTIONAL_NAME_DEFAULT.to_owned()),
        ),
        description: server_said.agent_description,
        model: model.as_ref().map(|_| MODEL_ID.to_owned()),
        clarification: switched.experimental_clarification,
        decomposition: switched.experimental_decomposition,
        max_risk: switched.max_risk,
        system_prompt: llm_said.system_prompt,
        class: DataClass::Personal,
        ..decode_as(&mut defaults, "an orchestrator", Level::Warning, problems)?
    };
    let mut declared = enabled(declared, tools_said, &tools, problems);
    declared.resolve(folder);
    let tree = as_ours(&server, &tools, &switches);
    let entry = |value: Box<dyn AgentKind>, tree| Entry {
        value,
        tree,
        fingerprint,
    };
    let model = model.map(|config| {
        entry(
            Box::new(ModelDeclaration {
                id: MODEL_ID.to_owned(),
                config,
            }),
            llm,
        )
    });
    let orchestrator = entry(Box::new(declared), tree);
    Some(Translated {
        name: id,
        mode: ModeDeclaration {
            repl: mode.repl.unwrap_or(true),
            repl_log_file: mode.repl_log_file.map(|file| folder.join(file)),
            prompt: mode.prompt,
            target_url: client.target_url,
        },
        agents: model.into_iter().chain([orchestrator]).collect(),
        listener: Entry {
            value: listener,
            tree: server,
            fingerprint,
        },
    })
}

/// The switches from wherever they stand, as one table.
fn switches(root: &mut Tree, problems: &mut Problems<'_>) -> Tree {
    let mut found: Vec<(Key, Tree)> = Vec::new();
    let places = [None, Some("mode"), Some("llm")];
    for place in places {
        for name in SWITCHES {
            let section = match place {
                None => Some(&mut *root),
                Some(section) => root.step_mut(&super::tree::Step::Key(section.to_owned())),
            };
            let Some((mut key, value)) = section.and_then(|section| section.take(name)) else {
                continue;
            };
            if name == RENAMED.0 {
                let message = format!("`{}` is called `{}`", RENAMED.0, RENAMED.1);
                problems.warning(Some(key.span.clone()), message);
                key.name = RENAMED.1.to_owned();
            }
            match found.iter().find(|(other, _)| other.name == key.name) {
                Some((other, same)) if same.fingerprint() != value.fingerprint() => {
                    let message = format!("`{}` is there twice, with different values", other.name);
                    problems.error(Some(key.span), message);
                }
                Some(_) => {}
                None => found.push((key, value)),
            }
        }
    }
    Tree::new(0..0, Value::Table(found))
}

/// The model that answers: written answers, or Claude where there is a key.
fn model(
    said: &Llm,
    llm: &Tree,
    scripted: Option<Tree>,
    problems: &mut Problems<'_>,
) -> Option<ModelConfig> {
    if let Some(mut tree) = scripted {
        return decode_as::<ScriptedConfig>(&mut tree, "[scripted]", Level::Warning, problems)
            .map(ModelConfig::Scripted);
    }
    let mut remote = Remote::new(
        said.model
            .clone()
            .unwrap_or_else(|| CLAUDE_MODEL_DEFAULT.to_owned()),
    );
    match &said.claude_api_key {
        Some(key) => {
            let help = format!("set the variable {} in its place", CLAUDE_KEY_VARIABLES[0]);
            let message = "whoever reads this file has the key";
            problems.warning_with(llm.key_span("claude_api_key"), message, Some(help));
            remote.key = Some(key.clone());
        }
        None => {
            let is_set = |name: &&str| std::env::var_os(name).is_some_and(|key| !key.is_empty());
            remote.key_env = Some(CLAUDE_KEY_VARIABLES.into_iter().find(is_set)?.to_owned());
        }
    }
    Some(ModelConfig::Anthropic(remote))
}

fn listener(said: &Server, server: &Tree, id: &str, problems: &mut Problems<'_>) -> Listener {
    let port = said.port.unwrap_or(BIDIRECTIONAL_PORT_DEFAULT);
    let address = said.bind_address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let mut listener = Listener::a2a(SocketAddr::new(address, port));
    listener.agent = Some(id.to_owned());
    if !address.is_loopback() {
        let message =
            format!("anybody who reaches {address} may use this agent: nobody needs a key");
        let help = "write 127.0.0.1, or declare a [[listener]] with `keys` in a file with a [node]"
            .to_owned();
        problems.warning_with(server.place("bind_address"), message, Some(help));
        listener.open = true;
    }
    if address.is_unspecified() {
        listener.public_url = WebUrl::try_from(format!("http://localhost:{port}")).ok();
    }
    listener
}

fn enabled(
    mut declared: OrchestratorDeclaration,
    said: Tools,
    tools: &Tree,
    problems: &mut Problems<'_>,
) -> OrchestratorDeclaration {
    if let Some(mut enabled) = said.enabled {
        if enabled.iter().any(|tool| tool == EXECUTE_COMMAND) {
            let help = "declare an [[agent]] of the kind \"orchestrator\" with [agent.command] in a file with a [node]";
            let message = format!(
                "`{EXECUTE_COMMAND}` stays off: this file can't say which programs it may run"
            );
            problems.warning_with(tools.place("enabled"), message, Some(help.to_owned()));
            enabled.retain(|tool| tool != EXECUTE_COMMAND);
        }
        declared.tools = enabled;
    }
    declared.directory.import = said.agent_directory_path;
    declared.directory.allow = said.agent_directory_allow;
    declared
}

/// Where what was said of the orchestrator stands, by our names for it.
fn as_ours(server: &Tree, tools: &Tree, switches: &Tree) -> Tree {
    let names = [
        ("id", server.get("agent_id")),
        ("name", server.get("agent_name")),
        ("tools", tools.get("enabled")),
        ("max_risk", switches.get("max_risk")),
    ];
    let member = |(name, tree): (&str, Option<&Tree>)| {
        let tree = tree?.clone();
        Some((
            Key {
                span: tree.span.clone(),
                name: name.to_owned(),
            },
            tree,
        ))
    };
    Tree::new(
        server.span.clone(),
        Value::Table(names.into_iter().filter_map(member).collect()),
    )
}
