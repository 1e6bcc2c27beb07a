//! A person who decides: whoever called gets a form at each point.

mod forms;
#[cfg(test)]
mod tests;

use callboard_message::{Elicitation, Failure, FailureKind, hex};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use sha2::{Digest, Sha256};

use super::{
    Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute, DecideSplit, DecideTool,
    Decided, MakeSteps, Synthesize, WriteAnswer,
};
use forms::Formed;

/// Decisions of one kind that wait for a person.
pub const PERSON_DECISIONS_MAX: u32 = 64;

/// Whoever called decides, by forms. Where there is nobody to ask, or they give none of the answers, it is unclear.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonDecider;

async fn decide<D: Formed>(asked: D, cx: Cx) -> Result<Decided<D::Outcome>, Failure> {
    let (message, schema) = asked.form();
    let form = Elicitation::form(message, schema).key(&key(&asked));
    let answer = match cx.elicit(form).await {
        Ok(answer) => answer,
        Err(nobody) if nobody.kind == FailureKind::NobodyToAsk => return Ok(Decided::unclear(nobody.message)),
        Err(failure) => return Err(failure),
    };
    let Some(content) = answer.content() else { return Ok(Decided::unclear("the person didn't say")) };
    Ok(match asked.read(&content) {
        Some(outcome) => Decided::sure(outcome, 1.0, "a person says so"),
        None => Decided::unclear("the person's answer is none of those that there were"),
    })
}

/// The same for the same question, so that an answer is found again, and another for any other that waits beside it.
fn key<D: Formed>(asked: &D) -> String {
    let body = D::wire().and_then(|wire| (wire.encode)(asked).ok());
    let hash = Sha256::digest(body.as_deref().map_or("", |body| body.get()));
    format!("decide-{}-{}", D::POINT, hex(&hash[..6]))
}

impl Agent for PersonDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<DecideFollowUp>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideClarity>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideSplit>(PERSON_DECISIONS_MAX)
            .concurrent::<MakeSteps>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideRoute>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideTool>(PERSON_DECISIONS_MAX)
            .concurrent::<WriteAnswer>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideRecovery>(PERSON_DECISIONS_MAX)
            .concurrent::<Synthesize>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideConfirm>(PERSON_DECISIONS_MAX);
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }
}

impl<D: Formed> ConcurrentHandler<D> for PersonDecider {
    fn handle(
        &mut self,
        message: D,
        cx: Cx,
    ) -> impl Future<Output = Result<Decided<D::Outcome>, Failure>> + Send + 'static {
        decide(message, cx)
    }
}

/// Asking whether to ask would be one question too many.
impl ConcurrentHandler<DecideConfirm> for PersonDecider {
    fn handle(
        &mut self,
        _: DecideConfirm,
        _: Cx,
    ) -> impl Future<Output = Result<Decided<Confirm>, Failure>> + Send + 'static {
        std::future::ready(Ok(Decided::sure(Confirm::ConfirmNeeded, 1.0, "a person decides")))
    }
}
