//! An agent as an MCP server over HTTP for clients of every revision, and a client that calls it
//! once.

use std::error::Error;
use std::net::TcpListener;
use std::time::Duration;

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::mcp::outbound::{McpClient, McpClientOptions, ServerEndpoint};
use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};
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
    fn handle(&mut self, Add { a, b }: Add, _: &mut Context) -> f64 {
        a + b
    }
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::on_current_arbiter();
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let serving = serve(listener, system.spawn(Sums), McpServerOptions::default(), &ListenOptions::default())?;
    let (url, handle) = (format!("http://{}/mcp", serving.address), serving.server.handle());
    let served = actix_web::rt::spawn(serving.server);

    // Any MCP client can use it now; here one in the same process. `Add` is the same message
    // remotely.
    println!("the message `add` is a tool at {url}");
    let client = McpClient::new(ServerEndpoint::from_url(&url)?, McpClientOptions::default())?;
    let sums = system.spawn_with(move || client.clone());
    println!("1 + 2 = {}", sums.ask(Add { a: 1.0, b: 2.0 }).await?);

    // A real server would only await `served`.
    println!("{:?}", system.shutdown(Duration::from_secs(1)).await);
    handle.stop(true).await;
    served.await??;
    Ok(())
}
