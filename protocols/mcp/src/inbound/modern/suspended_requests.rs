use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Abilities, Principal, RawObject};
use callboard_rpc::RpcError;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::pending_elicitations::{Client, PendingElicitations, RequestSink};
use super::state_token::{Binding, Seal, State, random};
use crate::inbound::agent_adapter::Outcome;
use crate::inbound::options::InboundOptions;
use crate::inbound::response::Reply;
use crate::wire::code::{CANCELLED, OVERLOADED};

/// Most outcomes that are kept for clients that repeat a retry.
pub const OUTCOMES_KEPT_MAX: usize = 256;
/// Largest outcome that is kept, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 64 * 1024;

/// Makes a task of a call whose questions are answered.
pub(crate) type Adopt<'a> = &'a (dyn Fn(RunningCall) -> BoxFuture<'a, Outcome> + Send + Sync);

/// The calls of one endpoint that wait for their clients' answers.
pub(crate) struct SuspendedCalls {
    table: Mutex<Table>,
    seal: Seal,
    began: Instant,
    calls_max: usize,
    of_principal_max: usize,
    parked_for: Duration,
    /// How long a call may be gone on with.
    runs_for: Duration,
}

#[derive(Default)]
struct Table {
    calls: HashMap<[u8; 16], Arc<SuspendedCall>>,
    /// Those of them that have ended, oldest first.
    ended: VecDeque<[u8; 16]>,
}

struct SuspendedCall {
    id: [u8; 16],
    principal: Arc<Principal>,
    expires: Mutex<Instant>,
    /// Fires when it leaves the table.
    gone: CancellationToken,
    /// One retry at a time.
    turn: tokio::sync::Mutex<Turn>,
}

struct Turn {
    /// The round whose answers are awaited; past the last one where the call has ended.
    round: u32,
    /// `None` where it has ended, or is being gone on with by a request that may go away.
    running: Option<RunningCall>,
    /// What the round before this one came to.
    last: Option<Result<Reply, RpcError>>,
}

/// A retry, as far as it matters to a parked call.
pub(crate) struct Retry<'a> {
    pub state: &'a str,
    pub binding: &'a Binding,
    pub abilities: Abilities,
    pub responses: RawObject,
    pub sink: Option<RequestSink>,
    /// For a call that becomes a task after its first questions.
    pub adopt: Option<Adopt<'a>>,
}

impl SuspendedCalls {
    pub fn new(options: &InboundOptions) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            seal: Seal::new(),
            began: Instant::now(),
            calls_max: options.modern.parked_calls_max,
            of_principal_max: options.modern.parked_calls_of_principal_max,
            parked_for: options.modern.parked_for,
            runs_for: options.call_deadline,
        })
    }

    /// Keeps a call that asks, until it is answered or expires.
    ///
    /// # Errors
    /// `OVERLOADED` where too many wait, or too many of the principal's: the call is cancelled.
    pub fn suspend(
        self: &Arc<Self>,
        running: RunningCall,
        requests: RawObject,
        principal: Arc<Principal>,
        binding: &Binding,
    ) -> Result<Reply, RpcError> {
        let parked = Arc::new(SuspendedCall {
            id: random(),
            principal,
            expires: Mutex::new(Instant::now()),
            gone: CancellationToken::new(),
            turn: tokio::sync::Mutex::new(Turn {
                round: 1,
                running: Some(running),
                last: None,
            }),
        });
        let reply = self.asking(&parked, 1, requests, binding);
        {
            let mut table = self.table.lock();
            if !self.fits(&table, &parked.principal) {
                return Err(RpcError::new(
                    OVERLOADED,
                    "too many calls wait for answers: try again later",
                ));
            }
            table.calls.insert(parked.id, parked.clone());
        }
        tokio::spawn(expire(Arc::downgrade(self), parked));
        Ok(reply)
    }

    /// Goes on with a call that asked.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where the state isn't good for this request, has expired or was used; else the call's own.
    pub async fn resume(
        self: &Arc<Self>,
        retry: Retry<'_>,
        hung_up: &CancellationToken,
    ) -> Result<Reply, RpcError> {
        let Retry {
            state,
            binding,
            abilities,
            responses,
            sink,
            adopt,
        } = retry;
        let state = self.seal.open(state, binding).ok_or_else(|| {
            RpcError::invalid_params(
                "`requestState` isn't valid for this request: call again without it",
            )
        })?;
        let expired =
            || RpcError::invalid_params("`requestState` has expired: call again without it");
        if state.expires_ms <= self.ms(Instant::now()) {
            return Err(expired());
        }
        let parked = self
            .table
            .lock()
            .calls
            .get(&state.call)
            .cloned()
            .ok_or_else(expired)?;
        let mut turn = tokio::select! {
            turn = parked.turn.lock() => turn,
            () = hung_up.cancelled() => return Err(cancelled()),
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
        let mut running = turn.running.take().ok_or_else(expired)?;
        running.client.attach(sink);
        let goes_on = running.elicitations.deliver(abilities, &responses);
        if goes_on != Ok(true) {
            running.client.attach(None);
            let requests = running.elicitations.requests().unwrap_or_default();
            turn.running = Some(running);
            let unfit = |key| format!("the answer `inputResponses.{key}` doesn't fit its question");
            goes_on.map_err(|key| RpcError::invalid_params(unfit(key)))?;
            return Ok(self.asking(&parked, state.round, requests, binding));
        }
        turn.round = state.round.saturating_add(1);
        turn.last = None;
        // Where this request goes away, the call does too.
        let mut leaving = Leaving {
            calls: self,
            id: parked.id,
            stays: false,
        };
        parked.expire_after(self.runs_for + self.parked_for);
        let outcome = if let Some(adopt) = adopt
            && running.elicitations.requests().is_none()
        {
            running.client.attach(None);
            adopt(running).await.map(Reply::Complete)
        } else {
            let step = running.step(hung_up).await;
            running.client.attach(None);
            match step {
                Step::HungUp => return Err(cancelled()),
                Step::Asks(requests) => {
                    turn.running = Some(running);
                    Ok(self.asking(&parked, turn.round, requests, binding))
                }
                Step::Ended(outcome) => outcome.map(Reply::Resumed),
            }
        };
        if turn.running.is_none() {
            parked.expire_after(self.parked_for);
            self.ended(parked.id);
        }
        leaving.stays = true;
        turn.last = Some(keepable(&outcome));
        outcome
    }

    /// Ends all of them.
    pub fn close(&self) {
        let table = std::mem::take(&mut *self.table.lock());
        table.calls.values().for_each(|parked| parked.gone.cancel());
    }

    fn fits(&self, table: &Table, principal: &Principal) -> bool {
        let waiting = table.calls.len() - table.ended.len();
        let theirs = || {
            let calls = table
                .calls
                .values()
                .filter(|parked| *parked.principal == *principal);
            calls
                .filter(|parked| !table.ended.contains(&parked.id))
                .count()
        };
        // Under its share in any case, where all of them together are.
        waiting < self.calls_max
            && (waiting < self.of_principal_max || theirs() < self.of_principal_max)
    }

    /// How many wait for answers.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        let table = self.table.lock();
        table.calls.len() - table.ended.len()
    }

    fn asking(
        &self,
        parked: &SuspendedCall,
        round: u32,
        requests: RawObject,
        binding: &Binding,
    ) -> Reply {
        let expires_ms = self.ms(parked.expire_after(self.parked_for));
        let state = self.seal.seal(
            State {
                call: parked.id,
                round,
                expires_ms,
            },
            binding,
        );
        Reply::InputRequired(
            RawObject::of("inputRequests", requests)
                .with("requestState", state)
                .to_raw(),
        )
    }

    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// A call has ended: it stays for a while, for clients that repeat their retry.
    fn ended(&self, id: [u8; 16]) {
        let mut table = self.table.lock();
        if !table.calls.contains_key(&id) {
            return;
        }
        table.ended.push_back(id);
        if table.ended.len() > OUTCOMES_KEPT_MAX
            && let Some(oldest) = table.ended.pop_front()
            && let Some(parked) = table.calls.remove(&oldest)
        {
            parked.gone.cancel();
        }
    }

    fn remove(&self, id: &[u8; 16]) {
        let mut table = self.table.lock();
        table.ended.retain(|ended| ended != id);
        if let Some(parked) = table.calls.remove(id) {
            parked.gone.cancel();
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

/// What a repeated retry is told; a large result isn't kept.
fn keepable(outcome: &Result<Reply, RpcError>) -> Result<Reply, RpcError> {
    match outcome {
        Ok(Reply::Complete(raw) | Reply::Resumed(raw) | Reply::InputRequired(raw))
            if raw.get().len() > OUTCOME_BYTES_MAX =>
        {
            Err(RpcError::invalid_params(
                "`requestState` was used before, and its result was too large to keep",
            ))
        }
        outcome => outcome.clone(),
    }
}

/// Ends a parked call when nobody answers in time.
async fn expire(calls: Weak<SuspendedCalls>, parked: Arc<SuspendedCall>) {
    loop {
        let expires = *parked.expires.lock();
        if Instant::now() >= expires {
            break;
        }
        tokio::select! {
            () = sleep_until(expires) => {}
            () = parked.gone.cancelled() => break,
        }
    }
    if let Some(calls) = calls.upgrade() {
        calls.remove(&parked.id);
    }
    // A request that goes on with it has taken it; else it is dropped here, which cancels it.
    parked.turn.lock().await.running = None;
}

/// Takes a call out of the table unless it stays.
struct Leaving<'a> {
    calls: &'a SuspendedCalls,
    id: [u8; 16],
    stays: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.calls.remove(&self.id);
        }
    }
}

/// How long the questions that a call asks at once may be apart: they go to the client together.
const GATHER: Duration = Duration::from_millis(5);

/// A call under way, from request to request. Dropped, it is cancelled.
pub(crate) struct RunningCall {
    pub outcome: BoxFuture<'static, Outcome>,
    pub client: Arc<Client>,
    pub elicitations: Arc<PendingElicitations>,
}

/// How far a call came.
pub(crate) enum Step {
    /// To its end.
    Ended(Outcome),
    /// To questions: `inputRequests`.
    Asks(RawObject),
    /// Its client went away.
    HungUp,
}

impl RunningCall {
    /// Goes on until the call ends, or waits for answers.
    pub async fn step(&mut self, hung_up: &CancellationToken) -> Step {
        loop {
            if self.elicitations.requests().is_none() {
                tokio::select! {
                    biased;
                    outcome = &mut self.outcome => return Step::Ended(outcome),
                    () = self.elicitations.asked.notified() => {}
                    () = hung_up.cancelled() => return Step::HungUp,
                }
            }
            while tokio::select! {
                biased;
                outcome = &mut self.outcome => return Step::Ended(outcome),
                () = self.elicitations.asked.notified() => true,
                () = hung_up.cancelled() => return Step::HungUp,
                () = sleep(GATHER) => false,
            } {}
            if let Some(requests) = self.elicitations.requests() {
                return Step::Asks(requests);
            }
        }
    }
}

/// What a request is answered with whose client went away; nobody reads it.
pub(crate) fn cancelled() -> RpcError {
    RpcError::new(CANCELLED, "cancelled")
}
