//! Several models as one: the caller's hints and priorities choose, and where one fails the next is asked.

use std::cmp::Ordering;
use std::sync::Arc;

use callboard_message::surface::CreateMessage;
use callboard_message::{Failure, FailureKind, Message, RawObject, SampleAnswer};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};

use super::config::Scores;
use super::error::ModelError;
use super::request::Preferences;
use super::{AskModel, MODEL_HANDLERS_MAX};

/// By what a model is chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Card {
    /// Its own name and others, in lower case.
    names: Vec<String>,
    scores: Scores,
}

impl Card {
    /// A model of this name.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for scores that aren't from 0 to 1.
    pub fn new(name: &str, aliases: Vec<String>, scores: Scores) -> Result<Self, ModelError> {
        if [scores.cost, scores.speed, scores.intelligence].iter().any(|score| !(0.0..=1.0).contains(score)) {
            return Err(ModelError::Setting { setting: "scores", rule: "each is a number from 0 to 1" });
        }
        let names = std::iter::once(name).chain(aliases.iter().map(String::as_str)).map(str::to_lowercase).collect();
        Ok(Self { names, scores })
    }

    /// The same in JSON: `{"names": [..], "scores": {"cost": .., "speed": .., "intelligence": ..}}`.
    pub(super) fn about(&self) -> RawObject {
        let Scores { cost, speed, intelligence } = self.scores;
        let scores = RawObject::of("cost", cost).with("speed", speed).with("intelligence", intelligence);
        RawObject::of("names", &self.names).with("scores", scores)
    }

    /// A hint is a part of a name (client/sampling, "Model Preferences").
    fn fits(&self, hint: &str) -> bool {
        self.names.iter().any(|name| name.contains(hint))
    }

    fn worth(&self, preferences: &Preferences) -> f64 {
        preferences.cost * self.scores.cost
            + preferences.speed * self.scores.speed
            + preferences.intelligence * self.scores.intelligence
    }
}

/// One of several: whatever handles [`CreateMessage`] under a name of the directory.
#[derive(Debug, Clone)]
pub struct Member {
    name: String,
    card: Card,
}

impl Member {
    /// The agent that the directory has under `name` when it is asked; hints find it by that name too.
    pub fn new(name: impl Into<String>, mut card: Card) -> Self {
        let name = name.into();
        card.names.push(name.to_lowercase());
        Self { name, card }
    }
}

/// Several models as one.
#[derive(Debug, Clone)]
pub struct Models {
    members: Arc<[Member]>,
    fallback: bool,
}

impl Models {
    /// These, the preferred first; with `fallback` the next is asked where one fails.
    ///
    /// # Errors
    /// [`ModelError::Setting`] without a member.
    pub fn new(members: Vec<Member>, fallback: bool) -> Result<Self, ModelError> {
        match members.is_empty() {
            true => Err(ModelError::Setting { setting: "members", rule: "there is at least one" }),
            false => Ok(Self { members: members.into(), fallback }),
        }
    }

    /// All members, the best first: those that a hint names, in the order of the hints; then the others. Among equals what the
    /// caller cares for decides, and after that their order here.
    fn ranked(&self, preferences: &Preferences) -> Vec<&Member> {
        let place = |member: &Member| {
            preferences.hints.iter().position(|hint| member.card.fits(hint)).unwrap_or(preferences.hints.len())
        };
        let better = |a: &&Member, b: &&Member| {
            let worth = || b.card.worth(preferences).partial_cmp(&a.card.worth(preferences));
            place(a).cmp(&place(b)).then_with(|| worth().unwrap_or(Ordering::Equal))
        };
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by(better);
        members
    }

    async fn ask<M, T>(&self, message: M, preferences: &Preferences, cx: &Cx) -> Result<T, Failure>
    where
        M: Message<Reply = Result<T, Failure>> + Clone,
    {
        let mut failed: Option<(&str, Failure)> = None;
        for member in self.ranked(preferences) {
            if let Some((before, failure)) = &failed {
                callboard_message::log::warn!(by: &member.name, failed = before, kind = %failure.kind, next = member.name, "the next model is asked");
            }
            let answered = match cx.system().directory().get(&member.name) {
                Some(agent) => cx.ask(&agent, message.clone()).await.map_err(Failure::from).and_then(|reply| reply),
                None => Err(Failure::unavailable("there is no such agent")),
            };
            match answered {
                Ok(answer) => return Ok(answer),
                Err(failure) if !self.fallback || !may_go_on(failure.kind) || cx.is_cancelled() => return Err(failure),
                Err(failure) => failed = Some((&member.name, failure)),
            }
        }
        let (name, last) = failed.ok_or_else(|| Failure::unavailable("there is no model"))?;
        Err(Failure { message: format!("no model answered; `{name}`, the last: {}", last.message), ..last })
    }
}

/// Whether another model may fare better. What doesn't fit, isn't allowed or is blocked is so everywhere.
fn may_go_on(kind: FailureKind) -> bool {
    use FailureKind::{Internal, NotFound, Overloaded, Rejected, TimedOut, Unavailable};
    matches!(kind, Internal | NotFound | Overloaded | Rejected | TimedOut | Unavailable)
}

impl Agent for Models {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(MODEL_HANDLERS_MAX).concurrent::<AskModel>(MODEL_HANDLERS_MAX);
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "members": self.members.iter().map(|member| &member.name).collect::<Vec<_>>() })
    }
}

impl ConcurrentHandler<CreateMessage> for Models {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
        let models = self.clone();
        let preferences = Preferences::read(&message);
        async move { models.ask(message, &preferences, &cx).await }
    }
}

impl ConcurrentHandler<AskModel> for Models {
    fn handle(&mut self, message: AskModel, cx: Cx) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let models = self.clone();
        async move { models.ask(message, &Preferences::default(), &cx).await }
    }
}
