//! An agent as an MCP server in an axum application, on the application's own listener.

use std::{error::Error, net::SocketAddr, time::Duration};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Router, routing::get};
use callboard::mcp::inbound::{McpServer, McpServerOptions, NamedServers};
use callboard::mcp::outbound::{McpClient, McpClientOptions, ServerEndpoint};
use callboard::tower::{ClientAddress, MountOptions, mcp_service};
use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};

/// Adds two numbers.
#[derive(Message, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[message(reply = f64, read_only)]
struct Add {
    a: f64,
    b: f64,
}

struct Sums;

impl Agent for Sums {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>();
    }
}

impl SyncHandler<Add> for Sums {
    fn handle(&mut self, Add { a, b }: Add, _: &mut Context) -> f64 {
        a + b
    }
}

/// Tells mounted services the address of the client.
async fn pass_address_on(ConnectInfo(client): ConnectInfo<SocketAddr>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(ClientAddress(client));
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (system, listener) = (System::start(1)?, tokio::net::TcpListener::bind("127.0.0.1:0").await?);
    let address = listener.local_addr()?;
    let server = McpServer::new(system.spawn(Sums), McpServerOptions::default());
    let mcp = mcp_service(vec![server.clone()], NamedServers::default(), &MountOptions::new(address))?;
    let app = Router::new().route("/health", get(|| async { "ok" }));
    let app = app.nest_service("/mcp", mcp.clone().nested_at("/mcp"));
    let app = app.layer(from_fn(pass_address_on)).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let url = format!("http://{address}/mcp");
    let client = system.spawn(McpClient::new(ServerEndpoint::from_url(&url)?, McpClientOptions::default())?);
    println!("at {url}: 1 + 2 = {}", client.ask(Add { a: 1.0, b: 2.0 }).await?);
    server.stop().await;
    drop(mcp); // Calls without an open response have run until here.
    println!("{:?}", system.shutdown(Duration::from_secs(1)).await);
    Ok(())
}
