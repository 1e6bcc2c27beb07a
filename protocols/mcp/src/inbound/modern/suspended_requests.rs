use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{CallerCapabilities, Principal, RawObject};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{PrincipalShares, SharePermit};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::pending_elicitations::{ModernCaller, PendingElicitations, RequestSink};
use super::state_token::{RequestState, StateBinding, StateSigner, random_bytes};
use crate::inbound::agent_adapter::RpcResult;
use crate::inbound::options::InboundOptions;
use crate::inbound::response::RequestResult;
use crate::wire::code::{CANCELLED, OVERLOADED};

/// Maximum number of ended calls whose outcome is kept for clients that send their last retry
/// again.
pub const RETAINED_OUTCOMES_MAX: usize = 256;
/// Maximum size of the kept outcome of a call, in bytes. A larger one is replaced by an error.
pub const RETAINED_OUTCOME_BYTES_MAX: usize = 64 * 1024;

/// Function that converts a running call to a task, once its first questions are answered.
pub(crate) type AdoptAsTask<'a> =
    &'a (dyn Fn(RunningCall) -> BoxFuture<'a, RpcResult> + Send + Sync);

/// Calls of one endpoint that wait for their clients' answers.
pub(crate) struct SuspendedCalls {
    table: Mutex<SuspendedTable>,
    signer: StateSigner,
    began: Instant,
    shares: Arc<PrincipalShares>,
    suspended_ttl: Duration,
    /// Time limit of a resumed call.
    call_deadline: Duration,
}

#[derive(Default)]
struct SuspendedTable {
    calls: HashMap<[u8; 16], Arc<SuspendedCall>>,
    /// Ids of the calls that have ended but whose outcome is kept, oldest first.
    ended: VecDeque<[u8; 16]>,
}

struct SuspendedCall {
    id: [u8; 16],
    /// Place among the suspended calls; `None` if the call has ended.
    place: Mutex<Option<SharePermit>>,
    expires: Mutex<Instant>,
    /// Cancelled when the call is removed from the table.
    removed: CancellationToken,
    /// Current round of questions. Retries of one call run one at a time, because each holds this
    /// lock.
    current_round: tokio::sync::Mutex<SuspendedRound>,
}

struct SuspendedRound {
    /// Number of the round whose answers are awaited; one past the last round if the call has
    /// ended.
    round: u32,
    /// `None` if the call has ended, or while a retry executes it. If that retry's client
    /// disconnects, the call is cancelled.
    running: Option<RunningCall>,
    /// Outcome of the previous round, for a client that sends its retry again.
    last: Option<Result<RequestResult, RpcError>>,
}

/// A client's retry of a request, which resumes a suspended call.
pub(crate) struct ResumeRequest<'a> {
    pub state: &'a str,
    pub binding: &'a StateBinding,
    pub abilities: CallerCapabilities,
    pub responses: RawObject,
    pub sink: Option<RequestSink>,
    /// Set if the tool's call becomes a task after its first questions are answered.
    pub adopt: Option<AdoptAsTask<'a>>,
}

fn expired_error() -> RpcError {
    RpcError::invalid_params("`requestState` has expired: call again without it")
}

impl SuspendedCalls {
    pub fn new(options: &InboundOptions) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            signer: StateSigner::new(),
            began: Instant::now(),
            shares: PrincipalShares::new(
                options.modern.suspended_calls_max,
                options.principal_share_percent,
            ),
            suspended_ttl: options.modern.suspended_ttl,
            call_deadline: options.call_deadline,
        })
    }

    /// Suspends a call that asks questions, until a retry resumes it or it expires. Returns a
    /// result with the questions and a signed state.
    ///
    /// # Errors
    /// `OVERLOADED` if too many calls are suspended, in total or of the principal. The call is then
    /// cancelled.
    pub fn suspend(
        self: &Arc<Self>,
        mut running: RunningCall,
        requests: RawObject,
        principal: &Principal,
        binding: &StateBinding,
    ) -> Result<RequestResult, RpcError> {
        let place = self.shares.try_acquire(principal).map_err(|error| {
            RpcError::new(
                OVERLOADED,
                format!("too many calls wait for answers: {error}"),
            )
        })?;
        running.run_in_background();
        let suspended = Arc::new(SuspendedCall {
            id: random_bytes(),
            place: Mutex::new(Some(place)),
            expires: Mutex::new(Instant::now()),
            removed: CancellationToken::new(),
            current_round: tokio::sync::Mutex::new(SuspendedRound {
                round: 1,
                running: Some(running),
                last: None,
            }),
        });
        let reply = self.input_required(&suspended, 1, requests, binding);
        let mut table = self.table.lock();
        table.calls.insert(suspended.id, suspended.clone());
        drop(table);
        tokio::spawn(expire(Arc::downgrade(self), suspended));
        Ok(reply)
    }

    /// Returns the state in a `requestState`, and the suspended call that it names.
    fn find_suspended(
        &self,
        state: &str,
        binding: &StateBinding,
    ) -> Result<(RequestState, Arc<SuspendedCall>), RpcError> {
        let state = self.signer.verify(state, binding).ok_or_else(|| {
            RpcError::invalid_params(
                "`requestState` isn't valid for this request: call again without it",
            )
        })?;
        if state.expires_ms <= self.to_millis(Instant::now()) {
            return Err(expired_error());
        }
        let suspended = self.table.lock().calls.get(&state.call).cloned();
        Ok((state, suspended.ok_or_else(expired_error)?))
    }

    /// Resumes a suspended call with the client's answers.
    ///
    /// # Errors
    /// `INVALID_PARAMS` if the state isn't valid for this request, has expired or was used, or if
    /// an answer doesn't fit its question; otherwise the error of the call.
    pub async fn resume(
        self: &Arc<Self>,
        retry: ResumeRequest<'_>,
        hung_up: &CancellationToken,
    ) -> Result<RequestResult, RpcError> {
        let ResumeRequest {
            state,
            binding,
            abilities,
            responses,
            sink,
            adopt,
        } = retry;
        let (state, suspended) = self.find_suspended(state, binding)?;
        let mut turn = tokio::select! {
            turn = suspended.current_round.lock() => turn,
            () = hung_up.cancelled() => return Err(cancelled_error()),
        };
        if state.round != turn.round {
            let used = || {
                RpcError::invalid_params("`requestState` was used before: call again without it")
            };
            let repeated = turn
                .last
                .clone()
                .filter(|_| state.round.checked_add(1) == Some(turn.round));
            return repeated.unwrap_or_else(|| Err(used()));
        }
        let mut running = turn.running.take().ok_or_else(expired_error)?;
        running.client.attach(sink);
        let goes_on = running.elicitations.deliver(abilities, &responses);
        if goes_on != Ok(true) {
            running.client.attach(None);
            let requests = running.elicitations.input_requests().unwrap_or_default();
            turn.running = Some(running);
            goes_on.map_err(RpcError::invalid_params)?;
            return Ok(self.input_required(&suspended, state.round, requests, binding));
        }
        turn.round = state.round.saturating_add(1);
        turn.last = None;
        // If this request disconnects, the call ends.
        let mut leaving = RemoveOnDrop {
            calls: self,
            id: suspended.id,
            is_kept: false,
        };
        suspended.expire_after(self.call_deadline + self.suspended_ttl);
        let outcome = if let Some(adopt) = adopt
            && running.elicitations.input_requests().is_none()
        {
            running.client.attach(None);
            adopt(running).await.map(RequestResult::Complete)
        } else {
            let step = running.run_until_input(hung_up).await;
            running.client.attach(None);
            match step {
                CallStep::HungUp => return Err(cancelled_error()),
                CallStep::InputRequired(requests) => {
                    turn.running = Some(running);
                    Ok(self.input_required(&suspended, turn.round, requests, binding))
                }
                CallStep::Ended(outcome) => outcome.map(RequestResult::Resumed),
            }
        };
        if turn.running.is_none() {
            suspended.expire_after(self.suspended_ttl);
            self.mark_ended(suspended.id);
        }
        leaving.is_kept = true;
        turn.last = Some(retained_outcome(&outcome));
        outcome
    }

    /// Cancels all suspended calls and forgets kept outcomes.
    pub fn close(&self) {
        let table = std::mem::take(&mut *self.table.lock());
        table
            .calls
            .values()
            .for_each(|suspended| suspended.removed.cancel());
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shares.used()
    }

    fn input_required(
        &self,
        suspended: &SuspendedCall,
        round: u32,
        requests: RawObject,
        binding: &StateBinding,
    ) -> RequestResult {
        let expires_ms = self.to_millis(suspended.expire_after(self.suspended_ttl));
        let state = self.signer.sign(
            RequestState {
                call: suspended.id,
                round,
                expires_ms,
            },
            binding,
        );
        RequestResult::InputRequired(
            RawObject::single("inputRequests", requests)
                .with("requestState", state)
                .to_raw(),
        )
    }

    fn to_millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Marks a call as ended. Its outcome is kept until it expires, or until
    /// [`RETAINED_OUTCOMES_MAX`] later calls have ended.
    fn mark_ended(&self, id: [u8; 16]) {
        let mut table = self.table.lock();
        let Some(ended) = table.calls.get(&id) else {
            return;
        };
        ended.place.lock().take();
        table.ended.push_back(id);
        if table.ended.len() > RETAINED_OUTCOMES_MAX
            && let Some(oldest) = table.ended.pop_front()
            && let Some(suspended) = table.calls.remove(&oldest)
        {
            suspended.removed.cancel();
        }
    }

    fn remove(&self, id: &[u8; 16]) {
        let mut table = self.table.lock();
        table.ended.retain(|ended| ended != id);
        if let Some(suspended) = table.calls.remove(id) {
            suspended.place.lock().take();
            suspended.removed.cancel();
        }
    }
}

impl SuspendedCall {
    fn expire_after(&self, delay: Duration) -> Instant {
        let expires = Instant::now() + delay;
        *self.expires.lock() = expires;
        expires
    }
}

/// Returns the outcome to be kept for a client that sends its retry again. A large result is
/// replaced by an error.
fn retained_outcome(outcome: &Result<RequestResult, RpcError>) -> Result<RequestResult, RpcError> {
    match outcome {
        Ok(result) if result.as_raw().get().len() > RETAINED_OUTCOME_BYTES_MAX => {
            Err(RpcError::invalid_params(
                "`requestState` was used before, and its result was too large to keep",
            ))
        }
        outcome => outcome.clone(),
    }
}

/// Waits until a suspended call expires or is removed, and then cancels it, unless a retry is
/// executing it.
async fn expire(calls: Weak<SuspendedCalls>, suspended: Arc<SuspendedCall>) {
    loop {
        let expires = *suspended.expires.lock();
        if Instant::now() >= expires {
            break;
        }
        tokio::select! {
            () = sleep_until(expires) => {}
            () = suspended.removed.cancelled() => break,
        }
    }
    if let Some(calls) = calls.upgrade() {
        calls.remove(&suspended.id);
    }
    // If a request is running the call, that request owns it. Otherwise it is dropped here, and so
    // cancelled.
    suspended.current_round.lock().await.running = None;
}

/// Removes a call from the table when dropped, unless `is_kept` is set.
struct RemoveOnDrop<'a> {
    calls: &'a SuspendedCalls,
    id: [u8; 16],
    is_kept: bool,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.calls.remove(&self.id);
        }
    }
}

/// Time to wait for further questions after each question of a call, so that questions asked
/// concurrently are sent to the client together.
const QUESTION_GATHER_WINDOW: Duration = Duration::from_millis(5);

/// A call that may continue over several requests. Dropping it cancels the call.
pub(crate) struct RunningCall {
    pub outcome: BoxFuture<'static, RpcResult>,
    pub client: Arc<ModernCaller>,
    pub elicitations: Arc<PendingElicitations>,
}

/// Reason why a running call has paused or ended.
pub(crate) enum CallStep {
    /// The call has ended.
    Ended(RpcResult),
    /// The call waits for answers to these `inputRequests`.
    InputRequired(RawObject),
    /// The client has disconnected.
    HungUp,
}

impl RunningCall {
    /// Continues the call in a task of its own. While nobody waits for it, it still ends at its
    /// deadline, or when the agent gives its question up.
    fn run_in_background(&mut self) {
        let idle: BoxFuture<'static, RpcResult> = Box::pin(std::future::pending());
        let outcome = std::mem::replace(&mut self.outcome, idle);
        let task = AbortOnDropHandle::new(tokio::spawn(outcome));
        self.outcome = Box::pin(async move {
            task.await.unwrap_or_else(|error| match error.is_panic() {
                true => Err(RpcError::new(
                    code::INTERNAL_ERROR,
                    "the call ended by a bug: see the log",
                )),
                false => Err(cancelled_error()),
            })
        });
    }

    /// Runs the call until it ends, asks questions, or `hung_up` is cancelled.
    pub async fn run_until_input(&mut self, hung_up: &CancellationToken) -> CallStep {
        loop {
            if self.elicitations.input_requests().is_none() {
                tokio::select! {
                    biased;
                    outcome = &mut self.outcome => return CallStep::Ended(outcome),
                    () = self.elicitations.new_question.notified() => {}
                    () = hung_up.cancelled() => return CallStep::HungUp,
                }
            }
            while tokio::select! {
                biased;
                outcome = &mut self.outcome => return CallStep::Ended(outcome),
                () = self.elicitations.new_question.notified() => true,
                () = hung_up.cancelled() => return CallStep::HungUp,
                () = sleep(QUESTION_GATHER_WINDOW) => false,
            } {}
            if let Some(requests) = self.elicitations.input_requests() {
                return CallStep::InputRequired(requests);
            }
        }
    }
}

/// Returns the error of a request whose client has disconnected. The client never receives it.
pub(crate) fn cancelled_error() -> RpcError {
    RpcError::new(CANCELLED, "cancelled")
}
