//! Questions and answers in the course of a call: checked by policies, recorded as events, and put to people at this
//! node too.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{
    Answer, CallId, CallerCapabilities, Failure, Principal, Question, RawObject, TraceContext,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::call::{CallContext, Caller, PeerSession};
use crate::node_events::{CallOrigin, QuestionEvent, QuestionScope};
use crate::policy::{Direction, ExchangePart, PolicyRequest};
use crate::system::System;
use crate::waiting_questions::{WaitingQuestion, action_name};

/// Caller that checks questions and answers with the policy chain before it passes them on.
#[derive(Clone)]
struct PolicyCaller {
    inner: Arc<dyn Caller>,
    system: System,
    direction: Direction,
    principal: Arc<Principal>,
    call: CallId,
    agent: Arc<str>,
    trace: TraceContext,
    origin: CallOrigin,
    /// Whether people at this node are asked too.
    asks_people: bool,
}

/// Caller of a call that nobody made who could be asked.
struct Nobody;

impl Caller for Nobody {}

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

    /// Begins the record of a question. `None` if events aren't read; also for questions of remote agents, which reach
    /// this node's own caller and are recorded there.
    fn begin_question(&self, id: CallId, kind: &str) -> Option<QuestionScope> {
        if self.direction == Direction::Outbound {
            return None;
        }
        QuestionScope::begin(self.system.node_events(), || QuestionEvent {
            id,
            call: self.call,
            trace: self.trace.child(),
            principal: self.principal.clone(),
            agent: (&*self.agent).into(),
            kind: kind.into(),
            origin: self.origin,
            asked_at: SystemTime::now(),
        })
    }

    /// Asks the caller, and people at this node if the question is a form. Returns the person who answered here.
    async fn first_answer(
        &self,
        id: CallId,
        question: Question,
    ) -> Result<(Answer, Option<Arc<Principal>>), Failure> {
        let form = match &question {
            Question::Elicit(form) if !form.is_url() && self.asks_people => form.clone(),
            _ => return self.inner.ask(question).await.map(|answer| (answer, None)),
        };
        let waiting = WaitingQuestion {
            id,
            call: self.call,
            agent: (&*self.agent).into(),
            principal: self.principal.clone(),
            question: form,
            asked_at: SystemTime::now(),
        };
        let can_answer = self.inner.capabilities().can_answer(&question);
        let caller = async {
            match can_answer {
                true => self.inner.ask(question).await,
                false => Err(crate::call::no_responder()),
            }
        };
        self.system
            .waiting_questions()
            .first_answer(waiting, caller)
            .await
    }

    async fn ask_checked(&self, question: Question) -> Result<Answer, Failure> {
        let kind = match &question {
            Question::Sample(_) => "sample",
            Question::Elicit(_) => "elicit",
            Question::Roots(_) => "roots",
            _ => return Err(crate::call::no_responder()),
        };
        let asked = question.body().to_raw();
        self.check_part(ExchangePart::Question, kind, &asked)
            .await?;
        let id = CallId::generate();
        let scope = self.begin_question(id, kind);
        let answered = self.first_answer(id, question).await;
        if let Some(scope) = scope {
            match &answered {
                Ok((Answer::Elicit(answer), by)) => {
                    scope.finish(None, action_name(answer), by.clone());
                }
                Ok((_, by)) => scope.finish(None, "", by.clone()),
                Err(failure) => scope.finish(Some(failure.kind), "", None),
            }
        }
        let (answer, _) = answered?;
        let answered = answer.body().to_raw();
        self.check_part(ExchangePart::Answer, kind, &answered)
            .await?;
        Ok(answer)
    }
}

impl Caller for PolicyCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(self.ask_checked(question))
    }

    fn capabilities(&self) -> CallerCapabilities {
        let mut own = self.inner.capabilities();
        if self.asks_people && !own.has_elicitation_form() {
            let modes = own.0.object("elicitation").unwrap_or_default();
            own.0
                .set("elicitation", modes.with("form", RawObject::new()));
        }
        own
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
    /// Wraps the callers of this call and its session so that questions and answers are checked by the policy chain of
    /// `system`, recorded as its events, and put to people at this node if it is open for them. `direction` and `agent`
    /// are those of the call's message. Returns the context unchanged if none of it is turned on.
    pub fn with_policy(mut self, system: &System, direction: Direction, agent: &str) -> Self {
        let asks_people =
            direction == Direction::Inbound && system.waiting_questions().is_open_for(agent);
        let is_recorded = direction == Direction::Inbound && system.node_events().is_on();
        let wraps_session = system.policy().checks_parts() || asks_people;
        if !wraps_session && !is_recorded {
            return self;
        }
        let template = PolicyCaller {
            inner: Arc::new(Nobody),
            system: system.clone(),
            direction,
            principal: self.principal.clone(),
            call: self.id,
            agent: agent.into(),
            trace: self.trace,
            origin: self.origin,
            asks_people,
        };
        let judged = |inner: Arc<dyn Caller>| -> Arc<dyn Caller> {
            Arc::new(PolicyCaller {
                inner,
                ..template.clone()
            })
        };
        if self.caller.is_none() && asks_people {
            self.caller = Some(Arc::new(Nobody));
        }
        self.caller = self.caller.map(&judged);
        if !wraps_session {
            return self;
        }
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
