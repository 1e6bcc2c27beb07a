//! DP1: what a person answers to another agent's question goes back to it, or a person says more first.

use std::sync::Arc;

use callboard_message::{Answer, ElicitAction, ElicitAnswer, Elicitation, Failure, Question};
use callboard_runtime::{CallMeta, Caller, Cx};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::decide::{DecideFollowUp, Deciders, FollowUp, RunId, Turn};

/// The same surroundings, in which the answers to another agent's questions are looked at before it gets them.
pub(super) fn with_follow_ups(cx: &Cx, deciders: Arc<Deciders>, run: RunId, history: Vec<Turn>) -> Cx {
    let Some(call) = cx.call() else { return cx.clone() };
    let Some(inner) = call.caller.clone() else { return cx.clone() };
    let caller = FollowUps { inner, cx: cx.clone(), deciders, run, history };
    cx.within(Arc::new(CallMeta { caller: Some(Arc::new(caller)), ..CallMeta::clone(call) }))
}

struct FollowUps {
    inner: Arc<dyn Caller>,
    /// The call without this.
    cx: Cx,
    deciders: Arc<Deciders>,
    run: RunId,
    history: Vec<Turn>,
}

impl FollowUps {
    async fn form(&self, elicitation: Elicitation) -> Result<Answer, Failure> {
        let answer = self.inner.ask(Question::Elicit(elicitation.clone())).await?;
        let Answer::Elicit(given) = &answer else { return Ok(answer) };
        // Only what was said can be said better.
        if given.action() != ElicitAction::Accept {
            return Ok(answer);
        }
        let message =
            DecideFollowUp { history: self.history.clone(), reason: elicitation.message(), message: said(given) };
        let outcome = self.deciders.decide(&self.cx, &self.run, message).await.outcome;
        let question = match outcome {
            Some(FollowUp::HandleDirectly) => return Ok(answer),
            Some(FollowUp::NeedHumanInput { question }) => question,
            None => None,
        };
        // Once more, and then it goes on as it is.
        let again = match question {
            Some(question) => Elicitation(elicitation.0.with("message", question)),
            None => elicitation,
        };
        match self.inner.ask(Question::Elicit(again)).await? {
            Answer::Elicit(better) if better.action() == ElicitAction::Accept => Ok(Answer::Elicit(better)),
            _ => Ok(answer),
        }
    }
}

/// The words of an answer, one value a line.
fn said(answer: &ElicitAnswer) -> String {
    let words = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match answer.content() {
        Some(Value::Object(members)) => members.values().map(words).collect::<Vec<_>>().join("\n"),
        Some(other) => words(&other),
        None => String::new(),
    }
}

impl Caller for FollowUps {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            match question {
                Question::Elicit(elicitation) if elicitation.address().is_none() => self.form(elicitation).await,
                other => self.inner.ask(other).await,
            }
        })
    }
}
