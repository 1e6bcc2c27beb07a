//! The agents that the official conformance suite of MCP wants to find behind a server. It listens at
//! `127.0.0.1:$PORT/mcp` until it is ended.

mod asking;
mod changes;
mod content;
mod embedded;
mod fields;
mod forms;
mod jobs;
mod many;
mod prompts;
mod required;
mod resources;
mod rounds;
mod slow;
mod state;
mod stateless;
mod tasks;
mod waiting;

use callboard::{Agent, Handlers};

/// A picture of one red dot.
pub const PIXEL: &[u8] = include_bytes!("pixel.png");
/// Most calls of one tool that run at the same time.
pub const AT_ONCE_MAX: u32 = 64;

/// All of it is one agent: each of its messages is a tool.
pub struct Fixture;

impl Agent for Fixture {
    fn handlers(on: &mut Handlers<Self>) {
        content::register(on);
        embedded::register(on);
        waiting::register(on);
        asking::register(on);
        forms::register(on);
        rounds::register(on);
        state::register(on);
        many::register(on);
        stateless::register(on);
        changes::register(on);
        tasks::register(on);
        slow::register(on);
        jobs::register(on);
        required::register(on);
        resources::register(on);
        prompts::register(on);
    }
}
fn main() {}
