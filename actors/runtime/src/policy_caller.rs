//! Policy checks of the questions and answers in the course of a call.

use std::sync::Arc;

use callboard_message::{Answer, CallId, Failure, Principal, Question};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::call::{CallContext, Caller, PeerSession};
use crate::policy::{Direction, ExchangePart, PolicyRequest};
use crate::system::System;

/// Caller that checks questions and answers with the policy chain before it passes them on.
struct PolicyCaller {
    inner: Arc<dyn Caller>,
    system: System,
    direction: Direction,
    principal: Arc<Principal>,
    call: CallId,
    agent: String,
}

impl PolicyCaller {
    async fn check_part(
        &self,
        part: ExchangePart,
        kind: &str,
        payload: &RawValue,
    ) -> Result<(), Failure> {
        let request = PolicyRequest {
            direction: self.direction,
            principal: &self.principal,
            call: self.call,
            agent: &self.agent,
            message: kind,
            payload,
        };
        self.system.policy().check(Some(part), request).await
    }
}

impl Caller for PolicyCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let kind = match &question {
                Question::Sample(_) => "sample",
                Question::Elicit(_) => "elicit",
                Question::Roots(_) => "roots",
                _ => return Err(crate::call::no_responder()),
            };
            let asked = question.body().to_raw();
            self.check_part(ExchangePart::Question, kind, &asked)
                .await?;
            let answer = self.inner.ask(question).await?;
            let answered = answer.body().to_raw();
            self.check_part(ExchangePart::Answer, kind, &answered)
                .await?;
            Ok(answer)
        })
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        Box::pin(async move {
            let asked = params.as_deref().unwrap_or(RawValue::NULL);
            self.check_part(ExchangePart::Question, &method, asked)
                .await?;
            let result = self.inner.forward(method.clone(), params).await?;
            self.check_part(ExchangePart::Answer, &method, &result)
                .await?;
            Ok(result)
        })
    }
}

impl CallContext {
    /// Wraps the callers of this call and its session so that questions and answers are checked by
    /// the policy chain of `system`. `direction` and `agent` are those of the call's message.
    /// Returns the context unchanged if no policy checks parts of an exchange.
    pub fn with_policy(mut self, system: &System, direction: Direction, agent: &str) -> Self {
        if !system.policy().checks_parts() {
            return self;
        }
        let (principal, call) = (self.principal.clone(), self.id);
        let judged = |inner: Arc<dyn Caller>| -> Arc<dyn Caller> {
            let (system, agent) = (system.clone(), agent.to_owned());
            Arc::new(PolicyCaller {
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
                session.closed.clone(),
                judged(session.caller.clone()),
            );
            Arc::new(PeerSession {
                id,
                closed: over,
                caller,
                roots_changed: session.roots_changed.clone(),
                log_level: session.log_level.clone(),
            })
        });
        self
    }
}
