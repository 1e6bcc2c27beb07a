//! Reading of a topology file, and decoding of its sections into declarations.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use super::lists::{self, LIST_SECTIONS, ListSection};
use super::problem::{ProblemCollector, Severity, closest_name, suggestion};
use super::sections::{self, SectionDeclaration};
use super::tree::{self, ConfigTree, ConfigValue};
use super::{
    ConfigError, NodeDeclaration, ParsedDeclaration, ParsedSections, TOPOLOGY_BYTES_MAX,
    bidirectional, decode_table, magictunnel, renamed,
};

/// Returns the text of a topology file.
///
/// # Errors
/// [`ConfigError::Read`] or [`ConfigError::TooLarge`].
pub(super) fn read_text(path: &Path) -> Result<String, ConfigError> {
    let read = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(read)?
        .take(TOPOLOGY_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > TOPOLOGY_BYTES_MAX {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    String::from_utf8(bytes).map_err(|error| read(Error::new(ErrorKind::InvalidData, error)))
}

/// Returns the ids written in tables that aren't decoded yet; a table without one is skipped.
fn written_ids<'a>(
    sections: impl Iterator<Item = &'a ConfigTree>,
    foreign_upstreams: &'a [ConfigTree],
) -> Vec<String> {
    let written = sections
        .flat_map(ConfigTree::items)
        .chain(foreign_upstreams);
    written
        .filter_map(|tree| tree.get("id")?.text())
        .map(str::to_owned)
        .collect()
}

/// Returns the declaration of the node; for a MagicTunnel file (`is_foreign`) without one, that with the
/// default name. `None` after a problem was reported.
fn read_node(
    node: Option<ConfigTree>,
    is_foreign: bool,
    problems: &mut ProblemCollector<'_>,
) -> Option<NodeDeclaration> {
    match node {
        Some(tree) => {
            let node = decode_table::<NodeDeclaration>(Some(tree), "[node]", problems)?;
            node.value.check(&node.tree, problems);
            Some(node.value)
        }
        None if is_foreign => Some(NodeDeclaration::named(magictunnel::NAME_DEFAULT)),
        None => {
            problems.error(
                None,
                "there is no section [node] with the node's `name`: add one",
            );
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
    let is_misspelt = !is_other && has_misspelt_list(&root);
    let mut take = |name: &str| root.take(name).map(|(_, tree)| tree);
    let foreign = take("external_mcp").map(|tree| magictunnel::translate(tree, problems));
    let is_foreign = foreign.is_some();
    let mut foreign = foreign.unwrap_or_default();
    let lists: Vec<_> = LIST_SECTIONS
        .iter()
        .map(|section| (section, take(section.name)))
        .collect();
    let of_agents = lists.iter().filter(|(section, _)| section.declares_agents);
    let written = of_agents.filter_map(|(_, tree)| tree.as_ref());
    let unread = written_ids(written, &foreign.upstreams);
    let node = match (&other, take("node")) {
        (Some(other), _) => Some(NodeDeclaration::named(&other.name)),
        (None, node) => read_node(node, is_foreign, problems),
    };
    let mut sections = ParsedSections {
        node: node.unwrap_or_default(),
        tables: read_tables(&mut take, foreign.tables, problems),
        has_unnamed: is_misspelt || has_unnamed(&lists),
        ..ParsedSections::default()
    };
    for table in &mut sections.tables {
        table.value.resolve_paths(folder);
    }
    for (section, tree) in lists {
        let mut items = list_items(tree, section.name, problems);
        if items.is_empty() {
            items.extend(foreign.list_defaults.remove(section.name));
        }
        (section.read)(items, folder, &mut sections, problems);
    }
    lists::add_upstreams(
        foreign.upstreams,
        "a server",
        Severity::Warning,
        folder,
        &mut sections,
        problems,
    );
    if let Some(other) = other {
        sections.agents.extend(other.agents);
        sections.listeners.push(other.listener);
        sections.mode = Some(other.mode);
    }
    describe(&mut sections, unread);
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
        problems.error(Some(root.span), "a topology must be a table of sections");
        return None;
    }
    renamed::rename_keys(&mut root, problems);
    let is_other = bidirectional::is_bidirectional(&root);
    let known = section_names();
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

/// Returns the names of all sections, as they are listed in messages.
fn section_names() -> Vec<&'static str> {
    let lists = LIST_SECTIONS.iter().map(|section| section.name);
    let tables = sections::SECTIONS.iter().map(|(name, ..)| *name);
    std::iter::once("node")
        .chain(lists)
        .chain(["external_mcp"])
        .chain(tables)
        .collect()
}

/// Whether an unknown section was probably meant to declare agents, such as `[[upstreams]]`.
fn has_misspelt_list(root: &ConfigTree) -> bool {
    let known = section_names();
    let mut written = root.members().iter().map(|(key, _)| &*key.name);
    written.any(|name| {
        let meant = closest_name(name, known.iter().copied());
        let mut lists = LIST_SECTIONS.iter();
        !known.contains(&name)
            && lists.any(|section| section.declares_agents && meant == Some(section.name))
    })
}

/// Whether a section declares an agent whose id can't be read.
fn has_unnamed(lists: &[(&ListSection, Option<ConfigTree>)]) -> bool {
    let has_id = |item: &ConfigTree| item.get("id").is_some_and(|id| id.text().is_some());
    let of_agents = lists.iter().filter(|(section, _)| section.declares_agents);
    let mut written = of_agents.filter_map(|(_, tree)| tree.as_ref());
    written.any(|tree| match &tree.value {
        ConfigValue::List(items) => !items.iter().all(has_id),
        _ => true,
    })
}

/// Decodes the sections that are one table each. `foreign` are those of a foreign configuration, by
/// name.
fn read_tables(
    take: &mut impl FnMut(&str) -> Option<ConfigTree>,
    mut foreign: HashMap<&str, ConfigTree>,
    problems: &mut ProblemCollector<'_>,
) -> Vec<ParsedDeclaration<Box<dyn SectionDeclaration>>> {
    let mut tables = Vec::new();
    for (name, read, _) in sections::SECTIONS {
        let theirs = foreign.remove(name);
        let ours = take(name);
        if let (Some(ours), Some(_)) = (&ours, &theirs) {
            problems.error(
                Some(ours.span.clone()),
                format!("write `{name}` or `external_{name}`, not both"),
            );
        }
        tables.extend(ours.or(theirs).and_then(|tree| read(tree, name, problems)));
    }
    tables
}

/// Adds the descriptions that declarations contain, and the ids of `unread` that failed to decode.
fn describe(sections: &mut ParsedSections, mut unread: Vec<String>) {
    let servers = sections.servers.iter().map(|entry| &entry.value);
    unread.retain(|id| {
        !sections.agents().any(|(agent, _)| agent.id() == id)
            && !servers.clone().any(|it| it.id == *id)
    });
    let own = sections
        .agents()
        .map(|(agent, _)| (agent.id(), agent.description().map(str::to_owned)));
    let of_servers = servers.map(|server| (&*server.id, server.description.clone()));
    let described: Vec<_> = own
        .chain(of_servers)
        .filter_map(|(id, told)| Some((id.to_owned(), told?)))
        .collect();
    sections.descriptions.extend(described);
    sections.unreadable_ids = unread;
}

/// Returns the tables of a list such as `[[agent]]`; none if the value is no list, which is reported.
fn list_items(
    tree: Option<ConfigTree>,
    name: &str,
    problems: &mut ProblemCollector<'_>,
) -> Vec<ConfigTree> {
    match tree {
        None => Vec::new(),
        Some(ConfigTree {
            value: ConfigValue::List(items),
            ..
        }) => items,
        Some(tree) => {
            problems.error_with(
                Some(tree.span),
                format!("`{name}` must be a list"),
                Some(format!(
                    "in TOML each begins with [[{name}]], in YAML with a dash"
                )),
            );
            Vec::new()
        }
    }
}
