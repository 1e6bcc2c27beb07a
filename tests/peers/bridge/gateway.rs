//! Callboard in front of the servers: a server of ours for each, and a client of ours behind it.

use std::collections::HashMap;
use std::net::TcpListener;

use actix_web::dev::ServerHandle;
use callboard::System;
use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::mcp::outbound::{ChildCommand, ClientOptions, Endpoint, EraChoice, McpClient};
use callboard_rpc::{Access, Trust};

use super::upstreams::{Reach, Upstream};
use crate::kit::Target;

/// It runs as long as this is held.
pub struct Gateway {
    urls: HashMap<&'static str, String>,
    handles: Vec<ServerHandle>,
    _system: System,
}

impl Gateway {
    pub async fn start(upstreams: &[Upstream]) -> Self {
        let system = System::start(1).unwrap();
        let (mut urls, mut handles) = (HashMap::new(), Vec::new());
        for upstream in upstreams {
            let endpoint = match &upstream.reach {
                Reach::Child(command) => {
                    let (program, arguments) = command.split_first().unwrap();
                    let mut child = ChildCommand::new(program, arguments);
                    child.inherit.push("CALLBOARD_PEERS".to_owned());
                    Endpoint::Child(child)
                }
                Reach::Url(url) => Endpoint::url(url).unwrap(),
                Reach::Sse(url) => Endpoint::sse(url).unwrap(),
            };
            let era = upstream.era.map_or(EraChoice::Auto, EraChoice::Only);
            let client = McpClient::new(endpoint, ClientOptions { era, ..ClientOptions::default() }).unwrap();
            let agent = system.spawn(client);
            let options = McpServerOptions { access: Access::Open(Trust::LoopbackOperator), ..Default::default() };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let serving = serve(listener, agent, options, &ListenOptions::default()).unwrap();
            urls.insert(upstream.id, format!("http://{}/mcp", serving.address));
            handles.push(serving.server.handle());
            actix_web::rt::spawn(serving.server);
        }
        Self { urls, handles, _system: system }
    }

    pub fn target(&self, id: &str) -> Target {
        Target::Url(self.urls[id].clone())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for handle in &self.handles {
            drop(handle.stop(false));
        }
    }
}
