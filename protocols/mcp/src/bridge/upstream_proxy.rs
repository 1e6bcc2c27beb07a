//! What one incarnation of a bridge is made of, and how a message goes through it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::{Change, Failure, RawObject};
use callboard_runtime::{CallMeta, Cx};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, interval_at, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::breaker::{Breaker, Pass};
use super::options::{
    BRIDGE_CALLS_MAX, BridgeOptions, DESCRIBE_WAIT, PING_TIMEOUT, STABLE_AFTER, Start,
};
use super::pool::{Key, Lease, OfferedCapabilities, Owner, Pool};
use super::questions::UpstreamQuestions;
use super::tools::{Attempt, Tools, Trouble, Watch, may_pass};
use crate::outbound::{
    ClientOperation, Endpoint, Era, Session, TransportError, Wiring, plain_value,
};

const TOOLS_CALL: &str = "tools/call";
/// Requests that are about changes of resources, which one connection hears of.
const SUBSCRIPTIONS: [&str; 2] = ["resources/subscribe", "resources/unsubscribe"];
/// Requests for lists: the same for whoever can answer the same.
const LISTS: [&str; 4] = [
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
];

pub(crate) struct UpstreamProxy {
    pub name: String,
    options: Arc<BridgeOptions>,
    breaker: Breaker,
    pool: Arc<Pool>,
    desk: Arc<UpstreamQuestions>,
    tools: Tools,
    /// The bridge's agent, whose followers are told of changes.
    cx: Cx,
    calls: Semaphore,
    calls_max: u32,
    /// Which era the server was found to be of.
    remembered: Arc<Mutex<Option<Era>>>,
    /// All requests of a connection share one channel.
    shares_channel: AtomicBool,
    /// What the server said of itself last.
    about: Arc<Mutex<Option<RawObject>>>,
}

impl UpstreamProxy {
    pub fn new(
        name: String,
        options: Arc<BridgeOptions>,
        wiring: Wiring,
        about: Arc<Mutex<Option<RawObject>>>,
        cx: &Cx,
    ) -> Self {
        let calls_max = options.calls_max.clamp(1, BRIDGE_CALLS_MAX);
        let audit = options
            .audit
            .clone()
            .unwrap_or_else(|| cx.system().audit().clone());
        let desk = UpstreamQuestions {
            server: name.clone(),
            answering: options.answering.clone(),
            audit,
        };
        Self {
            desk: Arc::new(desk),
            tools: Tools::new(&options.tools, wiring.tools.clone()),
            cx: cx.clone(),
            breaker: Breaker::new(options.failures_max, options.backoff),
            calls: Semaphore::new(calls_max as usize),
            calls_max,
            remembered: wiring.server.remembered.clone(),
            shares_channel: AtomicBool::new(!matches!(wiring.server.endpoint, Endpoint::Http(_))),
            pool: Pool::new(wiring, options.connections_max),
            name,
            options,
            about,
        }
    }

    /// Does what a message wants.
    pub async fn perform(
        &self,
        errand: ClientOperation,
        cx: &Cx,
    ) -> Result<Box<RawValue>, Failure> {
        let cx = self.relayed(cx);
        match errand {
            // Boxed, for it is rare: other messages carry no room for it.
            ClientOperation::Describe => Box::pin(self.describe(&cx)).await,
            ClientOperation::Request { method, params } if method == TOOLS_CALL => {
                self.call_tool(&params, &cx).await
            }
            ClientOperation::Request { method, params } => {
                Ok(self.send(&method, &params, &cx).await?)
            }
            ClientOperation::Use { tool, params } => {
                let result = self.call_tool(&params, &cx).await?;
                plain_value(&result, || async {
                    self.pool
                        .lead(|| OfferedCapabilities::NOTHING)
                        .upstream()
                        .is_wrapped(&tool)
                        .await
                })
                .await
            }
        }
    }

    /// `tools/call`: its result is known already, or it is sent until it is decided.
    async fn call_tool(&self, params: &RawObject, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let send = |watch: Watch| {
            let cx = watched(cx, &watch);
            async move { self.send(TOOLS_CALL, params, &cx).await }
        };
        Ok(self.tools.call_tool(params, cx, send).await?)
    }

    /// The surroundings of the call, with questions going to whoever answers them.
    fn relayed(&self, cx: &Cx) -> Cx {
        match cx.call() {
            Some(call) => cx.within(self.desk.relayed(CallMeta::clone(call))),
            None if self.options.answering.is_some() => cx.within(
                self.desk
                    .relayed(CallMeta::new(Arc::new(cx.principal().clone()))),
            ),
            None => cx.clone(),
        }
    }

    /// What the server says of itself, or said last: whoever asks for that waits for nobody long.
    async fn describe(&self, cx: &Cx) -> Result<Box<RawValue>, Failure> {
        let asked = async {
            let pass = self.pass().await?;
            let lease = self
                .pool
                .lead(|| OfferedCapabilities::of(&cx.abilities()).without_roots());
            let session = lease.upstream().session().await;
            self.settle(pass, &session);
            session.map_err(|error| self.failure(error))
        };
        let why = match timeout(DESCRIBE_WAIT, asked).await {
            Ok(Ok(session)) => {
                self.learn(&session);
                return Ok(session.about.to_raw());
            }
            Ok(Err(why)) => why,
            Err(_) => Failure::unavailable(format!("{}: it doesn't say what it is", self.name)),
        };
        self.about.lock().as_ref().map(RawObject::to_raw).ok_or(why)
    }

    /// Keeps what a connection has shown of the server.
    fn learn(&self, session: &Session) {
        *self.about.lock() = Some(session.about.clone());
        self.shares_channel.store(session.shares_channel(), Relaxed);
    }

    /// Sends a request of the call `cx`, where the server is there and has a place for it.
    async fn send(&self, method: &str, params: &RawObject, cx: &Cx) -> Attempt {
        let _place = self.place().await?;
        let pass = self.pass().await?;
        let outcome = async {
            self.lease(method, cx)
                .await?
                .upstream()
                .request(method, params, cx)
                .await
        }
        .await;
        self.settle(pass, &outcome);
        outcome.map_err(|error| Trouble {
            may_pass: may_pass(&error),
            failure: self.failure(error),
        })
    }

    async fn place(&self) -> Result<SemaphorePermit<'_>, Failure> {
        if let Ok(place) = self.calls.try_acquire() {
            return Ok(place);
        }
        match timeout(self.options.calls_wait, self.calls.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(self.full(&format!("{} calls of it are under way", self.calls_max))),
        }
    }

    /// Leave to ask the server. Where it was away, it is tried first.
    async fn pass(&self) -> Result<Pass<'_>, Failure> {
        let pass = self.breaker.pass(&self.name)?;
        if !pass.probes {
            return Ok(pass);
        }
        // Boxed, for most calls need it not: they carry no room for it.
        let found = Box::pin(self.try_again()).await;
        self.settle(pass, &found);
        found.map_err(|error| self.failure(error))?;
        self.breaker.pass(&self.name)
    }

    /// Tries a server that was away, or may be.
    async fn try_again(&self) -> Result<Arc<Session>, TransportError> {
        let lease = self.pool.lead(|| OfferedCapabilities::NOTHING);
        let upstream = lease.upstream();
        match upstream.current() {
            None => upstream.session().await,
            Some(_) => timeout(PING_TIMEOUT, upstream.check())
                .await
                .unwrap_or(Err(TransportError::TimedOut(PING_TIMEOUT))),
        }
    }

    /// Ends an attempt. Gives whether the server is back; then its followers are told, for what it shows may be another.
    fn settle<T>(&self, pass: Pass<'_>, outcome: &Result<T, TransportError>) -> bool {
        let was_closed = self.breaker.next_try().is_none();
        let is_back = pass.settle(outcome);
        if is_back {
            callboard_message::log::info!(by: &self.name, server = %self.name, "the server is back");
            self.tell_all();
        } else if was_closed && self.breaker.next_try().is_some() {
            callboard_message::log::warn!(by: &self.name, server = %self.name, "the server is away and left alone for a while");
        }
        is_back
    }

    /// What changed while nobody listened isn't known: all of it may have.
    fn tell_all(&self) {
        let about = self.about.lock().clone().unwrap_or_default();
        let can = about.object("capabilities").unwrap_or_default();
        for (capability, change) in [
            ("tools", Change::Tools),
            ("prompts", Change::Prompts),
            ("resources", Change::Resources),
        ] {
            if can.has(capability) {
                self.cx.changed(change);
            }
        }
    }

    /// The connection by which a request goes.
    async fn lease(&self, method: &str, cx: &Cx) -> Result<Lease, TransportError> {
        let offer = || OfferedCapabilities::of(&cx.abilities());
        let found = || *self.remembered.lock();
        let era = match self.options.client.era.only().or_else(found) {
            Some(era) => era,
            None => {
                let shared = self.shared(offer().without_roots()).await?;
                let session = shared.upstream().session().await?;
                self.learn(&session);
                session.era()
            }
        };
        if era == Era::Modern || SUBSCRIPTIONS.contains(&method) {
            return Ok(self.pool.lead(|| offer().without_roots()));
        }
        let offer = offer();
        match cx.call() {
            // A server may keep what it is told of roots, and show or allow other things for it.
            Some(call) if offer.has_roots() || !LISTS.contains(&method) => {
                self.own(call, offer).await
            }
            _ => self.shared(offer).await,
        }
    }

    async fn shared(&self, offer: OfferedCapabilities) -> Result<Lease, TransportError> {
        self.pool
            .shared(offer, self.options.calls_wait)
            .await
            .ok_or_else(|| self.all_in_use())
    }

    /// A connection of the caller's own.
    async fn own(
        &self,
        call: &CallMeta,
        offer: OfferedCapabilities,
    ) -> Result<Lease, TransportError> {
        let wait = self.options.calls_wait;
        if let Some(session) = &call.session {
            let key = Key::Session(session.id, offer);
            let caller = || {
                self.desk
                    .background(session, call)
                    .filter(|_| offer != OfferedCapabilities::NOTHING)
            };
            let lease = self
                .pool
                .own(
                    &key,
                    false,
                    Some(Owner {
                        session,
                        caller: &caller,
                    }),
                    wait,
                )
                .await;
            return lease.ok_or_else(|| self.all_in_use());
        }
        let offer = offer.with_roots_changes();
        let key = Key::Principal(call.principal.kind, call.principal.id.clone(), offer);
        loop {
            // Roots are the calls' own, even where questions of several calls could be told apart.
            let alone = offer.has_roots()
                || offer != OfferedCapabilities::NOTHING && self.shares_channel.load(Relaxed);
            let lease = self
                .pool
                .own(&key, alone, None, wait)
                .await
                .ok_or_else(|| self.all_in_use())?;
            if alone || offer == OfferedCapabilities::NOTHING {
                return Ok(lease);
            }
            // Behind an address there may be a transport that nobody expected.
            let session = lease.upstream().session().await?;
            if !session.shares_channel() {
                return Ok(lease);
            }
            self.shares_channel.store(true, Relaxed);
        }
    }

    fn all_in_use(&self) -> TransportError {
        TransportError::Failed(self.full("all its connections are in use"))
    }

    fn full(&self, why: &str) -> Failure {
        Failure::overloaded(format!("{}: {why}", self.name))
    }

    /// Which server it was is said of what only says that it is away.
    fn failure(&self, error: TransportError) -> Failure {
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

    /// What people see of it.
    pub fn observe(&self) -> serde_json::Value {
        let lead = self.pool.current_lead();
        let mut seen = match &lead {
            Some(lead) => lead.upstream.observe(),
            None => {
                serde_json::json!({ "state": if self.pool.is_up() { "connected" } else { "apart" } })
            }
        };
        let next_try = self.breaker.next_try();
        if let Some(until) = next_try {
            seen["state"] = "away".into();
            seen["next_try_ms"] =
                (until.saturating_duration_since(Instant::now()).as_millis() as u64).into();
        }
        seen["failures"] = self.breaker.failures().into();
        seen["connections"] = self.pool.observe();
        seen["calls"] = (self.calls_max as usize - self.calls.available_permits()).into();
        seen["tools"] = self.tools.observe();
        seen["calls_max"] = self.calls_max.into();
        seen
    }
}

/// The same surroundings, with what the call's caller is asked and told watched.
fn watched(cx: &Cx, watch: &Watch) -> Cx {
    let Some((call, caller)) = cx
        .call()
        .and_then(|call| Some((call, call.caller.clone()?)))
    else {
        return cx.clone();
    };
    cx.within(Arc::new(
        CallMeta::clone(call).with_caller(watch.over(caller)),
    ))
}

/// How often idle connections are looked for: so many times in the time that they may be idle.
const SWEEPS_IN_IDLE_TIMEOUT: u32 = 4;
/// The same, from below.
const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(10);

/// Starts what the options want. Nothing, where no runtime is there to run it.
pub(crate) fn start_keepers(hub: &Arc<UpstreamProxy>) -> Vec<AbortOnDropHandle<()>> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Vec::new();
    };
    let mut keepers = vec![runtime.spawn(sweep(hub.clone()))];
    let kept = hub.clone();
    keepers.push(match hub.options.start {
        Start::Boot => runtime.spawn(keep_up(kept)),
        Start::Demand => runtime.spawn(async move {
            loop {
                until_silent(&kept).await;
            }
        }),
    });
    keepers.into_iter().map(AbortOnDropHandle::new).collect()
}

async fn sweep(hub: Arc<UpstreamProxy>) {
    let idle_timeout = hub.options.idle_timeout;
    let period = (idle_timeout / SWEEPS_IN_IDLE_TIMEOUT).max(SWEEP_PERIOD_MIN);
    let mut ticks = interval_at(Instant::now() + period, period);
    loop {
        ticks.tick().await;
        hub.pool.sweep(idle_timeout);
    }
}

/// Connects, and again whenever the connection has ended.
async fn keep_up(hub: Arc<UpstreamProxy>) {
    let (mut in_a_row, mut before) = (0_u32, false);
    loop {
        if let Some(until) = hub.breaker.next_try() {
            sleep_until(until).await;
        }
        let Ok(pass) = hub.breaker.pass(&hub.name) else {
            // Somebody's call tries it now.
            sleep(PING_TIMEOUT).await;
            continue;
        };
        let connected = hub.try_again().await;
        if let Ok(session) = &connected {
            hub.learn(session);
        }
        let is_back = hub.settle(pass, &connected);
        match connected {
            Ok(session) => {
                if before && !is_back {
                    hub.tell_all();
                }
                let began = Instant::now();
                while_it_lives(&hub, session).await;
                before = true;
                in_a_row = if began.elapsed() >= STABLE_AFTER {
                    0
                } else {
                    in_a_row.saturating_add(1)
                };
            }
            Err(error) => {
                callboard_message::log::warn!(by: &hub.name, server = %hub.name, %error, "the server can't be connected to");
                in_a_row = in_a_row.saturating_add(1);
            }
        }
        sleep(hub.options.backoff.pause(in_a_row.saturating_sub(1))).await;
    }
}

/// Ends when the connection has ended, or doesn't answer any more.
async fn while_it_lives(hub: &UpstreamProxy, session: Arc<Session>) {
    let closed = session.link.closed();
    // A connection ends when nobody holds it.
    drop(session);
    let ended = async {
        match closed {
            Some(closed) => closed.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = until_silent(hub) => {}
    }
}

async fn until_silent(hub: &UpstreamProxy) {
    let Some(every) = hub.options.ping_every else {
        return std::future::pending().await;
    };
    loop {
        sleep(every).await;
        if !is_alive(hub).await {
            return;
        }
    }
}

/// Asks a connected server for a sign of life. One that gives none is left.
async fn is_alive(hub: &UpstreamProxy) -> bool {
    let Some(lead) = hub.pool.current_lead() else {
        return true;
    };
    let (Some(session), Ok(pass)) = (lead.upstream.current(), hub.breaker.pass(&hub.name)) else {
        return true;
    };
    let checked = timeout(PING_TIMEOUT, lead.upstream.check())
        .await
        .unwrap_or(Err(TransportError::TimedOut(PING_TIMEOUT)));
    hub.settle(pass, &checked);
    if let Err(error) = &checked {
        callboard_message::log::warn!(by: &hub.name, server = %hub.name, %error, "the server gives no sign of life");
        lead.upstream.leave(&session);
    }
    checked.is_ok()
}
