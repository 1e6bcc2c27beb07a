//! The agents that the official conformance suite of MCP wants to find behind a server. It listens at
//! `127.0.0.1:$PORT/mcp` until it is ended.

mod answering;
mod questions;
mod surface;

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::{Agent, Handlers, System};
use callboard_rpc::{Access, Trust};

/// A picture of one red dot.
pub const PIXEL: &[u8] = include_bytes!("pixel.png");
/// Most calls of one tool that run at the same time.
pub const AT_ONCE_MAX: u32 = 64;

/// How long the server keeps a call's stream open before the caller has to come back for the rest.
const POLL_AFTER: Duration = Duration::from_millis(500);

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::var("PORT")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let system = System::start(1)?;
    let mut options = McpServerOptions { access: Access::Open(Trust::LoopbackOperator), ..McpServerOptions::default() };
    options.streams.poll_after = Some(POLL_AFTER);
    let serving = serve(listener, system.spawn(Fixture), options, &ListenOptions::default())?;
    println!("listening http://{}/mcp", serving.address);
    Ok(serving.server.await?)
}

/// Has a tool, a resource or a prompt for each scenario.
pub struct Fixture;

impl Agent for Fixture {
    fn handlers(on: &mut Handlers<Self>) {
        answering::register(on);
        questions::register(on);
        surface::register(on);
    }
}
