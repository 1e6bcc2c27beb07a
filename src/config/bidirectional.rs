//! Translation of a bidirectional agent's file into a topology: one orchestrator behind one A2A
//! listener.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use callboard_message::DataClass;
use callboard_models::{ModelConfig, RemoteModelConfig, ScriptedConfig};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use secrecy::SecretString;
use serde::Deserialize;

use super::ParsedDeclaration;
use super::address::WebUrl;
use super::decode::decode_as;
use super::kinds::{AgentDeclaration, EXECUTE_COMMAND, ModelDeclaration, OrchestratorDeclaration};
use super::listener::{AnonymousAccess, ListenerDeclaration};
use super::problem::{ProblemCollector, Severity};
use super::tree::{ConfigTree, ConfigValue, SpannedKey};

/// Default id of the agent.
pub const BIDIRECTIONAL_ID_DEFAULT: &str = "bidirectional-agent";
/// Default name of the agent.
pub const BIDIRECTIONAL_NAME_DEFAULT: &str = "Bidirectional A2A Agent";
/// Default port of the listener.
pub const BIDIRECTIONAL_PORT_DEFAULT: u16 = 8_080;
/// Default model, used if there is an API key.
pub const CLAUDE_MODEL_DEFAULT: &str = "claude-sonnet-4-5";
/// Environment variables for the API key; the first one set is used.
pub const CLAUDE_KEY_VARIABLES: [&str; 2] = ["CLAUDE_API_KEY", "ANTHROPIC_API_KEY"];
const MODEL_ID: &str = "claude";
/// Tables of a bidirectional agent's file, in addition to keys at its top level.
const SECTIONS: [&str; 6] = ["server", "client", "llm", "mode", "tools", "scripted"];
/// Tables any of which makes a file without `[node]` a bidirectional agent's file.
pub(super) const MARKER_SECTIONS: [&str; 3] = ["mode", "llm", "client"];
/// Switches, allowed at the top level, in `[mode]` and in `[llm]`.
const SWITCHES: [&str; 4] = [
    "experimental_clarification",
    "experimental_decomposition",
    "experimental_decompose",
    "max_risk",
];
/// Old and new name of a renamed switch.
const RENAMED_SWITCH: (&str, &str) = ("experimental_decompose", "experimental_decomposition");

/// REPL settings of a bidirectional agent's file.
#[derive(Debug, Clone, Default)]
pub struct ReplDeclaration {
    /// Whether the file is meant for the REPL. Default: true. `serve` ignores it.
    pub repl: bool,
    /// Log file of the REPL's input and output; `None` for no log.
    pub repl_log_file: Option<PathBuf>,
    /// Name in the prompt. Default: `agent`.
    pub prompt: Option<String>,
    /// URL of the agent to connect to at start; `None` for no connection.
    pub target_url: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ServerSection {
    port: Option<u16>,
    bind_address: Option<IpAddr>,
    anonymous: Option<AnonymousAccess>,
    agent_id: Option<String>,
    agent_name: Option<String>,
    agent_description: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ClientSection {
    target_url: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LlmSection {
    #[schemars(with = "Option<String>")]
    claude_api_key: Option<SecretString>,
    system_prompt: Option<String>,
    model: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ModeSection {
    repl: Option<bool>,
    repl_log_file: Option<PathBuf>,
    prompt: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ToolsSection {
    enabled: Option<Vec<String>>,
    agent_directory_path: Option<PathBuf>,
    agent_directory_allow: Vec<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct SwitchesSection {
    experimental_clarification: bool,
    experimental_decomposition: bool,
    max_risk: Option<f64>,
}

/// Declarations into which a bidirectional agent's file was translated.
pub(super) struct TranslatedTopology {
    pub(super) name: String,
    pub(super) mode: ReplDeclaration,
    pub(super) agents: Vec<ParsedDeclaration<Box<dyn AgentDeclaration>>>,
    pub(super) listener: ParsedDeclaration<ListenerDeclaration>,
}

/// Whether `root` is a bidirectional agent's file.
pub(super) fn is_bidirectional(root: &ConfigTree) -> bool {
    let has = |name: &&str| root.get(name).is_some();
    let port = root.at_path(&["server", "port"]).is_some();
    !has(&"node") && !has(&"external_mcp") && (port || MARKER_SECTIONS.iter().any(has))
}

/// Returns the schema of each of [`SECTIONS`], with its name.
pub(super) fn section_schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
    let schemas = [
        ServerSection::json_schema(generator),
        ClientSection::json_schema(generator),
        LlmSection::json_schema(generator),
        ModeSection::json_schema(generator),
        ToolsSection::json_schema(generator),
        ScriptedConfig::json_schema(generator),
    ];
    SECTIONS.into_iter().zip(schemas).collect()
}

/// Returns the schema of a table of the switches.
pub(super) fn switches_schema(generator: &mut SchemaGenerator) -> Schema {
    SwitchesSection::json_schema(generator)
}

/// Whether a bidirectional agent's file may have this key at its top level.
pub(super) fn is_known_section(name: &str) -> bool {
    SECTIONS.contains(&name) || SWITCHES.contains(&name)
}

fn repl_declaration(mode: ModeSection, client: ClientSection, folder: &Path) -> ReplDeclaration {
    ReplDeclaration {
        repl: mode.repl.unwrap_or(true),
        repl_log_file: mode.repl_log_file.map(|file| folder.join(file)),
        prompt: mode.prompt,
        target_url: client.target_url,
    }
}

/// Returns `defaults` with the agent's name and description and the switches of the file.
fn with_description(
    defaults: OrchestratorDeclaration,
    server: ServerSection,
    switches: &SwitchesSection,
) -> OrchestratorDeclaration {
    let name = server.agent_name;
    OrchestratorDeclaration {
        name: name.or_else(|| Some(BIDIRECTIONAL_NAME_DEFAULT.to_owned())),
        description: server.agent_description,
        clarification: switches.experimental_clarification,
        decomposition: switches.experimental_decomposition,
        max_risk: switches.max_risk,
        class: DataClass::Personal,
        ..defaults
    }
}

/// Translates the file, and removes the translated sections from `root`. Returns `None` after
/// problems that prevent it.
pub(super) fn translate(
    root: &mut ConfigTree,
    folder: &Path,
    problems: &mut ProblemCollector<'_>,
) -> Option<TranslatedTopology> {
    let fingerprint = root.fingerprint();
    let mut switches = collect_switches(root, problems);
    let mut take = |name: &str| {
        root.take(name)
            .map_or_else(ConfigTree::empty, |(_, tree)| tree)
    };
    let [mut server, mut client, mut llm, mut mode, mut tools] =
        ["server", "client", "llm", "mode", "tools"].map(&mut take);
    let scripted = root.take("scripted").map(|(_, tree)| tree);
    let parts = (
        decode_as::<ServerSection>(&mut server, "[server]", Severity::Warning, problems),
        decode_as::<ClientSection>(&mut client, "[client]", Severity::Warning, problems),
        decode_as::<LlmSection>(&mut llm, "[llm]", Severity::Warning, problems),
        decode_as::<ModeSection>(&mut mode, "[mode]", Severity::Warning, problems),
        decode_as::<ToolsSection>(&mut tools, "[tools]", Severity::Warning, problems),
        decode_as::<SwitchesSection>(&mut switches, "the switches", Severity::Warning, problems),
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
    let model = model_config(&llm_said, &llm, scripted, problems);
    let is_for_repl = mode.repl.unwrap_or(true);
    let listener = listener_declaration(&server_said, &server, &id, is_for_repl, problems);
    let mut defaults = ConfigTree::table_of_texts(&server.span, [("id", &id)]);
    let defaults = decode_as(
        &mut defaults,
        "an orchestrator",
        Severity::Warning,
        problems,
    )?;
    let declared = OrchestratorDeclaration {
        model: model.as_ref().map(|_| MODEL_ID.to_owned()),
        system_prompt: llm_said.system_prompt,
        ..with_description(defaults, server_said, &switched)
    };
    let mut declared = enable_tools(declared, tools_said, &tools, problems);
    declared.resolve_paths(folder);
    let tree = orchestrator_tree(&server, &tools, &switches);
    let entry = |value: Box<dyn AgentDeclaration>, tree| ParsedDeclaration {
        value,
        tree,
        fingerprint,
    };
    let model = model.map(|config| {
        let id = MODEL_ID.to_owned();
        entry(Box::new(ModelDeclaration { id, config }), llm)
    });
    let orchestrator = entry(Box::new(declared), tree);
    Some(TranslatedTopology {
        name: id,
        mode: repl_declaration(mode, client, folder),
        agents: model.into_iter().chain([orchestrator]).collect(),
        listener: ParsedDeclaration {
            value: listener,
            tree: server,
            fingerprint,
        },
    })
}

/// Collects the switches from all places into one table. Reports contradictions.
fn collect_switches(root: &mut ConfigTree, problems: &mut ProblemCollector<'_>) -> ConfigTree {
    let mut found: Vec<(SpannedKey, ConfigTree)> = Vec::new();
    let places = [None, Some("mode"), Some("llm")];
    for place in places {
        for name in SWITCHES {
            let section = match place {
                None => Some(&mut *root),
                Some(section) => root.child_mut(&super::tree::PathStep::Key(section.to_owned())),
            };
            let Some((mut key, value)) = section.and_then(|section| section.take(name)) else {
                continue;
            };
            if name == RENAMED_SWITCH.0 {
                let message = format!("`{}` is called `{}`", RENAMED_SWITCH.0, RENAMED_SWITCH.1);
                problems.warning(Some(key.span.clone()), message);
                key.name = RENAMED_SWITCH.1.to_owned();
            }
            match found.iter().find(|(other, _)| other.name == key.name) {
                Some((other, same)) if same.fingerprint() != value.fingerprint() => {
                    let message = format!("`{}` is set twice, with different values", other.name);
                    problems.error(Some(key.span), message);
                }
                Some(_) => {}
                None => found.push((key, value)),
            }
        }
    }
    ConfigTree::new(0..0, ConfigValue::Table(found))
}

/// Returns the declaration of the model: scripted answers if there are some, or Claude if there is
/// an API key. `None` without one, or after a problem was reported.
fn model_config(
    said: &LlmSection,
    llm: &ConfigTree,
    scripted: Option<ConfigTree>,
    problems: &mut ProblemCollector<'_>,
) -> Option<ModelConfig> {
    if let Some(mut tree) = scripted {
        return decode_as::<ScriptedConfig>(&mut tree, "[scripted]", Severity::Warning, problems)
            .map(ModelConfig::Scripted);
    }
    let mut remote = RemoteModelConfig::new(
        said.model
            .clone()
            .unwrap_or_else(|| CLAUDE_MODEL_DEFAULT.to_owned()),
    );
    match &said.claude_api_key {
        Some(key) => {
            let help = format!("set the variable {} in its place", CLAUDE_KEY_VARIABLES[0]);
            let message = "the API key stands in this file, and whoever reads the file has it";
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

fn listener_declaration(
    said: &ServerSection,
    server: &ConfigTree,
    id: &str,
    is_for_repl: bool,
    problems: &mut ProblemCollector<'_>,
) -> ListenerDeclaration {
    let port = said.port.unwrap_or(BIDIRECTIONAL_PORT_DEFAULT);
    let address = said.bind_address.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let mut listener = ListenerDeclaration::a2a_default(SocketAddr::new(address, port));
    listener.agent = Some(id.to_owned());
    listener.open = said.anonymous == Some(AnonymousAccess::Guest);
    if matches!(said.anonymous, Some(access) if access != AnonymousAccess::Guest) {
        let message = "this file has no keys, so `anonymous` can only be \"guest\"";
        problems.error(server.span_of("anonymous"), message.to_owned());
    } else if !address.is_loopback() && listener.open {
        let message =
            format!("anybody who reaches {address} may use this agent: nobody needs a key");
        let help = "write 127.0.0.1, or declare a [[listener]] with `keys` in a file with a [node]"
            .to_owned();
        problems.warning_with(server.span_of("bind_address"), message, Some(help));
    } else if !address.is_loopback() {
        let message =
            format!("{address} is not a loopback address, and nobody would need a key there");
        let span = server.span_of("bind_address");
        // The REPL asks for the word when it is to listen.
        if is_for_repl {
            let help = "type `:listen PORT --anonymous`, write `anonymous = \"guest\"` for `serve`, or 127.0.0.1";
            problems.warning_with(span, message, Some(help.to_owned()));
        } else {
            let help = "write `anonymous = \"guest\"` if anybody may use this agent, or 127.0.0.1";
            problems.error_with(span, message, Some(help.to_owned()));
        }
    }
    if address.is_unspecified() {
        listener.public_url = WebUrl::try_from(format!("http://localhost:{port}")).ok();
    }
    listener
}

fn enable_tools(
    mut declared: OrchestratorDeclaration,
    said: ToolsSection,
    tools: &ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> OrchestratorDeclaration {
    if let Some(mut enabled) = said.enabled {
        if enabled.iter().any(|tool| tool == EXECUTE_COMMAND) {
            let help = "declare an [[agent]] of the kind \"orchestrator\" with [agent.command] in a file with a [node]";
            let message = format!(
                "`{EXECUTE_COMMAND}` stays off: this file can't say which programs it may run"
            );
            problems.warning_with(tools.span_of("enabled"), message, Some(help.to_owned()));
            enabled.retain(|tool| tool != EXECUTE_COMMAND);
        }
        declared.tools = enabled;
    }
    declared.registry.import = said.agent_directory_path;
    declared.registry.allow = said.agent_directory_allow;
    declared
}

/// Returns the tree of the orchestrator's keys, with their positions in the file.
fn orchestrator_tree(server: &ConfigTree, tools: &ConfigTree, switches: &ConfigTree) -> ConfigTree {
    let names = [
        ("id", server.get("agent_id")),
        ("name", server.get("agent_name")),
        ("tools", tools.get("enabled")),
        ("max_risk", switches.get("max_risk")),
    ];
    let member = |(name, tree): (&str, Option<&ConfigTree>)| {
        let tree = tree?.clone();
        Some((
            SpannedKey {
                span: tree.span.clone(),
                name: name.to_owned(),
            },
            tree,
        ))
    };
    ConfigTree::new(
        server.span.clone(),
        ConfigValue::Table(names.into_iter().filter_map(member).collect()),
    )
}
