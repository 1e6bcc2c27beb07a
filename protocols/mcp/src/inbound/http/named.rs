//! Servers that come and go while a listener serves.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};

use actix_web::HttpResponse;
use actix_web::dev::{Extensions, Service as _};
use actix_web::web::ServiceConfig;
use futures::future::{Either, ready};

use super::{McpServer, resource};

/// Where each is served, by its name.
pub const NAMED_PATH: &str = "/agents/{name}/mcp";

/// Servers by name, each at [`NAMED_PATH`]. Clones are the same servers.
#[derive(Clone, Default)]
pub struct NamedServers {
    servers: Arc<RwLock<HashMap<String, McpServer>>>,
}

impl NamedServers {
    /// Serves these from now on, and no others. A request that was begun ends as it began; who isn't there is 404.
    pub fn set(&self, servers: HashMap<String, McpServer>) {
        let before = std::mem::replace(&mut *self.servers.write().unwrap_or_else(PoisonError::into_inner), servers);
        drop(before);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<McpServer> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn may_listen_on(&self, address: IpAddr) -> bool {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        servers.values().all(|server| server.server.options.access.may_listen_on(address))
    }

    pub(super) fn configure(&self, config: &mut ServiceConfig) {
        let servers = self.clone();
        let found = resource(NAMED_PATH).wrap_fn(move |mut request, service| {
            let Some(server) = request.match_info().get("name").and_then(|name| servers.get(name)) else {
                return Either::Left(ready(Ok(request.into_response(HttpResponse::NotFound().finish()))));
            };
            let mut data = Extensions::new();
            data.insert(server.server.clone());
            request.add_data_container(Rc::new(data));
            Either::Right(service.call(request))
        });
        config.service(found);
    }
}
