use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard_message::{Answer, Failure, Progress, Question};
use callboard_runtime::Caller;
use futures::future::BoxFuture;

use crate::plan::CheckedPlan;
use crate::text::fold;

/// The caller as the router sees it: reports of all stages are counted as one row, as the outer caller needs them.
pub(super) struct Stages {
    caller: Option<Arc<dyn Caller>>,
    told: AtomicU32,
}

impl Stages {
    pub fn new(caller: Option<Arc<dyn Caller>>) -> Self {
        Self { caller, told: AtomicU32::new(0) }
    }

    /// Tells how far it has come. Only ids, names of tools, times and the user's own words.
    pub fn tell(&self, message: String) {
        self.progress(Progress { message: Some(message), ..Progress::default() });
    }

    pub fn tell_plan(&self, plan: &CheckedPlan, query: &str) {
        let squeezed = |text: &str| fold(text).chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        let asked = squeezed(query);
        for step in plan.steps() {
            let mut line = format!("plan step {}: {} {}", step.step_id, step.clinic, step.action);
            for text in step.parameters.values().filter_map(|v| v.as_str()) {
                // A model's words would reach the user unverified; the user's own may be repeated.
                let shown = if asked.contains(&squeezed(text)) { format!(" \"{text}\"") } else { " …".to_owned() };
                line.push_str(&shown);
            }
            self.tell(line);
        }
    }
}

impl Caller for Stages {
    fn progress(&self, progress: Progress) {
        let Some(caller) = &self.caller else { return };
        let done = f64::from(self.told.fetch_add(1, Ordering::Relaxed) + 1);
        caller.progress(Progress { done, total: None, message: progress.message });
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async { Err(Failure::nobody_to_ask("nobody is asked while clinics are")) })
    }
}
