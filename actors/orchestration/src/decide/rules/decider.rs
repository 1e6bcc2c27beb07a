use std::sync::Arc;

use callboard_message::{Failure, Message, Speaker};
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler};

use super::candidates::{Candidate, Candidates, Ranked};
use super::clarity::{carries_on, mass, question, vagueness};
use super::plan::{Part, is_several, parts, steps};
use super::reading::Reading;
use super::refusal::{Refusal, refusal};
use super::run_time;
use super::tools::choice;
use crate::decide::limits::{REQUEST_CHARS_MAX, RISK_MAX_DEFAULT};
use crate::decide::{
    Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute,
    DecideSplit, DecideTool, Decided, FollowUp, MakeSteps, Recovery, Route, Split, StepPlan,
    StepPlanError, Synthesis, Synthesize, TOOL_LLM, ToolChoice, Turn, World, WriteAnswer,
};

/// Evidence from which on one of our tools does it, or another agent.
const TOOL_FROM: f32 = 0.5;
const AGENT_FROM: f32 = 0.15;
/// Vagueness above which somebody is asked.
const VAGUE_ABOVE: f32 = 0.8;
/// Confidence in the tool that answers with words, where nothing else fits: enough not to ask again.
const CONFIDENCE_ELSE: f32 = 0.5;
/// Share of the evidence of what was said before, the newest first, and the most that it comes to.
const SHARE_BEFORE: [f32; 2] = [0.6, 0.3];
const EVIDENCE_BEFORE: f32 = 1.5;
/// Weight of words below which a request goes on from what was said before.
const GOES_ON_BELOW: f32 = 3.0;
/// Evidence from which on it doesn't.
const CLEAR_FROM: f32 = 0.9;
/// Evidence at which confidence is about two thirds.
const HALF: f32 = 0.9;

/// Decides every point by rules; the answer itself (DP4) is the one thing that it never has.
#[derive(Debug)]
pub struct RulesDecider {
    max_risk: f32,
    /// The world that was seen last, and who is in it.
    world: Option<Arc<World>>,
    candidates: Arc<Candidates>,
    /// What was read last: one request is asked about at several points.
    last: Option<(String, Arc<Reading>)>,
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

/// How vague a request is, 0 to 1: above 0.8 somebody should be asked.
pub fn vague(request: &str, history: &[Turn]) -> f32 {
    vagueness(&Reading::new(request), history, &Candidates::default()).0
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

    /// The request and who is in the world, read: a world only where it is another than the last one.
    fn read(
        &mut self,
        request: &str,
        world: &Arc<World>,
    ) -> Result<(Arc<Reading>, Arc<Candidates>), Failure> {
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

    /// The request, read: only where it isn't the last one.
    fn reading(&mut self, request: &str) -> Result<Arc<Reading>, Failure> {
        let chars = request.chars().count();
        if chars > REQUEST_CHARS_MAX {
            return Err(Failure::invalid(format!(
                "the request has {chars} characters, more than {REQUEST_CHARS_MAX}: send a shorter one"
            )));
        }
        if let Some((_, reading)) = self.last.as_ref().filter(|(last, _)| last == request) {
            return Ok(reading.clone());
        }
        let reading = Arc::new(Reading::new(request));
        self.last = Some((request.to_owned(), reading.clone()));
        Ok(reading)
    }
}

fn refused(reading: &Reading) -> Option<Refusal> {
    refusal(&reading.tokens, reading.english, reading.portuguese)
}

/// The candidates by evidence in the request, and in what was said before where it only goes on from that.
fn ranked<'a>(candidates: &'a Candidates, reading: &Reading, history: &[Turn]) -> Vec<Ranked<'a>> {
    let mut ranked = candidates.ranked(reading, &reading.wish);
    let is_clear = ranked
        .first()
        .is_some_and(|first| first.evidence >= CLEAR_FROM);
    if is_clear
        || reading.has_content()
        || mass(reading, &reading.wish, 1.0) >= GOES_ON_BELOW
        || !carries_on(history)
    {
        return ranked;
    }
    let said = history
        .iter()
        .rev()
        .filter(|turn| turn.by == Speaker::User)
        .map(|turn| Reading::new(&turn.text));
    for (before, share) in said.zip(SHARE_BEFORE) {
        for earlier in candidates.ranked(&before, &before.wish) {
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

/// How sure, from the evidence and the next best.
fn confidence(evidence: f32, next: f32) -> f32 {
    let [own, next] = [evidence, next].map(|evidence| 1.0 - (-evidence.max(0.0) / HALF).exp());
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

/// Decision of the rules.
type Ruling<T> = Result<Decided<T>, Failure>;

/// A point that rules decide.
pub(super) trait Ruled: Message {
    fn decide(&self, rules: &mut RulesDecider) -> Self::Reply;
}

impl<D: Ruled> SyncHandler<D> for RulesDecider {
    fn handle(&mut self, asked: D, _: &mut Cx) -> D::Reply {
        asked.decide(self)
    }
}

impl Ruled for DecideFollowUp {
    fn decide(&self, _: &mut RulesDecider) -> Ruling<FollowUp> {
        Ok(run_time::follow_up(self))
    }
}

/// NP1.
impl Ruled for DecideClarity {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<Clarity> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if refused(&reading).is_some() {
            return Ok(Decided::sure(
                Clarity::Clear,
                0.9,
                "it is to be refused, not asked about",
            ));
        }
        let (vague, missing) = vagueness(&reading, &self.history, &candidates);
        let is_named = candidates.named(&reading).is_some();
        Ok(match missing.filter(|_| vague > VAGUE_ABOVE && !is_named) {
            Some(missing) => {
                let question = question(&reading, missing, &candidates);
                Decided::sure(
                    Clarity::NeedsClarify { question },
                    vague,
                    format!("vagueness {vague:.2}: {missing:?}"),
                )
            }
            None => Decided::sure(Clarity::Clear, 1.0 - vague, format!("vagueness {vague:.2}")),
        })
    }
}

/// NP2.A.
impl Ruled for DecideSplit {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<Split> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if refused(&reading).is_some() {
            return Ok(Decided::sure(
                Split::No,
                0.9,
                "it is to be refused as a whole",
            ));
        }
        if let Some(agent) = candidates.named(&reading) {
            return Ok(Decided::sure(
                Split::No,
                0.9,
                format!("{} is named", agent.id),
            ));
        }
        let parts = parts(&reading, &candidates);
        let targets = parts
            .iter()
            .map(|part| part.target.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        Ok(match is_several(&parts) {
            true => Decided::sure(Split::Yes, least(&parts), format!("parts for {targets}")),
            false => Decided::sure(Split::No, 0.7, "one part"),
        })
    }
}

/// NP2.B.
impl Ruled for MakeSteps {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<StepPlan> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        let parts = parts(&reading, &candidates);
        Ok(match StepPlan::checked(steps(&reading, &parts)) {
            Ok(plan) => Decided::sure(plan, least(&parts), "a step for each part"),
            Err(StepPlanError::Empty) => {
                Decided::unclear("no part of it is for anybody in particular")
            }
            Err(error) => Decided::unclear(error.to_string()),
        })
    }
}

/// DP2. An agent that is named gets it; else whoever has most evidence and is up.
impl Ruled for DecideRoute {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<Route> {
        let (reading, candidates) = rules.read(&self.request, &self.world)?;
        if let Some(Refusal {
            class,
            score,
            reason,
        }) = refused(&reading)
        {
            return Ok(Decided::sure(
                Route::Reject { reason },
                score,
                format!("refused: {class}"),
            ));
        }
        let remote = |agent: &Candidate| Route::Remote {
            agent: agent.id.clone(),
        };
        if let Some(agent) = candidates.named(&reading) {
            return Ok(Decided::sure(
                remote(agent),
                0.9,
                format!("{} is named", agent.id),
            ));
        }
        let ranked = ranked(&candidates, &reading, &self.history);
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
                Decided::sure(remote(candidate), confidence(*evidence, next), why)
            }
            Some(Ranked {
                candidate,
                evidence,
            }) => {
                let why = format!("the tool {}{down}", candidate.id);
                Decided::sure(
                    Route::Local,
                    confidence(*evidence, next).max(CONFIDENCE_ELSE),
                    why,
                )
            }
            None => Decided::sure(
                Route::Local,
                CONFIDENCE_ELSE,
                format!("nobody's skill{down}"),
            ),
        })
    }
}

/// DP3.
impl Ruled for DecideTool {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<ToolChoice> {
        let Self {
            request,
            history,
            tools,
            ..
        } = self;
        let reading = rules.reading(request)?;
        let candidates = Candidates::of(tools, &[]);
        let ranked = ranked(&candidates, &reading, history);
        let best = ranked.first().filter(|best| best.evidence >= TOOL_FROM);
        let (name, sure) = best.map_or((TOOL_LLM, CONFIDENCE_ELSE), |best| {
            (
                &*best.candidate.id,
                confidence(best.evidence, 0.0).max(CONFIDENCE_ELSE),
            )
        });
        let tool = tools.iter().find(|tool| tool.name == name);
        Ok(
            match tool.and_then(|tool| choice(tool, &reading, request, history)) {
                Some(choice) => Decided::sure(choice, sure, format!("the tool {name}")),
                None if tools.iter().any(|tool| tool.name == TOOL_LLM) => Decided::sure(
                    ToolChoice::llm(request),
                    CONFIDENCE_ELSE,
                    "the tool that answers with words",
                ),
                None => Decided::unclear("none of the tools fits, or what it needs isn't there"),
            },
        )
    }
}

/// How sure the least sure part is.
fn least(parts: &[Part]) -> f32 {
    parts
        .iter()
        .map(|part| confidence(part.evidence, 0.0))
        .fold(1.0, f32::min)
}

impl Ruled for WriteAnswer {
    fn decide(&self, _: &mut RulesDecider) -> Ruling<String> {
        Ok(Decided::unclear(
            "rules don't write answers: that takes a language model",
        ))
    }
}

impl Ruled for DecideRecovery {
    fn decide(&self, _: &mut RulesDecider) -> Ruling<Recovery> {
        Ok(run_time::recovery(self))
    }
}

impl Ruled for Synthesize {
    fn decide(&self, _: &mut RulesDecider) -> Ruling<Synthesis> {
        Ok(run_time::synthesis(self))
    }
}

impl Ruled for DecideConfirm {
    fn decide(&self, rules: &mut RulesDecider) -> Ruling<Confirm> {
        Ok(run_time::confirm(self, rules.max_risk))
    }
}
