//! Whether what a file declares fits together (ids, names that point to them, addresses, who answers what), and whether this
//! machine has what it names. What concerns a kind of agent is in [`super::kinds`].

use std::collections::HashSet;
use std::net::SocketAddr;

use callboard_clinics::plan::Registry;
use callboard_gateway::answering::Answerer;
use callboard_rpc::{AllowedHosts, AllowedOrigins};

use super::kinds::{MailroomDeclaration, Reach};
use super::listener::{Listener, Speaks, Trust, clash, fits_into_a_path};
use super::problem::{Problems, check_key_file};
use super::tree::Tree;
use super::{Entry, Names, RoutingDeclaration, Sections};

/// Reports what doesn't fit together, and gives the registry of clinics.
pub(super) fn check(sections: &Sections, problems: &mut Problems<'_>) -> Option<Registry> {
    let names = Names::of(sections, problems);
    for (agent, tree) in sections.agents() {
        agent.check(tree, &names, problems);
    }
    for Entry { value, tree, .. } in &sections.tables {
        value.check(tree, &names, problems);
    }
    let mut checking = Checking {
        sections,
        names,
        problems,
    };
    checking.members();
    checking.listeners();
    // A name that leads nowhere would make a second mistake of what it was to lead to.
    if !checking.problems.has_errors() {
        checking.unreached();
    }
    registry(sections, problems)
}

struct Checking<'a, 'p, 't> {
    sections: &'a Sections,
    names: Names<'a>,
    problems: &'p mut Problems<'t>,
}

impl<'a> Checking<'a, '_, '_> {
    fn members(&mut self) {
        for entry in &self.sections.servers {
            if let (true, Some(span)) =
                (entry.value.members.is_empty(), entry.tree.place("members"))
            {
                self.problems.error(
                    Some(span),
                    format!("the server {} has no members", entry.value.id),
                );
            }
            let mut seen = HashSet::new();
            for (at, member) in entry.value.members.iter().enumerate() {
                let span = entry.tree.item_place("members", at);
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
                    self.problems
                        .unknown(span, message, member, self.names.agents.keys().copied());
                }
            }
        }
    }

    fn listeners(&mut self) {
        let mut bound: Vec<SocketAddr> = Vec::new();
        for entry in &self.sections.listeners {
            let (listener, tree) = (&entry.value, &entry.tree);
            let bind = listener.bind;
            for (key, why) in listener.mistakes(tree) {
                if let Some(span) = tree.place(key) {
                    self.problems
                        .error(Some(span), format!("the listener on {bind}: {why}"));
                }
            }
            for (key, wanted) in listener.wants() {
                if bound.iter().any(|other| clash(*other, wanted)) {
                    self.problems
                        .error(tree.place(key), format!("two listeners want {wanted}"));
                }
                bound.push(wanted);
            }
            self.behind(listener, tree);
            self.mail(listener, tree);
            let hosts = listener.hosts.iter().map(|host| {
                AllowedHosts::default()
                    .with(host)
                    .err()
                    .map(|e| e.to_string())
            });
            let origins = listener.origins.iter();
            let origins = origins.map(|origin| {
                AllowedOrigins::default()
                    .with(origin)
                    .err()
                    .map(|e| e.to_string())
            });
            let wrong = hosts.enumerate().map(|found| ("hosts", found));
            for (key, (at, why)) in wrong.chain(origins.enumerate().map(|found| ("origins", found)))
            {
                if let Some(why) = why {
                    self.problems.error(
                        tree.item_place(key, at),
                        format!("the listener on {bind}: {why}"),
                    );
                }
            }
        }
    }

    /// Whom a listener leads to.
    fn behind(&mut self, listener: &Listener, tree: &Tree) {
        let bind = listener.bind;
        let one = listener.agent.iter().map(|id| (id, tree.place("agent")));
        let several = listener
            .agents
            .iter()
            .enumerate()
            .map(|(at, id)| (id, tree.item_place("agents", at)));
        let mut seen = HashSet::new();
        for (id, span) in one.chain(several) {
            if self.names.unread.contains(&**id) {
                continue;
            }
            let served = self
                .names
                .agents
                .keys()
                .chain(self.names.servers.keys())
                .copied();
            if !served.clone().any(|known| known == id) {
                let message =
                    format!("the listener on {bind} is for agent {id}, which isn't declared");
                self.problems.unknown(span.clone(), message, id, served);
            } else if listener.speaks() != Speaks::Bare && !fits_into_a_path(id) {
                self.problems.error(span.clone(), unfit(bind, id));
            }
            if !seen.insert(id) {
                self.problems
                    .error(span, format!("the listener on {bind}: {id} is there twice"));
            }
        }
        if listener.speaks() != Speaks::Bare && listener.named().next().is_none() {
            if self.names.agents.is_empty()
                && self.names.servers.is_empty()
                && self.names.unread.is_empty()
            {
                let message = format!("the listener on {bind}: there is no agent to serve");
                self.problems.error(Some(tree.span.clone()), message);
            }
            let mut all: Vec<_> = self
                .names
                .agents
                .keys()
                .filter(|id| !fits_into_a_path(id))
                .collect();
            all.sort_unstable();
            for id in all {
                self.problems
                    .error(Some(tree.span.clone()), unfit(bind, id));
            }
        }
    }

    /// Whether mail and the listener fit together.
    fn mail(&mut self, listener: &Listener, tree: &Tree) {
        let bind = listener.bind;
        let leads_to_one = |id: &str| self.names.agent::<MailroomDeclaration>(id).is_some();
        if listener.speaks() == Speaks::Mail
            && let Some(id) = listener
                .agent
                .as_deref()
                .filter(|id| self.names.agents.contains_key(id) && !leads_to_one(id))
        {
            let message = format!("the listener on {bind}: {id} is no mailroom");
            let known = self
                .names
                .all::<MailroomDeclaration>()
                .map(|declared| &*declared.id);
            self.problems
                .unknown(tree.place("agent"), message, id, known);
        }
        let is_in_front = listener.named().any(leads_to_one);
        if is_in_front && listener.keys.is_none() && listener.trust == Trust::Anonymous {
            let message = format!(
                "the listener on {bind}: who has mail comes with a key, and nobody has one here"
            );
            let help = Some(
                "write `keys`, or `trust = \"loopback_operator\"` for yourself alone".to_owned(),
            );
            self.problems
                .warning_with(tree.place("agent"), message, help);
        }
    }

    /// What nobody can come to. A file without listeners is for `callboard stdio`, which leads to all.
    fn unreached(&mut self) {
        let sections = self.sections;
        let leads_to_all = |listener: &Listener| listener.named().next().is_none();
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
            .flat_map(|entry| entry.value.named())
            .collect();
        for entry in &sections.servers {
            if reached.contains(&*entry.value.id) {
                reached.extend(entry.value.members.iter().map(String::as_str));
            }
        }
        reached.extend(sections.agents().flat_map(|(agent, _)| agent.leads_to()));
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
            .filter(|(agent, _)| agent.reach() == Reach::Listeners);
        let agents = agents.map(|(agent, tree)| (agent.id(), tree));
        let servers = sections
            .servers
            .iter()
            .map(|entry| (&*entry.value.id, &entry.tree));
        for (id, tree) in agents
            .chain(servers)
            .filter(|(id, _)| !reached.contains(id))
        {
            if let Some(span) = tree.place("id") {
                self.problems
                    .warning(Some(span), format!("no listener leads to {id}"));
            }
        }
    }
}

fn unfit(bind: SocketAddr, id: &str) -> String {
    format!(
        "the listener on {bind}: the id {id:?} can't stand in an address: use A-Z a-z 0-9 - _ ."
    )
}

fn registry(sections: &Sections, problems: &mut Problems<'_>) -> Option<Registry> {
    let clinics = |count: usize| {
        sections
            .clinics
            .iter()
            .take(count)
            .map(|entry| entry.value.clone())
            .collect::<Vec<_>>()
    };
    match Registry::try_from(clinics(sections.clinics.len())) {
        Ok(registry) => Some(registry),
        Err(error) => {
            // The first with which it can't be any more.
            let first = (1..=sections.clinics.len())
                .find(|count| Registry::try_from(clinics(*count)).is_err());
            let entry = first.and_then(|count| sections.clinics.get(count - 1));
            problems.error(
                entry.map(|entry| entry.tree.span.clone()),
                error.to_string(),
            );
            None
        }
    }
}

/// Reports what isn't there.
pub(super) fn check_machine(sections: &Sections, problems: &mut Problems<'_>) {
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
            problems.error_with(entry.tree.place("keys"), message, Some(help));
        }
        check_key_file(
            entry.value.signing_key.as_deref(),
            entry.tree.place("signing_key"),
            problems,
        );
    }
    for Entry { value, tree, .. } in &sections.tables {
        value.check_machine(tree, problems);
    }
}
