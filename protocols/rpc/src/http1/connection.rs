//! One connection, driven by whoever uses it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Uri};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(super) type Outgoing = Request<Full<Bytes>>;
type Driver = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;

/// Boxed, for it is large and goes from hand to hand.
pub(super) struct Connection(Box<Open>);

struct Open {
    origin: Uri,
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Driver>,
}

/// A response's head, with the connection that its body comes by.
pub(super) struct Answered {
    pub(super) response: hyper::Response<Incoming>,
    pub(super) connection: Connection,
}

/// Why a connection brought no response.
pub(super) enum Unsent {
    /// It was closed before anything of the request was sent, which comes back.
    Closed(Box<Outgoing>),
    /// It broke afterwards.
    Broken,
}

impl Connection {
    pub(super) fn new(origin: Uri, sender: http1::SendRequest<Full<Bytes>>, driver: Driver) -> Self {
        Self(Box::new(Open { origin, sender, driver: Some(driver) }))
    }

    pub(super) fn origin(&self) -> &Uri {
        &self.0.origin
    }

    /// Reads and writes what can be read and written now.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.0.driver, cx);
    }

    /// Whether it takes another request, as far as can be seen now.
    pub(super) fn is_ready(&mut self) -> bool {
        // Nobody waits for it: whoever uses it next drives it again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.0.driver.is_some() && self.0.sender.is_ready()
    }

    pub(super) async fn send(mut self, request: Outgoing) -> Result<Answered, Unsent> {
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
            Ok(response) => Ok(Answered { response, connection: self }),
            Err(mut error) => {
                Err(error.take_message().map_or(Unsent::Broken, |unsent| Unsent::Closed(Box::new(unsent))))
            }
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
