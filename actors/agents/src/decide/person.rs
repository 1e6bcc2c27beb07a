use callboard_runtime::{Agent, Handlers};

/// Whoever called decides, by forms.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonDecider;

impl Agent for PersonDecider {
    // not built yet
    fn handlers(_on: &mut Handlers<Self>) {}
}
