//! Server for the official A2A conformance kit: all versions of A2A at `http://127.0.0.1:$PORT`,
//! until it is terminated. With the feature `grpc` its card contains the gRPC address.

mod agent;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use callboard::System;
use callboard::a2a::inbound::{A2aOptions, A2aServer, NamedAgents, serve};
use callboard::rpc::serve::ListenOptions;
use callboard::rpc::{AccessControl, UnauthenticatedAccess};

/// Maximum duration of a call from the kit, questions included.
const CALL_DEADLINE: Duration = Duration::from_secs(600);

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::var("PORT")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let mut options = A2aOptions::new(format!("http://{}", listener.local_addr()?).parse()?);
    options.agent.name = "kit".to_owned();
    options.access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator);
    options.call_deadline = CALL_DEADLINE;
    // The kit of 1.0 starts several tasks with identical messages.
    options.tasks.idempotency_window = Duration::ZERO;
    // The kit's webhook is on loopback.
    options.push.allowed_networks = vec!["127.0.0.0/8".parse()?];
    #[cfg(feature = "grpc")]
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    #[cfg(feature = "grpc")]
    {
        options.grpc_target = Some(socket.local_addr()?.to_string());
    }
    let system = System::start(1)?;
    let server = A2aServer::new(system.spawn(agent::Conversing), options);
    #[cfg(feature = "grpc")]
    let _grpc = callboard::a2a::grpc::serve(socket, server.clone(), NamedAgents::default(), &ListenOptions::default())?;
    let serving = serve(listener, server, NamedAgents::default(), &ListenOptions::default())?;
    println!("listening http://{}", serving.address);
    Ok(serving.server.await?)
}
