//! Who calls: the credential, and the claim that must match it.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use callboard_message::{Principal, TraceContext};
use callboard_rpc::serve::claim;
use callboard_rpc::serve::guard::{self, Refused};

use super::options::MailServerOptions;

/// The caller's place in a trace (W3C Trace Context).
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Who calls.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) principal: Arc<Principal>,
    pub(super) trace: TraceContext,
}

/// Who is behind a request, from a source that may ask, under the id that it claims.
///
/// # Errors
/// 401 without a good credential, or without one claim; 403 where the claim isn't the credential's, which is the same
/// answer whether there is such an agent or not.
pub(super) fn caller(request: &HttpRequest, options: &MailServerOptions) -> Result<Caller, Refused> {
    guard::check_source(request, &options.hosts, &options.origins)?;
    let principal = guard::principal(request, &options.access).map_err(unproven)?;
    claim::check(request.headers(), &principal)?;
    let word = request.headers().get(&TRACE_PARENT).and_then(|value| value.to_str().ok());
    let trace = word.and_then(|parent| parent.trim().parse::<TraceContext>().ok());
    let trace = trace.as_ref().map_or_else(TraceContext::root, TraceContext::child);
    Ok(Caller { principal: Arc::new(principal), trace })
}

/// Whatever is wrong with a credential, its sender is not known: 401, but for credentials that can't be verified now.
fn unproven(mut refusal: Refused) -> Refused {
    if refusal.status == StatusCode::BAD_REQUEST {
        refusal.status = StatusCode::UNAUTHORIZED;
    }
    refusal
}
