//! MagicTunnel's `external_mcp:`, read as upstreams and routing.

use serde::Deserialize;

use super::decode::decode_as;
use super::problem::{Level, Problems};
use super::tree::{Key, Tree, Value};
use super::yes;

/// The node's name where such a file has no `node`.
pub(super) const NAME_DEFAULT: &str = "magictunnel";
/// Where such a file listens that declares no listener.
const BIND_DEFAULT: &str = "127.0.0.1:3001";

/// The switches; what else is in it are trees.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExternalSwitches {
    #[serde(default = "yes")]
    enabled: bool,
}

/// The same in our words.
pub(super) struct ExternalTopology {
    /// As of `[[upstream]]`.
    pub(super) upstreams: Vec<Tree>,
    /// As `[routing]`.
    pub(super) routing: Option<Tree>,
}

/// Reads `external_mcp`. Its servers speak the dialect of MagicTunnel unless they say otherwise.
pub(super) fn translate(mut tree: Tree, problems: &mut Problems<'_>) -> ExternalTopology {
    const WHAT: &str = "`external_mcp`";
    let mut translated = ExternalTopology {
        upstreams: Vec::new(),
        routing: None,
    };
    if !matches!(tree.value, Value::Table(_)) {
        problems.error(Some(tree.span), format!("{WHAT} must be a table"));
        return translated;
    }
    let servers = tree.take("servers");
    let routing = tree.take("external_routing");
    let switches = decode_as::<ExternalSwitches>(&mut tree, WHAT, Level::Warning, problems);
    if switches.is_some_and(|switches| !switches.enabled) {
        return translated;
    }
    translated.routing = routing.map(|(_, routing)| routing);
    let Some((_, servers)) = servers else {
        return translated;
    };
    let Value::Table(servers) = servers.value else {
        problems.error(
            Some(servers.span),
            "`servers` must be a table, its keys the servers' names",
        );
        return translated;
    };
    translated.upstreams = servers
        .into_iter()
        .filter_map(|(name, server)| upstream(name, server, problems))
        .collect();
    translated
}

fn upstream(name: Key, mut server: Tree, problems: &mut Problems<'_>) -> Option<Tree> {
    let Value::Table(members) = &mut server.value else {
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
    let Tree {
        value: Value::Table(mut all),
        ..
    } = Tree::of_texts(&name.span, [("id", &name.name), ("dialect", "magictunnel")])
    else {
        return None;
    };
    all.retain(|(key, _)| !members.iter().any(|(other, _)| other.name == key.name));
    members.splice(..0, all);
    Some(server)
}

/// The listener of a file that declares none.
pub(super) fn listener() -> Tree {
    Tree::of_texts(
        &(0..0),
        [
            ("protocol", "mcp"),
            ("dialect", "mcp"),
            ("bind", BIND_DEFAULT),
        ],
    )
}
