//! Recipients of a server's change notifications, and what they are told.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{CapabilityChange, LogLevel, RawObject};
use callboard_runtime::{Caller, Context};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::exchange::{ExchangeResult, TransportError};
use super::options::{LIST_COMPARE_TIMEOUT, McpClientOptions};
use crate::change_damper::ChangeDamper;

/// Recipients of a server's change notifications.
#[derive(Clone)]
pub(crate) struct ChangeRoute {
    /// Outlet to the agent's followers.
    followers: Arc<ChangeOutlet>,
    /// Connection that publishes changes of lists. Each connection without a session of its own
    /// gets them from the server, and followers are notified once.
    publisher: Arc<Mutex<Weak<()>>>,
    /// Client session that alone uses the connection. It is notified instead of the followers,
    /// unless the server is of the modern era, which has no sessions.
    session: Option<(SessionLink, Arc<ChangeOutlet>)>,
    settings: OutletSettings,
}

/// Client session that alone uses a connection.
#[derive(Clone)]
pub(crate) struct SessionLink {
    /// Receiver of the server's changes.
    pub caller: Arc<dyn Caller>,
    /// Minimum level of the log messages that the client wants; `None` until it has set one.
    pub log_level: watch::Receiver<Option<LogLevel>>,
}

/// Connection that a change was reported on.
pub(crate) struct ChangeSource<'a> {
    /// Identity of the connection among those of one server.
    pub identity: &'a Arc<()>,
    pub is_modern: bool,
    /// Lists of the session on the connection; `None` until it is initialized.
    pub lists: Option<Arc<dyn ListSource>>,
}

/// Session in which lists can be fetched, for no call.
pub(crate) trait ListSource: Send + Sync {
    /// Fetches one page of the list that `method` returns.
    fn fetch_page(&self, method: &'static str, params: RawObject) -> BoxFuture<'_, ExchangeResult>;

    /// Returns the maximum number of pages that are fetched of one list.
    fn pages_max(&self) -> u32;
}

impl ChangeRoute {
    /// Creates the route to the followers of `agent`. Timers run on `runtime`.
    pub fn to_followers(
        agent: &Context,
        options: &McpClientOptions,
        runtime: Option<Handle>,
    ) -> Self {
        let settings = OutletSettings {
            interval: options.change_interval,
            compares_lists: options.compares_lists,
            runtime,
        };
        let agent = agent.clone();
        Self {
            followers: ChangeOutlet::new(&settings, move |change| agent.notify_changed(change)),
            publisher: Arc::default(),
            session: None,
            settings,
        }
    }

    /// Returns the route of a connection that `session` uses alone, if there is one.
    pub fn with_session(&self, session: Option<SessionLink>) -> Self {
        let session = session.map(|link| {
            let caller = link.caller.clone();
            let outlet = ChangeOutlet::new(&self.settings, move |change| caller.changed(change));
            (link, outlet)
        });
        Self {
            session,
            ..self.clone()
        }
    }

    /// Returns the minimum level of log messages that the session has set.
    pub fn log_level(&self) -> Option<LogLevel> {
        let (link, _) = self.session.as_ref()?;
        *link.log_level.borrow()
    }

    /// Tells the recipients of a change that was reported on the connection `source`.
    pub fn publish(&self, change: &CapabilityChange, source: ChangeSource<'_>) {
        let session = self.session.as_ref().filter(|_| !source.is_modern);
        match session {
            Some((_, outlet)) => outlet.report(change, source.lists),
            None => {
                // A resource is watched by the connection that has subscribed to it.
                let is_resource = matches!(change, CapabilityChange::Resource(_));
                if is_resource || self.is_publisher(source.identity) {
                    self.followers.report(change, source.lists);
                }
            }
        }
    }

    /// Returns true if the connection `identity` publishes changes of lists: it does already, or no
    /// other one does.
    fn is_publisher(&self, identity: &Arc<()>) -> bool {
        let mut publisher = self.publisher.lock();
        match publisher.upgrade() {
            Some(current) => Arc::ptr_eq(&current, identity),
            None => {
                *publisher = Arc::downgrade(identity);
                true
            }
        }
    }
}

/// Settings of all outlets of one client.
#[derive(Clone)]
struct OutletSettings {
    interval: Duration,
    compares_lists: bool,
    runtime: Option<Handle>,
}

/// Outlet of changes to one recipient. It tells each change at most once per interval, and a change
/// of a list only if the list is another one than when a change was last reported, or can't be
/// read. MCP's notifications have no place for a hop count. Comparing the lists replaces it: in a
/// circle of gateways a change comes back to one that knows the list already, and isn't told any
/// further.
struct ChangeOutlet {
    damper: ChangeDamper,
    /// Session in which the latest change of a list was reported. The list is fetched in it.
    source: LatestSource,
}

type LatestSource = Arc<Mutex<Option<Weak<dyn ListSource>>>>;

/// SHA-256 of a list; `None` if the list couldn't be read.
type ListDigest = Option<[u8; 32]>;

/// Number of consecutive unreadable lists that are told as changed. Further ones aren't: in a circle
/// of gateways they would be told without end.
const UNREADABLE_TOLD_MAX: u8 = 8;

/// Digest of the latest list of each kind, and the number of unreadable ones since it was read.
type KnownLists = HashMap<CapabilityChange, (ListDigest, u8)>;

/// Returns true if a list with this digest is told as changed, and records the digest. What can't be
/// read may have changed.
fn is_news(known: &mut KnownLists, change: &CapabilityChange, digest: ListDigest) -> bool {
    let before = known.get(change).copied();
    let unread = match digest {
        Some(_) => 0,
        None => before.map_or(0, |(_, unread)| unread).saturating_add(1),
    };
    known.insert(change.clone(), (digest, unread));
    match digest {
        Some(_) => before.map(|(before, _)| before) != Some(digest),
        None => unread <= UNREADABLE_TOLD_MAX,
    }
}

impl ChangeOutlet {
    fn new(
        settings: &OutletSettings,
        tell: impl Fn(CapabilityChange) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let source = LatestSource::default();
        let (reported_in, compares) = (source.clone(), settings.compares_lists);
        let (tell, known) = (Arc::new(tell), Arc::new(Mutex::new(KnownLists::new())));
        let deliver = move |change: &CapabilityChange| {
            let session = reported_in.lock().as_ref().and_then(Weak::upgrade);
            let methods = list_methods(change);
            let Some(session) = session.filter(|_| compares && !methods.is_empty()) else {
                tell(change.clone());
                return None;
            };
            let (tell, known, change) = (tell.clone(), known.clone(), change.clone());
            let compared: BoxFuture<'static, ()> = Box::pin(async move {
                let digest = list_digest(&*session, methods).await;
                drop(session);
                if is_news(&mut known.lock(), &change, digest) {
                    tell(change);
                }
            });
            Some(compared)
        };
        let runtime = settings.runtime.clone();
        Arc::new(Self {
            damper: ChangeDamper::new(settings.interval, runtime, deliver),
            source,
        })
    }

    fn report(&self, change: &CapabilityChange, lists: Option<Arc<dyn ListSource>>) {
        if !matches!(change, CapabilityChange::Resource(_)) {
            *self.source.lock() = lists.as_ref().map(Arc::downgrade);
        }
        self.damper.report(change);
    }
}

/// Method that returns a list, and the member of its result that holds the items.
type ListMethod = (&'static str, &'static str);

/// Returns the requests whose results change with `change`. Empty for changes that aren't of lists.
fn list_methods(change: &CapabilityChange) -> &'static [ListMethod] {
    match change {
        CapabilityChange::Tools => &[("tools/list", "tools")],
        CapabilityChange::Prompts => &[("prompts/list", "prompts")],
        CapabilityChange::Resources => &[
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ],
        _ => &[],
    }
}

/// Fetches lists and returns the digest of their items; `None` if one can't be read within
/// [`LIST_COMPARE_TIMEOUT`], or the server has none of them.
async fn list_digest(session: &dyn ListSource, methods: &[ListMethod]) -> ListDigest {
    let fetched = async {
        let (mut digest, mut is_read) = (Sha256::new(), false);
        for (method, items) in methods {
            match hash_list(session, method, items, &mut digest).await {
                Ok(()) => is_read = true,
                Err(error) if error.is_method_not_found() => {}
                Err(_) => return None,
            }
            // Separates the lists.
            digest.update([0]);
        }
        is_read.then(|| digest.finalize().into())
    };
    timeout(LIST_COMPARE_TIMEOUT, fetched).await.ok().flatten()
}

/// Fetches a list, up to `pages_max` pages, and adds its items to `digest`.
async fn hash_list(
    session: &dyn ListSource,
    method: &'static str,
    items: &str,
    digest: &mut Sha256,
) -> Result<(), TransportError> {
    let mut cursor: Option<String> = None;
    for _ in 0..session.pages_max() {
        let mut params = RawObject::new();
        params.set_some("cursor", &cursor);
        let page = session.fetch_page(method, params).await?;
        let page = RawObject::parse(&page)
            .map_err(|_| TransportError::Protocol("the list is no object".into()))?;
        digest.update(page.get(items).map_or("", RawValue::get));
        match page.text("nextCursor") {
            Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    /// Session whose lists can be read while it is true.
    struct Lists(AtomicBool);

    impl ListSource for Lists {
        fn fetch_page(&self, _: &'static str, _: RawObject) -> BoxFuture<'_, ExchangeResult> {
            let page = match self.0.load(SeqCst) {
                true => Ok(RawObject::new().to_raw()),
                false => Err(TransportError::SessionLost),
            };
            Box::pin(async move { page })
        }

        fn pages_max(&self) -> u32 {
            1
        }
    }

    /// Goal: lists that stay unreadable are told a limited number of times, and again after one was
    /// read. Method: one report more than the limit, a readable list, and a further unreadable one.
    #[test]
    fn unreadable_lists_are_not_told_without_end() {
        let mut known = KnownLists::new();
        let mut told = |digest| is_news(&mut known, &CapabilityChange::Tools, digest);
        assert!((0..UNREADABLE_TOLD_MAX).all(|_| told(None)));
        assert!(!told(None));
        assert!(told(Some([1; 32])));
        assert!(!told(Some([1; 32])));
        assert!(told(None));
    }

    /// Goal: a change isn't lost because the list can't be read; one of a list that is the same as
    /// before isn't told. Method: paused time; two reports with lists that can't be read, and two
    /// with one that can.
    #[tokio::test(start_paused = true)]
    async fn unreadable_lists_are_told() {
        let told = Arc::new(AtomicUsize::new(0));
        let settings = OutletSettings {
            interval: INTERVAL,
            compares_lists: true,
            runtime: None,
        };
        let count = told.clone();
        let outlet = ChangeOutlet::new(&settings, move |_| {
            count.fetch_add(1, SeqCst);
        });
        let lists = Arc::new(Lists(AtomicBool::new(false)));
        for (is_readable, told_then) in [(false, 1), (false, 2), (true, 3), (true, 3)] {
            lists.0.store(is_readable, SeqCst);
            outlet.report(&CapabilityChange::Tools, Some(lists.clone()));
            tokio::time::sleep(INTERVAL * 2).await;
            assert_eq!(told.load(SeqCst), told_then);
        }
    }
}
