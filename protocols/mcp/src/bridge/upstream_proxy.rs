//! Shared state of one incarnation of a bridge, and the path of a message through it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use callboard_message::capabilities::STILL_STARTING;
use callboard_message::{Failure, Message, Principal, RawObject};
use callboard_runtime::{
    CallContext, Caller, Context, FairShare, NodeEvent, ShareError, ShareOwner, UpstreamChange,
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::{Instant, interval_at, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::call_check::CallChecker;
use super::call_slots::{CallSlot, CallSlots};
use super::circuit_breaker::{BreakerPermit, CircuitBreaker};
use super::listed_tools::{ListMoment, ToolTable};
use super::options::{
    BRIDGE_CALLS_MAX, BridgeOptions, DESCRIBE_TIMEOUT, PING_TIMEOUT, STABLE_CONNECTION_AGE,
    START_WAIT_SHARE, StartMode,
};
use super::pool::{
    ConnectionKey, ConnectionLease, ConnectionPool, OfferedCapabilities, PooledConnection,
    SessionOwner,
};
use super::questions::UpstreamQuestions;
use super::tools::{AttemptError, AttemptMonitor, AttemptResult, ToolCallRunner, is_transient};
use crate::outbound::{
    ClientOperation, ConnectionParams, Era, ServerEndpoint, TransportError, UpstreamSession,
    list_changes, plain_value,
};

const TOOLS_CALL: &str = "tools/call";
const TOOLS_LIST: &str = "tools/list";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

pub(crate) struct UpstreamProxy {
    pub name: String,
    options: Arc<BridgeOptions>,
    breaker: CircuitBreaker,
    pool: Arc<ConnectionPool>,
    questions: Arc<UpstreamQuestions>,
    tools: ToolCallRunner,
    checker: CallChecker,
    /// Context of the bridge's agent, through which change notifications are published.
    cx: Context,
    slots: Arc<CallSlots>,
    calls_max: u32,
    /// Protocol era of the server, modern or legacy; `None` until detected.
    detected_era: Arc<Mutex<Option<Era>>>,
    /// True if all requests of a connection share one channel, so that a question can't be assigned
    /// to one of several calls.
    shares_channel: AtomicBool,
    /// Latest description of the server: its `initialize` or `server/discover` result.
    about: Arc<Mutex<Option<RawObject>>>,
}

impl UpstreamProxy {
    pub fn new(
        name: String,
        options: Arc<BridgeOptions>,
        connection_params: ConnectionParams,
        about: Arc<Mutex<Option<RawObject>>>,
        cx: &Context,
    ) -> Self {
        let calls_max = options.calls_max.clamp(1, BRIDGE_CALLS_MAX);
        let audit = options
            .audit
            .clone()
            .unwrap_or_else(|| cx.system().audit().clone());
        let share_percent = options.principal_share_percent;
        let slots = CallSlots::new(calls_max as usize, share_percent);
        let upstream_questions = UpstreamQuestions {
            slots: slots.clone(),
            server: name.clone(),
            question_router: options.question_router.clone(),
            audit,
            system: cx.system().clone(),
        };
        Self {
            questions: Arc::new(upstream_questions),
            tools: ToolCallRunner::new(&options.tools, connection_params.tools.clone()),
            checker: CallChecker::new(&name, &options.tools, options.client.pages_max),
            cx: cx.clone(),
            breaker: CircuitBreaker::new(options.failures_max, options.backoff),
            slots,
            calls_max,
            detected_era: connection_params.server.detected_era.clone(),
            shares_channel: AtomicBool::new(!matches!(
                connection_params.server.endpoint,
                ServerEndpoint::Http(_)
            )),
            pool: ConnectionPool::new(
                connection_params,
                FairShare::new(options.connections_max.max(1), share_percent),
            ),
            name,
            options,
            about,
        }
    }

    /// Executes one MCP client operation, such as a request, for the call in `cx`. `listing` is
    /// told of a request for the whole list of tools.
    pub async fn perform(
        &self,
        operation: ClientOperation,
        cx: &Context,
        listing: &WholeListing,
    ) -> Result<Box<RawValue>, Failure> {
        let cx = self.relay_context(cx);
        match operation {
            // Boxed because it is rare, so that other messages don't carry its state.
            ClientOperation::Describe => Box::pin(self.describe(&cx)).await,
            ClientOperation::Request { method, params } if method == TOOLS_CALL => {
                self.call_tool(&params, &cx).await
            }
            // The last subscriber has gone, whoever it was.
            ClientOperation::Request { method, params }
                if method == UNSUBSCRIBE && cx.call().is_none() =>
            {
                Ok(self.unsubscribe_all(&params).await?)
            }
            ClientOperation::Request { method, params } => {
                let listing = Some(listing).filter(|_| method == TOOLS_LIST);
                let listing = listing.filter(|_| !params.has("cursor"));
                Ok(self.send(&method, &params, &cx, listing).await?)
            }
            ClientOperation::CallToolForValue { tool, params } => {
                let result = self.call_tool(&params, &cx).await?;
                plain_value(&result, || async {
                    match self.lease_connection(&cx).await {
                        Ok(lease) => lease.upstream().is_wrapped(&tool).await,
                        Err(_) => false,
                    }
                })
                .await
            }
        }
    }

    /// Ends all subscriptions to a resource.
    async fn unsubscribe_all(&self, params: &RawObject) -> Result<Box<RawValue>, Failure> {
        let uri = params
            .text("uri")
            .ok_or_else(|| Failure::invalid("`uri` must be a string"))?;
        for connection in self.pool.all() {
            connection.upstream.unsubscribe(&uri).await;
        }
        Ok(RawObject::new().to_raw())
    }

    /// Executes `tools/call` with result cache and retries.
    async fn call_tool(&self, params: &RawObject, cx: &Context) -> Result<Box<RawValue>, Failure> {
        let send = |watch: AttemptMonitor| {
            let cx = with_wrapped_caller(cx, |caller| watch.wrap(caller));
            async move { self.send(TOOLS_CALL, params, &cx, None).await }
        };
        Ok(self.tools.call_tool(params, cx, send).await?)
    }

    /// Returns a copy of `cx` in which the server's questions go to the configured question router,
    /// or without one to the call's own caller. Outside of any call, it is the server that asks.
    fn relay_context(&self, cx: &Context) -> Context {
        match cx.call() {
            Some(call) => cx.with_call(self.questions.relay_call(CallContext::clone(call))),
            None if self.options.question_router.is_some() => cx.with_call(
                self.questions
                    .relay_call(CallContext::new(Arc::new(Principal::agent(&*self.name)))),
            ),
            None => cx.clone(),
        }
    }

    /// Returns the server's description: that of an open connection if there is one, so that a client
    /// which only begins a session starts no process of the server. Otherwise connects: with
    /// [`StartMode::Boot`] by the connection of all callers, which is about to be opened, with
    /// [`StartMode::Demand`] by the caller's. If that fails or takes longer than [`DESCRIBE_TIMEOUT`],
    /// returns the last known description, or the error if there is none.
    async fn describe(&self, cx: &Context) -> Result<Box<RawValue>, Failure> {
        if let Some(session) = self.pool.open_session() {
            return Ok(session.about.to_raw());
        }
        let asked = async {
            let permit = self.acquire_permit(cx).await?;
            let session = async {
                let lease = match self.options.start {
                    StartMode::Boot => self.pool.lease_shared(),
                    StartMode::Demand => self.lease_connection(cx).await?,
                };
                lease.upstream().connect().await
            };
            let session = session.await;
            self.record_outcome(permit, &session);
            session.map_err(|error| self.attributed_failure(error))
        };
        let limit = start_wait(cx).map_or(DESCRIBE_TIMEOUT, |left| left.min(DESCRIBE_TIMEOUT));
        let why = match timeout(limit, asked).await {
            Ok(Ok(session)) => {
                self.record_session(&session);
                return Ok(session.about.to_raw());
            }
            Ok(Err(why)) => why,
            Err(_) => self.still_starting(),
        };
        self.about.lock().as_ref().map(RawObject::to_raw).ok_or(why)
    }

    /// Waits for the connection of a list request. Fails while the server is starting and little of the
    /// call's time is left, so that the caller hears about it.
    async fn connect_for_list(&self, cx: &Context) -> Result<(), TransportError> {
        let Some(limit) = start_wait(cx) else {
            return Ok(());
        };
        let connected = async { self.lease_connection(cx).await?.upstream().connect().await };
        match timeout(limit, connected).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(TransportError::Failed(self.still_starting())),
        }
    }

    /// Returns the failure of a request to a server that is starting, and has the server announced when
    /// it is there.
    fn still_starting(&self) -> Failure {
        for connection in self.pool.all() {
            if connection.upstream.current().is_none() {
                connection.upstream.announce_next();
            }
        }
        Failure::unavailable(format!("{}: {STILL_STARTING}", self.name))
    }

    /// Stores the server's description and whether its requests share one channel, both taken from
    /// `session`.
    fn record_session(&self, session: &UpstreamSession) {
        *self.about.lock() = Some(session.about.clone());
        self.shares_channel.store(session.shares_channel(), Relaxed);
    }

    /// Sends one request for the call in `cx`, without retries. Waits for a call slot first. Fails
    /// if none becomes free in time, the circuit breaker is open, or a tool's call doesn't pass its
    /// check. The first page of the list of tools is for `listing`.
    async fn send(
        &self,
        method: &str,
        params: &RawObject,
        cx: &Context,
        listing: Option<&WholeListing>,
    ) -> AttemptResult {
        let slot = self.acquire_call_slot(cx).await?;
        // While the server waits for an answer, the call holds no slot.
        let cx = &with_wrapped_caller(cx, |caller| slot.wrap(caller));
        let permit = self.acquire_permit(cx).await?;
        let outcome = async {
            if method.ends_with("/list") {
                self.connect_for_list(cx).await?;
            }
            let lease = self.lease_connection(cx).await?;
            if method == TOOLS_CALL {
                self.checker.check(&lease, params, cx).await?;
            }
            if let Some(listing) = listing {
                listing.begin(&lease).await?;
            }
            lease.upstream().request(method, params, cx).await
        }
        .await;
        self.record_outcome(permit, &outcome);
        outcome.map_err(|error| AttemptError {
            is_transient: is_transient(&error),
            is_unsent: matches!(error, TransportError::Unreachable(_)),
            failure: self.attributed_failure(error),
        })
    }

    async fn acquire_call_slot(&self, cx: &Context) -> Result<CallSlot, Failure> {
        let session = cx.call().and_then(|call| Some(call.session.as_ref()?.id));
        let (owner, wait) = (cx.principal().into(), self.options.call_slot_timeout);
        let slot = self.slots.acquire(owner, session, wait).await;
        slot.map_err(|error| {
            self.overloaded(&match error {
                ShareError::TooManyWaiters { waiters_max } => {
                    format!("{waiters_max} calls of this principal wait for it already: try again later")
                }
                ShareError::TimedOut { max, alone_max } if alone_max < max => format!(
                    "its limit of {max} concurrent calls, {alone_max} of one principal, is reached (`calls_max`): try again later"
                ),
                _ => format!(
                    "its limit of {} concurrent calls is reached (`calls_max`): try again later",
                    self.calls_max
                ),
            })
        })
    }

    /// Returns a permit of the circuit breaker. If the breaker is half open, probes the server
    /// first and fails if the probe fails.
    async fn acquire_permit(&self, cx: &Context) -> Result<BreakerPermit<'_>, Failure> {
        let permit = self.breaker.acquire(&self.name)?;
        if !permit.is_probe {
            return Ok(permit);
        }
        // Boxed because it is rare, so that most calls don't carry its state.
        let found = Box::pin(async { probe(&self.lease_connection(cx).await?).await }).await;
        self.record_outcome(permit, &found);
        found.map_err(|error| self.attributed_failure(error))?;
        self.breaker.acquire(&self.name)
    }

    /// Reports an attempt's outcome to the circuit breaker. If the outcome closes the breaker,
    /// notifies subscribers that lists may have changed.
    fn record_outcome<T>(&self, permit: BreakerPermit<'_>, outcome: &Result<T, TransportError>) {
        let was_closed = self.breaker.next_attempt_at().is_none();
        let is_back = permit.record_outcome(outcome);
        if is_back {
            self.emit_state(true);
            callboard_message::log::info!(by: &self.name, server = %self.name, "the server is available again");
            self.publish_all_changes();
        } else if was_closed && self.breaker.next_attempt_at().is_some() {
            self.emit_state(false);
            callboard_message::log::warn!(by: &self.name, server = %self.name, "the server is unavailable: requests fail until the next attempt");
        }
    }

    /// Tells readers of the node's events whether the server is available.
    fn emit_state(&self, is_up: bool) {
        self.cx.system().node_events().emit(|| NodeEvent::Upstream {
            at: SystemTime::now(),
            change: Box::new(UpstreamChange {
                server: self.name.as_str().into(),
                is_up,
            }),
        });
    }

    /// Notifies subscribers that all of the server's lists may have changed. Used after an outage,
    /// during which change notifications are lost.
    fn publish_all_changes(&self) {
        let about = self.about.lock().clone().unwrap_or_default();
        list_changes(&about).for_each(|change| self.cx.notify_changed(change));
    }

    /// Leases the connection for a request of the call in `cx`: that of its client session, or of
    /// its principal if it has no session. A server without sessions has one for all callers: one of
    /// the modern era, and one that is declared stateless for callers whom it can't ask.
    async fn lease_connection(&self, cx: &Context) -> Result<ConnectionLease, TransportError> {
        let era = || {
            let detected = *self.detected_era.lock();
            self.options.client.era.fixed_era().or(detected)
        };
        let Some(call) = cx.call().filter(|_| era() != Some(Era::Modern)) else {
            return Ok(self.pool.lease_shared());
        };
        let offer = || match &call.session {
            Some(session) => {
                let caller = self.questions.background_caller(session, call);
                let offer = OfferedCapabilities::from_abilities(&caller.capabilities());
                let (session, hops) = (session.clone(), call.hops.saturating_add(1));
                let owner = SessionOwner {
                    session,
                    caller,
                    hops,
                };
                (offer, Some(owner))
            }
            None => {
                let offer = OfferedCapabilities::from_abilities(&cx.caller_capabilities());
                (offer.with_roots_changes(), None)
            }
        };
        if self.options.is_stateless && offer().0 == OfferedCapabilities::NONE {
            return Ok(self.pool.lease_shared());
        }
        let lease = match &call.session {
            Some(session) => {
                let (key, wait) = (
                    ConnectionKey::Session(session.id),
                    self.options.call_slot_timeout,
                );
                let owner = ShareOwner::from(&*call.principal);
                let lease = self
                    .pool
                    .lease_owned(&key, &owner, false, &offer, wait)
                    .await;
                lease.ok_or_else(|| self.connections_exhausted())?
            }
            None => self.lease_for_principal(call, offer().0).await?,
        };
        if era().is_none() {
            let session = lease.upstream().connect().await?;
            self.record_session(&session);
            if session.era() == Era::Modern {
                self.pool.share(&lease);
            }
        }
        Ok(lease)
    }

    async fn lease_for_principal(
        &self,
        call: &CallContext,
        offer: OfferedCapabilities,
    ) -> Result<ConnectionLease, TransportError> {
        let owner = ShareOwner::from(&*call.principal);
        let key = ConnectionKey::Principal(call.principal.kind, call.principal.id.clone(), offer);
        loop {
            // Roots belong to one call, even on connections that tell the questions of several
            // calls apart.
            let alone = offer.has_roots()
                || offer != OfferedCapabilities::NONE && self.shares_channel.load(Relaxed);
            let wait = self.options.call_slot_timeout;
            let lease = self
                .pool
                .lease_owned(&key, &owner, alone, &|| (offer, None), wait)
                .await;
            let lease = lease.ok_or_else(|| self.connections_exhausted())?;
            if alone || offer == OfferedCapabilities::NONE {
                return Ok(lease);
            }
            // Transport detection may have found one that shares its channel, behind an HTTP
            // address.
            let session = lease.upstream().connect().await?;
            if !session.shares_channel() {
                return Ok(lease);
            }
            self.shares_channel.store(true, Relaxed);
        }
    }

    fn connections_exhausted(&self) -> TransportError {
        TransportError::Failed(
            self.overloaded("all its connections are in use (`connections_max`): try again later"),
        )
    }

    fn overloaded(&self, why: &str) -> Failure {
        Failure::overloaded(format!("{}: {why}", self.name))
    }

    /// Converts an error to a failure. Prefixes the message with the server's name, unless the
    /// error already is a failure or a JSON-RPC error of the server.
    fn attributed_failure(&self, error: TransportError) -> Failure {
        let is_theirs = matches!(
            error,
            TransportError::Rpc { .. } | TransportError::Failed(_)
        );
        let failure = Failure::from(error);
        match is_theirs {
            true => failure,
            false => Failure {
                message: format!("{}: {}", self.name, failure.message),
                ..failure
            },
        }
    }

    /// Returns the bridge's state as JSON for the admin page.
    /// Tries to connect, on the current tokio runtime.
    fn spawn_probe(self: Arc<Self>) {
        tokio::spawn(async move {
            let Ok(permit) = self.breaker.acquire(&self.name) else {
                return;
            };
            let connected = probe(&self.pool.lease_shared()).await;
            if let Ok(session) = &connected {
                self.record_session(session);
            }
            self.record_outcome(permit, &connected);
        });
    }

    /// Carries out a command of the operator. Must be called on a tokio runtime.
    pub fn command(self: Arc<Self>, command: UpstreamCommand) {
        match command {
            UpstreamCommand::Retry => {
                if self.breaker.retry_now() {
                    self.spawn_probe();
                }
            }
            UpstreamCommand::Enable => {
                self.breaker.set_disabled(false);
                self.spawn_probe();
            }
            UpstreamCommand::Disable => {
                self.breaker.set_disabled(true);
                self.emit_state(false);
                let all = self.pool.all();
                all.iter().for_each(|one| one.upstream.disconnect());
            }
        }
    }

    pub fn observe(&self) -> serde_json::Value {
        let all = self.pool.all();
        let open = all.iter().find(|one| one.upstream.current().is_some());
        let mut state = match open.or(all.first()) {
            Some(connection) => connection.upstream.observe(),
            None => serde_json::json!({ "state": "apart" }),
        };
        let next_try = self.breaker.next_attempt_at();
        if let Some(until) = next_try {
            state["state"] = "away".into();
            state["next_try_ms"] =
                (until.saturating_duration_since(Instant::now()).as_millis() as u64).into();
        }
        if self.breaker.is_disabled() {
            state["state"] = "disabled".into();
        }
        state["failures"] = self.breaker.consecutive_failures().into();
        state["connections"] = self.pool.observe();
        let (calls, parked) = self.slots.counts();
        state["calls"] = calls.into();
        state["calls_parked"] = parked.into();
        state["tools"] = self.tools.observe();
        state["arguments"] = self.checker.observe();
        state["calls_max"] = self.calls_max.into();
        state
    }
}

/// Command of the operator about the server of a [`Bridge`](super::Bridge). It can be sent only within the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamCommand {
    /// Tries to connect at the next call, however long the pause after failures would last.
    Retry,
    /// Closes the connections, and rejects all calls, until it is enabled again or the node restarts.
    Disable,
    /// Ends [`UpstreamCommand::Disable`].
    Enable,
}

impl Message for UpstreamCommand {
    type Reply = ();
    const NAME: &'static str = "callboard.upstream.command";
}

/// Request of a client for the list of tools, from its beginning. If the reply is the whole list,
/// it is recorded as the list of the connection, as the client sees it.
#[derive(Default)]
pub(crate) struct WholeListing(OnceLock<(Arc<PooledConnection>, ListMoment)>);

impl WholeListing {
    async fn begin(&self, lease: &ConnectionLease) -> Result<(), TransportError> {
        let session = lease.upstream().connect().await?;
        let begun = (lease.connection().clone(), ListMoment::now(&session));
        // An operation is one request.
        let _ = self.0.set(begun);
        Ok(())
    }

    /// Records the reply, after the policies have checked it.
    pub fn record(&self, reply: &RawValue) {
        let mut table = ToolTable::default();
        if let Some((connection, moment)) = self.0.get()
            && table.add_page(reply) == Ok(None)
        {
            connection.listed.record(Arc::new(table), moment.clone());
        }
    }
}

/// Returns the time for which a list or description waits for a server that is starting; `None` for a
/// call without a deadline.
fn start_wait(cx: &Context) -> Option<Duration> {
    let left = cx.deadline()?.saturating_duration_since(Instant::now());
    Some(left.mul_f64(START_WAIT_SHARE))
}

/// Checks that the server is available: pings it if it is connected, connects otherwise.
async fn probe(lease: &ConnectionLease) -> Result<Arc<UpstreamSession>, TransportError> {
    let upstream = lease.upstream();
    match upstream.current() {
        None => upstream.connect().await,
        Some(_) => timeout(PING_TIMEOUT, upstream.ping())
            .await
            .unwrap_or(Err(TransportError::TimedOut(PING_TIMEOUT))),
    }
}

/// Returns a copy of `cx` whose caller, if it has one, is wrapped.
fn with_wrapped_caller(
    cx: &Context,
    wrap: impl FnOnce(Arc<dyn Caller>) -> Arc<dyn Caller>,
) -> Context {
    let Some((call, caller)) = cx
        .call()
        .and_then(|call| Some((call, call.caller.clone()?)))
    else {
        return cx.clone();
    };
    cx.with_call(Arc::new(CallContext::clone(call).with_caller(wrap(caller))))
}

/// Number of checks for idle connections within one `idle_timeout`.
const SWEEPS_PER_IDLE_TIMEOUT: u32 = 4;
/// Shortest interval between two checks for idle connections.
const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(10);

/// Starts the bridge's maintenance tasks: closing idle connections and, as the options demand,
/// reconnecting or pinging. Starts none outside a Tokio runtime.
pub(crate) fn spawn_maintenance(proxy: &Arc<UpstreamProxy>) -> Vec<AbortOnDropHandle<()>> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Vec::new();
    };
    let mut tasks = vec![runtime.spawn(close_idle_connections(proxy.clone()))];
    let maintained = proxy.clone();
    tasks.push(match proxy.options.start {
        StartMode::Boot => runtime.spawn(keep_connected(maintained)),
        StartMode::Demand => runtime.spawn(async move {
            loop {
                wait_unresponsive(&maintained).await;
            }
        }),
    });
    tasks.into_iter().map(AbortOnDropHandle::new).collect()
}

async fn close_idle_connections(proxy: Arc<UpstreamProxy>) {
    let idle_timeout = proxy.options.idle_timeout;
    let period = (idle_timeout / SWEEPS_PER_IDLE_TIMEOUT).max(SWEEP_PERIOD_MIN);
    let mut ticks = interval_at(Instant::now() + period, period);
    loop {
        ticks.tick().await;
        proxy.pool.close_idle(idle_timeout);
    }
}

/// Keeps the server connected: reconnects after a pause whenever the connection has ended.
async fn keep_connected(proxy: Arc<UpstreamProxy>) {
    let mut in_a_row = 0_u32;
    loop {
        if let Some(until) = proxy.breaker.next_attempt_at() {
            sleep_until(until).await;
        }
        let Ok(permit) = proxy.breaker.acquire(&proxy.name) else {
            // A call probes the server at this moment.
            sleep(PING_TIMEOUT).await;
            continue;
        };
        let connected = probe(&proxy.pool.lease_shared()).await;
        if let Ok(session) = &connected {
            proxy.record_session(session);
        }
        proxy.record_outcome(permit, &connected);
        match connected {
            Ok(session) => {
                let began = Instant::now();
                wait_disconnected(&proxy, session).await;
                in_a_row = if began.elapsed() >= STABLE_CONNECTION_AGE {
                    0
                } else {
                    in_a_row.saturating_add(1)
                };
            }
            Err(error) => {
                callboard_message::log::warn!(by: &proxy.name, server = %proxy.name, %error, "failed to connect to the server: trying again");
                in_a_row = in_a_row.saturating_add(1);
            }
        }
        sleep(proxy.options.backoff.pause(in_a_row.saturating_sub(1))).await;
    }
}

/// Waits until the connection of `session` has ended or the server no longer answers pings.
async fn wait_disconnected(proxy: &UpstreamProxy, session: Arc<UpstreamSession>) {
    let closed = session.transport.wait_closed();
    // A connection ends when its last handle is dropped.
    drop(session);
    let ended = async {
        match closed {
            Some(closed) => closed.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = wait_unresponsive(proxy) => {}
    }
}

async fn wait_unresponsive(proxy: &UpstreamProxy) {
    let Some(every) = proxy.options.ping_interval else {
        return std::future::pending().await;
    };
    loop {
        sleep(every).await;
        if !is_alive(proxy).await {
            return;
        }
    }
}

/// Pings the server on each connection. Discards the sessions in which it doesn't answer, and
/// returns false if there are any.
async fn is_alive(proxy: &UpstreamProxy) -> bool {
    let mut is_alive = true;
    for connection in proxy.pool.all() {
        let (Some(session), Ok(permit)) = (
            connection.upstream.current(),
            proxy.breaker.acquire(&proxy.name),
        ) else {
            continue;
        };
        let checked = timeout(PING_TIMEOUT, connection.upstream.ping())
            .await
            .unwrap_or(Err(TransportError::TimedOut(PING_TIMEOUT)));
        proxy.record_outcome(permit, &checked);
        if let Err(error) = &checked {
            callboard_message::log::warn!(by: &proxy.name, server = %proxy.name, %error, "the server doesn't answer pings: closing its session");
            connection.upstream.discard_session(&session);
            is_alive = false;
        }
    }
    is_alive
}
