//! The agent: each of its messages is a tool.

use callboard::{Agent, Handlers};

use crate::{
    asking, changes, content, embedded, forms, jobs, many, prompts, required, resources, rounds, slow, state,
    stateless, tasks, waiting,
};

/// All that the suite asks for.
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
