//! What a bridge does unasked: keeps its server up, feels its pulse, ends what is idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval_at, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::hub::Hub;
use super::options::{PING_TIMEOUT, STABLE_AFTER, Start};
use crate::outbound::{LinkError, Session};

/// How often idle connections are looked for: so many times in the time that they may be idle.
const SWEEPS_IN_IDLE_TIMEOUT: u32 = 4;
/// The same, from below.
const SWEEP_PERIOD_MIN: Duration = Duration::from_millis(10);

/// Starts what the options want. Nothing, where no runtime is there to run it.
pub(super) fn start(hub: &Arc<Hub>) -> Vec<AbortOnDropHandle<()>> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Vec::new() };
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

async fn sweep(hub: Arc<Hub>) {
    let idle_timeout = hub.options.idle_timeout;
    let period = (idle_timeout / SWEEPS_IN_IDLE_TIMEOUT).max(SWEEP_PERIOD_MIN);
    let mut ticks = interval_at(Instant::now() + period, period);
    loop {
        ticks.tick().await;
        hub.pool.sweep(idle_timeout);
    }
}

/// Connects, and again whenever the connection has ended.
async fn keep_up(hub: Arc<Hub>) {
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
                in_a_row = if began.elapsed() >= STABLE_AFTER { 0 } else { in_a_row.saturating_add(1) };
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
async fn while_it_lives(hub: &Hub, session: Arc<Session>) {
    let closed = session.closed();
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

async fn until_silent(hub: &Hub) {
    let Some(every) = hub.options.ping_every else { return std::future::pending().await };
    loop {
        sleep(every).await;
        if !is_alive(hub).await {
            return;
        }
    }
}

/// Asks a connected server for a sign of life. One that gives none is left.
async fn is_alive(hub: &Hub) -> bool {
    let Some(lead) = hub.pool.current_lead() else { return true };
    let (Some(session), Ok(pass)) = (lead.upstream.current(), hub.breaker.pass(&hub.name)) else { return true };
    let checked = timeout(PING_TIMEOUT, lead.upstream.check()).await.unwrap_or(Err(LinkError::TimedOut(PING_TIMEOUT)));
    hub.settle(pass, &checked);
    if let Err(error) = &checked {
        callboard_message::log::warn!(by: &hub.name, server = %hub.name, %error, "the server gives no sign of life");
        lead.upstream.leave(&session);
    }
    checked.is_ok()
}
