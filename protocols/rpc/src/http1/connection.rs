//! One connection, driven by whoever uses it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Uri};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub(crate) type Outgoing = Request<Full<Bytes>>;
type Driver = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;

/// Boxed, for it is large and goes from hand to hand.
pub(crate) struct Connection(Box<Open>);

struct Open {
    origin: Uri,
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Driver>,
}

/// Why a connection brought no response.
pub(crate) enum Unsent {
    /// It was closed before anything of the request was sent, which comes back.
    Closed(Box<Outgoing>),
    /// It broke afterwards.
    Broken,
}

impl Connection {
    pub fn new(origin: Uri, sender: http1::SendRequest<Full<Bytes>>, driver: Driver) -> Self {
        Self(Box::new(Open {
            origin,
            sender,
            driver: Some(driver),
        }))
    }

    /// Reads and writes what can be read and written now.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.0.driver, cx);
    }

    /// Whether it takes another request, as far as can be seen now.
    pub fn is_ready(&mut self) -> bool {
        // Nobody waits for it: whoever uses it next drives it again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.0.driver.is_some() && self.0.sender.is_ready()
    }

    /// A response's head, with the connection that its body comes by.
    pub async fn send(
        mut self,
        request: Outgoing,
    ) -> Result<(hyper::Response<Incoming>, Self), Unsent> {
        let answered = {
            let Open { sender, driver, .. } = &mut *self.0;
            let mut answered = std::pin::pin!(sender.try_send_request(request));
            poll_fn(|cx| {
                drive(driver, cx);
                answered.as_mut().poll(cx)
            })
            .await
        };
        match answered {
            Ok(response) => Ok((response, self)),
            Err(mut error) => Err(error
                .take_message()
                .map_or(Unsent::Broken, |unsent| Unsent::Closed(Box::new(unsent)))),
        }
    }
}

fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(cx).is_ready()
    {
        // Why it ended, request and body say.
        *driver = None;
    }
}

/// Connections that are kept while nothing goes over them; past that, the one that waits longest is closed.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// How long a connection is kept so at most.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(90);

/// Connections that nobody uses, the one used last at the end.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    connections: Vec<(Connection, Instant)>,
    /// Somebody closes those that wait too long.
    swept: bool,
}

impl Idle {
    /// One to `origin` that seems to be open.
    pub fn take(&self, origin: &Uri) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut waiting = self.0.lock();
                let at = waiting
                    .connections
                    .iter()
                    .rposition(|(connection, _)| connection.0.origin == *origin)?;
                waiting.connections.remove(at).0
            };
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    /// Keeps one that has done its work; closes it where it can't be used again.
    pub fn put(self: &Arc<Self>, mut connection: Connection) {
        if !connection.is_ready() {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.connections.len() == IDLE_CONNECTIONS_MAX {
            waiting.connections.remove(0);
        }
        waiting.connections.push((connection, Instant::now()));
        if waiting.swept {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            waiting.swept = true;
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes those that have waited too long. Gives when to look again; `None` where nobody is left.
    fn close_old(&self) -> Option<Instant> {
        let mut waiting = self.0.lock();
        let now = Instant::now();
        waiting
            .connections
            .retain(|(_, since)| now < *since + IDLE_TIME_MAX);
        let oldest = waiting
            .connections
            .iter()
            .map(|(_, since)| *since + IDLE_TIME_MAX)
            .min();
        waiting.swept = oldest.is_some();
        oldest
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().connections.len()
    }
}

async fn sweep(idle: Weak<Idle>) {
    let mut wait = IDLE_TIME_MAX;
    loop {
        sleep(wait).await;
        let Some(next) = idle.upgrade().and_then(|idle| idle.close_old()) else {
            return;
        };
        wait = next.saturating_duration_since(Instant::now());
    }
}
