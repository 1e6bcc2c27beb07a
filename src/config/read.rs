//! Decoding of a topology's sections into declarations.

use std::collections::HashMap;
use std::path::Path;

use super::problem::{ProblemCollector, Severity, suggestion};
use super::sections::{self, SectionDeclaration};
use super::tree::{self, ConfigTree, ConfigValue};
use super::{
    AgentDeclaration, LIST_SECTIONS, ListenerDeclaration, NodeDeclaration, ParsedDeclaration,
    ParsedSections, ServerDeclaration, UpstreamDeclaration, bidirectional, decode_entries,
    decode_list, decode_table, kinds, list_items, magictunnel, renamed,
};

/// Returns the ids in tables that aren't decoded yet.
fn written_ids(sources: &[Option<ConfigTree>], foreign_upstreams: &[ConfigTree]) -> Vec<String> {
    let written = sources
        .iter()
        .flatten()
        .flat_map(ConfigTree::items)
        .chain(foreign_upstreams);
    written
        .filter_map(|tree| tree.get("id")?.text())
        .map(str::to_owned)
        .collect()
}

/// Returns the node's name; for a MagicTunnel file (`is_foreign`) without one, the default.
fn read_node_name(
    node: Option<ConfigTree>,
    is_foreign: bool,
    problems: &mut ProblemCollector<'_>,
) -> Option<String> {
    match node {
        Some(tree) => decode_table::<NodeDeclaration>(Some(tree), "[node]", problems)
            .map(|node| node.value.name),
        None if is_foreign => Some(magictunnel::NAME_DEFAULT.to_owned()),
        None => {
            problems.error(None, "there is no section [node] with the node's `name`");
            None
        }
    }
}

/// Decodes a text into its sections; `None` if it can't be parsed. Paths are resolved against
/// `folder`.
pub(super) fn read_sections(
    text: &str,
    is_yaml: bool,
    folder: &Path,
    problems: &mut ProblemCollector<'_>,
) -> Option<ParsedSections> {
    let (mut root, is_other) = read_root(text, is_yaml, problems)?;
    // `None` after its problems were reported.
    let other = if is_other {
        Some(bidirectional::translate(&mut root, folder, problems)?)
    } else {
        None
    };
    let mut take = |name: &str| root.take(name).map(|(_, tree)| tree);
    let foreign = take("external_mcp").map(|tree| magictunnel::translate(tree, problems));
    let is_foreign = foreign.is_some();
    let (foreign_upstreams, foreign_routing) = foreign
        .map(|f| (f.upstreams, f.routing))
        .unwrap_or_default();

    let sources = [take("upstream"), take("agent"), take("server")];
    let unread = written_ids(&sources, &foreign_upstreams);
    let [upstreams, agents, servers] = sources;
    let name = match (&other, take("node")) {
        (Some(other), _) => Some(other.name.clone()),
        (None, node) => read_node_name(node, is_foreign, problems),
    };
    let tables = read_tables(&mut take, foreign_routing, problems);
    let mut upstreams: Vec<ParsedDeclaration<UpstreamDeclaration>> =
        decode_list(upstreams, "upstream", problems);
    upstreams.extend(decode_entries(
        foreign_upstreams,
        "a server",
        Severity::Warning,
        problems,
    ));
    upstreams
        .iter_mut()
        .for_each(|upstream| upstream.value.resolve_paths(folder));
    let agents = list_items(agents, "agent", problems);
    let agents = agents
        .into_iter()
        .filter_map(|tree| kinds::read_agent(tree, problems));
    let (mut agents, of_cards): (Vec<_>, Vec<_>) = agents.unzip();
    agents
        .iter_mut()
        .for_each(|agent| agent.value.resolve_paths(folder));
    let mut listener_trees = list_items(take("listener"), "listener", problems);
    if is_foreign && listener_trees.is_empty() {
        listener_trees.push(magictunnel::default_listener());
    }
    let mut listeners: Vec<ParsedDeclaration<ListenerDeclaration>> =
        decode_entries(listener_trees, "[[listener]]", Severity::Error, problems);
    for listener in &mut listeners {
        listener.value.resolve_paths(folder);
    }
    let mode = other.map(|other| {
        agents.extend(other.agents);
        listeners.push(other.listener);
        other.mode
    });
    let servers: Vec<ParsedDeclaration<ServerDeclaration>> =
        decode_list(servers, "server", problems);
    let mut sections = ParsedSections {
        node_name: name.unwrap_or_default(),
        tables,
        upstreams,
        agents,
        descriptions: HashMap::new(),
        servers,
        unreadable_ids: Vec::new(),
        listeners,
        clinics: decode_list(take("clinic"), "clinic", problems),
        mode,
    };
    describe(&mut sections, of_cards, unread);
    Some(sections)
}

/// Parses a text into its tree, with renamed keys replaced, and returns whether it is a bidirectional
/// configuration. Unknown sections are reported.
fn read_root(
    text: &str,
    is_yaml: bool,
    problems: &mut ProblemCollector<'_>,
) -> Option<(ConfigTree, bool)> {
    let mut root = tree::parse_tree(text, is_yaml, problems)?;
    // Later problems would only follow from the syntax error.
    if problems.has_errors() {
        return None;
    }
    if !matches!(root.value, ConfigValue::Table(_)) {
        problems.error(Some(root.span), "a topology is a table of sections");
        return None;
    }
    renamed::rename_keys(&mut root, problems);
    let is_other = bidirectional::is_bidirectional(&root);
    let known: Vec<_> = LIST_SECTIONS
        .into_iter()
        .chain(sections::SECTIONS.map(|(name, _)| name))
        .collect();
    let is_known =
        |name: &str| known.contains(&name) || is_other && bidirectional::is_known_section(name);
    let unknown: Vec<_> = root
        .members()
        .iter()
        .filter(|(key, _)| !is_known(&key.name))
        .cloned()
        .collect();
    for (key, _) in unknown {
        let help = suggestion(&key.name, known.iter().copied())
            .or_else(|| Some(format!("there are {}", known.join(", "))));
        let level = if is_other {
            Severity::Warning
        } else {
            Severity::Error
        };
        problems.add(
            level,
            Some(key.span),
            format!("a topology has no section `{}`", key.name),
            help,
        );
    }
    Some((root, is_other))
}

/// Decodes the sections that are one table each. `foreign_routing` is the routing of a foreign
/// configuration.
fn read_tables(
    take: &mut impl FnMut(&str) -> Option<ConfigTree>,
    mut foreign_routing: Option<ConfigTree>,
    problems: &mut ProblemCollector<'_>,
) -> Vec<ParsedDeclaration<Box<dyn SectionDeclaration>>> {
    let mut tables = Vec::new();
    for (name, read) in sections::SECTIONS {
        let theirs = if name == "routing" {
            foreign_routing.take()
        } else {
            None
        };
        let ours = take(name);
        if let (Some(ours), Some(_)) = (&ours, &theirs) {
            problems.error(
                Some(ours.span.clone()),
                "write `routing` or `external_routing`, not both",
            );
        }
        tables.extend(ours.or(theirs).and_then(|tree| read(tree, name, problems)));
    }
    tables
}

/// Fills in the descriptions for agent cards, and the ids of `unread` that failed to decode.
fn describe(sections: &mut ParsedSections, of_cards: Vec<Option<String>>, mut unread: Vec<String>) {
    let servers = sections.servers.iter().map(|entry| &entry.value);
    unread.retain(|id| {
        !sections.agents().any(|(agent, _)| agent.id() == id)
            && !servers.clone().any(|it| it.id == *id)
    });
    let of_cards = sections
        .agents
        .iter()
        .map(|entry| entry.value.id())
        .zip(of_cards);
    let own = sections
        .agents()
        .map(|(agent, _)| (agent.id(), agent.description().map(str::to_owned)));
    let of_servers = servers.map(|server| (&*server.id, server.description.clone()));
    let described = of_cards.chain(own).chain(of_servers);
    let descriptions = described
        .filter_map(|(id, told)| Some((id.to_owned(), told?)))
        .collect();
    (sections.descriptions, sections.unreadable_ids) = (descriptions, unread);
}
