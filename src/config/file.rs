//! The file as it is written, section by section.

use std::collections::HashMap;
use std::path::Path;

use callboard_agents::plan::ClinicEntry;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::agent::{self, AgentDeclaration};
use super::bidirectional::{self, ModeDeclaration};
use super::decode::decode_as;
use super::listener::Listener;
use super::magictunnel::{self, translate};
use super::problem::{Level, Problems, did_you_mean};
use super::server::RoutingDeclaration;
use super::server::{PolicyDeclaration, ServerDeclaration};
use super::store::StoreDeclaration;
use super::text;
use super::tree::{Tree, Value};
use super::upstream::UpstreamDeclaration;

const SECTIONS: [&str; 10] =
    ["node", "store", "policy", "upstream", "agent", "server", "routing", "listener", "clinic", "external_mcp"];

/// The member that says what something is for: cards are told it, and nothing begins anew for it.
pub(super) const DESCRIPTION: &str = "description";

/// A declaration, and where its parts stand.
pub(super) struct Entry<T> {
    pub(super) value: T,
    pub(super) tree: Tree,
    /// Of what is written, before anything was repaired.
    pub(super) fingerprint: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDeclaration {
    name: String,
}

/// All that a file declares.
pub(super) struct Sections {
    pub(super) name: String,
    pub(super) policy: Entry<PolicyDeclaration>,
    pub(super) routing: Entry<RoutingDeclaration>,
    pub(super) store: Option<Entry<StoreDeclaration>>,
    pub(super) upstreams: Vec<Entry<UpstreamDeclaration>>,
    pub(super) agents: Vec<Entry<AgentDeclaration>>,
    /// What agents are for, by id.
    pub(super) descriptions: HashMap<String, String>,
    pub(super) servers: Vec<Entry<ServerDeclaration>>,
    pub(super) listeners: Vec<Entry<Listener>>,
    pub(super) clinics: Vec<Entry<ClinicEntry>>,
    /// How a person talks to its agent, where it is a bidirectional agent's file.
    pub(super) mode: Option<ModeDeclaration>,
    /// The ids of agents, upstreams and servers of which nothing could be made.
    pub(super) unread: Vec<String>,
}

/// Reads a text into its sections; `None` where it can't be read at all. Paths are resolved against `folder`.
pub(super) fn sections(text: &str, is_yaml: bool, folder: &Path, problems: &mut Problems<'_>) -> Option<Sections> {
    let mut root = text::read(text, is_yaml, problems)?;
    // What follows from a line that can't be read would be told as a mistake of its own.
    if problems.has_errors() {
        return None;
    }
    if !matches!(root.value, Value::Table(_)) {
        problems.error(Some(root.span), "a topology is a table of sections");
        return None;
    }
    let is_other = bidirectional::is_bidirectional(&root);
    let is_known = |name: &str| SECTIONS.contains(&name) || is_other && bidirectional::is_known(name);
    let unknown: Vec<_> = root.members().iter().filter(|(key, _)| !is_known(&key.name)).cloned().collect();
    for (key, _) in unknown {
        let help = did_you_mean(&key.name, SECTIONS).or_else(|| Some(format!("there are {}", SECTIONS.join(", "))));
        let level = if is_other { Level::Warning } else { Level::Error };
        problems.add(level, Some(key.span), format!("a topology has no section `{}`", key.name), help);
    }
    // `None` where its mistakes have been told.
    let other = if is_other { Some(bidirectional::translate(&mut root, folder, problems)?) } else { None };
    let mut take = |name: &str| root.take(name).map(|(_, tree)| tree);
    let foreign = take("external_mcp").map(|tree| translate(tree, problems));
    let is_foreign = foreign.is_some();
    let (foreign_upstreams, foreign_routing) = foreign.map(|f| (f.upstreams, f.routing)).unwrap_or_default();

    let sources = [take("upstream"), take("agent"), take("server")];
    let written = sources.iter().flatten().flat_map(Tree::items).chain(&foreign_upstreams);
    let mut unread: Vec<_> = written.filter_map(|tree| tree.get("id")?.text()).map(str::to_owned).collect();
    let [upstreams, agents, servers] = sources;
    let name = match (take("node"), is_foreign) {
        _ if other.is_some() => other.as_ref().map(|other| other.name.clone()),
        (Some(tree), _) => one::<NodeDeclaration>(Some(tree), "[node]", problems).map(|node| node.value.name),
        (None, true) => Some(magictunnel::NAME_DEFAULT.to_owned()),
        (None, false) => {
            problems.error(None, "there is no section [node] with the node's `name`");
            None
        }
    };
    let policy = one(take("policy"), "[policy]", problems);
    let store = one(take("store"), "[store]", problems);
    let routing_tree = match (take("routing"), foreign_routing) {
        (Some(ours), Some(_)) => {
            problems.error(Some(ours.span.clone()), "write `routing` or `external_routing`, not both");
            Some(ours)
        }
        (ours, theirs) => ours.or(theirs),
    };
    let routing = one(routing_tree, "[routing]", problems);
    let mut upstreams: Vec<Entry<UpstreamDeclaration>> = many(upstreams, "upstream", problems);
    upstreams.extend(entries(foreign_upstreams, "a server", Level::Warning, problems));
    upstreams.iter_mut().for_each(|upstream| upstream.value.resolve(folder));
    let agents = items(agents, "agent", problems);
    let agents = agents.into_iter().filter_map(|tree| agent::read(tree, problems));
    let (mut agents, descriptions): (Vec<_>, Vec<_>) = agents.unzip();
    let told = agents.iter().zip(descriptions).filter_map(|(entry, told)| Some((entry.value.id().to_owned(), told?)));
    let descriptions = told.collect();
    agents.iter_mut().for_each(|agent| agent.value.resolve(folder));
    let mut listener_trees = items(take("listener"), "listener", problems);
    if is_foreign && listener_trees.is_empty() {
        listener_trees.push(magictunnel::listener());
    }
    let mut listeners: Vec<Entry<Listener>> = entries(listener_trees, "[[listener]]", Level::Error, problems);
    for listener in &mut listeners {
        listener.value.resolve(folder);
    }
    let mode = other.map(|other| {
        agents.extend(other.agents);
        listeners.push(other.listener);
        other.mode
    });
    let servers: Vec<Entry<ServerDeclaration>> = many(servers, "server", problems);
    unread.retain(|id| {
        let is_read = agents.iter().any(|entry| entry.value.id() == id)
            || upstreams.iter().any(|entry| entry.value.id == *id)
            || servers.iter().any(|entry| entry.value.id == *id);
        !is_read
    });
    Some(Sections {
        name: name.unwrap_or_default(),
        policy: policy.unwrap_or_else(empty),
        routing: routing.unwrap_or_else(empty),
        store,
        upstreams,
        agents,
        descriptions,
        servers,
        unread,
        listeners,
        clinics: many(take("clinic"), "clinic", problems),
        mode,
    })
}

fn empty<T: Default>() -> Entry<T> {
    Entry { value: T::default(), tree: Tree::empty(), fingerprint: 0 }
}

fn one<T: DeserializeOwned>(tree: Option<Tree>, what: &str, problems: &mut Problems<'_>) -> Option<Entry<T>> {
    entry(tree?, what, Level::Error, problems)
}

fn many<T: DeserializeOwned>(tree: Option<Tree>, name: &str, problems: &mut Problems<'_>) -> Vec<Entry<T>> {
    let items = items(tree, name, problems);
    entries(items, &format!("[[{name}]]"), Level::Error, problems)
}

fn entries<T: DeserializeOwned>(
    trees: Vec<Tree>,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Vec<Entry<T>> {
    trees.into_iter().filter_map(|tree| entry(tree, what, unknown, problems)).collect()
}

fn entry<T: DeserializeOwned>(
    mut tree: Tree,
    what: &str,
    unknown: Level,
    problems: &mut Problems<'_>,
) -> Option<Entry<T>> {
    let fingerprint = tree.fingerprint_without(DESCRIPTION);
    if !matches!(tree.value, Value::Table(_)) {
        problems.error(Some(tree.span), format!("{what} must be a table"));
        return None;
    }
    let value = decode_as(&mut tree, what, unknown, problems)?;
    Some(Entry { value, tree, fingerprint })
}

fn items(tree: Option<Tree>, name: &str, problems: &mut Problems<'_>) -> Vec<Tree> {
    match tree {
        None => Vec::new(),
        Some(Tree { value: Value::List(items), .. }) => items,
        Some(tree) => {
            problems.error_with(
                Some(tree.span),
                format!("`{name}` must be a list"),
                Some(format!("in TOML each begins with [[{name}]]")),
            );
            Vec::new()
        }
    }
}
