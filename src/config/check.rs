//! Checks of references between declarations (ids, addresses, routing) and of what the machine
//! provides. Checks of one agent kind are in [`super::kinds`].

use std::collections::HashSet;
use std::net::SocketAddr;

use callboard_clinics::plan::ClinicRegistry;
use callboard_gateway::question_router::Answerer;
use callboard_message::DataClass;
use callboard_rpc::{AllowedHosts, AllowedOrigins, BODY_BYTES_MAX_DEFAULT};

use super::kinds::{AgentDeclaration, MailroomDeclaration, Reachability};
use super::listener::{
    AnonymousAccess, ListenerDeclaration, ServedProtocol, addresses_conflict, is_path_segment,
};
use super::problem::{ProblemCollector, check_key_file, percent_error};
use super::secret::check_secret;
use super::tls::check_ca_file;
use super::tree::ConfigTree;
use super::{
    DeclaredNames, ParsedDeclaration, ParsedSections, PolicyDeclaration, RoutingDeclaration,
};

/// Reports inconsistencies between declarations. Returns the clinic registry; `None` if that is
/// invalid, which is reported.
pub(super) fn check_references(
    sections: &ParsedSections,
    problems: &mut ProblemCollector<'_>,
) -> Option<ClinicRegistry> {
    let names = DeclaredNames::collect(sections, problems);
    for (agent, tree) in sections.agents() {
        agent.check(tree, &names, problems);
    }
    for ParsedDeclaration { value, tree, .. } in &sections.tables {
        value.check(tree, &names, problems);
    }
    let mut checking = ReferenceChecker {
        sections,
        names,
        problems,
    };
    checking.check_members();
    checking.check_patterns();
    checking.check_listeners();
    // A dangling reference would cause a second, misleading problem.
    if !checking.problems.has_errors() {
        checking.warn_unreachable();
    }
    build_registry(sections, problems)
}

struct ReferenceChecker<'a, 'p, 't> {
    sections: &'a ParsedSections,
    names: DeclaredNames<'a>,
    problems: &'p mut ProblemCollector<'t>,
}

impl<'a> ReferenceChecker<'a, '_, '_> {
    fn check_members(&mut self) {
        for entry in &self.sections.servers {
            let key = "principal_share_percent";
            if let Some(why) = percent_error(key, entry.value.principal_share_percent) {
                self.problems.error(
                    entry.tree.span_of(key),
                    format!("the virtual server {}: {why}", entry.value.id),
                );
            }
            if let (true, Some(span)) = (
                entry.value.members.is_empty(),
                entry.tree.span_of("members"),
            ) {
                self.problems.error(
                    Some(span),
                    format!("the virtual server {} has no members", entry.value.id),
                );
            }
            let mut seen = HashSet::new();
            for (at, member) in entry.value.members.iter().enumerate() {
                let span = entry.tree.item_span("members", at);
                if !seen.insert(member) {
                    self.problems
                        .error(span, format!("{member} is a member twice"));
                } else if self.names.servers.contains_key(&**member) {
                    self.problems.error(
                        span,
                        format!("{member} is a virtual server, which can't be a member"),
                    );
                } else if !self.names.is_known(member) {
                    let message = format!(
                        "the server {} has the member {member}, which isn't declared",
                        entry.value.id
                    );
                    self.problems.unknown_name(
                        span,
                        message,
                        member,
                        self.names.agents.keys().copied(),
                    );
                }
            }
        }
    }

    /// Warns of patterns of a virtual server that begin with the id of an agent that is no member.
    fn check_patterns(&mut self) {
        for entry in &self.sections.servers {
            let server = &entry.value;
            for (at, pattern) in server.tools.iter().enumerate() {
                let ends = [pattern.find('.'), pattern.find("__")];
                let end = ends.into_iter().flatten().min();
                let Some(id) = end.and_then(|end| pattern.get(..end)) else {
                    continue;
                };
                let is_member = server.members.iter().any(|member| member == id);
                if !is_member && self.names.agents.contains_key(id) {
                    self.problems.warning(
                        entry.tree.item_span("tools", at),
                        format!(
                            "{pattern:?} matches no tool: {id} is no member of the server {}",
                            server.id
                        ),
                    );
                }
            }
        }
    }

    fn check_listeners(&mut self) {
        let mut bound: Vec<SocketAddr> = Vec::new();
        let is_declared = self.sections.mode.is_none();
        for entry in &self.sections.listeners {
            let (listener, tree) = (&entry.value, &entry.tree);
            let bind = listener.bind;
            // Which keys fit depends on the protocol.
            let protocol = tree.get("protocol");
            let is_read = protocol.is_none_or(|protocol| !protocol.is_placeholder());
            let of_keys = is_read.then(|| listener.key_errors(tree));
            let of_keys = of_keys.into_iter().flatten();
            // A bidirectional agent's file has reported its address already.
            let is_checked = is_declared && is_access_read(tree);
            let of_addresses = is_checked.then(|| listener.address_errors());
            let of_addresses = of_addresses.into_iter().flatten();
            for (key, why) in of_keys.chain(of_addresses) {
                if let Some(span) = tree.span_of(key) {
                    self.problems.error(
                        Some(span),
                        format!("the listener on {bind}: `{key}`: {why}"),
                    );
                }
            }
            for (key, wanted) in listener.bind_addresses() {
                if bound.iter().any(|other| addresses_conflict(*other, wanted)) {
                    let help = "give each a port of its own; port 0 picks a free one";
                    self.problems.error_with(
                        tree.span_of(key),
                        format!("two listeners have the address {wanted}"),
                        Some(help.to_owned()),
                    );
                }
                bound.push(wanted);
            }
            self.check_targets(listener, tree);
            self.check_mail(listener, tree);
            self.check_guests(listener, tree);
            self.check_auth(listener, tree);
            self.check_tls(listener, tree);
            self.check_room(listener);
            self.check_allowed_names(listener, tree);
        }
    }

    /// Reports invalid `hosts` and `origins` of a listener.
    fn check_allowed_names(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        let hosts = listener.hosts.iter().map(|host| {
            AllowedHosts::default()
                .with_host(host)
                .err()
                .map(|e| e.to_string())
        });
        let origins = listener.origins.iter().map(|origin| {
            AllowedOrigins::default()
                .with_origin(origin)
                .err()
                .map(|e| e.to_string())
        });
        let wrong = hosts.enumerate().map(|found| ("hosts", found));
        for (key, (at, why)) in wrong.chain(origins.enumerate().map(|found| ("origins", found))) {
            if let Some(why) = why {
                self.problems.error(
                    tree.item_span(key, at),
                    format!("the listener on {}: {why}", listener.bind),
                );
            }
        }
    }

    /// Reports a listener whose largest message has more than half of `buffered_mib_max`: beyond
    /// it, the shares may refuse the message always.
    fn check_room(&mut self, listener: &ListenerDeclaration) {
        const MIB: usize = 1024 * 1024;
        let Some(entry) = self.sections.table_entry::<PolicyDeclaration>() else {
            return;
        };
        let policy = self.sections.table::<PolicyDeclaration>();
        let Some(mib) = policy.and_then(|policy| policy.buffered_mib_max) else {
            return;
        };
        let bytes = match listener.body_bytes_max {
            Some(bytes) => bytes.get(),
            // The default of mail is half of the least budget.
            None if listener.served_protocol() == ServedProtocol::Mail => return,
            None => BODY_BYTES_MAX_DEFAULT,
        };
        let needed = bytes.saturating_mul(2).div_ceil(MIB);
        if usize::try_from(mib.get()).is_ok_and(|mib| mib < needed) {
            let message = format!(
                "`buffered_mib_max` is {mib}, and half of it has no room for a message of {bytes} bytes \
                 (`body_bytes_max`) at the listener on {}: raise it to {needed} or more, or lower \
                 `body_bytes_max`",
                listener.bind
            );
            let span = entry.tree.span_of("buffered_mib_max");
            self.problems.error(span, message);
        }
    }

    /// Reports ids behind a listener that are unknown, repeated or unfit for a URL path.
    fn check_targets(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        let bind = listener.bind;
        let one = listener.agent.iter().map(|id| (id, tree.span_of("agent")));
        let several = listener
            .agents
            .iter()
            .enumerate()
            .map(|(at, id)| (id, tree.item_span("agents", at)));
        let mut seen = HashSet::new();
        for (id, span) in one.chain(several) {
            let served = self
                .names
                .agents
                .keys()
                .chain(self.names.servers.keys())
                .copied();
            let is_declared = served.clone().any(|known| known == id);
            if !is_declared && self.names.is_unreadable(id) {
                continue;
            }
            if !is_declared {
                let message =
                    format!("the listener on {bind} is for agent {id}, which isn't declared");
                self.problems
                    .unknown_name(span.clone(), message, id, served);
            } else if listener.served_protocol() != ServedProtocol::Bare && !is_path_segment(id) {
                self.problems
                    .error(span.clone(), unfit_id_message(bind, id));
            }
            if !seen.insert(id) {
                self.problems
                    .error(span, format!("the listener on {bind}: {id} is named twice"));
            }
        }
        if listener.served_protocol() != ServedProtocol::Bare
            && listener.named_ids().next().is_none()
        {
            if self.names.agents.is_empty()
                && self.names.servers.is_empty()
                && !self.names.has_unreadable()
            {
                let message =
                    format!("the listener on {bind}: the file declares no agent to serve");
                self.problems.error(Some(tree.span.clone()), message);
            }
            let mut all: Vec<_> = self
                .names
                .agents
                .keys()
                .filter(|id| !is_path_segment(id))
                .collect();
            all.sort_unstable();
            for id in all {
                self.problems
                    .error(Some(tree.span.clone()), unfit_id_message(bind, id));
            }
        }
    }

    /// Reports mail listeners that don't lead to a mailroom, and mailroom listeners without
    /// authentication.
    fn check_mail(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        let bind = listener.bind;
        let leads_to_one = |id: &str| {
            self.names
                .agent_of_kind::<MailroomDeclaration>(id)
                .is_some()
        };
        if listener.served_protocol() == ServedProtocol::Mail
            && let Some(id) = listener
                .agent
                .as_deref()
                .filter(|id| self.names.agents.contains_key(id) && !leads_to_one(id))
        {
            let message = format!("the listener on {bind}: {id} is no mailroom");
            let known = self
                .names
                .agents_of_kind::<MailroomDeclaration>()
                .map(|declared| &*declared.id);
            self.problems
                .unknown_name(tree.span_of("agent"), message, id, known);
        }
        let is_in_front = listener.named_ids().any(leads_to_one);
        if is_in_front
            && is_access_read(tree)
            && !listener.requires_credential()
            && listener.anonymous != Some(AnonymousAccess::Operator)
        {
            let message = format!(
                "the listener on {bind}: members of a mailroom need a key, and it has no `keys`"
            );
            let help =
                Some("write `keys`, or `anonymous = \"operator\"` for yourself alone".to_owned());
            self.problems
                .warning_with(tree.span_of("agent"), message, help);
        }
    }

    /// Reports mistakes in the access tokens of a listener, and issuers that share a name in the
    /// file: their principals couldn't be told apart.
    fn check_auth(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        let Some(auth) = &listener.auth else {
            return;
        };
        let span = tree.span_of("auth");
        let bind = listener.bind;
        for why in auth.errors() {
            let message = format!("the listener on {bind}: `auth`: {why}");
            self.problems.error(span.clone(), message);
        }
        let sections = self.sections;
        let all = sections.listeners.iter().flat_map(|entry| {
            let auth = entry.value.auth.as_ref();
            auth.map_or(&[][..], |auth| &auth.issuer)
        });
        for issuer in &auth.issuer {
            let mut others = all.clone();
            if others.any(|other| other.name == issuer.name && other.issuer != issuer.issuer) {
                let message = format!(
                    "the listener on {bind}: `auth`: another issuer is called {:?} too: their principals need different names",
                    issuer.name
                );
                self.problems.error(span.clone(), message);
            }
        }
    }

    /// Reports mistakes in the TLS of a listener.
    fn check_tls(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        let bind = listener.bind;
        for why in listener.tls.iter().flat_map(|tls| tls.errors()) {
            let message = format!("the listener on {bind}: `tls`: {why}");
            self.problems.error(tree.span_of("tls"), message);
        }
    }

    /// Reports data about people that anybody beyond this machine could reach: agents of a higher
    /// data class than `internal` behind a listener that serves remote guests.
    fn check_guests(&mut self, listener: &ListenerDeclaration, tree: &ConfigTree) {
        if !is_access_read(tree) || !listener.may_serve_remote_guests() {
            return;
        }
        let sections = self.sections;
        let named: Vec<&str> = listener.named_ids().collect();
        let is_member = |id: &str| {
            let mut servers = sections.servers.iter().map(|entry| &entry.value);
            servers.any(|server| {
                named.contains(&&*server.id) && server.members.iter().any(|member| member == id)
            })
        };
        let is_served = |agent: &dyn AgentDeclaration| match named.is_empty() {
            true => agent.reachability() != Reachability::Mail,
            false => named.contains(&agent.id()) || is_member(agent.id()),
        };
        for (agent, _) in sections.agents().filter(|(agent, _)| is_served(*agent)) {
            if agent.class() <= DataClass::Internal {
                continue;
            }
            let message = format!(
                "the listener on {}: anybody who reaches it could use {}, whose data class is \"{}\"",
                listener.bind,
                agent.id(),
                agent.class()
            );
            let help = "write `keys` in place of `anonymous = \"guest\"`, or name other agents";
            let at = tree.span_of("anonymous").or_else(|| tree.span_of("bind"));
            self.problems.error_with(at, message, Some(help.to_owned()));
        }
    }

    /// Warns of agents that no listener reaches. A file without listeners is for `callboard stdio`,
    /// which reaches all.
    fn warn_unreachable(&mut self) {
        let sections = self.sections;
        let leads_to_all = |listener: &ListenerDeclaration| listener.named_ids().next().is_none();
        if sections.listeners.is_empty()
            || sections
                .listeners
                .iter()
                .any(|entry| leads_to_all(&entry.value))
        {
            return;
        }
        let mut reached: HashSet<&str> = sections
            .listeners
            .iter()
            .flat_map(|entry| entry.value.named_ids())
            .collect();
        for entry in &sections.servers {
            if reached.contains(&*entry.value.id) {
                reached.extend(entry.value.members.iter().map(String::as_str));
            }
        }
        reached.extend(
            sections
                .agents()
                .flat_map(|(agent, _)| agent.reachable_ids()),
        );
        let order = sections
            .table::<RoutingDeclaration>()
            .map(|routing| &routing.sampling.order);
        reached.extend(
            order
                .into_iter()
                .flatten()
                .filter_map(|answerer| match answerer {
                    Answerer::Server(id) | Answerer::Model(id) => Some(&**id),
                    _ => None,
                }),
        );
        let agents = sections
            .agents()
            .filter(|(agent, _)| agent.reachability() == Reachability::Listeners);
        let agents = agents.map(|(agent, tree)| (agent.id(), tree));
        let servers = sections
            .servers
            .iter()
            .map(|entry| (&*entry.value.id, &entry.tree));
        for (id, tree) in agents
            .chain(servers)
            .filter(|(id, _)| !reached.contains(id))
        {
            if let Some(span) = tree.span_of("id") {
                self.problems.warning(
                    Some(span),
                    format!("no listener leads to {id}, so no client reaches it"),
                );
            }
        }
    }
}

/// Whether none of the keys that say who may use a listener was reported.
fn is_access_read(tree: &ConfigTree) -> bool {
    let mut keys = ["keys", "auth", "tls", "anonymous"].into_iter();
    keys.all(|key| tree.get(key).is_none_or(|value| !value.is_placeholder()))
}

fn unfit_id_message(bind: SocketAddr, id: &str) -> String {
    format!("the listener on {bind}: the id {id:?} can't be part of a URL: use A-Z a-z 0-9 - _ .")
}

fn build_registry(
    sections: &ParsedSections,
    problems: &mut ProblemCollector<'_>,
) -> Option<ClinicRegistry> {
    let clinics = |count: usize| {
        sections
            .clinics
            .iter()
            .take(count)
            .map(|entry| entry.value.clone())
            .collect::<Vec<_>>()
    };
    match ClinicRegistry::try_from(clinics(sections.clinics.len())) {
        Ok(registry) => Some(registry),
        Err(error) => {
            // The first clinic that makes the registry invalid.
            let first = (1..=sections.clinics.len())
                .find(|count| ClinicRegistry::try_from(clinics(*count)).is_err());
            let entry = first.and_then(|count| sections.clinics.get(count - 1));
            problems.error(
                entry.map(|entry| entry.tree.span.clone()),
                error.to_string(),
            );
            None
        }
    }
}

/// Reports key files, variables and programs that this machine lacks.
pub(super) fn check_machine(sections: &ParsedSections, problems: &mut ProblemCollector<'_>) {
    for (agent, tree) in sections.agents() {
        agent.check_machine(tree, problems);
    }
    for entry in &sections.listeners {
        if let Some(keys) = entry.value.keys.as_ref().filter(|keys| !keys.is_file()) {
            let help = format!(
                "make one with `callboard keys --keys {} add NAME`",
                keys.display()
            );
            let message = format!("there is no key file {}", keys.display());
            problems.error_with(entry.tree.span_of("keys"), message, Some(help));
        }
        if let Some(auth) = &entry.value.auth {
            auth.check_machine(&entry.tree, problems);
        }
        if let Some(tls) = &entry.value.tls {
            tls.check_machine(&entry.tree, problems);
        }
        check_key_file(
            entry.value.signing_key.as_deref(),
            entry.tree.span_of("signing_key"),
            problems,
        );
    }
    for entry in &sections.clinics {
        entry
            .value
            .bearer_env
            .iter()
            .for_each(|name| check_secret(name, entry.tree.span_of("bearer_env"), problems));
        check_ca_file(entry.value.ca.as_deref(), &entry.tree, problems);
    }
    for ParsedDeclaration { value, tree, .. } in &sections.tables {
        value.check_machine(tree, problems);
    }
}
