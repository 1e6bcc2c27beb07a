//! An agent as an MCP server over HTTP, for clients of every revision; and a client that uses it once, so that this ends.

use std::error::Error;
use std::net::TcpListener;
use std::time::Duration;

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::mcp::outbound::{ClientOptions, Endpoint, McpClient};
use callboard::{Agent, Cx, Handlers, Message, SyncHandler, System};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adds two numbers.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
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
    fn handle(&mut self, Add { a, b }: Add, _: &mut Cx) -> f64 {
        a + b
    }
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::here();
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let serving = serve(listener, system.spawn(Sums), McpServerOptions::default(), &ListenOptions::default())?;
    let (url, handle) = (format!("http://{}/mcp", serving.address), serving.server.handle());
    let served = actix_web::rt::spawn(serving.server);

    // Whoever has an MCP client can use it now. Here a client in the same process does, once: far away, `Add` is the same.
    println!("the message `add` is a tool at {url}");
    let client = McpClient::new(Endpoint::url(&url)?, ClientOptions::default())?;
    let sums = system.spawn_with(move || client.clone());
    println!("1 + 2 = {}", sums.ask(Add { a: 1.0, b: 2.0 }).await?);

    // A server that stays would only await `served`.
    println!("{:?}", system.shutdown(Duration::from_secs(1)).await);
    handle.stop(true).await;
    served.await??;
    Ok(())
}
