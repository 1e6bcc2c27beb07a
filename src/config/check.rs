//! Whether what a file declares fits together (ids, names that point to them, addresses, who answers what), and whether this
//! machine has what it names: variables, programs, key files.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use callboard_clinics::plan::Registry;
use callboard_gateway::answering::{Answerer, Routing, Strategy};
use callboard_rpc::{AllowedHosts, AllowedOrigins};

use super::agent::AgentDeclaration;
use super::listener::{Listener, Speaks, clash, fits_into_a_path};
use super::problem::{Problems, is_set, variable};
use super::tree::Tree;
use super::upstream::UpstreamDeclaration;
use super::{Entry, Sections, mail, orchestrator, store};

/// Reports what doesn't fit together, and gives the registry of clinics.
pub(super) fn check(sections: &Sections, problems: &mut Problems<'_>) -> Option<Registry> {
    let has_models = !sections.unread.is_empty() || sections.agents.iter().any(|entry| entry.value.is_model());
    let mut checking = Checking {
        sections,
        problems,
        agents: HashSet::new(),
        servers: HashSet::new(),
        has_models,
        unread: HashSet::new(),
    };
    checking.ids();
    sections.upstreams.iter().for_each(|upstream| checking.upstream(upstream));
    checking.members();
    checking.choices();
    checking.remotes();
    checking.routing();
    orchestrator::check(sections, &checking.agents, &checking.unread, checking.problems);
    mail::check(sections, &checking.agents, checking.problems);
    checking.listeners();
    // A name that leads nowhere would make a second mistake of what it was to lead to.
    if !checking.problems.has_errors() {
        checking.unreached();
    }
    sections.store.iter().for_each(|entry| store::check(entry, problems));
    registry(sections, problems)
}

struct Checking<'a, 'p, 't> {
    sections: &'a Sections,
    problems: &'p mut Problems<'t>,
    /// The ids of agents and upstreams.
    agents: HashSet<&'a str>,
    /// The ids of virtual servers.
    servers: HashSet<&'a str>,
    has_models: bool,
    /// The ids of those of which nothing could be made.
    unread: HashSet<&'a str>,
}

const FOR_PEOPLE: &str = "an elicitation is for a person and never answered by a model or server";

impl<'a> Checking<'a, '_, '_> {
    fn ids(&mut self) {
        let sections = self.sections;
        self.unread.extend(sections.unread.iter().map(String::as_str));
        let agents = sections.agents.iter().map(|entry| (entry.value.id(), &entry.tree, true));
        let upstreams = sections.upstreams.iter().map(|entry| (&*entry.value.id, &entry.tree, true));
        let servers = sections.servers.iter().map(|entry| (&*entry.value.id, &entry.tree, false));
        for (id, tree, is_agent) in upstreams.chain(agents).chain(servers) {
            let Some(span) = tree.place("id") else { continue };
            if id.is_empty() {
                self.problems.error(Some(span), "an id can't be empty");
                continue;
            }
            if !self.agents.contains(id) && !self.servers.contains(id) {
                if is_agent {
                    self.agents.insert(id)
                } else {
                    self.servers.insert(id)
                };
            } else {
                self.problems.error(Some(span), format!("two agents are called {id}"));
            }
        }
    }

    fn upstream(&mut self, entry: &Entry<UpstreamDeclaration>) {
        let (upstream, tree) = (&entry.value, &entry.tree);
        if let Err(error) = upstream.endpoint()
            && let Some(span) = tree.place(error.key)
        {
            self.problems.error(Some(span), format!("upstream {}: {}", upstream.id, error.why));
        }
        let is_child = !upstream.command.is_empty();
        let for_programs = ["environment", "set", "directory"].map(|key| (key, true));
        let for_urls = ["bearer_env", "headers", "header_env"].map(|key| (key, false));
        for (key, wants_child) in for_programs.into_iter().chain(for_urls) {
            if tree.get(key).is_some() && is_child != wants_child && (is_child || upstream.url.is_some()) {
                let whose = if wants_child { "a `command`" } else { "a `url`" };
                self.problems.error(tree.key_span(key), format!("`{key}` is for upstreams with {whose}"));
            }
        }
        let headers = upstream.headers.iter().map(|(name, value)| ("headers", name, Some(value)));
        let from_variables = upstream.header_env.keys().map(|name| ("header_env", name, None));
        for (key, name, value) in headers.chain(from_variables) {
            if !UpstreamDeclaration::is_header(name, value) {
                let span = tree.get(key).and_then(|headers| headers.key_span(name));
                self.problems.error(span, format!("`{name}` is not a header, or its value can't be one's"));
            }
        }
        let calls = [("calls_max", upstream.calls_max), ("connections_max", upstream.connections_max)];
        let all = calls.map(|(key, max)| (key, max.map(u64::from))).into_iter();
        for (key, number) in all.chain([("call_timeout_s", upstream.call_timeout_s)]) {
            if number == Some(0) {
                self.problems.error(tree.place(key), format!("`{key}` must be 1 at least"));
            }
        }
        let mut shown = HashMap::new();
        for (own, name) in &upstream.tools.rename {
            if let Some(other) = shown.insert(name, own) {
                let span = tree.place_at(&["tools", "rename", own]);
                self.problems.error(span, format!("`{own}` and `{other}` would both be shown as `{name}`"));
            }
        }
    }

    fn members(&mut self) {
        for entry in &self.sections.servers {
            if let (true, Some(span)) = (entry.value.members.is_empty(), entry.tree.place("members")) {
                self.problems.error(Some(span), format!("the server {} has no members", entry.value.id));
            }
            let mut seen = HashSet::new();
            for (at, member) in entry.value.members.iter().enumerate() {
                let span = entry.tree.item_place("members", at);
                if !seen.insert(member) {
                    self.problems.error(span, format!("{member} is a member twice"));
                } else if self.servers.contains(&**member) {
                    self.problems.error(span, format!("{member} is a virtual server, which can't be a member"));
                } else if !self.agents.contains(&**member) && !self.unread.contains(&**member) {
                    let message =
                        format!("the server {} has the member {member}, which isn't declared", entry.value.id);
                    self.problems.unknown(span, message, member, self.agents.iter().copied());
                }
            }
        }
    }

    /// Models that are chosen among.
    fn choices(&mut self) {
        let models = self.models();
        for entry in &self.sections.agents {
            let AgentDeclaration::Models(_, choice) = &entry.value else { continue };
            for (at, member) in choice.members.iter().enumerate().filter(|(_, member)| !models.contains(&&***member)) {
                if self.unread.contains(&**member) {
                    continue;
                }
                let span = entry.tree.item_place("members", at);
                self.problems.unknown(span, format!("there is no model {member}"), member, models.iter().copied());
            }
        }
    }

    fn remotes(&mut self) {
        for entry in &self.sections.agents {
            let AgentDeclaration::A2a(remote) = &entry.value else { continue };
            for (key, why) in remote.mistakes() {
                self.problems.error(entry.tree.place(key), format!("agent {}: `{key}`: {why}", remote.id));
            }
        }
    }

    fn routing(&mut self) {
        let routing = &self.sections.routing;
        for (name, kind) in [("sampling", &routing.value.sampling), ("elicitation", &routing.value.elicitation)] {
            if let Some(tree) = routing.tree.get(name) {
                self.strategies(kind, tree, name == "elicitation");
                self.order(kind, tree, name == "elicitation");
            }
        }
    }

    fn strategies(&mut self, routing: &Routing, tree: &Tree, is_for_people: bool) {
        let default = (vec!["default_strategy"], routing.default_strategy);
        let by_server = routing.server_strategies.iter().map(|(id, s)| (vec!["server_strategies", id], *s));
        for (path, strategy) in std::iter::once(default).chain(by_server) {
            if is_for_people && !strategy.asks_people_only() {
                let message = format!("{FOR_PEOPLE}: `{strategy}` can't be its strategy");
                let help = Some("write `client_forwarded`".to_owned());
                self.problems.error_with(tree.place_at(&path), message, help);
            } else if !is_for_people && strategy == Strategy::MagictunnelHandled && !self.has_models {
                let message = format!("`{strategy}`: no model is declared, so nobody answers");
                let help = Some("declare an [[agent]] of the kind `model`".to_owned());
                self.problems.warning_with(tree.place_at(&path), message, help);
            }
        }
        let names = tree.get("server_strategies");
        let mut ids: Vec<_> = routing.server_strategies.keys().collect();
        ids.sort_unstable();
        for id in ids.into_iter().filter(|id| !self.sections.unread.contains(id)) {
            let Some(upstream) = self.upstream_of(id) else {
                let span = names.and_then(|names| names.key_span(id));
                self.problems.unknown(span, format!("there is no upstream {id}"), id, self.upstream_ids());
                continue;
            };
            let (may_ask, key) = match is_for_people {
                true => (upstream.supports_elicitation, "supports_elicitation"),
                false => (upstream.supports_sampling, "supports_sampling"),
            };
            if !may_ask {
                let span = names.and_then(|names| names.key_span(id));
                self.problems.warning(span, format!("{id} may ask nothing of that kind: it has no `{key} = true`"));
            }
        }
    }

    fn order(&mut self, routing: &Routing, tree: &Tree, is_for_people: bool) {
        let mut seen = HashSet::new();
        for (at, answerer) in routing.order.iter().enumerate() {
            let span = tree.item_place("order", at);
            if !seen.insert(answerer) {
                self.problems.error(span, "this is in the order twice");
                continue;
            }
            match answerer {
                Answerer::Client => {}
                Answerer::Server(id) | Answerer::Model(id) if self.unread.contains(&**id) => {}
                _ if is_for_people => {
                    self.problems.error(span, format!("{FOR_PEOPLE}: its order can only be [\"client\"]"))
                }
                Answerer::Server(id) => match self.upstream_of(id) {
                    None => {
                        self.problems.unknown(span, format!("there is no upstream {id}"), id, self.upstream_ids());
                    }
                    Some(upstream) if !upstream.sampling.answers_sampling => {
                        let message = format!("{id} answers no samples: it has no `sampling.answers_sampling = true`");
                        self.problems.error(span, message);
                    }
                    Some(_) => {}
                },
                Answerer::Model(id) => {
                    let models = self.models();
                    if !models.contains(&&**id) {
                        self.problems.unknown(span, format!("there is no model {id}"), id, models);
                    }
                }
                Answerer::Models | Answerer::Servers => {}
            }
        }
    }

    fn models(&self) -> Vec<&'a str> {
        self.sections.agents.iter().filter(|entry| entry.value.is_model()).map(|entry| entry.value.id()).collect()
    }

    fn upstream_of(&self, id: &str) -> Option<&'a UpstreamDeclaration> {
        self.sections.upstreams.iter().map(|entry| &entry.value).find(|upstream| upstream.id == id)
    }

    fn upstream_ids(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.sections.upstreams.iter().map(|entry| &*entry.value.id)
    }

    fn listeners(&mut self) {
        let mut bound: Vec<SocketAddr> = Vec::new();
        for entry in &self.sections.listeners {
            let (listener, tree) = (&entry.value, &entry.tree);
            let bind = listener.bind;
            for (key, why) in listener.mistakes() {
                if let Some(span) = tree.place(key) {
                    self.problems.error(Some(span), format!("the listener on {bind}: {why}"));
                }
            }
            for (key, wanted) in listener.wants() {
                if bound.iter().any(|other| clash(*other, wanted)) {
                    self.problems.error(tree.place(key), format!("two listeners want {wanted}"));
                }
                bound.push(wanted);
            }
            self.behind(listener, tree);
            let hosts =
                listener.hosts.iter().map(|host| AllowedHosts::default().with(host).err().map(|e| e.to_string()));
            let origins = listener.origins.iter();
            let origins = origins.map(|origin| AllowedOrigins::default().with(origin).err().map(|e| e.to_string()));
            let wrong = hosts.enumerate().map(|found| ("hosts", found));
            for (key, (at, why)) in wrong.chain(origins.enumerate().map(|found| ("origins", found))) {
                if let Some(why) = why {
                    self.problems.error(tree.item_place(key, at), format!("the listener on {bind}: {why}"));
                }
            }
        }
    }

    /// Whom a listener leads to.
    fn behind(&mut self, listener: &Listener, tree: &Tree) {
        let bind = listener.bind;
        let one = listener.agent.iter().map(|id| (id, tree.place("agent")));
        let several = listener.agents.iter().enumerate().map(|(at, id)| (id, tree.item_place("agents", at)));
        let mut seen = HashSet::new();
        for (id, span) in one.chain(several) {
            if self.unread.contains(&**id) {
                continue;
            }
            if !self.agents.contains(&**id) && !self.servers.contains(&**id) {
                let message = format!("the listener on {bind} is for agent {id}, which isn't declared");
                self.problems.unknown(span.clone(), message, id, self.agents.iter().chain(&self.servers).copied());
            } else if listener.speaks() != Speaks::Bare && !fits_into_a_path(id) {
                self.problems.error(span.clone(), unfit(bind, id));
            }
            if !seen.insert(id) {
                self.problems.error(span, format!("the listener on {bind}: {id} is there twice"));
            }
        }
        if listener.speaks() != Speaks::Bare && listener.named().next().is_none() {
            if self.agents.is_empty() && self.servers.is_empty() && self.unread.is_empty() {
                let message = format!("the listener on {bind}: there is no agent to serve");
                self.problems.error(Some(tree.span.clone()), message);
            }
            let mut all: Vec<_> = self.agents.iter().filter(|id| !fits_into_a_path(id)).collect();
            all.sort_unstable();
            for id in all {
                self.problems.error(Some(tree.span.clone()), unfit(bind, id));
            }
        }
    }

    /// What nobody can come to. A file without listeners is for `callboard stdio`, which leads to all.
    fn unreached(&mut self) {
        let sections = self.sections;
        let leads_to_all = |listener: &Listener| listener.named().next().is_none();
        if sections.listeners.is_empty() || sections.listeners.iter().any(|entry| leads_to_all(&entry.value)) {
            return;
        }
        let mut reached: HashSet<&str> = sections.listeners.iter().flat_map(|entry| entry.value.named()).collect();
        for entry in &sections.servers {
            if reached.contains(&*entry.value.id) {
                reached.extend(entry.value.members.iter().map(String::as_str));
            }
        }
        reached.extend(orchestrator::led_to(sections).chain(mail::led_to(sections)));
        let routing = &sections.routing.value;
        reached.extend(routing.sampling.order.iter().filter_map(|answerer| match answerer {
            Answerer::Server(id) | Answerer::Model(id) => Some(&**id),
            _ => None,
        }));
        let agents = sections.agents.iter().filter(|entry| !entry.value.answers_others() && !entry.value.is_way());
        let agents = agents.map(|entry| (entry.value.id(), &entry.tree));
        let upstreams = sections.upstreams.iter().map(|entry| (&*entry.value.id, &entry.tree));
        let servers = sections.servers.iter().map(|entry| (&*entry.value.id, &entry.tree));
        for (id, tree) in agents.chain(upstreams).chain(servers).filter(|(id, _)| !reached.contains(id)) {
            if let Some(span) = tree.place("id") {
                self.problems.warning(Some(span), format!("no listener leads to {id}"));
            }
        }
    }
}

fn unfit(bind: SocketAddr, id: &str) -> String {
    format!("the listener on {bind}: the id {id:?} can't stand in an address: use A-Z a-z 0-9 - _ .")
}

fn registry(sections: &Sections, problems: &mut Problems<'_>) -> Option<Registry> {
    let clinics =
        |count: usize| sections.clinics.iter().take(count).map(|entry| entry.value.clone()).collect::<Vec<_>>();
    match Registry::try_from(clinics(sections.clinics.len())) {
        Ok(registry) => Some(registry),
        Err(error) => {
            // The first with which it can't be any more.
            let first = (1..=sections.clinics.len()).find(|count| Registry::try_from(clinics(*count)).is_err());
            let entry = first.and_then(|count| sections.clinics.get(count - 1));
            problems.error(entry.map(|entry| entry.tree.span.clone()), error.to_string());
            None
        }
    }
}

/// Reports what isn't there.
pub(super) fn check_machine(sections: &Sections, problems: &mut Problems<'_>) {
    for entry in &sections.upstreams {
        variables(entry, problems);
        program(entry, problems);
    }
    for entry in &sections.listeners {
        if let Some(keys) = entry.value.keys.as_ref().filter(|keys| !keys.is_file()) {
            let help = format!("make one with `callboard keys --keys {} add NAME`", keys.display());
            let message = format!("there is no key file {}", keys.display());
            problems.error_with(entry.tree.place("keys"), message, Some(help));
        }
        key_file(entry.value.signing_key.as_deref(), entry.tree.place("signing_key"), problems);
    }
    if let Some(entry) = &sections.store {
        store::look_around(entry, problems);
    }
    for entry in &sections.agents {
        match &entry.value {
            AgentDeclaration::Clinic(clinic) if !clinic.seed.is_file() => {
                // A database that is there needs none.
                if let Some(span) = entry.tree.place("seed") {
                    problems.warning(Some(span), format!("there is no file {}", clinic.seed.display()));
                }
            }
            AgentDeclaration::Model(id, model) => {
                if let Some(name) = model.key_variable().filter(|name| std::env::var_os(name).is_none()) {
                    let span = entry.tree.place("key_env");
                    problems.error(span, format!("there is no {} with the key of {id}", variable(name)));
                }
            }
            AgentDeclaration::A2a(remote) => {
                for (path, name) in remote.variables() {
                    is_set(name, entry.tree.place_at(path), problems);
                }
                key_file(remote.trusted_keys.as_deref(), entry.tree.place("trusted_keys"), problems);
            }
            AgentDeclaration::Webhook(webhook) => {
                let place = entry.tree.place("secret_env");
                webhook.secret_env.iter().for_each(|name| is_set(name, place.clone(), problems));
            }
            AgentDeclaration::Tmux(_) if in_path("tmux").is_none() => {
                problems.warning(entry.tree.place("target"), "there is no program tmux in PATH");
            }
            AgentDeclaration::Orchestrator(declared) => {
                for (path, file) in declared.missing() {
                    let message = format!("there is no {}", file.display());
                    problems.error(entry.tree.place_at(path), message);
                }
            }
            _ => {}
        }
    }
}

fn variables(entry: &Entry<UpstreamDeclaration>, problems: &mut Problems<'_>) {
    let (upstream, tree) = (&entry.value, &entry.tree);
    upstream.bearer_env.iter().for_each(|name| is_set(name, tree.place("bearer_env"), problems));
    for (header, name) in &upstream.header_env {
        is_set(name, tree.place_at(&["header_env", header]), problems);
    }
    for (at, name) in upstream.environment.iter().enumerate().filter(|(_, name)| std::env::var_os(name).is_none()) {
        let span = tree.get("environment").and_then(|list| list.items().get(at)).map(|item| item.span.clone());
        problems.warning(span, format!("there is no {} that {} could get", variable(name), upstream.id));
    }
}

fn program(entry: &Entry<UpstreamDeclaration>, problems: &mut Problems<'_>) {
    let (upstream, tree) = (&entry.value, &entry.tree);
    if let Some(directory) = upstream.directory.as_ref().filter(|directory| !directory.is_dir()) {
        let message = format!("there is no folder {}", directory.display());
        problems.error(tree.place("directory"), message);
        return;
    }
    let Some(program) = upstream.command.first().filter(|program| !program.is_empty()) else { return };
    let found = match program.contains('/') {
        true => upstream.directory.as_deref().unwrap_or(Path::new("")).join(program).is_file(),
        false => in_path(program).is_some(),
    };
    if !found {
        let span = tree.get("command").and_then(|list| list.items().first()).map(|item| item.span.clone());
        let place = if program.contains('/') { "" } else { " in PATH" };
        problems.warning(span, format!("there is no program {program}{place}"));
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn key_file(file: Option<&Path>, span: Option<Range<usize>>, problems: &mut Problems<'_>) {
    if let Some(file) = file.filter(|file| !file.is_file()) {
        problems.error(span, format!("there is no key file {}", file.display()));
    }
}
