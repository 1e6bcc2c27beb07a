//! Sections of a topology that consist of several tables (`[[upstream]]`). Each has a line in
//! [`LIST_SECTIONS`].

use std::path::Path;

use schemars::JsonSchema;

use super::kinds::agent_schema;
use super::problem::{ProblemCollector, Severity};
use super::schema_parts::DeclarationSchema;
use super::tls::resolve_ca;
use super::tree::ConfigTree;
use super::{
    AgentDeclaration, ClinicEntry, ListenerDeclaration, ParsedSections, ServerDeclaration,
    UpstreamDeclaration, decode_entries, kinds,
};

/// Decoder of a list section. Parameters: its tables, the folder of relative paths, the declarations
/// decoded so far, and the collector of problems.
type ListReader = fn(Vec<ConfigTree>, &Path, &mut ParsedSections, &mut ProblemCollector<'_>);

/// Section of a topology file that consists of several tables, such as `[[upstream]]`: its name and
/// its decoder.
#[derive(Clone, Copy)]
pub(super) struct ListSection {
    pub(super) name: &'static str,
    pub(super) read: ListReader,
    /// Generator of the schema of one of its tables.
    pub(super) schema: DeclarationSchema,
    /// Whether the ids of its tables are names in the directory of agents.
    pub(super) declares_agents: bool,
}

impl ListSection {
    const fn of_agents(name: &'static str, read: ListReader, schema: DeclarationSchema) -> Self {
        Self {
            name,
            read,
            schema,
            declares_agents: true,
        }
    }

    const fn of_others(name: &'static str, read: ListReader, schema: DeclarationSchema) -> Self {
        Self {
            name,
            read,
            schema,
            declares_agents: false,
        }
    }
}

pub(super) const LIST_SECTIONS: &[ListSection] = &[
    ListSection::of_agents("upstream", read_upstreams, UpstreamDeclaration::json_schema),
    ListSection::of_agents("agent", read_agents, agent_schema),
    ListSection::of_agents("server", read_servers, ServerDeclaration::json_schema),
    ListSection::of_others("listener", read_listeners, ListenerDeclaration::json_schema),
    ListSection::of_others("clinic", read_clinics, ClinicEntry::json_schema),
];

fn read_upstreams(
    trees: Vec<ConfigTree>,
    folder: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    add_upstreams(
        trees,
        "[[upstream]]",
        Severity::Error,
        folder,
        sections,
        problems,
    );
}

/// Decodes the tables `trees` and adds the upstreams to `sections`. `what` names a table in
/// messages; `unknown` is the severity of unknown keys. A table that can't be decoded is reported
/// and left out.
pub(super) fn add_upstreams(
    trees: Vec<ConfigTree>,
    what: &str,
    unknown: Severity,
    folder: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    let first = sections.upstreams.len();
    let decoded = decode_entries(trees, what, unknown, problems);
    sections.upstreams.extend(decoded);
    for upstream in sections.upstreams.iter_mut().skip(first) {
        upstream.value.resolve_paths(folder);
    }
}

fn read_agents(
    trees: Vec<ConfigTree>,
    folder: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    for tree in trees {
        let Some((mut agent, description)) = kinds::read_agent(tree, problems) else {
            continue;
        };
        agent.value.resolve_paths(folder);
        if let Some(description) = description {
            let id = agent.value.id().to_owned();
            sections.descriptions.insert(id, description);
        }
        sections.agents.push(agent);
    }
}

fn read_servers(
    trees: Vec<ConfigTree>,
    _: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    sections.servers = decode_entries(trees, "[[server]]", Severity::Error, problems);
}

fn read_listeners(
    trees: Vec<ConfigTree>,
    folder: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    sections.listeners = decode_entries(trees, "[[listener]]", Severity::Error, problems);
    for listener in &mut sections.listeners {
        listener.value.resolve_paths(folder);
    }
}

fn read_clinics(
    trees: Vec<ConfigTree>,
    folder: &Path,
    sections: &mut ParsedSections,
    problems: &mut ProblemCollector<'_>,
) {
    sections.clinics = decode_entries(trees, "[[clinic]]", Severity::Error, problems);
    for clinic in &mut sections.clinics {
        let ca = &mut clinic.value.ca;
        *ca = ca.take().map(|file| resolve_ca(&file, folder));
    }
}
