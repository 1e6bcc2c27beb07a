//! Pinned tools: a remote server's tools are listed and callable as they were approved.
//!
//! Pins are kept in the key-value store, an entry for each tool, so that a command can approve changes
//! while the node runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Failure, RawObject, RawReply, encode_hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::audit::AuditEntry;
use crate::journal::JournalResult;
use crate::kv_store::{KvEntry, KvError, KvStore, list_all, to_body};
use crate::policy::unix_s;
use crate::store::AuditLog;
use crate::sync::Mutex;

/// Maximum size of a tool's definition that is kept to show differences, in bytes. Of a larger one only the
/// hash is kept.
pub const PINNED_DEFINITION_BYTES_MAX: usize = 24 * 1024;
/// Maximum number of tools of a server that are pinned. Further ones are neither listed nor callable.
pub const PINNED_TOOLS_MAX: usize = 1_000;
/// Maximum time between the first and the last page of a server's first list. Tools of later pages wait.
const FIRST_LIST_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for which the pins of a server count before they are read again.
const PINS_AGE_MAX: Duration = Duration::from_secs(1);
/// Prefix of the spaces with the pins of a server.
const SPACE_PREFIX: &str = "pins/";
/// Key of the entry about the first list of a server.
const FIRST_LIST_KEY: &str = "first-list";

/// Handling of the tools of a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PinMode {
    /// Tools are used as the server lists them.
    #[default]
    Off,
    /// The first list is approved. Tools that come or change later aren't used until they are approved.
    TrustFirst,
    /// No tool is used until it is approved.
    Review,
}

/// A tool of a remote server as it is pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// Name of the tool.
    pub name: String,
    /// Approved version; `None` for a new tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ToolVersion>,
    /// Version that the server listed last, if it isn't the approved one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<ToolVersion>,
}

impl PinnedTool {
    /// Returns `approved`, `changed` (another version than the approved one is offered) or `new`.
    pub fn state(&self) -> &'static str {
        match (&self.approved, &self.offered) {
            (Some(_), None) => "approved",
            (Some(_), Some(_)) => "changed",
            (None, _) => "new",
        }
    }
}

/// Version of a tool's definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolVersion {
    /// SHA-256 hash of the definition, in hexadecimal.
    pub hash: String,
    /// Definition, without `_meta`; `None` if it is larger than [`PINNED_DEFINITION_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
}

impl ToolVersion {
    /// Returns the version of a listed tool. Order of members and `_meta` don't matter.
    fn of(mut tool: Value) -> Self {
        if let Some(members) = tool.as_object_mut() {
            members.remove("_meta");
        }
        tool.sort_all_objects();
        let text = tool.to_string();
        Self {
            hash: encode_hex(&Sha256::digest(&text)),
            definition: (text.len() <= PINNED_DEFINITION_BYTES_MAX).then_some(tool),
        }
    }
}

impl PinnedTool {
    /// Returns whether the server may be asked to run the tool.
    fn is_usable(&self) -> bool {
        self.approved.is_some() && self.offered.is_none()
    }

    async fn write(
        &self,
        store: &dyn KvStore,
        server: &str,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        let body = to_body(self);
        store
            .put(&space(server), &key(&self.name), body, expected)
            .await
    }
}

fn space(server: &str) -> String {
    format!("{SPACE_PREFIX}{server}")
}

/// Returns the key of a tool: a hash, because names may be longer than keys.
fn key(tool: &str) -> String {
    encode_hex(&Sha256::digest(tool)[..16])
}

/// Returns the pins of a server, by name.
///
/// # Errors
/// Those of the store.
pub async fn pinned_tools(store: &dyn KvStore, server: &str) -> JournalResult<Vec<PinnedTool>> {
    let mut tools: Vec<_> = list_all(store, &space(server))
        .await?
        .iter()
        .filter_map(KvEntry::record::<PinnedTool>)
        .collect();
    tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(tools)
}

/// Approves the version of a tool that its server listed last. Returns whether there was another one than
/// the approved. `offered` is the hash of that version, as the operator has seen it.
///
/// # Errors
/// Those of the store; a conflict if the server has listed another version meanwhile.
pub async fn approve_tool(
    store: &dyn KvStore,
    server: &str,
    tool: &str,
    offered: &str,
) -> Result<bool, KvError> {
    let entry = store.get(&space(server), &key(tool)).await?;
    let Some((entry, pinned)) = entry.and_then(|entry| {
        let pinned: PinnedTool = entry.record()?;
        Some((entry, pinned))
    }) else {
        return Ok(false);
    };
    let Some(version) = pinned.offered else {
        return Ok(false);
    };
    if version.hash != offered {
        return Err(KvError::VersionConflict {
            version: entry.version,
        });
    }
    let approved = PinnedTool {
        name: pinned.name,
        approved: Some(version),
        offered: None,
    };
    approved.write(store, server, Some(entry.version)).await?;
    Ok(true)
}

/// Pins of the remote servers of a system.
#[derive(Default)]
pub struct ToolPins {
    servers: Mutex<HashMap<String, Arc<ServerPins>>>,
}

/// Pins of one server.
struct ServerPins {
    mode: PinMode,
    /// Lock of the page that is being screened.
    screening: tokio::sync::Mutex<()>,
    /// Pins and the time at which they were read.
    known: Mutex<Option<(Instant, Arc<KnownPins>)>>,
}

/// Pins as they were read.
#[derive(Default)]
struct KnownPins {
    /// Progress of the first list, and version of its entry.
    first_list: Option<(FirstList, u64)>,
    /// Pin and version of its entry, by the tool's name.
    tools: HashMap<String, (PinnedTool, u64)>,
}

impl KnownPins {
    async fn read(store: &dyn KvStore, server: &str) -> JournalResult<Self> {
        let entries = list_all(store, &space(server)).await?;
        let tools = entries.iter().filter_map(|entry| {
            let pinned: PinnedTool = entry.record()?;
            Some((pinned.name.clone(), (pinned, entry.version)))
        });
        Ok(Self {
            first_list: entries
                .iter()
                .find(|entry| entry.key == FIRST_LIST_KEY)
                .and_then(|entry| {
                    let first = entry.record()?;
                    Some((first, entry.version))
                }),
            tools: tools.collect(),
        })
    }
}

impl ToolPins {
    /// Replaces the modes of all servers, by name. Servers without one aren't pinned.
    pub fn set_modes(&self, modes: impl IntoIterator<Item = (String, PinMode)>) {
        let pinned = modes.into_iter().filter(|(_, mode)| *mode != PinMode::Off);
        let mut servers = self.servers.lock();
        let before = std::mem::take(&mut *servers);
        *servers = pinned
            .map(|(server, mode)| {
                let same = before.get(&server).filter(|pins| pins.mode == mode);
                let pins = same.cloned().unwrap_or_else(|| {
                    Arc::new(ServerPins {
                        mode,
                        screening: tokio::sync::Mutex::default(),
                        known: Mutex::default(),
                    })
                });
                (server, pins)
            })
            .collect();
    }

    /// Returns whether the tools of `server` are pinned.
    pub(crate) fn has(&self, server: &str) -> bool {
        self.servers.lock().contains_key(server)
    }

    fn of(&self, server: &str) -> Option<Arc<ServerPins>> {
        self.servers.lock().get(server).cloned()
    }

    /// Checks that a tool of `server` is approved.
    ///
    /// # Errors
    /// `Denied` if it isn't; `Unavailable` if the pins can't be read.
    pub(crate) async fn check_call(
        &self,
        store: &dyn KvStore,
        server: &str,
        tool: &str,
    ) -> Result<(), Failure> {
        let Some(pins) = self.of(server) else {
            return Ok(());
        };
        let known = pins.current(store, server).await?;
        let is_usable = match known.tools.get(tool) {
            Some((pinned, _)) => pinned.is_usable(),
            // Nothing is pinned before the first list.
            None => pins.mode == PinMode::TrustFirst && known.first_list.is_none(),
        };
        match is_usable {
            true => Ok(()),
            false => Err(Failure::denied(
                "this tool is new or has changed since it was approved: the operator approves it by `callboard tools approve`",
            )),
        }
    }

    /// Removes from a page of the tools of `server` those that aren't approved, and pins those of the first
    /// list. `cursor` is that of the page's request. Returns the page and the names of the removed tools.
    ///
    /// # Errors
    /// `Unavailable` if the pins can't be read, or the page is no list.
    pub(crate) async fn screen(
        &self,
        store: &dyn KvStore,
        audit: &AuditLog,
        server: &str,
        cursor: Option<String>,
        reply: RawReply,
    ) -> Result<(Box<RawValue>, Vec<String>), Failure> {
        let page = reply?;
        let Some(pins) = self.of(server) else {
            return Ok((page, Vec::new()));
        };
        let mut list = RawObject::parse(&page).map_err(unavailable)?;
        let tools: Vec<Box<RawValue>> = list.read("tools").unwrap_or_default();
        // One page at a time, so that two first lists don't pin different tools.
        let _screening = pins.screening.lock().await;
        let mut known = KnownPins::read(store, server).await.map_err(unavailable)?;
        let is_first = pins.mode == PinMode::TrustFirst
            && !tools.is_empty()
            && known.is_of_first_list(cursor.as_deref())
            && known.claim_first_list(store, server, &list).await;
        let (mut kept, mut removed) = (Vec::with_capacity(tools.len()), Vec::new());
        for tool in &tools {
            let definition: Value = serde_json::from_str(tool.get()).unwrap_or_default();
            let Some(name) = definition["name"].as_str().map(str::to_owned) else {
                continue;
            };
            let version = ToolVersion::of(definition);
            if let Some((pinned, before)) = known.pin(&name, version, is_first) {
                let entry = match pinned.is_usable() {
                    true => AuditEntry::new("tool.pinned"),
                    false => AuditEntry::new("tool.changed"),
                };
                match pinned.write(store, server, Some(before)).await {
                    Ok(written) => {
                        known.tools.insert(name.clone(), (pinned, written));
                        audit.try_enqueue(
                            entry.with_agent(server).with_detail("tool", name.clone()),
                        );
                    }
                    // Another node, or a command, has written it: the next list counts.
                    Err(error) => {
                        callboard_message::log::warn!(by: server, server, %error, "failed to pin a tool, which waits");
                        removed.push(name);
                        continue;
                    }
                }
            }
            match known
                .tools
                .get(&name)
                .is_some_and(|(pinned, _)| pinned.is_usable())
            {
                true => kept.push(tool.clone()),
                false => removed.push(name),
            }
        }
        *pins.known.lock() = Some((Instant::now(), Arc::new(known)));
        if kept.len() < tools.len() {
            list.set("tools", kept);
            return Ok((list.to_raw(), removed));
        }
        Ok((page, removed))
    }
}

/// Progress of the first list of a server, all of whose pages are approved.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FirstList {
    /// Time of its first page, in seconds since the Unix epoch.
    began: u64,
    /// Cursor of its next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    is_complete: bool,
}

impl FirstList {
    async fn write(
        &self,
        store: &dyn KvStore,
        server: &str,
        expected: u64,
    ) -> Result<u64, KvError> {
        let body = to_body(self);
        store
            .put(&space(server), FIRST_LIST_KEY, body, Some(expected))
            .await
    }
}

impl KnownPins {
    /// Records the progress of the first list by this page of it. Returns whether that worked: another node may
    /// have read the first list meanwhile.
    async fn claim_first_list(
        &mut self,
        store: &dyn KvStore,
        server: &str,
        page: &RawObject,
    ) -> bool {
        let next = page.text("nextCursor").filter(|next| !next.is_empty());
        let before = self.first_list.as_ref();
        let first = FirstList {
            began: before.map_or_else(|| unix_s(SystemTime::now()), |(first, _)| first.began),
            is_complete: next.is_none(),
            next,
        };
        let expected = before.map_or(0, |(_, version)| *version);
        match first.write(store, server, expected).await {
            Ok(version) => {
                self.first_list = Some((first, version));
                true
            }
            Err(error) => {
                callboard_message::log::warn!(by: server, server, %error, "failed to begin the first list of a server's tools, which wait");
                false
            }
        }
    }

    /// Returns whether the page after `cursor` belongs to the first list: it begins with a request without a
    /// cursor, and goes on by the cursors of its own pages, for [`FIRST_LIST_TIME_MAX`].
    fn is_of_first_list(&self, cursor: Option<&str>) -> bool {
        let Some((first, _)) = &self.first_list else {
            return cursor.is_none();
        };
        let age = Duration::from_secs(unix_s(SystemTime::now()).saturating_sub(first.began));
        !first.is_complete && age < FIRST_LIST_TIME_MAX && cursor == first.next.as_deref()
    }
}

impl KnownPins {
    /// Returns the new pin of a tool that is listed as `version`, with the version of its entry before;
    /// `None` if the pin stays.
    fn pin(&self, name: &str, version: ToolVersion, is_first: bool) -> Option<(PinnedTool, u64)> {
        let pinned = |approved, offered| PinnedTool {
            name: name.to_owned(),
            approved,
            offered,
        };
        let Some((before, entry)) = self.tools.get(name) else {
            if self.tools.len() >= PINNED_TOOLS_MAX {
                return None;
            }
            return Some(match is_first {
                true => (pinned(Some(version), None), 0),
                false => (pinned(None, Some(version)), 0),
            });
        };
        let is_approved = |approved: &ToolVersion| approved.hash == version.hash;
        let now = match &before.approved {
            Some(approved) if is_approved(approved) => pinned(before.approved.clone(), None),
            approved => pinned(approved.clone(), Some(version)),
        };
        (now != *before).then_some((now, *entry))
    }
}

impl ServerPins {
    /// Returns the pins as they were read; `None` if they are too old.
    fn fresh(&self) -> Option<Arc<KnownPins>> {
        let known = self.known.lock();
        let (read, pins) = known.as_ref()?;
        (read.elapsed() < PINS_AGE_MAX).then(|| pins.clone())
    }

    /// Returns the pins, which are read again if they are too old.
    async fn current(&self, store: &dyn KvStore, server: &str) -> Result<Arc<KnownPins>, Failure> {
        if let Some(pins) = self.fresh() {
            return Ok(pins);
        }
        // A list that is being screened is half written.
        let _screening = self.screening.lock().await;
        if let Some(pins) = self.fresh() {
            return Ok(pins);
        }
        let pins = KnownPins::read(store, server).await.map_err(unavailable)?;
        let pins = Arc::new(pins);
        *self.known.lock() = Some((Instant::now(), pins.clone()));
        Ok(pins)
    }
}

fn unavailable(error: impl std::fmt::Display) -> Failure {
    callboard_message::log::error!(%error, "the pins of a server's tools can't be read or written");
    Failure::unavailable("the node can't read which tools are approved: try again later")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::audit::MemoryAuditStore;
    use crate::kv_store::MemoryKvStore;

    /// Pins of a server `s` with a store of their own.
    struct TestPins {
        pins: ToolPins,
        store: MemoryKvStore,
        audit: AuditLog,
    }

    impl TestPins {
        fn new(mode: PinMode) -> Self {
            let pins = ToolPins::default();
            pins.set_modes([("s".to_owned(), mode)]);
            Self {
                pins,
                store: MemoryKvStore::default(),
                audit: AuditLog::new(Arc::new(MemoryAuditStore::default())),
            }
        }

        /// Returns the tools of a page that are left, and the names of the others.
        async fn screen(&self, tools: Value) -> (Vec<String>, Vec<String>) {
            self.screen_page(tools, None, Value::Null).await
        }

        /// Screens the page after `cursor`, after which comes `next`.
        async fn screen_page(
            &self,
            tools: Value,
            cursor: Option<&str>,
            next: Value,
        ) -> (Vec<String>, Vec<String>) {
            let page = json!({ "tools": tools, "nextCursor": next });
            let page = to_raw_value(&page).unwrap();
            let cursor = cursor.map(str::to_owned);
            let screened = self
                .pins
                .screen(&self.store, &self.audit, "s", cursor, Ok(page));
            let (page, removed) = screened.await.unwrap();
            let list = RawObject::parse(&page).unwrap();
            let tools: Vec<RawObject> = list.read("tools").unwrap();
            (
                tools.iter().filter_map(|tool| tool.text("name")).collect(),
                removed,
            )
        }

        async fn may_call(&self, tool: &str) -> bool {
            self.pins.check_call(&self.store, "s", tool).await.is_ok()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Goal: any change of a definition but its order and `_meta` takes a tool away, and its former definition
    /// brings it back. Method: rows of definitions after the first.
    #[tokio::test]
    async fn changes_of_definitions() {
        let first = json!({ "name": "t", "description": "a", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } });
        let with = |member: &str, value: Value| {
            let mut tool = first.clone();
            tool[member] = value;
            tool
        };
        for (later, is_same) in [
            (first.clone(), true),
            (with("_meta", json!({ "x": 1 })), true),
            (with("description", json!("b")), false),
            (with("description", json!("a\u{200b}")), false),
            (with("description", Value::Null), false),
            (with("title", json!("a")), false),
            (
                with("inputSchema", json!({ "type": "object", "x": 1 })),
                false,
            ),
            (with("outputSchema", json!({})), false),
            (with("annotations", json!({ "readOnlyHint": false })), false),
        ] {
            let pins = TestPins::new(PinMode::TrustFirst);
            assert!(pins.may_call("t").await);
            assert_eq!(pins.screen(json!([first])).await.0, ["t"]);
            let kept = pins.screen(json!([later])).await.0.len() == 1;
            assert_eq!(kept, is_same, "{later}");
            assert_eq!(pins.may_call("t").await, is_same, "{later}");
            assert_eq!(pins.screen(json!([first])).await.0, ["t"]);
            assert!(pins.may_call("t").await);
        }
        let reordered = serde_json::from_str::<Value>(r#"{"b":1,"a":{"d":1,"c":2}}"#).unwrap();
        let ordered = serde_json::from_str::<Value>(r#"{"a":{"c":2,"d":1},"b":1}"#).unwrap();
        assert_eq!(
            ToolVersion::of(reordered).hash,
            ToolVersion::of(ordered).hash
        );
    }

    /// Goal: all pages of the first list are pinned, and no tool that comes later or takes another's name; an
    /// approval is of what was seen. Method: a list of two pages; then a new, a renamed and a swapped tool.
    #[tokio::test]
    async fn first_lists_and_approvals() {
        let tool =
            |name: &str, description: &str| json!({ "name": name, "description": description });
        let pins = TestPins::new(PinMode::TrustFirst);
        let page = pins
            .screen_page(json!([tool("a", "A")]), None, json!("2"))
            .await;
        assert_eq!(page.0, ["a"]);
        let page = pins
            .screen_page(json!([tool("b", "B")]), Some("2"), Value::Null)
            .await;
        assert_eq!(page.0, ["b"]);
        let all =
            json!([tool("a", "B"), tool("b", "A"), tool("c", "C"), { "description": "none" }]);
        let screened = pins.screen(all).await;
        assert_eq!(screened, (Vec::new(), names(&["a", "b", "c"])));
        for unknown in ["a", "b", "c", "d"] {
            assert!(!pins.may_call(unknown).await, "{unknown}");
        }
        let pinned = pinned_tools(&pins.store, "s").await.unwrap();
        let [a, _, c] = &pinned[..] else {
            panic!("{pinned:?}")
        };
        assert!(a.approved.is_some() && c.approved.is_none());
        let seen = &c.offered.as_ref().unwrap().hash;
        let other = approve_tool(&pins.store, "s", "c", "0").await;
        assert!(matches!(other, Err(KvError::VersionConflict { .. })));
        assert!(approve_tool(&pins.store, "s", "c", seen).await.unwrap());
        assert!(!approve_tool(&pins.store, "s", "c", seen).await.unwrap());
        assert!(!approve_tool(&pins.store, "s", "x", seen).await.unwrap());
        assert_eq!(pins.screen(json!([tool("c", "C")])).await.0, ["c"]);

        let pins = TestPins::new(PinMode::Review);
        assert!(!pins.may_call("a").await);
        assert_eq!(pins.screen(json!([tool("a", "A")])).await.1, ["a"]);
        let pins = TestPins::new(PinMode::Off);
        assert!(pins.may_call("a").await);
        assert_eq!(pins.screen(json!([tool("a", "A")])).await.0, ["a"]);
    }

    /// Goal: neither a server nor a client keeps the first list open or ends it. Method: a made-up cursor and an
    /// empty list before it; pages with an endless chain, and cursors of other types.
    #[tokio::test]
    async fn first_lists_end() {
        let tool = |name: &str| json!({ "name": name });
        let pins = TestPins::new(PinMode::TrustFirst);
        let made_up = pins.screen_page(json!([]), Some("999"), Value::Null).await;
        assert!(made_up.0.is_empty());
        assert!(pins.screen(json!([])).await.0.is_empty());
        assert_eq!(pins.screen(json!([tool("a")])).await.0, ["a"]);
        for next in [json!(0), json!(""), Value::Null] {
            let pins = TestPins::new(PinMode::TrustFirst);
            let first = pins.screen_page(json!([tool("a")]), None, next).await;
            assert_eq!(first.0, ["a"]);
            assert_eq!(pins.screen(json!([tool("b")])).await.1, ["b"]);
            assert!(!pins.may_call("c").await);
        }
        let pins = TestPins::new(PinMode::TrustFirst);
        pins.screen_page(json!([tool("a")]), None, json!("2")).await;
        let other = pins
            .screen_page(json!([tool("b")]), Some("3"), json!("2"))
            .await;
        assert_eq!(other.1, ["b"]);
        let again = pins.screen_page(json!([tool("c")]), None, json!("2")).await;
        assert_eq!(again.1, ["c"]);
        let second = pins
            .screen_page(json!([tool("d")]), Some("2"), Value::Null)
            .await;
        assert_eq!(second.0, ["d"]);
    }

    /// Goal: a server can't fill the store. Method: the most tools that are pinned, and one more.
    #[tokio::test]
    async fn pinned_tools_are_bounded() {
        let tools = |count: usize| {
            let tools = (0..count).map(|at| json!({ "name": format!("t{at}") }));
            json!(tools.collect::<Vec<_>>())
        };
        let pins = TestPins::new(PinMode::TrustFirst);
        let (kept, removed) = pins.screen(tools(PINNED_TOOLS_MAX + 1)).await;
        assert_eq!((kept.len(), removed.len()), (PINNED_TOOLS_MAX, 1));
        let pinned = pinned_tools(&pins.store, "s").await.unwrap();
        assert_eq!(pinned.len(), PINNED_TOOLS_MAX);
    }

    /// Goal: a large definition is known by its hash alone. Method: the largest that is kept and one byte more.
    #[test]
    fn large_definitions() {
        let version = |bytes: usize| {
            let rest = json!({ "d": "" }).to_string().len();
            ToolVersion::of(json!({ "d": "x".repeat(bytes - rest) }))
        };
        assert!(version(PINNED_DEFINITION_BYTES_MAX).definition.is_some());
        assert!(
            version(PINNED_DEFINITION_BYTES_MAX + 1)
                .definition
                .is_none()
        );
    }
}
