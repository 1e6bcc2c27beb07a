//! DP1: what a person answers to another agent's question goes back to it, or a person says more first.

use std::sync::Arc;

use callboard_message::{Answer, ElicitAction, ElicitAnswer, Elicitation, Failure, Question};
use callboard_runtime::{Caller, Cx};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::decide::{DecideFollowUp, Deciders, FollowUp, RunId, Turn, with_caller};

/// What answers are looked at with.
pub(super) struct FollowUps {
    pub deciders: Arc<Deciders>,
    pub run: RunId,
    /// What was said before, what is wanted, and what the agent was told.
    pub history: Vec<Turn>,
}

/// The same surroundings, in which the answers to another agent's questions are looked at before it gets them.
pub(super) fn with_follow_ups(cx: &Cx, with: FollowUps) -> Cx {
    with_caller(cx, |inner| Arc::new(Looking { inner, cx: cx.clone(), with })).unwrap_or_else(|| cx.clone())
}

struct Looking {
    inner: Arc<dyn Caller>,
    /// The call without this.
    cx: Cx,
    with: FollowUps,
}

impl Looking {
    async fn form(&self, elicitation: Elicitation) -> Result<Answer, Failure> {
        let answer = self.inner.ask(Question::Elicit(elicitation.clone())).await?;
        let Answer::Elicit(given) = &answer else { return Ok(answer) };
        // Only what was said can be said better.
        if given.action() != ElicitAction::Accept {
            return Ok(answer);
        }
        let FollowUps { deciders, run, history } = &self.with;
        let message = DecideFollowUp { history: history.clone(), reason: elicitation.message(), message: said(given) };
        let question = match deciders.decide(&self.cx, run, message).await.outcome {
            Some(FollowUp::HandleDirectly) => return Ok(answer),
            Some(FollowUp::NeedHumanInput { question }) => question,
            None => None,
        };
        let mut again = Question::Elicit(match question {
            Some(question) => Elicitation(elicitation.0.with("message", question)),
            None => elicitation,
        });
        // Under its own key there is an answer already: the one that won't do.
        if let Some(key) = again.take_key() {
            again = again.key(&format!("{key}-again"));
        }
        // Once more, and then it goes on as it is.
        match self.inner.ask(again).await? {
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

impl Caller for Looking {
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
