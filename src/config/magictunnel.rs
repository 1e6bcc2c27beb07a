//! Translation of MagicTunnel's `external_mcp` section into upstreams and routing.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::decode::decode_as;
use super::problem::{ProblemCollector, Severity};
use super::tree::{ConfigTree, ConfigValue, SpannedKey};
use super::yes;

/// Node name of a MagicTunnel file that states none.
pub(super) const NAME_DEFAULT: &str = "magictunnel";
/// Address of the listener of a MagicTunnel file that declares none.
const BIND_DEFAULT: &str = "127.0.0.1:3001";

/// Keys of the section that are neither the servers nor their routing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExternalSwitches {
    /// Whether the servers are used.
    #[serde(default = "yes")]
    enabled: bool,
}

/// The translated section.
#[derive(Default)]
pub(super) struct ExternalTopology {
    /// Tables of `[[upstream]]`.
    pub(super) upstreams: Vec<ConfigTree>,
    /// Translated sections by name, such as `routing`. A file that also declares one itself is in
    /// error.
    pub(super) tables: HashMap<&'static str, ConfigTree>,
    /// Entries for list sections by name, such as `listener`. Each is used only if the file doesn't
    /// declare that section itself.
    pub(super) list_defaults: HashMap<&'static str, ConfigTree>,
}

/// Translates `external_mcp`. Servers get `dialect = "magictunnel"` unless they declare another.
pub(super) fn translate(
    mut tree: ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> ExternalTopology {
    const WHAT: &str = "`external_mcp`";
    let mut translated = ExternalTopology {
        upstreams: Vec::new(),
        tables: HashMap::new(),
        list_defaults: HashMap::from([("listener", default_listener())]),
    };
    if !matches!(tree.value, ConfigValue::Table(_)) {
        problems.error(Some(tree.span), format!("{WHAT} must be a table"));
        return translated;
    }
    let servers = tree.take("servers");
    let routing = tree.take("external_routing");
    let switches = decode_as::<ExternalSwitches>(&mut tree, WHAT, Severity::Warning, problems);
    if switches.is_some_and(|switches| !switches.enabled) {
        return translated;
    }
    let routing = routing.map(|(_, routing)| ("routing", routing));
    translated.tables.extend(routing);
    let Some((_, servers)) = servers else {
        return translated;
    };
    let ConfigValue::Table(servers) = servers.value else {
        problems.error(
            Some(servers.span),
            "`servers` must be a table, its keys the servers' names",
        );
        return translated;
    };
    translated.upstreams = servers
        .into_iter()
        .filter_map(|(name, server)| upstream_tree(name, server, problems))
        .collect();
    translated
}

fn upstream_tree(
    name: SpannedKey,
    mut server: ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<ConfigTree> {
    let ConfigValue::Table(members) = &mut server.value else {
        problems.error(
            Some(server.span),
            format!("the server `{}` must be a table", name.name),
        );
        return None;
    };
    if let Some((key, _)) = members.iter().find(|(key, _)| key.name == "id") {
        problems.error(
            Some(key.span.clone()),
            "a server has no key `id`: its name is the key that it stands under",
        );
        members.retain(|(key, _)| key.name != "id");
    }
    let ConfigTree {
        value: ConfigValue::Table(mut all),
        ..
    } = ConfigTree::table_of_texts(&name.span, [("id", &name.name), ("dialect", "magictunnel")])
    else {
        return None;
    };
    all.retain(|(key, _)| !members.iter().any(|(other, _)| other.name == key.name));
    members.splice(..0, all);
    Some(server)
}

/// Returns the listener of a file that declares none.
fn default_listener() -> ConfigTree {
    ConfigTree::table_of_texts(
        &(0..0),
        [
            ("protocol", "mcp"),
            ("dialect", "mcp"),
            ("bind", BIND_DEFAULT),
        ],
    )
}
