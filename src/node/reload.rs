//! Reloading: when the topology file changes, what changes with it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_runtime::AgentRef;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::cast::{bundle, farewell};
use super::front::Left;
use super::listen::{Open, Sockets, declared};
use super::{Node, NodeError};
use crate::config::{Running, Topology};

/// How long those that were replaced still take what found them just before.
pub const RELOAD_GRACE: Duration = Duration::from_secs(1);
/// How long calls that they have begun may take; then they are dropped.
pub const RELOAD_DRAIN_MAX: Duration = Duration::from_secs(600);

/// What a reload came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Agents and upstreams that are new, or not what they were.
    pub started: usize,
    /// Those that are gone or were replaced; they finish what they have begun.
    pub ended: usize,
    /// Listeners that were opened, or are not what they were.
    pub opened: usize,
    /// Listeners that were closed.
    pub closed: usize,
}

/// What becomes of a declared listener.
enum Plan {
    /// It is open as declared: at this place of those that are.
    Keep(usize),
    /// It is open at its address, and is something else: the socket is taken over.
    TakeOver(usize, Sockets),
    /// It isn't open.
    Open(Sockets),
}

impl Node {
    /// Goes on with another topology. Sessions, calls in flight and listeners that are declared as before go on; agents and
    /// upstreams that are declared as before stay the same, with their connections.
    ///
    /// # Errors
    /// See [`NodeError`]: the old topology goes on.
    pub async fn reload(&mut self, topology: &Topology) -> Result<Reloaded, NodeError> {
        if topology.prints.store != self.store_print {
            return Err(NodeError::StoreChanged);
        }
        let plans = self.plan_listeners(topology)?;
        let answering = self.answering.plan(topology)?;
        let planned = self.cast.plan(topology).await?;
        let mut done = Reloaded {
            started: planned.fresh.len(),
            ..Reloaded::default()
        };
        let mut old = self.cast.apply(planned, topology).await?;
        done.ended = old.iter().filter(|running| !running.is_bundle).count();
        self.runner.start_for(&self.system, topology);
        self.answering.apply(answering);
        old.extend(self.policy.install(topology).map(Running::new));
        self.classes
            .iter()
            .for_each(|classes| classes.install(topology));

        let mut before: Vec<Option<Open>> = std::mem::take(&mut self.listeners)
            .into_iter()
            .map(Some)
            .collect();
        let mut left = Left::default();
        for (at, plan) in plans.into_iter().enumerate() {
            match self
                .carry_out(plan, &mut before, topology, at, &mut left)
                .await
            {
                Ok((open, is_new)) => {
                    done.opened += usize::from(is_new);
                    self.listeners.push(open);
                }
                Err(error) => tracing::error!(%error, "a listener is missing"),
            }
        }
        for gone in before.into_iter().flatten() {
            done.closed += 1;
            left.bundles.extend(gone.bundle());
            self.retiring.spawn_local(gone.close());
        }
        self.tell_where(topology);
        self.retire(left, old);
        Ok(done)
    }

    fn plan_listeners(&self, topology: &Topology) -> Result<Vec<Plan>, NodeError> {
        let mut taken = vec![false; self.listeners.len()];
        let mut plans = Vec::with_capacity(topology.listeners.len());
        for (at, listener) in topology.listeners.iter().enumerate() {
            Self::can_serve(listener)?;
            let free = |wanted: &dyn Fn(&Open) -> bool| {
                self.listeners
                    .iter()
                    .zip(&taken)
                    .position(|(open, taken)| !taken && wanted(open))
            };
            let same = free(&|open| open.is(topology, at));
            let place = same.or_else(|| free(&|open| open.bind == listener.bind));
            if let Some(taken) = place.and_then(|place| taken.get_mut(place)) {
                *taken = true;
            }
            plans.push(
                match (
                    same,
                    place.zip(place.and_then(|place| self.listeners.get(place))),
                ) {
                    (Some(place), _) => Plan::Keep(place),
                    (None, Some((place, open))) => {
                        Plan::TakeOver(place, self.sockets_of(open, listener)?)
                    }
                    (None, None) => Plan::Open(self.sockets(listener)?),
                },
            );
        }
        Ok(plans)
    }

    async fn carry_out(
        &self,
        plan: Plan,
        before: &mut [Option<Open>],
        topology: &Topology,
        at: usize,
        left: &mut Left,
    ) -> Result<(Open, bool), NodeError> {
        let mut take = |place: usize| before.get_mut(place).and_then(Option::take);
        let (open, sockets) = match plan {
            Plan::Open(sockets) => return Ok((self.open_on(sockets, topology, at)?, true)),
            Plan::Keep(place) => (take(place), None),
            Plan::TakeOver(place, sockets) => (take(place), Some(sockets)),
        };
        let Some(mut open) = open else {
            return Ok((self.open(topology, at)?, true));
        };
        if sockets.is_none() && !self.must_begin_again(&open, topology, at) {
            self.renew(&mut open, topology, at, left)?;
            return Ok((open, false));
        }
        let sockets = match sockets {
            Some(sockets) => sockets,
            None => self.sockets_of(&open, declared(topology, at)?)?,
        };
        let other = self.open_on(sockets, topology, at)?;
        left.bundles.extend(open.bundle());
        // A session that began with the old one after this would be lost at the next call.
        open.pause().await;
        self.retiring.spawn_local(open.hand_over(self.grace()));
        Ok((other, true))
    }

    /// [`RELOAD_GRACE`], or less where the node ends.
    fn grace(&self) -> impl Future<Output = ()> + 'static {
        let ending = self.ending.clone();
        async move { drop(tokio::time::timeout(RELOAD_GRACE, ending.cancelled()).await) }
    }

    /// Ends those that were replaced, once they have done what they began: first those that stand for others.
    fn retire(&self, left: Left, old: Vec<Running>) {
        let Left { bundles, servers } = left;
        if bundles.is_empty() && old.is_empty() && servers.is_empty() {
            return;
        }
        let grace = self.grace();
        self.retiring.spawn_local(async move {
            grace.await;
            let (of_servers, old): (Vec<_>, Vec<_>) =
                old.into_iter().partition(|running| running.is_bundle);
            let bundles: Vec<_> = bundles.into_iter().map(bundle).chain(of_servers).collect();
            let all: Vec<_> = bundles
                .iter()
                .chain(&old)
                .map(|running| running.agent.clone())
                .collect();
            let ended = async {
                farewell(bundles).await;
                farewell(old).await;
            };
            if tokio::time::timeout(RELOAD_DRAIN_MAX, ended).await.is_err() {
                all.iter().for_each(AgentRef::kill);
            }
            servers.into_iter().for_each(|end| end());
        });
    }
}

/// How long a file must have been left alone before it is read: an editor writes it in several steps.
const QUIET: Duration = Duration::from_millis(100);

/// A file that is watched, and SIGHUP, which says that it is to be read again.
pub(crate) struct Watch {
    path: PathBuf,
    /// What was read last.
    before: Option<Vec<u8>>,
    touched: mpsc::Receiver<()>,
    hangup: Signal,
    _watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches the folder of `path`, for editors put a new file in the old one's place. Where the system can't, SIGHUP
    /// alone tells. Within a tokio runtime only.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub(crate) fn of(path: &Path) -> Result<Self, NodeError> {
        let hangup = signal(SignalKind::hangup())?;
        let (touch, touched) = mpsc::channel(1);
        let watcher = watcher(path, touch).map_err(NodeError::Watch);
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "only SIGHUP reloads it"))
            .ok();
        Ok(Self {
            path: path.to_owned(),
            before: fs::read(path).ok(),
            touched,
            hangup,
            _watcher: watcher,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends when the file is another than before, or on SIGHUP. May be dropped and called again.
    pub(crate) async fn changed(&mut self) {
        loop {
            let hung_up = tokio::select! {
                _ = self.hangup.recv() => true,
                touched = self.touched.recv(), if self._watcher.is_some() => touched.is_none(),
            };
            if !hung_up {
                while let Ok(Some(())) = tokio::time::timeout(QUIET, self.touched.recv()).await {}
            }
            let now = fs::read(&self.path).ok();
            // A file that is away for a moment is about to be another one.
            let is_other = now.is_some() && now != self.before;
            if is_other {
                self.before = now;
            }
            if is_other || hung_up {
                return;
            }
        }
    }
}

fn watcher(path: &Path, touch: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let name = path.file_name().unwrap_or_default().to_owned();
    // Mounted configuration is a link into a folder `..data` that is replaced as a whole.
    let concerns = move |file: &OsStr| file == name || file.as_encoded_bytes().starts_with(b"..");
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let is_ours = event.is_ok_and(|event| {
            !event.kind.is_access()
                && event
                    .paths
                    .iter()
                    .filter_map(|path| path.file_name())
                    .any(&concerns)
        });
        if is_ours {
            // One that waits already says the same.
            let _ = touch.try_send(());
        }
    })?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
