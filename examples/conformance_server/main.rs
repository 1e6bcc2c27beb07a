//! Server for the official MCP conformance suite, at `127.0.0.1:$PORT/mcp`, until it is terminated.

mod answering;
mod questions;
mod surface;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::{Agent, Handlers, System};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};

/// Image of one red pixel.
pub const PIXEL: &[u8] = include_bytes!("pixel.png");
/// Maximum number of concurrent calls of one tool.
pub const AT_ONCE_MAX: u32 = 64;

/// Time for which the server keeps a call's stream open before the client has to poll.
const POLL_AFTER: Duration = Duration::from_millis(500);

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::var("PORT")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let system = System::start(1)?;
    let mut options = McpServerOptions {
        access: AccessControl::Open(UnauthenticatedAccess::LoopbackOperator),
        ..McpServerOptions::default()
    };
    options.streams.close_after = Some(POLL_AFTER);
    let serving = serve(listener, system.spawn(Fixture), options, &ListenOptions::default())?;
    println!("listening http://{}/mcp", serving.address);
    Ok(serving.server.await?)
}

/// Agent with a tool, resource or prompt for each scenario.
pub struct Fixture;

impl Agent for Fixture {
    fn handlers(on: &mut Handlers<Self>) {
        answering::register(on);
        questions::register(on);
        surface::register(on);
    }
}
