use callboard_message::{Failure, Message};

use super::limits::{CONFIDENCE_FALLBACK, QUESTION_CHARS_MAX};
use super::messages::{
    Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute,
    DecideSplit, DecideTool, FollowUp, MakeSteps, Outcome, Recovery, Route, Split, Synthesis,
    Synthesize, ToolChoice, WriteAnswer,
};
use super::point::{Decided, Point};
use super::rules::run_time::synthesis;
use super::steps::StepPlan;

/// A message that asks for a decision.
pub trait Decision: Message<Reply = Result<Decided<Self::Outcome>, Failure>> + Clone {
    /// The point that it is of.
    const POINT: Point;
    /// Type of the decision.
    type Outcome: Outcome;

    /// Outcome where nobody decides: the decider is unclear, fails, is late, or names what isn't there. `None` where nothing
    /// can.
    fn fallback(&self) -> Option<Self::Outcome> {
        None
    }

    /// Whether the outcome names only what is there, and keeps its limits.
    fn fits(&self, _outcome: &Self::Outcome) -> bool {
        true
    }
}

impl Decision for DecideFollowUp {
    const POINT: Point = Point::FollowUp;
    type Outcome = FollowUp;

    fn fallback(&self) -> Option<FollowUp> {
        Some(FollowUp::NeedHumanInput { question: None })
    }
}

impl Decision for DecideClarity {
    const POINT: Point = Point::Clarity;
    type Outcome = Clarity;

    fn fallback(&self) -> Option<Clarity> {
        Some(Clarity::Clear)
    }

    fn fits(&self, outcome: &Clarity) -> bool {
        match outcome {
            Clarity::Clear => true,
            Clarity::NeedsClarify { question } => {
                !question.trim().is_empty() && question.chars().count() <= QUESTION_CHARS_MAX
            }
        }
    }
}

impl Decision for DecideSplit {
    const POINT: Point = Point::Split;
    type Outcome = Split;

    fn fallback(&self) -> Option<Split> {
        Some(Split::No)
    }
}

impl Decision for MakeSteps {
    const POINT: Point = Point::Plan;
    type Outcome = StepPlan;
}

impl Decision for DecideRoute {
    const POINT: Point = Point::Route;
    type Outcome = Route;

    fn fallback(&self) -> Option<Route> {
        Some(Route::Local)
    }

    fn fits(&self, outcome: &Route) -> bool {
        match outcome {
            Route::Local => true,
            Route::Remote { agent } => self.world.agent(agent).is_some(),
            Route::Reject { reason } => !reason.trim().is_empty(),
        }
    }
}

impl Decision for DecideTool {
    const POINT: Point = Point::Tool;
    type Outcome = ToolChoice;

    fn fallback(&self) -> Option<ToolChoice> {
        Some(ToolChoice::llm(&self.request))
    }

    fn fits(&self, outcome: &ToolChoice) -> bool {
        self.tools.iter().any(|tool| tool.name == outcome.tool_name)
    }
}

impl Decision for WriteAnswer {
    const POINT: Point = Point::Answer;
    type Outcome = String;
}

impl Decision for DecideRecovery {
    const POINT: Point = Point::Recovery;
    type Outcome = Recovery;

    fn fallback(&self) -> Option<Recovery> {
        let target = self.action.target();
        Some(match self.may_ask {
            true => Recovery::AskHuman {
                message: format!("{target} failed: {}. What should I do?", self.error),
            },
            false => Recovery::Abandon {
                reason: self.error.clone(),
            },
        })
    }

    fn fits(&self, outcome: &Recovery) -> bool {
        match outcome {
            Recovery::UseAlternative { which } => {
                self.tools.contains(which) || self.agents.contains(which)
            }
            Recovery::AskHuman { message } => self.may_ask && !message.trim().is_empty(),
            Recovery::RetrySame | Recovery::RetryModified { .. } | Recovery::Abandon { .. } => true,
        }
    }
}

impl Decision for Synthesize {
    const POINT: Point = Point::Synthesis;
    type Outcome = Synthesis;

    fn fallback(&self) -> Option<Synthesis> {
        // What rules make of the results, but never sure enough to go on unasked.
        let ruled = synthesis(self).outcome?;
        Some(Synthesis {
            confidence: ruled.confidence.min(CONFIDENCE_FALLBACK),
            ..ruled
        })
    }

    fn fits(&self, outcome: &Synthesis) -> bool {
        !outcome.final_answer.trim().is_empty() && (0.0..=1.0).contains(&outcome.confidence)
    }
}

impl Decision for DecideConfirm {
    const POINT: Point = Point::Confirm;
    type Outcome = Confirm;

    fn fallback(&self) -> Option<Confirm> {
        Some(Confirm::ConfirmNeeded)
    }
}
