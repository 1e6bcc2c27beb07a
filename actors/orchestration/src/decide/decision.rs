use callboard_message::{Failure, Message};

use super::limits::{CONFIDENCE_FALLBACK, QUESTION_CHARS_MAX, TOOL_REPLY_BYTES_MAX};
use super::messages::{
    Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideIntake, DecideRecovery,
    DecideRoute, DecideSplit, DecideTool, DecisionOutcome, FollowUp, Intake, MakeSteps, Recovery,
    Route, Split, Synthesis, Synthesize, ToolChoice, WriteAnswer,
};
use super::point::{DeciderReply, DecisionPoint};
use super::rules::execution::synthesize;
use super::steps::StepPlan;

/// Message that requests a decision at one decision point.
pub trait DecisionRequest:
    Message<Reply = Result<DeciderReply<Self::Outcome>, Failure>> + Clone
{
    /// Decision point of this message.
    const POINT: DecisionPoint;
    /// Outcome type of the decision.
    type Outcome: DecisionOutcome;
    /// Whether only the first decider is asked: the fallback applies if its decision can't be used.
    const FIRST_DECIDES_ALONE: bool = false;

    /// Returns the outcome to use if no decider returns one that can be used. `None` if this
    /// decision point has no fallback.
    fn fallback(&self) -> Option<Self::Outcome> {
        None
    }

    /// Limits the outcome of a decider that isn't the first one. Default: the outcome unchanged.
    fn limit_later_outcome(outcome: Self::Outcome) -> Self::Outcome {
        outcome
    }

    /// Returns whether the outcome names only tools and agents that exist in this message's routing
    /// context, and keeps the limits of this decision point. An invalid outcome isn't used: the next
    /// decider is asked, or the fallback applies.
    fn is_valid_outcome(&self, _outcome: &Self::Outcome) -> bool {
        true
    }
}

impl DecisionRequest for DecideFollowUp {
    const POINT: DecisionPoint = DecisionPoint::FollowUp;
    type Outcome = FollowUp;

    fn fallback(&self) -> Option<FollowUp> {
        Some(FollowUp::NeedHumanInput { question: None })
    }
}

impl DecisionRequest for DecideIntake {
    const POINT: DecisionPoint = DecisionPoint::Intake;
    type Outcome = Intake;

    fn is_valid_outcome(&self, outcome: &Intake) -> bool {
        match outcome {
            Intake::NeedsClarify { question } => self.may_clarify && is_valid_question(question),
            Intake::Split(_) => self.may_split,
            Intake::Local(choice) => self.world.tool(&choice.tool_name).is_some(),
            Intake::Remote { agent } => self.world.agent(agent).is_some(),
            Intake::Reject { reason } => !reason.trim().is_empty(),
            Intake::Answer { text } => {
                self.answer_prompt.is_some()
                    && !text.trim().is_empty()
                    && text.len() <= TOOL_REPLY_BYTES_MAX
            }
        }
    }
}

fn is_valid_question(question: &str) -> bool {
    !question.trim().is_empty() && question.chars().count() <= QUESTION_CHARS_MAX
}

impl DecisionRequest for DecideClarity {
    const POINT: DecisionPoint = DecisionPoint::Clarity;
    type Outcome = Clarity;

    fn fallback(&self) -> Option<Clarity> {
        Some(Clarity::Clear)
    }

    fn is_valid_outcome(&self, outcome: &Clarity) -> bool {
        match outcome {
            Clarity::Clear => true,
            Clarity::NeedsClarify { question } => is_valid_question(question),
        }
    }
}

impl DecisionRequest for DecideSplit {
    const POINT: DecisionPoint = DecisionPoint::Split;
    type Outcome = Split;

    fn fallback(&self) -> Option<Split> {
        Some(Split::No)
    }
}

impl DecisionRequest for MakeSteps {
    const POINT: DecisionPoint = DecisionPoint::Plan;
    type Outcome = StepPlan;
}

impl DecisionRequest for DecideRoute {
    const POINT: DecisionPoint = DecisionPoint::Route;
    type Outcome = Route;

    fn fallback(&self) -> Option<Route> {
        Some(Route::Local)
    }

    fn is_valid_outcome(&self, outcome: &Route) -> bool {
        match outcome {
            Route::Local => true,
            Route::Remote { agent } => self.world.agent(agent).is_some(),
            Route::Reject { reason } => !reason.trim().is_empty(),
        }
    }
}

impl DecisionRequest for DecideTool {
    const POINT: DecisionPoint = DecisionPoint::Tool;
    type Outcome = ToolChoice;

    fn fallback(&self) -> Option<ToolChoice> {
        Some(ToolChoice::llm(&self.request))
    }

    fn is_valid_outcome(&self, outcome: &ToolChoice) -> bool {
        self.tools.iter().any(|tool| tool.name == outcome.tool_name)
    }
}

impl DecisionRequest for WriteAnswer {
    const POINT: DecisionPoint = DecisionPoint::Answer;
    type Outcome = String;
}

impl DecisionRequest for DecideRecovery {
    const POINT: DecisionPoint = DecisionPoint::Recovery;
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

    fn is_valid_outcome(&self, outcome: &Recovery) -> bool {
        match outcome {
            Recovery::UseAlternative { which } => {
                self.tools.contains(which) || self.agents.contains(which)
            }
            Recovery::AskHuman { message } => self.may_ask && !message.trim().is_empty(),
            Recovery::RetrySame | Recovery::RetryModified { .. } | Recovery::Abandon { .. } => true,
        }
    }
}

impl DecisionRequest for Synthesize {
    const POINT: DecisionPoint = DecisionPoint::Synthesis;
    type Outcome = Synthesis;

    fn fallback(&self) -> Option<Synthesis> {
        synthesize(self).outcome.map(Self::limit_later_outcome)
    }

    /// Caps the confidence, so that a person confirms an answer that the first decider didn't make.
    fn limit_later_outcome(outcome: Synthesis) -> Synthesis {
        Synthesis {
            confidence: outcome.confidence.min(CONFIDENCE_FALLBACK),
            ..outcome
        }
    }

    fn is_valid_outcome(&self, outcome: &Synthesis) -> bool {
        !outcome.final_answer.trim().is_empty() && (0.0..=1.0).contains(&outcome.confidence)
    }
}

impl DecisionRequest for DecideConfirm {
    const POINT: DecisionPoint = DecisionPoint::Confirm;
    type Outcome = Confirm;
    // A later decider would take the place of the person.
    const FIRST_DECIDES_ALONE: bool = true;

    fn fallback(&self) -> Option<Confirm> {
        Some(Confirm::ConfirmNeeded)
    }
}
