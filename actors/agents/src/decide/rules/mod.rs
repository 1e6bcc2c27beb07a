//! Rules that decide without a model.

pub mod run_time;

use callboard_runtime::{Agent, Handlers};

/// Decides every point by rules.
#[derive(Debug, Default)]
pub struct RulesDecider {}

impl RulesDecider {
    /// With the rules that come with callboard.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Agent for RulesDecider {
    // not built yet
    fn handlers(_on: &mut Handlers<Self>) {}
}
