//! An agent that sees nothing and says nothing but by the guard.

use std::sync::Arc;

use callboard_message::surface::{CreateMessage, MISSING};
use callboard_message::{ElicitAction, Elicitation, Failure, FailureKind, Message, RawObject, SampleAnswer};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Cx, Handlers, Profile};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::audit;
use super::grammar::last_text;
use crate::guardrail::{Guard, Guardrail, Origin};

/// Messages of each kind that one HMCP agent answers at once; more wait in its mailbox.
pub const HMCP_CALLS_MAX: u32 = 64;

/// What an HMCP agent does with what has passed the guard.
pub trait Duty: Sized + Send + Sync + 'static {
    /// Registers what it does beside conversing, each by [`Guarded::between`].
    fn tools(on: &mut Handlers<Guarded<Self>>);

    /// What it calls itself.
    fn model(&self) -> &str;

    /// Answers what was said last.
    fn converse(&self, text: String, cx: &Cx) -> impl Future<Output = Result<Said, Failure>> + Send;

    /// What people see of it.
    fn observe(&self) -> Value;
}

/// What is said in a conversation.
pub struct Said {
    pub(super) text: String,
    /// What it lacks to do what it was asked, by name.
    pub(super) missing: Option<&'static str>,
}

/// Asks whoever called for the text `name`, of this shape; `None` where nobody can be asked.
///
/// # Errors
/// `Rejected`, as `refused` says, where they don't tell.
pub(super) async fn ask(
    cx: &Cx,
    question: &str,
    name: &str,
    shape: Value,
    refused: &str,
) -> Result<Option<String>, Failure> {
    let schema = json!({ "type": "object", "properties": { name: shape }, "required": [name] });
    match cx.elicit(Elicitation::form(question, schema).key(name)).await {
        Ok(answer) if answer.action() == ElicitAction::Accept => {
            Ok(Some(answer.content().unwrap_or_default()[name].as_str().unwrap_or_default().to_owned()))
        }
        Ok(_) => Err(Failure::rejected(refused)),
        Err(failure) if failure.kind == FailureKind::NobodyToAsk => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// An HMCP agent: `D` behind the guard. Every message passes it before `D` sees it, every reply before it goes; what the
/// guard blocks, is late with or crashes on doesn't.
///
/// It starts a guardrail of its own, unless it was [given](Self::guarded_by) another.
pub struct Guarded<D: Duty> {
    duty: Arc<D>,
    given: Option<Guard>,
    /// Of this incarnation.
    own: Option<Own>,
}

/// A guardrail that ends with the agent that started it.
struct Own(AgentRef);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<D: Duty> Guarded<D> {
    pub(super) fn of(duty: D) -> Self {
        Self { duty: Arc::new(duty), given: None, own: None }
    }

    /// The same agent, asking this guard in place of one of its own.
    pub fn guarded_by(mut self, guard: Guard) -> Self {
        self.given = Some(guard);
        self
    }

    /// What it does.
    pub fn duty(&self) -> &D {
        &self.duty
    }

    fn guard(&self) -> Option<Guard> {
        self.given.clone().or_else(|| self.own.as_ref().map(|own| Guard::new(own.0.clone())))
    }
}

/// A like agent, for the next incarnation: same duty, same guard if it was given one.
impl<D: Duty> Clone for Guarded<D> {
    fn clone(&self) -> Self {
        Self { duty: self.duty.clone(), given: self.given.clone(), own: None }
    }
}

impl<D: Duty> Agent for Guarded<D> {
    fn handlers(on: &mut Handlers<Self>) {
        D::tools(on.concurrent::<CreateMessage>(HMCP_CALLS_MAX));
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn started(&mut self, cx: &mut Cx) {
        if self.given.is_none() {
            let label = format!("{}.guardrail", cx.me());
            self.own = Some(Own(cx.system().prepare_with(Guardrail::default).label(label).spawn()));
        }
    }

    fn observe(&self) -> Value {
        self.duty.observe()
    }
}

impl<D: Duty> ConcurrentHandler<CreateMessage> for Guarded<D> {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
        let asked = message.0.to_raw();
        self.between(CreateMessage::NAME, asked, cx, |duty, cx| async move {
            let wants_missing = message.0.object("_meta").and_then(|meta| meta.read(MISSING)).unwrap_or(false);
            let said = duty.converse(last_text(&message)?, &cx).await?;
            let mut answer = SampleAnswer::text(duty.model(), said.text, Some("endTurn"));
            if let Some(missing) = said.missing.filter(|_| wants_missing) {
                answer.0.set("_meta", RawObject::of(MISSING, [missing]));
            }
            Ok(answer)
        })
    }
}

impl<D: Duty> Guarded<D> {
    /// Does `work` between two looks of the guard, and puts it on record. `work` is what only the agent's own module can
    /// give it, so that there is no other way in.
    pub(super) fn between<R, W, F>(
        &self,
        message: &'static str,
        asked: Box<RawValue>,
        cx: Cx,
        work: W,
    ) -> impl Future<Output = Result<R, Failure>> + Send + 'static + use<D, R, W, F>
    where
        R: Serialize + Send + 'static,
        W: FnOnce(Arc<D>, Cx) -> F + Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let (duty, guard) = (self.duty.clone(), self.guard());
        async move {
            let outcome = async {
                let guard = guard.ok_or_else(|| Failure::internal("the agent hasn't started"))?;
                guard.pass(&asked, Origin::User).await?;
                let reply = work(duty, cx.clone()).await?;
                let told = to_raw_value(&reply).map_err(|_| Failure::internal("the reply can't be written"))?;
                guard.pass(&told, Origin::ToolResult).await?;
                Ok((reply, told))
            }
            .await;
            audit::record(&cx, message, &asked, outcome.as_ref().map(|(_, told)| &**told)).await?;
            outcome.map(|(reply, _)| reply)
        }
    }
}
