//! Questions and answers in the course of a call that crosses a boundary, shown to the policy chain.

use std::sync::Arc;

use callboard_message::{Answer, CallId, Failure, Principal, Question, RawObject};
use futures::future::BoxFuture;

use crate::call::{CallMeta, Caller, PeerSession};
use crate::policy::{Crossing, Direction, Part};
use crate::system::System;

/// A caller beyond a boundary: what it is asked and what it answers is judged.
struct JudgedCaller {
    inner: Arc<dyn Caller>,
    system: System,
    direction: Direction,
    principal: Arc<Principal>,
    call: CallId,
    agent: String,
}

impl JudgedCaller {
    async fn judge(&self, part: Part, kind: &str, body: &RawObject) -> Result<(), Failure> {
        let payload = body.to_raw();
        let crossing = Crossing {
            direction: self.direction,
            principal: &self.principal,
            call: self.call,
            agent: &self.agent,
            message: kind,
            payload: &payload,
        };
        self.system.policy().judge_part(part, crossing).await
    }
}

impl Caller for JudgedCaller {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let kind = match &question {
                Question::Sample(_) => "sample",
                Question::Elicit(_) => "elicit",
                Question::Roots(_) => "roots",
                _ => return Err(crate::call::nobody()),
            };
            self.judge(Part::Question, kind, question.body()).await?;
            let answer = self.inner.ask(question).await?;
            self.judge(Part::Answer, kind, answer.body()).await?;
            Ok(answer)
        })
    }
}

impl CallMeta {
    /// The same call, with what is asked and answered in its course shown to the policy chain of `system` first, where
    /// any policy wants to see it. For a call that crosses in `direction`, to `agent`.
    pub fn judged(mut self, system: &System, direction: Direction, agent: &str) -> Self {
        if !system.policy().judges_parts() {
            return self;
        }
        let (principal, call) = (self.principal.clone(), self.id);
        let judged = |inner: Arc<dyn Caller>| -> Arc<dyn Caller> {
            let (system, agent) = (system.clone(), agent.to_owned());
            Arc::new(JudgedCaller {
                inner,
                system,
                direction,
                principal: principal.clone(),
                call,
                agent,
            })
        };
        self.caller = self.caller.map(&judged);
        self.session = self.session.map(|session| {
            let (id, over, caller) = (
                session.id,
                session.over.clone(),
                judged(session.caller.clone()),
            );
            Arc::new(PeerSession {
                id,
                over,
                caller,
                roots_changed: session.roots_changed.clone(),
            })
        });
        self
    }
}
