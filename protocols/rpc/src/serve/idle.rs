//! Ends connections on which nothing happens.
//!
//! actix-web times the head of a connection's first request only: after a first good request, half of a second one
//! holds the connection for ever. So each connection gets a watch of its own, which requests wind up.

use std::any::Any;
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

/// Lives and ends with its connection.
struct Watch {
    activity: Rc<Activity>,
    task: JoinHandle<()>,
}

struct Activity {
    /// The connection's socket, once more: the server owns the first handle.
    socket: Socket,
    requests: Cell<usize>,
    idle_since: Cell<Instant>,
}

/// Keeps the connection while a request is served.
pub struct Busy(Option<Rc<Activity>>);

/// Watches a new connection: ends it after `idle_max` without a request.
pub(crate) fn watch(connection: &dyn Any, data: &mut Extensions, idle_max: Duration) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else {
        return;
    };
    let socket = match SockRef::from(stream).try_clone() {
        Ok(socket) => socket,
        Err(error) => {
            callboard_message::log::warn!(%error, "connection is not watched: out of file descriptors?");
            return;
        }
    };
    let activity = Rc::new(Activity {
        socket,
        requests: Cell::new(0),
        idle_since: Cell::new(Instant::now()),
    });
    let task = actix_web::rt::spawn(end_when_idle(Rc::downgrade(&activity), idle_max));
    data.insert(Watch { activity, task });
}

/// Counts `request` on its connection until the value is dropped.
pub fn busy(request: &HttpRequest) -> Busy {
    let activity = request
        .conn_data::<Watch>()
        .map(|watch| watch.activity.clone());
    if let Some(activity) = &activity {
        activity.requests.set(activity.requests.get() + 1);
    }
    Busy(activity)
}

async fn end_when_idle(activity: Weak<Activity>, idle_max: Duration) {
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
            // The server reads the end of the stream and lets go. It may have done so already.
            let _ = activity.socket.shutdown(Shutdown::Both);
            return;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(activity) = &self.0 {
            activity
                .requests
                .set(activity.requests.get().saturating_sub(1));
            activity.idle_since.set(Instant::now());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
