use std::sync::Arc;

use callboard_message::{Failure, Message, Speaker};
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};

use super::candidates::{Candidate, Candidates, Ranked};
use super::clarity::{clarifying_question, content_weight, continues_conversation, vagueness};
use super::execution;
use super::plan::{RequestPart, is_several, split_parts, steps};
use super::reading::RequestReading;
use super::refusal::{Refusal, refusal_in_tokens};
use super::tools::choose_tool;
use crate::decide::limits::{REQUEST_CHARS_MAX, RISK_MAX_DEFAULT};
use crate::decide::{
    Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute,
    DecideSplit, DecideTool, DeciderReply, FollowUp, MakeSteps, Recovery, Route, RoutingContext,
    Split, StepPlan, StepPlanError, Synthesis, Synthesize, TOOL_LLM, ToolChoice, Turn, WriteAnswer,
};

/// Minimum evidence for choosing a local tool.
const TOOL_FROM: f32 = 0.5;
/// Minimum evidence for choosing an agent.
const AGENT_FROM: f32 = 0.15;
/// Vagueness of a request above which the rules ask the user.
const VAGUE_ABOVE: f32 = 0.8;
/// Confidence of a route to [`TOOL_LLM`](crate::decide::TOOL_LLM) if no other tool or agent fits.
/// It is high enough to avoid another clarifying question.
const CONFIDENCE_LLM_DEFAULT: f32 = 0.5;
/// Factors for the evidence of the user's two previous turns, the newest first.
const SHARE_BEFORE: [f32; 2] = [0.6, 0.3];
/// Maximum evidence for a candidate that is taken from one previous turn.
const EVIDENCE_BEFORE: f32 = 1.5;
/// Content weight of a request below which the user's previous turns are considered too.
const GOES_ON_BELOW: f32 = 3.0;
/// Minimum evidence at which a request is understood without the user's previous turns.
const CLEAR_FROM: f32 = 0.9;
/// Scale for converting evidence to confidence. At this evidence, and without a second candidate,
/// the confidence is 0.63 (`1 - 1/e`). A higher scale lowers all confidences.
const EVIDENCE_HALF_CONFIDENCE: f32 = 0.9;

/// Agent that decides by built-in rules. It serves all decision points, but can't write answers:
/// its reply to [`WriteAnswer`](crate::decide::WriteAnswer) (DP4) is always unclear.
#[derive(Debug)]
pub struct RulesDecider {
    max_risk: f32,
    /// Routing context that the cached `candidates` were built from.
    world: Option<Arc<RoutingContext>>,
    candidates: Arc<Candidates>,
    /// Latest request and its analysis, cached because one request passes several decision points.
    last: Option<(String, Arc<RequestReading>)>,
}

impl Default for RulesDecider {
    fn default() -> Self {
        Self {
            max_risk: RISK_MAX_DEFAULT,
            world: None,
            candidates: Arc::default(),
            last: None,
        }
    }
}

/// Returns the vagueness of a request, from 0 (clear) to 1. Above 0.8 the user should be asked a
/// clarifying question.
pub fn request_vagueness(request: &str, history: &[Turn]) -> f32 {
    vagueness(
        &RequestReading::new(request),
        history,
        &Candidates::default(),
    )
    .0
}

impl RulesDecider {
    /// Creates a decider with the built-in rules and the default risk threshold.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the risk threshold, 0 to 1. Riskier actions need confirmation.
    pub fn with_max_risk(self, max_risk: f32) -> Self {
        Self { max_risk, ..self }
    }

    /// Returns the analysis of the request and the candidates of the routing context, from the
    /// cache if they are unchanged.
    fn read(
        &mut self,
        request: &str,
        world: &Arc<RoutingContext>,
    ) -> Result<(Arc<RequestReading>, Arc<Candidates>), Failure> {
        let reading = self.reading(request)?;
        if !self
            .world
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, world))
        {
            self.candidates = Arc::new(Candidates::of(&world.tools, &world.agents));
            self.world = Some(world.clone());
        }
        Ok((reading, self.candidates.clone()))
    }

    /// Returns the analysis of the request, from the cache if the request is unchanged. Fails with
    /// `InvalidInput` for more than [`REQUEST_CHARS_MAX`] characters.
    fn reading(&mut self, request: &str) -> Result<Arc<RequestReading>, Failure> {
        let chars = request.chars().count();
        if chars > REQUEST_CHARS_MAX {
            return Err(Failure::invalid(format!(
                "the request has {chars} characters, more than {REQUEST_CHARS_MAX}: send a shorter one"
            )));
        }
        if let Some((_, reading)) = self.last.as_ref().filter(|(last, _)| last == request) {
            return Ok(reading.clone());
        }
        let reading = Arc::new(RequestReading::new(request));
        self.last = Some((request.to_owned(), reading.clone()));
        Ok(reading)
    }
}

fn find_refusal(reading: &RequestReading) -> Option<Refusal> {
    refusal_in_tokens(&reading.tokens, reading.english, reading.portuguese)
}

/// Ranks the candidates by evidence in the request. A request that only continues the conversation
/// also uses the evidence of the user's last two turns.
fn rank_candidates<'a>(
    candidates: &'a Candidates,
    reading: &RequestReading,
    history: &[Turn],
) -> Vec<Ranked<'a>> {
    let mut ranked = candidates.rank(reading, &reading.wish);
    let is_clear = ranked
        .first()
        .is_some_and(|first| first.evidence >= CLEAR_FROM);
    if is_clear
        || reading.has_content()
        || content_weight(reading, &reading.wish) >= GOES_ON_BELOW
        || !continues_conversation(history)
    {
        return ranked;
    }
    let said = history
        .iter()
        .rev()
        .filter(|turn| turn.by == Speaker::User)
        .map(|turn| RequestReading::new(&turn.text));
    for (before, share) in said.zip(SHARE_BEFORE) {
        for earlier in candidates.rank(&before, &before.wish) {
            if let Some(own) = ranked
                .iter_mut()
                .find(|own| own.candidate.id == earlier.candidate.id)
            {
                own.evidence += share * earlier.evidence.min(EVIDENCE_BEFORE);
            }
        }
    }
    ranked.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
    ranked
}

/// Returns the confidence, 0 to 1, in a candidate with this evidence, where `next` is the evidence
/// of the second best.
fn confidence(evidence: f32, next: f32) -> f32 {
    let [own, next] = [evidence, next]
        .map(|evidence| 1.0 - (-evidence.max(0.0) / EVIDENCE_HALF_CONFIDENCE).exp());
    (own * 0.6 + (own - next).max(0.0) * 0.4).clamp(0.36, 1.0)
}

impl Agent for RulesDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DecideFollowUp>()
            .sync::<DecideClarity>()
            .sync::<DecideSplit>()
            .sync::<MakeSteps>();
        on.sync::<DecideRoute>()
            .sync::<DecideTool>()
            .sync::<WriteAnswer>();
        on.sync::<DecideRecovery>()
            .sync::<Synthesize>()
            .sync::<DecideConfirm>();
    }
}

/// Result of a decision by rules.
type RuleResult<T> = Result<DeciderReply<T>, Failure>;

/// Decision message that the rules can answer.
pub(super) trait RuleDecision: Message {
    fn decide(&self, rules: &mut RulesDecider) -> Self::Reply;
}

impl<D: RuleDecision> SyncHandler<D> for RulesDecider {
    fn handle(&mut self, asked: D, _: &mut Context) -> D::Reply {
        asked.decide(self)
    }
}

impl RuleDecision for DecideFollowUp {
    fn decide(&self, _: &mut RulesDecider) -> RuleResult<FollowUp> {
        Ok(execution::decide_follow_up(self))
    }
}

/// NP1: whether the request is clear.
impl RuleDecision for DecideClarity {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<Clarity> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if find_refusal(&reading).is_some() {
            return Ok(DeciderReply::clear(
                Clarity::Clear,
                0.9,
                "it is to be refused, not asked about",
            ));
        }
        let (vague, missing) = vagueness(&reading, &self.history, &candidates);
        let is_named = candidates.addressed_agent(&reading).is_some();
        Ok(match missing.filter(|_| vague > VAGUE_ABOVE && !is_named) {
            Some(missing) => {
                let question = clarifying_question(&reading, missing, &candidates);
                DeciderReply::clear(
                    Clarity::NeedsClarify { question },
                    vague,
                    format!("vagueness {vague:.2}: {missing:?}"),
                )
            }
            None => {
                DeciderReply::clear(Clarity::Clear, 1.0 - vague, format!("vagueness {vague:.2}"))
            }
        })
    }
}

/// NP2.A: whether the request has several parts.
impl RuleDecision for DecideSplit {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<Split> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if find_refusal(&reading).is_some() {
            return Ok(DeciderReply::clear(
                Split::No,
                0.9,
                "it is to be refused as a whole",
            ));
        }
        if let Some(agent) = candidates.addressed_agent(&reading) {
            return Ok(DeciderReply::clear(
                Split::No,
                0.9,
                format!("{} is named", agent.id),
            ));
        }
        let parts = split_parts(&reading, &candidates);
        let targets = parts
            .iter()
            .map(|part| part.target.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        Ok(match is_several(&parts) {
            true => DeciderReply::clear(
                Split::Yes,
                least_confidence(&parts),
                format!("parts for {targets}"),
            ),
            false => DeciderReply::clear(Split::No, 0.7, "one part"),
        })
    }
}

/// NP2.B: the steps of the request.
impl RuleDecision for MakeSteps {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<StepPlan> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        let parts = split_parts(&reading, &candidates);
        Ok(match StepPlan::try_new(steps(&reading, &parts)) {
            Ok(plan) => DeciderReply::clear(plan, least_confidence(&parts), "a step for each part"),
            Err(StepPlanError::Empty) => {
                DeciderReply::unclear("no part of it is for anybody in particular")
            }
            Err(error) => DeciderReply::unclear(error.to_string()),
        })
    }
}

/// DP2: routes to an agent addressed by name, else to the best reachable agent or local tool.
impl RuleDecision for DecideRoute {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<Route> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if let Some(Refusal {
            class,
            score,
            reason,
        }) = find_refusal(&reading)
        {
            return Ok(DeciderReply::clear(
                Route::Reject { reason },
                score,
                format!("refused: {class}"),
            ));
        }
        let remote = |agent: &Candidate| Route::Remote {
            agent: agent.id.clone(),
        };
        if let Some(agent) = candidates.addressed_agent(&reading) {
            return Ok(DeciderReply::clear(
                remote(agent),
                0.9,
                format!("{} is named", agent.id),
            ));
        }
        let ranked = rank_candidates(&candidates, &reading, &self.history);
        let enough = |each: &&Ranked<'_>| {
            each.evidence
                >= if each.candidate.is_agent {
                    AGENT_FROM
                } else {
                    TOOL_FROM
                }
        };
        let down = ranked
            .iter()
            .find(enough)
            .map(|each| each.candidate)
            .filter(|first| !first.is_up);
        let down = down
            .map(|agent| format!("; {} is down", agent.id))
            .unwrap_or_default();
        let mut up = ranked.iter().filter(|each| each.candidate.is_up);
        let (first, next) = (up.next(), up.next().map_or(0.0, |next| next.evidence));
        Ok(match first.filter(enough) {
            Some(Ranked {
                candidate,
                evidence,
            }) if candidate.is_agent => {
                let why = format!(
                    "{}: evidence {evidence:.2}, next {next:.2}{down}",
                    candidate.id
                );
                DeciderReply::clear(remote(candidate), confidence(*evidence, next), why)
            }
            Some(Ranked {
                candidate,
                evidence,
            }) => {
                let why = format!("the tool {}{down}", candidate.id);
                DeciderReply::clear(
                    Route::Local,
                    confidence(*evidence, next).max(CONFIDENCE_LLM_DEFAULT),
                    why,
                )
            }
            None => DeciderReply::clear(
                Route::Local,
                CONFIDENCE_LLM_DEFAULT,
                format!("nobody's skill{down}"),
            ),
        })
    }
}

/// DP3: chooses the best local tool and its parameters.
impl RuleDecision for DecideTool {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<ToolChoice> {
        let Self {
            request,
            history,
            tools,
            ..
        } = self;
        let reading = rules.reading(request)?;
        let candidates = Candidates::of(tools, &[]);
        let ranked = rank_candidates(&candidates, &reading, history);
        let best = ranked.first().filter(|best| best.evidence >= TOOL_FROM);
        let (name, sure) = best.map_or((TOOL_LLM, CONFIDENCE_LLM_DEFAULT), |best| {
            (
                &*best.candidate.id,
                confidence(best.evidence, 0.0).max(CONFIDENCE_LLM_DEFAULT),
            )
        });
        let tool = tools.iter().find(|tool| tool.name == name);
        Ok(
            match tool.and_then(|tool| choose_tool(tool, &reading, request, history)) {
                Some(choice) => DeciderReply::clear(choice, sure, format!("the tool {name}")),
                None if tools.iter().any(|tool| tool.name == TOOL_LLM) => DeciderReply::clear(
                    ToolChoice::llm(request),
                    CONFIDENCE_LLM_DEFAULT,
                    "the tool that answers with words",
                ),
                None => {
                    DeciderReply::unclear("none of the tools fits, or what it needs isn't there")
                }
            },
        )
    }
}

/// Returns the lowest confidence of any part.
fn least_confidence(parts: &[RequestPart]) -> f32 {
    parts
        .iter()
        .map(|part| confidence(part.evidence, 0.0))
        .fold(1.0, f32::min)
}

impl RuleDecision for WriteAnswer {
    fn decide(&self, _: &mut RulesDecider) -> RuleResult<String> {
        Ok(DeciderReply::unclear(
            "rules don't write answers: that takes a language model",
        ))
    }
}

impl RuleDecision for DecideRecovery {
    fn decide(&self, _: &mut RulesDecider) -> RuleResult<Recovery> {
        Ok(execution::decide_recovery(self))
    }
}

impl RuleDecision for Synthesize {
    fn decide(&self, _: &mut RulesDecider) -> RuleResult<Synthesis> {
        Ok(execution::synthesize(self))
    }
}

impl RuleDecision for DecideConfirm {
    fn decide(&self, rules: &mut RulesDecider) -> RuleResult<Confirm> {
        Ok(execution::decide_confirm(self, rules.max_risk))
    }
}
