//! Tools that a server has listed on one connection.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::RawObject;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::outbound::UpstreamSession;

/// Maximum number of tools of one list that can be called. Further ones are unknown.
pub(crate) const LISTED_TOOLS_MAX: usize = 10_000;
/// Time after which a server that has answered that it has no list is asked again.
const LIST_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Minimum time between two fetches of a list because a call doesn't fit it, and for which a list
/// counts as current after it was requested, whatever changes the server reports.
const LIST_REUSE_PAUSE: Duration = Duration::from_secs(1);

/// Tools of a list, with their input schemas, by name.
#[derive(Default)]
pub(crate) struct ToolTable(HashMap<String, ListedTool>);

/// Tool as its clients see it.
pub(crate) struct ListedTool {
    /// Input schema; `None` if the tool has none.
    pub input_schema: Option<Box<RawValue>>,
    /// SHA-256 of the input schema.
    pub digest: [u8; 32],
}

impl ToolTable {
    /// Adds the tools of a page of `tools/list`. Returns the cursor of the next page; `None` at the
    /// end of the list.
    ///
    /// # Errors
    /// `()` if the page is no list of tools.
    pub fn add_page(&mut self, page: &RawValue) -> Result<Option<String>, ()> {
        let page = RawObject::parse(page).map_err(drop)?;
        let tools: Vec<Box<RawValue>> = page.read("tools").ok_or(())?;
        for tool in tools {
            // Members with the same name make a tool ambiguous, and so unknown.
            let Ok(tool) = RawObject::parse(&tool) else {
                continue;
            };
            let Some(name) = tool.text("name") else {
                continue;
            };
            if self.0.len() >= LISTED_TOOLS_MAX && !self.0.contains_key(&name) {
                break;
            }
            let schema = tool.get("inputSchema").map(RawValue::to_owned);
            let text = schema.as_deref().map_or("", RawValue::get);
            let listed = ListedTool {
                digest: Sha256::digest(text).into(),
                input_schema: schema,
            };
            self.0.insert(name, listed);
        }
        Ok(page.text("nextCursor"))
    }

    pub fn get(&self, name: &str) -> Option<&ListedTool> {
        self.0.get(name)
    }
}

/// Latest list of tools on one connection.
#[derive(Default)]
pub(crate) struct ListedTools {
    latest: Mutex<Option<Listing>>,
    /// Locked while the list is fetched, so that concurrent calls fetch it once.
    pub fetching: tokio::sync::Mutex<()>,
    /// Runs while a server without a list isn't asked again.
    missing: Pause,
    /// Runs while no list is fetched because a call doesn't fit it.
    refetched: Pause,
    /// Runs while the latest list counts because a fetch failed.
    failed: Pause,
}

/// Time in which something isn't done again; over at the beginning.
#[derive(Default)]
struct Pause(Mutex<Option<Instant>>);

impl Pause {
    fn begin(&self, duration: Duration) {
        *self.0.lock() = Some(Instant::now() + duration);
    }

    fn stop(&self) {
        *self.0.lock() = None;
    }

    fn is_running(&self) -> bool {
        self.end().is_some_and(|end| Instant::now() < end)
    }

    /// Returns the time at which the pause ends or has ended; `None` if it has never begun.
    fn end(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

struct Listing {
    table: Arc<ToolTable>,
    moment: ListMoment,
}

/// State of a session for which a list holds.
#[derive(Clone)]
pub(crate) struct ListMoment {
    session: Weak<UpstreamSession>,
    edition: u64,
    at: Instant,
}

impl ListMoment {
    /// Returns the current state of `session`. A list that is requested from now on holds at least
    /// for it.
    pub fn now(session: &Arc<UpstreamSession>) -> Self {
        Self {
            session: Arc::downgrade(session),
            edition: session.notifications.tools_edition(),
            at: Instant::now(),
        }
    }
}

impl ListedTools {
    /// Returns the list of `session`; `None` if there is none, or the server has reported a change
    /// since and it was requested more than [`LIST_REUSE_PAUSE`] ago.
    pub fn current(&self, session: &Arc<UpstreamSession>) -> Option<Arc<ToolTable>> {
        let edition = session.notifications.tools_edition();
        let latest = self.latest.lock();
        let listing = latest.as_ref().filter(|listing| {
            let moment = &listing.moment;
            std::ptr::eq(moment.session.as_ptr(), Arc::as_ptr(session))
                && (moment.edition == edition || moment.at.elapsed() < LIST_REUSE_PAUSE)
        })?;
        Some(listing.table.clone())
    }

    /// Returns the latest list, even if it isn't current.
    pub fn latest(&self) -> Option<Arc<ToolTable>> {
        let latest = self.latest.lock();
        latest.as_ref().map(|listing| listing.table.clone())
    }

    /// Records a whole list, which was requested at `moment`.
    pub fn record(&self, table: Arc<ToolTable>, moment: ListMoment) {
        self.missing.stop();
        self.failed.stop();
        *self.latest.lock() = Some(Listing { table, moment });
    }

    /// Returns true if the list may be fetched because a call doesn't fit it, and begins the pause
    /// after which it may be fetched again.
    pub fn begin_refetch(&self) -> bool {
        let may = !self.refetched.is_running();
        if may {
            self.refetched.begin(LIST_REUSE_PAUSE);
        }
        may
    }

    /// Returns the end of the pause of [`Self::begin_refetch`] if the server of `session` has
    /// reported a change since the latest list: then the pause is worth waiting for.
    pub fn refetch_time(&self, session: &Arc<UpstreamSession>) -> Option<Instant> {
        let edition = session.notifications.tools_edition();
        let latest = self.latest.lock();
        latest
            .as_ref()
            .filter(|listing| listing.moment.edition != edition)?;
        self.refetched.end()
    }

    /// Records that a fetch failed, so that calls in a row don't repeat it at once.
    pub fn record_failed(&self) {
        self.failed.begin(LIST_REUSE_PAUSE);
    }

    /// Returns true if a fetch failed a short time ago.
    pub fn has_failed(&self) -> bool {
        self.failed.is_running()
    }

    /// Records that the server has answered that it has no list.
    pub fn record_missing(&self) {
        self.missing.begin(LIST_RETRY_PAUSE);
    }

    /// Returns true if the server had no list a short time ago.
    pub fn is_missing(&self) -> bool {
        self.missing.is_running()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: String) -> Box<RawValue> {
        RawValue::from_string(json).unwrap()
    }

    /// Goal: calls that don't fit fetch the list at most once in a while. Method: paused time; two
    /// requests in the pause, and one after it.
    #[tokio::test(start_paused = true)]
    async fn refetches_are_bounded() {
        let listed = ListedTools::default();
        assert!(listed.begin_refetch());
        assert!(!listed.begin_refetch());
        tokio::time::advance(LIST_REUSE_PAUSE).await;
        assert!(listed.begin_refetch());
    }

    /// Goal: a table holds what a client can see, and no more than the limit. Method: pages with
    /// ambiguous, nameless and usual tools; pages that aren't lists; one tool more than the limit.
    #[test]
    fn tables_are_bounded() {
        let mut table = ToolTable::default();
        let page = r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","name":"c"},{"x":1},7],"nextCursor":"n"}"#;
        assert_eq!(table.add_page(&raw(page.into())), Ok(Some("n".into())));
        assert!(table.get("a").unwrap().input_schema.is_some());
        assert!(table.get("b").is_none() && table.get("c").is_none());
        for other in [r#"{"content":[]}"#, "[]", r#"{"tools":{}}"#] {
            assert_eq!(table.add_page(&raw(other.into())), Err(()));
        }
        for n in 0..LISTED_TOOLS_MAX {
            let page = format!(r#"{{"tools":[{{"name":"t{n}"}}]}}"#);
            assert_eq!(table.add_page(&raw(page)), Ok(None));
        }
        assert!(table.get(&format!("t{}", LISTED_TOOLS_MAX - 2)).is_some());
        assert!(table.get(&format!("t{}", LISTED_TOOLS_MAX - 1)).is_none());
    }
}
