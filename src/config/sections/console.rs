//! Console of a node (`[console]`): its address and who may use it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use callboard_rpc::{AllowedHosts, AllowedOrigins};
use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::address::socket_address;
use crate::config::listener::{ListenerDeclaration, ListenerProtocol, addresses_conflict};
use crate::config::problem::{ProblemCollector, check_key_file};
use crate::config::tree::ConfigTree;
use crate::config::{AuthDeclaration, DeclaredNames, ListenerTlsDeclaration};

/// Default port of the console.
pub const CONSOLE_PORT_DEFAULT: u16 = 9_090;

const UNAUTHENTICATED_MESSAGE: &str = "neither the console nor a listener has keys or tokens, so the console opens on loopback addresses only, \
     without `hosts` and `origins`: write `keys` in [console], or bind 127.0.0.1";
const CERTIFICATES_ONLY_MESSAGE: &str = "the listeners know their clients by certificates alone, and the console asks for a key or token: \
     write `keys` in [console]";
const CLIENTS_MESSAGE: &str =
    "the console asks for a key or token: leave `client` out, and write `keys` or `[console.auth]`";

/// Console of a node (`[console]`): pages, JSON, metrics and health at an address of their own.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleDeclaration {
    /// Address to listen on; port 0 picks a free one. Default: `127.0.0.1:9090`.
    #[serde(deserialize_with = "socket_address")]
    pub bind: SocketAddr,
    /// Key file, relative to the topology file. Without it and `auth`, the keys and tokens of the
    /// first listener that has some are asked for.
    pub keys: Option<PathBuf>,
    /// Access tokens of authorization servers, as in `[listener.auth]`.
    pub auth: Option<AuthDeclaration>,
    /// TLS. Without it the console speaks plain HTTP.
    pub tls: Option<ListenerTlsDeclaration>,
    /// Accepted `Host` names, in addition to this machine's own.
    pub hosts: Vec<String>,
    /// Accepted `Origin` values, in addition to this machine's own.
    pub origins: Vec<String>,
    /// Whether requests and replies of calls are recorded, cut, for viewers with the scope
    /// `console.content`. Those of agents of the data classes personal and clinical never are.
    /// Default: false.
    pub read_content: bool,
    /// Whether questions of calls wait at the console too, so that a person there may answer them.
    /// Default: true. Without keys and tokens nobody may answer, and no question waits.
    pub answers: bool,
}

impl Default for ConsoleDeclaration {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, CONSOLE_PORT_DEFAULT)),
            keys: None,
            auth: None,
            tls: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            read_content: false,
            answers: true,
        }
    }
}

impl ConsoleDeclaration {
    /// Returns the console at `bind` as a listener, with the console's own keys and tokens or else
    /// those of the first of `listeners` that has some.
    ///
    /// # Errors
    /// Returns the reason if anybody could use the console from beyond this machine.
    pub(crate) fn listener<'a>(
        &self,
        bind: SocketAddr,
        listeners: impl Iterator<Item = &'a ListenerDeclaration> + Clone,
    ) -> Result<ListenerDeclaration, &'static str> {
        let has_credentials =
            |listener: &&ListenerDeclaration| listener.keys.is_some() || listener.auth.is_some();
        let (mut keys, mut auth) = (self.keys.clone(), self.auth.clone());
        if keys.is_none()
            && auth.is_none()
            && let Some(first) = listeners.clone().find(has_credentials)
        {
            (keys, auth) = (first.keys.clone(), first.auth.clone());
        }
        let listener = ListenerDeclaration {
            protocol: ListenerProtocol::Mail,
            keys,
            auth,
            tls: self.tls.clone(),
            hosts: self.hosts.clone(),
            origins: self.origins.clone(),
            ..ListenerDeclaration::a2a_default(bind)
        };
        if has_credentials(&&listener) {
            return Ok(listener);
        }
        let mut listeners = listeners;
        if listeners.any(ListenerDeclaration::requires_credential) {
            return Err(CERTIFICATES_ONLY_MESSAGE);
        }
        let is_local = bind.ip().is_loopback() && self.hosts.is_empty() && self.origins.is_empty();
        match is_local {
            true => Ok(listener),
            false => Err(UNAUTHENTICATED_MESSAGE),
        }
    }

    /// Returns the mistakes in the console's own keys, each with the key.
    fn errors(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let auth = self.auth.iter().flat_map(AuthDeclaration::errors);
        wrong.extend(auth.map(|why| ("auth", why)));
        let tls = self.tls.iter().flat_map(ListenerTlsDeclaration::errors);
        wrong.extend(tls.map(|why| ("tls", why)));
        if self.tls.as_ref().is_some_and(|tls| !tls.client.is_empty()) {
            wrong.push(("tls", CLIENTS_MESSAGE.to_owned()));
        }
        for host in &self.hosts {
            if let Err(error) = AllowedHosts::default().with_host(host) {
                wrong.push(("hosts", error.to_string()));
            }
        }
        for origin in &self.origins {
            if let Err(error) = AllowedOrigins::default().with_origin(origin) {
                wrong.push(("origins", error.to_string()));
            }
        }
        wrong
    }
}

impl SectionDeclaration for ConsoleDeclaration {
    fn resolve_paths(&mut self, folder: &Path) {
        if let Some(keys) = &mut self.keys {
            *keys = folder.join(&*keys);
        }
        if let Some(auth) = &mut self.auth {
            auth.resolve_paths(folder);
        }
        if let Some(tls) = &mut self.tls {
            tls.resolve_paths(folder);
        }
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        for (key, why) in self.errors() {
            problems.error(tree.span_of(key), format!("[console]: `{key}`: {why}"));
        }
        let listeners = names.sections.listeners.iter().map(|entry| &entry.value);
        let mut bound = listeners
            .clone()
            .flat_map(ListenerDeclaration::bind_addresses);
        let span = || tree.span_of("bind").or_else(|| Some(tree.span.clone()));
        if bound.any(|(_, address)| addresses_conflict(address, self.bind)) {
            let message = format!("[console]: a listener has the address {} too", self.bind);
            problems.error(span(), message);
        }
        if let Err(why) = self.listener(self.bind, listeners) {
            problems.error(span(), format!("[console]: {why}"));
        }
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        check_key_file(self.keys.as_deref(), tree.span_of("keys"), problems);
        if let Some(auth) = &self.auth {
            auth.check_machine(tree, problems);
        }
        if let Some(tls) = &self.tls {
            tls.check_machine(tree, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Topology;

    const HEAD: &str =
        "[node]\nname = \"n\"\n[[agent]]\nid = \"m\"\nkind = \"model\"\nprovider = \"echo\"\n";
    const MCP: &str =
        "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:8080\"\n";

    fn parsed(more: &str) -> Result<Topology, String> {
        let text = format!("{HEAD}{more}");
        Topology::parse(&text, false, Path::new("/etc")).map_err(|error| error.to_string())
    }

    fn asked(more: &str) -> Option<PathBuf> {
        let topology = parsed(more).unwrap();
        let console: &ConsoleDeclaration = topology.section().unwrap();
        let listener = console.listener(console.bind, topology.listeners.iter());
        listener.unwrap().keys
    }

    /// Goal: the console asks for its own keys, else for those of a listener; paths are those of the file's
    /// folder. Method: each way.
    #[test]
    fn credentials() {
        let listener = format!("{MCP}keys = \"k.toml\"\n");
        for (console, listener, keys) in [
            ("[console]\n", MCP, None),
            ("[console]\n", &*listener, Some("/etc/k.toml")),
            (
                "[console]\nkeys = \"c.toml\"\n",
                &*listener,
                Some("/etc/c.toml"),
            ),
        ] {
            let keys = keys.map(PathBuf::from);
            assert_eq!(asked(&format!("{console}{listener}")), keys);
        }
    }

    /// Goal: without keys nobody beyond this machine gets in, and mistakes are told with their remedy. Method: rows.
    #[test]
    fn refused() {
        for (console, why) in [
            ("bind = \"0.0.0.0:9090\"\n", "write `keys` in [console]"),
            (
                "hosts = [\"console.example\"]\n",
                "write `keys` in [console]",
            ),
            ("bind = \"127.0.0.1:8080\"\n", "a listener has the address"),
            ("keys = \"k\"\nhosts = [\"http://x\"]\n", "is not a host"),
            ("key = \"k\"\n", "key"),
        ] {
            let error = parsed(&format!("[console]\n{console}{MCP}")).unwrap_err();
            assert!(error.contains(why), "{console}: {error}");
        }
    }
}
