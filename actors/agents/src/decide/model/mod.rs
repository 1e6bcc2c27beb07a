//! A language model that decides.

use std::path::PathBuf;

use callboard_message::Failure;
use callboard_runtime::{Agent, AgentRef, Handlers};

/// How a model is asked for decisions.
#[derive(Debug, Clone, Default)]
pub struct ModelDeciderOptions {
    /// A folder with prompts that stand in the place of ours, by file name.
    pub prompts_dir: Option<PathBuf>,
    /// Whether JSON schemas are used where the provider can (`auto`), or never.
    pub structured_off: bool,
}

/// Decides every point by a language model.
#[derive(Debug, Clone)]
pub struct ModelDecider {
    _model: AgentRef,
}

impl ModelDecider {
    /// Over the model agent `model`.
    ///
    /// # Errors
    /// `InvalidInput` where a prompt of `prompts_dir` can't be used.
    pub fn new(model: AgentRef, _options: &ModelDeciderOptions) -> Result<Self, Failure> {
        Ok(Self { _model: model })
    }
}

impl Agent for ModelDecider {
    // not built yet
    fn handlers(_on: &mut Handlers<Self>) {}
}
