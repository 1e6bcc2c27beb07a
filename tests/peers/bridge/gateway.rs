//! Callboard in front of the servers: a bridge for each, and a server of ours in front of that.

use std::collections::HashMap;
use std::net::TcpListener;

use actix_web::dev::ServerHandle;
use callboard::System;
use callboard::mcp::bridge::{Bridge, BridgeOptions};
use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::mcp::outbound::{ChildCommand, ClientOptions, Endpoint, EraChoice};
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
    pub fn start(upstreams: &[Upstream]) -> Self {
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
            let client = ClientOptions { era, ..ClientOptions::default() };
            let bridge = Bridge::new(upstream.id, endpoint, BridgeOptions { client, ..BridgeOptions::default() });
            let agent = system.spawn(bridge.unwrap());
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
