//! Idle timeout of connections.
//!
//! actix-web times the head of a connection's first request only: after a valid first request, half
//! of a second one would hold the connection forever. So each connection has a timer of its own,
//! which requests reset.

use std::cell::Cell;
use std::net::Shutdown;
use std::rc::{Rc, Weak};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use actix_web::rt::task::JoinHandle;
use socket2::{SockRef, Socket};
use tokio::time::{Instant, sleep_until};

/// Idle timer of one connection, stopped when the connection ends.
struct ConnectionWatch {
    activity: Rc<ConnectionActivity>,
    task: JoinHandle<()>,
}

struct ConnectionActivity {
    /// Duplicate handle of the connection's socket, by which the timer closes it. The HTTP server
    /// owns the original.
    socket: Socket,
    requests: Cell<usize>,
    idle_since: Cell<Instant>,
}

/// Guard of a request that is being served. While it exists, the idle timer doesn't close the
/// request's connection.
pub struct ActiveRequest(Option<Rc<ConnectionActivity>>);

/// Starts the idle timer of a new connection. The connection is closed when no request has been
/// active on it for `idle_max`.
pub(crate) fn watch_connection(stream: &TcpStream, data: &mut Extensions, idle_max: Duration) {
    let socket = match SockRef::from(stream).try_clone() {
        Ok(socket) => socket,
        Err(error) => {
            callboard_message::log::warn!(%error, "failed to start the idle timeout of a connection: out of file descriptors?");
            return;
        }
    };
    let activity = Rc::new(ConnectionActivity {
        socket,
        requests: Cell::new(0),
        idle_since: Cell::new(Instant::now()),
    });
    let task = actix_web::rt::spawn(close_when_idle(Rc::downgrade(&activity), idle_max));
    data.insert(ConnectionWatch { activity, task });
}

/// Marks a request as active on its connection until the returned guard is dropped.
pub fn track_request(request: &HttpRequest) -> ActiveRequest {
    let activity = request
        .conn_data::<ConnectionWatch>()
        .map(|watch| watch.activity.clone());
    if let Some(activity) = &activity {
        activity.requests.set(activity.requests.get() + 1);
    }
    ActiveRequest(activity)
}

async fn close_when_idle(activity: Weak<ConnectionActivity>, idle_max: Duration) {
    let mut look = Instant::now() + idle_max;
    loop {
        sleep_until(look).await;
        let Some(activity) = activity.upgrade() else {
            return;
        };
        let now = Instant::now();
        look = match activity.requests.get() {
            0 => activity.idle_since.get() + idle_max,
            _ => now + idle_max,
        };
        if look <= now {
            // The server reads the end of the stream and closes its handle. It may have done so
            // already.
            let _ = activity.socket.shutdown(Shutdown::Both);
            return;
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(activity) = &self.0 {
            activity
                .requests
                .set(activity.requests.get().saturating_sub(1));
            activity.idle_since.set(Instant::now());
        }
    }
}

impl Drop for ConnectionWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
