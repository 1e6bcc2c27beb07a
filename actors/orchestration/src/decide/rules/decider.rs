use callboard_message::Failure;
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler};

use super::{Rules, run_time};
use crate::decide::limits::REQUEST_CHARS_MAX;
use crate::decide::limits::RISK_MAX_DEFAULT;
use crate::decide::{
    Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute, DecideSplit,
    DecideTool, Decided, FollowUp, MakeSteps, Recovery, Route, Split, StepPlan, Synthesis, Synthesize, ToolChoice,
    WriteAnswer,
};

/// Decides every point by rules; the answer itself (DP4) is the one thing that it never has.
#[derive(Debug)]
pub struct RulesDecider {
    rules: Rules,
    max_risk: f32,
}

impl Default for RulesDecider {
    fn default() -> Self {
        Self { rules: Rules::default(), max_risk: RISK_MAX_DEFAULT }
    }
}

impl RulesDecider {
    /// With the rules that come with callboard.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same; what is riskier than this, 0 to 1, has to be confirmed.
    pub fn with_max_risk(self, max_risk: f32) -> Self {
        Self { max_risk, ..self }
    }
}

impl Agent for RulesDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DecideFollowUp>().sync::<DecideClarity>().sync::<DecideSplit>().sync::<MakeSteps>();
        on.sync::<DecideRoute>().sync::<DecideTool>().sync::<WriteAnswer>();
        on.sync::<DecideRecovery>().sync::<Synthesize>().sync::<DecideConfirm>();
    }
}

fn within_limit(request: &str) -> Result<(), Failure> {
    let chars = request.chars().count();
    if chars > REQUEST_CHARS_MAX {
        let message = format!("the request has {chars} characters, more than {REQUEST_CHARS_MAX}: send a shorter one");
        return Err(Failure::invalid(message));
    }
    Ok(())
}

impl SyncHandler<DecideFollowUp> for RulesDecider {
    fn handle(&mut self, asked: DecideFollowUp, _cx: &mut Cx) -> Result<Decided<FollowUp>, Failure> {
        Ok(run_time::follow_up(&asked))
    }
}

impl SyncHandler<DecideClarity> for RulesDecider {
    fn handle(&mut self, asked: DecideClarity, _cx: &mut Cx) -> Result<Decided<Clarity>, Failure> {
        within_limit(&asked.request)?;
        Ok(self.rules.clarity(&asked.request, &asked.history))
    }
}

impl SyncHandler<DecideSplit> for RulesDecider {
    fn handle(&mut self, asked: DecideSplit, _cx: &mut Cx) -> Result<Decided<Split>, Failure> {
        within_limit(&asked.request)?;
        Ok(self.rules.split(&asked.request, &asked.history, &asked.world))
    }
}

impl SyncHandler<MakeSteps> for RulesDecider {
    fn handle(&mut self, asked: MakeSteps, _cx: &mut Cx) -> Result<Decided<StepPlan>, Failure> {
        within_limit(&asked.request)?;
        Ok(self.rules.steps(&asked.request, &asked.world))
    }
}

impl SyncHandler<DecideRoute> for RulesDecider {
    fn handle(&mut self, asked: DecideRoute, _cx: &mut Cx) -> Result<Decided<Route>, Failure> {
        within_limit(&asked.request)?;
        Ok(self.rules.route(&asked.request, &asked.history, &asked.world))
    }
}

impl SyncHandler<DecideTool> for RulesDecider {
    fn handle(&mut self, asked: DecideTool, _cx: &mut Cx) -> Result<Decided<ToolChoice>, Failure> {
        within_limit(&asked.request)?;
        Ok(self.rules.tool(&asked.request, &asked.history, &asked.tools))
    }
}

impl SyncHandler<WriteAnswer> for RulesDecider {
    fn handle(&mut self, _asked: WriteAnswer, _cx: &mut Cx) -> Result<Decided<String>, Failure> {
        Ok(Decided::unclear("rules don't write answers: that takes a language model"))
    }
}

impl SyncHandler<DecideRecovery> for RulesDecider {
    fn handle(&mut self, asked: DecideRecovery, _cx: &mut Cx) -> Result<Decided<Recovery>, Failure> {
        Ok(run_time::recovery(&asked))
    }
}

impl SyncHandler<Synthesize> for RulesDecider {
    fn handle(&mut self, asked: Synthesize, _cx: &mut Cx) -> Result<Decided<Synthesis>, Failure> {
        Ok(run_time::synthesis(&asked))
    }
}

impl SyncHandler<DecideConfirm> for RulesDecider {
    fn handle(&mut self, asked: DecideConfirm, _cx: &mut Cx) -> Result<Decided<Confirm>, Failure> {
        Ok(run_time::confirm(&asked, self.max_risk))
    }
}
