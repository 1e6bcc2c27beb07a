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
struct PolicyCaller {
    inner: Arc<dyn Caller>,
    /// Whether people at this node are asked too.
    asks_people: bool,
    of: CallFacts,
}

/// Facts about a call that its callers have in common.
#[derive(Clone)]
struct CallFacts {
    system: System,
    direction: Direction,
    principal: Arc<Principal>,
    call: CallId,
    agent: Box<str>,
    trace: TraceContext,
    origin: CallOrigin,
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
            direction: self.of.direction,
            principal: &self.of.principal,
            call: self.of.call,
            agent: &self.of.agent,
            message: kind,
            payload,
        };
        self.of.system.policy().check(Some(part), request).await
    }

    /// Begins the record of a question. `None` if events aren't read; also for questions of remote agents, which reach
    /// this node's own caller and are recorded there.
    fn begin_question(&self, id: CallId, kind: &str) -> Option<QuestionScope> {
        if self.of.direction == Direction::Outbound {
            return None;
        }
        QuestionScope::begin(self.of.system.node_events(), || QuestionEvent {
            id,
            call: self.of.call,
            trace: self.of.trace.child(),
            principal: self.of.principal.clone(),
            agent: (&*self.of.agent).into(),
            kind: kind.into(),
            origin: self.of.origin,
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
            call: self.of.call,
            agent: (&*self.of.agent).into(),
            principal: self.of.principal.clone(),
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
        self.of
            .system
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
        let checks_parts = system.policy().checks_parts();
        let has_caller = self.caller.is_some();
        let needs_caller = is_recorded && has_caller;
        if !(checks_parts || asks_people || needs_caller) {
            return self;
        }
        let of = CallFacts {
            system: system.clone(),
            direction,
            principal: self.principal.clone(),
            call: self.id,
            agent: agent.into(),
            trace: self.trace,
            origin: self.origin,
        };
        let judged = |inner: Arc<dyn Caller>, asks_people: bool, of: CallFacts| {
            Arc::new(PolicyCaller {
                inner,
                asks_people,
                of,
            }) as Arc<dyn Caller>
        };
        if asks_people {
            let caller = self.caller.take().unwrap_or_else(|| Arc::new(Nobody));
            self.caller_alone = Some(judged(caller.clone(), false, of.clone()));
            self.caller = Some(caller);
        }
        if !checks_parts {
            self.caller = self.caller.map(|caller| judged(caller, asks_people, of));
            return self;
        }
        self.caller = self
            .caller
            .map(|caller| judged(caller, asks_people, of.clone()));
        self.session = self.session.map(|session| {
            let (id, over, caller) = (
                session.id,
                session.closed.clone(),
                // Questions outside of calls are for the client alone.
                judged(session.caller.clone(), false, of),
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
