//! An agent elsewhere that works when it is let.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard::message::capabilities::Converse;
use callboard::message::{Failure, ToolResult};
use callboard::{Agent, ConcurrentHandler, Context, Handlers, System};
use tokio::sync::watch;

use crate::kit::{Listening, a2a, soon};

/// An agent that does what it is told, once it may.
pub struct Peer {
    pub listening: Listening,
    heard: Heard,
    may: watch::Sender<bool>,
    done: watch::Sender<HashSet<String>>,
    system: Option<System>,
}

type Heard = Arc<Mutex<Vec<String>>>;

struct Works {
    heard: Heard,
    may: watch::Receiver<bool>,
    done: watch::Sender<HashSet<String>>,
}

impl Agent for Works {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(16);
    }
}

impl ConcurrentHandler<Converse> for Works {
    fn handle(
        &mut self,
        said: Converse,
        _: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let text = said.texts();
        self.heard.lock().unwrap().push(text.clone());
        let (mut may, done) = (self.may.clone(), self.done.clone());
        // Who waits for it looks again.
        done.send_modify(|_| {});
        async move {
            may.wait_for(|may| *may)
                .await
                .map_err(|_| Failure::unavailable("it ends"))?;
            done.send_modify(|done| {
                done.insert(text.clone());
            });
            Ok(ToolResult::text(format!("{text}: 12 km/h")))
        }
    }
}

impl Peer {
    /// One that works at once, unless it is called `tides`.
    pub fn start(name: &str) -> Self {
        let system = System::start(1).unwrap();
        let (heard, done) = (Heard::default(), watch::Sender::new(HashSet::new()));
        let may = watch::Sender::new(name != "tides");
        let agent = system.spawn(Works {
            heard: heard.clone(),
            may: may.subscribe(),
            done: done.clone(),
        });
        let listening = a2a::serve(agent, |options| {
            options.agent.name = name.to_owned();
            options.shares_anonymous_tasks = true;
        });
        Self {
            listening,
            heard,
            may,
            done,
            system: Some(system),
        }
    }

    /// From now on it works.
    pub fn open(&self) {
        self.may.send_replace(true);
    }

    /// Received messages, each task once.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub async fn begun(&self) {
        let mut seen = self.done.subscribe();
        soon(
            "a peer that is told something",
            seen.wait_for(|_| !self.heard().is_empty()),
        )
        .await
        .unwrap();
    }

    pub async fn done(&self, text: &str) {
        let mut seen = self.done.subscribe();
        soon("a peer's answer", seen.wait_for(|done| done.contains(text)))
            .await
            .unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some(system) = self.system.take() else {
            return;
        };
        // Its arbiter is a thread of its own.
        tokio::spawn(async move { system.shutdown(Duration::from_secs(1)).await });
    }
}
