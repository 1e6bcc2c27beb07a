//! Cache of tool results for repeated calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::{Principal, RawObject};
use callboard_runtime::{Context, NamePatterns};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::options::BridgeToolOptions;
use crate::outbound::ToolHints;

/// Maximum size of a cached result, in bytes.
const CACHE_ENTRY_BYTES_MAX: usize = 1 << 20;
/// Maximum size of each of `arguments` and `_meta` of a cached call, in bytes.
const CACHE_ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Longest time to live of a cached result. Longer times set by the tool or the operator are
/// reduced to it.
const CACHE_TTL_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Maximum nesting depth of the arguments of a cached call.
const ARGUMENTS_DEPTH_MAX: usize = 64;

/// SHA-256 of a call's tool, tool list edition, arguments, `_meta`, principal and caller
/// capabilities. A hash, so that no arguments are stored.
pub(crate) type CacheKey = [u8; 32];

/// Key and time to live of a result to be cached.
pub(crate) struct CacheSlot {
    key: CacheKey,
    ttl: Duration,
}

/// Cached results of one server.
pub(crate) struct ResultCache {
    entries: Cache<CacheKey, CachedResult, ResultWeighter>,
    times: NamePatterns<Duration>,
    shared: NamePatterns<()>,
    hits: AtomicU64,
}

#[derive(Clone)]
struct CachedResult {
    result: Arc<RawValue>,
    until: Instant,
}

/// Computes a result's weight in the cache: its size in bytes, but at least `least`. The minimum
/// limits the number of entries too.
#[derive(Clone)]
struct ResultWeighter {
    least: u64,
}

impl Weighter<CacheKey, CachedResult> for ResultWeighter {
    fn weight(&self, _: &CacheKey, cached: &CachedResult) -> u64 {
        (cached.result.get().len() as u64).max(self.least)
    }
}

impl ResultCache {
    pub fn new(options: &BridgeToolOptions) -> Option<Self> {
        let (entries, bytes) = (options.cache_entries_max, options.cache_bytes_max as u64);
        let least = bytes.checked_div(entries as u64)?.max(1);
        // One shard, so that the limits apply to the whole cache.
        let sizes = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(entries)
            .weight_capacity(bytes)
            .build();
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Some(Self {
            entries: Cache::with_options(sizes.ok()?, ResultWeighter { least }, hasher, lifecycle),
            times: options
                .cache_ttl
                .iter()
                .map(|(pattern, time)| (pattern.clone(), *time))
                .collect(),
            shared: options.cache_shared.iter().cloned().collect(),
            hits: AtomicU64::new(0),
        })
    }

    /// Returns the cache slot of a call, or `None` if its result must not be cached. `edition` is
    /// the edition of the server's tool list: results cached under an earlier list aren't found.
    pub fn slot_for(
        &self,
        tool: &str,
        hints: &ToolHints,
        edition: u64,
        params: &RawObject,
        cx: &Context,
    ) -> Option<CacheSlot> {
        // The operator's setting takes precedence over the server's.
        let time = self
            .times
            .get(tool)
            .copied()
            .or(hints.cache)
            .filter(|time| !time.is_zero())?;
        let principal = (!self.shared.has(tool)).then(|| cx.principal());
        let abilities = cx.caller_capabilities();
        // A tool may give other results to callers that it can't ask questions.
        let can = [
            abilities.has_sampling(),
            abilities.has_elicitation_form(),
            abilities.has_elicitation_url(),
            abilities.has_roots(),
        ];
        Some(CacheSlot {
            key: cache_key((tool, edition, can), params, principal)?,
            ttl: time,
        })
    }

    pub fn get(&self, slot: &CacheSlot) -> Option<Box<RawValue>> {
        let cached = self.entries.get(&slot.key)?;
        if cached.until <= Instant::now() {
            self.entries
                .remove_if(&slot.key, |cached| cached.until <= Instant::now());
            return None;
        }
        self.hits.fetch_add(1, Relaxed);
        Some(cached.result.as_ref().to_owned())
    }

    pub fn insert(&self, slot: CacheSlot, result: &RawValue) {
        if result.get().len() <= CACHE_ENTRY_BYTES_MAX && is_final(result) {
            let until = Instant::now() + slot.ttl.min(CACHE_TTL_MAX);
            self.entries.insert(
                slot.key,
                CachedResult {
                    result: result.to_owned().into(),
                    until,
                },
            );
        }
    }

    pub fn observe(&self) -> serde_json::Value {
        let cache = &self.entries;
        serde_json::json!({
            "results": cache.len(), "weight_bytes": cache.weight(), "hits": self.hits.load(Relaxed),
        })
    }
}

/// Returns true if `result` is the tool's complete answer, as opposed to an error, a question or a
/// task.
fn is_final(result: &RawValue) -> bool {
    let Ok(result) = RawObject::parse(result) else {
        return false;
    };
    let is_complete = result
        .text("resultType")
        .map_or(!result.has("resultType"), |kind| kind == "complete");
    let is_error = result.has("isError") && result.read("isError") != Some(false);
    is_complete
        && !is_error
        && !result.has("task")
        && (result.has("content") || result.has("structuredContent"))
}

/// Returns the cache key of a call. Returns `None` if `arguments` or `_meta` are too large, nested
/// too deeply, or contain duplicate member names: such calls can't be compared reliably.
fn cache_key(
    tool: (&str, u64, [bool; 4]),
    params: &RawObject,
    principal: Option<&Principal>,
) -> Option<CacheKey> {
    let member = |name: &str| match params.get(name) {
        Some(raw) if raw.get().len() > CACHE_ARGUMENTS_BYTES_MAX => None,
        Some(raw) => canonical_json(raw).map(Some),
        None => Some(None),
    };
    let fields = (tool, principal, member("arguments")?, member("_meta")?);
    Some(Sha256::digest(serde_json::to_vec(&fields).ok()?).into())
}

/// Returns the canonical JSON text of `raw`, so that equal values have equal texts: members are
/// sorted, spaces removed, strings escaped in one way. Numbers stay as written, because some tools
/// distinguish `1` from `1.0`. Returns `None` for duplicate member names or nesting deeper than
/// [`ARGUMENTS_DEPTH_MAX`].
fn canonical_json(raw: &RawValue) -> Option<String> {
    let mut text = String::with_capacity(raw.get().len());
    write_canonical(raw, 0, &mut text)?;
    Some(text)
}

fn write_canonical(raw: &RawValue, depth: usize, out: &mut String) -> Option<()> {
    if depth > ARGUMENTS_DEPTH_MAX {
        return None;
    }
    match raw.get().as_bytes().first()? {
        b'{' => {
            let object = RawObject::parse(raw).ok()?;
            let members: BTreeMap<&str, &RawValue> = object.iter().collect();
            out.push('{');
            for (name, value) in members {
                out.push_str(&serde_json::to_string(name).ok()?);
                out.push(':');
                write_canonical(value, depth + 1, out)?;
                out.push(',');
            }
            out.push('}');
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            out.push('[');
            for item in items {
                write_canonical(item, depth + 1, out)?;
                out.push(',');
            }
            out.push(']');
        }
        b'"' => {
            let text: String = serde_json::from_str(raw.get()).ok()?;
            out.push_str(&serde_json::to_string(&text).ok()?);
        }
        _ => out.push_str(raw.get()),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Goal: equal arguments have one text however they are written, and unequal ones never do.
    /// Method: rows of equals, and of values that a parser might confuse.
    #[test]
    fn canonical_arguments() {
        for (one, other) in [
            (
                r#"{"a":1,"b":[1, {"d":null,"c":"\u00e9"}]}"#,
                r#"{ "b":[1,{"c":"é","d":null}],"a":1}"#,
            ),
            ("[]", "[ ]"),
            (r#""a\/b""#, r#""a/b""#),
        ] {
            assert_eq!(
                canonical_json(&raw(one)).unwrap(),
                canonical_json(&raw(other)).unwrap()
            );
        }
        for (one, other) in [
            ("1", "1.0"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567891",
            ),
            ("0.1", "0.10000000000000000001"),
            (r#"{"a":null}"#, "{}"),
            (r#"["a","b"]"#, r#"["a,b"]"#),
            ("[[1],2]", "[[1,2]]"),
            (r#"{"a":"1"}"#, r#"{"a":1}"#),
        ] {
            assert_ne!(
                canonical_json(&raw(one)).unwrap(),
                canonical_json(&raw(other)).unwrap(),
                "{one}"
            );
        }
        assert_eq!(
            canonical_json(&raw(r#"{"b":{"a":1,"a":2}}"#)),
            None,
            "which of the two counts, the tool decides"
        );
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(canonical_json(&raw(&deep(ARGUMENTS_DEPTH_MAX + 1))).is_some());
        assert!(canonical_json(&raw(&deep(ARGUMENTS_DEPTH_MAX + 2))).is_none());
    }

    /// Goal: only completed answers of a tool are cached. Method: rows.
    #[test]
    fn final_results() {
        for (result, is) in [
            (r#"{"content":[]}"#, true),
            (
                r#"{"content":[],"isError":false,"resultType":"complete"}"#,
                true,
            ),
            (r#"{"structuredContent":{}}"#, true),
            (r#"{"content":[],"isError":true}"#, false),
            (r#"{"content":[],"isError":"true"}"#, false),
            (r#"{"content":[],"resultType":"input_required"}"#, false),
            (r#"{"content":[],"resultType":null}"#, false),
            (r#"{"task":{"taskId":"1"},"content":[]}"#, false),
            ("{}", false),
            ("[]", false),
        ] {
            assert_eq!(is_final(&raw(result)), is, "{result}");
        }
    }

    fn results(entries: usize, bytes: usize) -> ResultCache {
        let options = BridgeToolOptions {
            cache_entries_max: entries,
            cache_bytes_max: bytes,
            ..BridgeToolOptions::default()
        };
        ResultCache::new(&options).unwrap()
    }

    fn place(n: usize) -> CacheSlot {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        CacheSlot {
            key,
            ttl: Duration::from_secs(60),
        }
    }

    fn result(bytes: usize) -> Box<RawValue> {
        let empty = r#"{"content":[],"a":""}"#.len();
        raw(&format!(
            r#"{{"content":[],"a":"{}"}}"#,
            "a".repeat(bytes - empty)
        ))
    }

    /// Goal: neither number nor bytes of cached results exceed their limits. Method: one more than
    /// fits, of each; one result at its own limit and one above it.
    #[test]
    fn results_are_bounded() {
        let few = results(4, 1 << 20);
        (0..4).for_each(|n| few.insert(place(n), &result(100)));
        assert_eq!(few.entries.len(), 4);
        few.insert(place(4), &result(100));
        assert_eq!(few.entries.len(), 4);

        let small = results(1_000, 10_000);
        (0..5).for_each(|n| small.insert(place(n), &result(2_000)));
        assert_eq!((small.entries.len(), small.entries.weight()), (5, 10_000));
        small.insert(place(5), &result(2_000));
        assert!(small.entries.weight() <= 10_000 && small.entries.len() == 5);

        let large = results(16, 16 << 20);
        large.insert(place(0), &result(CACHE_ENTRY_BYTES_MAX));
        large.insert(place(1), &result(CACHE_ENTRY_BYTES_MAX + 1));
        assert_eq!(
            (
                large.get(&place(0)).is_some(),
                large.get(&place(1)).is_some()
            ),
            (true, false)
        );
        assert!(
            ResultCache::new(&BridgeToolOptions {
                cache_entries_max: 0,
                ..BridgeToolOptions::default()
            })
            .is_none()
        );
    }

    /// Goal: a time to live beyond the clock's range does no harm. Method: the longest duration.
    #[test]
    fn times_without_end() {
        let kept = results(4, 1 << 20);
        kept.insert(
            CacheSlot {
                ttl: Duration::MAX,
                ..place(0)
            },
            &result(100),
        );
        assert!(kept.get(&place(0)).is_some());
    }

    /// Goal: arguments are bounded. Method: at the limit, and one byte more.
    #[test]
    fn long_arguments() {
        let params = |bytes: usize| RawObject::single("arguments", "a".repeat(bytes - 2));
        assert!(
            cache_key(
                ("t", 0, [false; 4]),
                &params(CACHE_ARGUMENTS_BYTES_MAX),
                None
            )
            .is_some()
        );
        assert!(
            cache_key(
                ("t", 0, [false; 4]),
                &params(CACHE_ARGUMENTS_BYTES_MAX + 1),
                None
            )
            .is_none()
        );
    }
}
