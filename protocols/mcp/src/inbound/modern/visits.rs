//! Addresses that a person must visit before a request can be done, as questions of the call.
//!
//! A server of 2025-11-25 refuses such a request with -32042 and expects its client to know what to do. This era has no
//! such error: what it names is asked like any other elicitation, and then the request is done again.

use std::sync::Arc;

use callboard_message::{ElicitAction, Elicitation, Question, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{CallMeta, Caller};
use serde_json::value::RawValue;

use super::REVISION;
use crate::inbound::surface::Surface;
use crate::wire::code::URL_ELICITATION_REQUIRED;

/// Most times that one request is done again after its addresses were visited.
pub const VISITS_MAX: usize = 4;
/// Most addresses of one refusal that are asked; one with more goes to the client as an error.
pub const VISITS_AT_ONCE_MAX: usize = 8;

/// Does a request, and what must be visited first.
pub(super) async fn perform(
    surface: &Surface,
    method: &str,
    params: Option<&RawValue>,
    call: CallMeta,
    client: Arc<dyn Caller>,
) -> Result<Box<RawValue>, RpcError> {
    for _ in 0..VISITS_MAX {
        match surface.perform(method, params, REVISION, call.clone()).await {
            Err(refused) => match wanted(&refused) {
                Some(visits) if client.abilities().elicitation_url() && all_made(&*client, &visits).await => {}
                _ => return Err(refused),
            },
            done => return done,
        }
    }
    surface.perform(method, params, REVISION, call).await
}

/// What a refusal wants visited; `None` where it is no such refusal, or wants too much.
fn wanted(refused: &RpcError) -> Option<Vec<Elicitation>> {
    let data = refused.data.as_ref().filter(|_| refused.code == URL_ELICITATION_REQUIRED)?;
    let visits: Vec<RawObject> = RawObject::parse(data).ok()?.read("elicitations")?;
    let visits: Vec<_> = visits.into_iter().map(Elicitation).collect();
    let all_visits = visits.iter().all(|visit| visit.address().is_some());
    (all_visits && (1..=VISITS_AT_ONCE_MAX).contains(&visits.len())).then_some(visits)
}

/// Whether the person agreed to all of them. They are asked at once.
async fn all_made(client: &dyn Caller, visits: &[Elicitation]) -> bool {
    let asked =
        futures::future::join_all(visits.iter().cloned().map(|visit| client.ask(Question::Elicit(visit)))).await;
    asked.into_iter().all(|answer| match answer {
        Ok(callboard_message::Answer::Elicit(answer)) => answer.action() == ElicitAction::Accept,
        _ => false,
    })
}
