//! Results of tools, kept for those who ask the same again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::{Principal, RawObject};
use callboard_runtime::{Cx, Patterns};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::options::ToolOptions;
use crate::outbound::Hints;

/// Most bytes of a result that is kept.
const CACHE_ENTRY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of arguments whose result is kept.
const CACHE_ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// The longest that a result is kept, whoever says so.
const CACHE_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Deepest arguments whose result is kept.
const ARGUMENTS_DEPTH_MAX: usize = 64;

/// Which result: tool, arguments, who asked, and what they can be asked. A hash, so that nobody's arguments are kept.
pub(crate) type Key = [u8; 32];

/// Where a result is kept, and for how long.
pub(crate) struct Place {
    key: Key,
    time: Duration,
}

/// The results of one server.
pub(crate) struct Results {
    kept: Cache<Key, Kept, Weigh>,
    times: Patterns<Duration>,
    shared: Patterns<()>,
    hits: AtomicU64,
}

#[derive(Clone)]
struct Kept {
    result: Arc<RawValue>,
    until: Instant,
}

/// A result weighs its bytes, and never so little that more of them than the bound would fit.
#[derive(Clone)]
struct Weigh {
    least: u64,
}

impl Weighter<Key, Kept> for Weigh {
    fn weight(&self, _: &Key, kept: &Kept) -> u64 {
        (kept.result.get().len() as u64).max(self.least)
    }
}

impl Results {
    pub fn new(options: &ToolOptions) -> Option<Self> {
        let (entries, bytes) = (options.cache_entries_max, options.cache_bytes_max as u64);
        let least = bytes.checked_div(entries as u64)?.max(1);
        // One shard, so that the bounds are of the whole.
        let sizes = OptionsBuilder::new()
            .shards(1)
            .estimated_items_capacity(entries)
            .weight_capacity(bytes)
            .build();
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Some(Self {
            kept: Cache::with_options(sizes.ok()?, Weigh { least }, hasher, lifecycle),
            times: options
                .cache
                .iter()
                .map(|(pattern, time)| (pattern.clone(), *time))
                .collect(),
            shared: options.cache_shared.iter().cloned().collect(),
            hits: AtomicU64::new(0),
        })
    }

    /// Where the result of a call belongs; `None` where it isn't kept. `edition` is that of the server's tools.
    pub fn place(
        &self,
        tool: &str,
        hints: &Hints,
        edition: u64,
        params: &RawObject,
        cx: &Cx,
    ) -> Option<Place> {
        // What the operator says goes before what the server says.
        let time = self
            .times
            .get(tool)
            .copied()
            .or(hints.cache)
            .filter(|time| !time.is_zero())?;
        let principal = (!self.shared.has(tool)).then(|| cx.principal());
        let abilities = cx.abilities();
        // A tool may answer those that it can't ask otherwise, and show them other things.
        let can = [
            abilities.sampling(),
            abilities.elicitation_form(),
            abilities.elicitation_url(),
            abilities.roots(),
        ];
        Some(Place {
            key: key((tool, edition, can), params, principal)?,
            time,
        })
    }

    pub fn get(&self, place: &Place) -> Option<Box<RawValue>> {
        let kept = self.kept.get(&place.key)?;
        if kept.until <= Instant::now() {
            self.kept
                .remove_if(&place.key, |kept| kept.until <= Instant::now());
            return None;
        }
        self.hits.fetch_add(1, Relaxed);
        Some(kept.result.as_ref().to_owned())
    }

    pub fn keep(&self, place: Place, result: &RawValue) {
        if result.get().len() <= CACHE_ENTRY_BYTES_MAX && is_final(result) {
            let until = Instant::now() + place.time.min(CACHE_TIME_MAX);
            self.kept.insert(
                place.key,
                Kept {
                    result: result.to_owned().into(),
                    until,
                },
            );
        }
    }

    pub fn observe(&self) -> serde_json::Value {
        let cache = &self.kept;
        serde_json::json!({
            "results": cache.len(), "weight_bytes": cache.weight(), "hits": self.hits.load(Relaxed),
        })
    }
}

/// Whether a result is the tool's answer: no error, no question, no task.
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

/// `None` where two calls can't be told to be the same.
fn key(
    tool: (&str, u64, [bool; 4]),
    params: &RawObject,
    principal: Option<&Principal>,
) -> Option<Key> {
    let member = |name: &str| match params.get(name) {
        Some(raw) if raw.get().len() > CACHE_ARGUMENTS_BYTES_MAX => None,
        Some(raw) => canonical(raw).map(Some),
        None => Some(None),
    };
    let fields = (tool, principal, member("arguments")?, member("_meta")?);
    Some(Sha256::digest(serde_json::to_vec(&fields).ok()?).into())
}

/// The same text for the same value: members sorted, no spaces, strings written one way. Numbers stay as written, for
/// `1` and `1.0` aren't the same to every tool. `None` for what has a name twice, or is too deep.
fn canonical(raw: &RawValue) -> Option<String> {
    let mut text = String::with_capacity(raw.get().len());
    write(raw, 0, &mut text)?;
    Some(text)
}

fn write(raw: &RawValue, depth: usize, out: &mut String) -> Option<()> {
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
                write(value, depth + 1, out)?;
                out.push(',');
            }
            out.push('}');
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            out.push('[');
            for item in items {
                write(item, depth + 1, out)?;
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

    /// Goal: the same arguments are the same however they are written, and others never are. Method: rows of equals, and
    /// of what a parser might take for equal.
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
                canonical(&raw(one)).unwrap(),
                canonical(&raw(other)).unwrap()
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
                canonical(&raw(one)).unwrap(),
                canonical(&raw(other)).unwrap(),
                "{one}"
            );
        }
        assert_eq!(
            canonical(&raw(r#"{"b":{"a":1,"a":2}}"#)),
            None,
            "which of the two counts, the tool decides"
        );
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(canonical(&raw(&deep(ARGUMENTS_DEPTH_MAX + 1))).is_some());
        assert!(canonical(&raw(&deep(ARGUMENTS_DEPTH_MAX + 2))).is_none());
    }

    /// Goal: only a tool's answer is kept. Method: rows.
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

    fn results(entries: usize, bytes: usize) -> Results {
        let options = ToolOptions {
            cache_entries_max: entries,
            cache_bytes_max: bytes,
            ..ToolOptions::default()
        };
        Results::new(&options).unwrap()
    }

    fn place(n: usize) -> Place {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        Place {
            key,
            time: Duration::from_secs(60),
        }
    }

    fn result(bytes: usize) -> Box<RawValue> {
        let empty = r#"{"content":[],"a":""}"#.len();
        raw(&format!(
            r#"{{"content":[],"a":"{}"}}"#,
            "a".repeat(bytes - empty)
        ))
    }

    /// Goal: neither number nor bytes of what is kept pass their bounds. Method: one more than fits, of each; and one result
    /// at its own bound and one past it.
    #[test]
    fn results_are_bounded() {
        let few = results(4, 1 << 20);
        (0..4).for_each(|n| few.keep(place(n), &result(100)));
        assert_eq!(few.kept.len(), 4);
        few.keep(place(4), &result(100));
        assert_eq!(few.kept.len(), 4);

        let small = results(1_000, 10_000);
        (0..5).for_each(|n| small.keep(place(n), &result(2_000)));
        assert_eq!((small.kept.len(), small.kept.weight()), (5, 10_000));
        small.keep(place(5), &result(2_000));
        assert!(small.kept.weight() <= 10_000 && small.kept.len() == 5);

        let large = results(16, 16 << 20);
        large.keep(place(0), &result(CACHE_ENTRY_BYTES_MAX));
        large.keep(place(1), &result(CACHE_ENTRY_BYTES_MAX + 1));
        assert_eq!(
            (
                large.get(&place(0)).is_some(),
                large.get(&place(1)).is_some()
            ),
            (true, false)
        );
        assert!(
            Results::new(&ToolOptions {
                cache_entries_max: 0,
                ..ToolOptions::default()
            })
            .is_none()
        );
    }

    /// Goal: a time past what a clock can hold is a mistake that harms nobody. Method: the longest time there is.
    #[test]
    fn times_without_end() {
        let kept = results(4, 1 << 20);
        kept.keep(
            Place {
                time: Duration::MAX,
                ..place(0)
            },
            &result(100),
        );
        assert!(kept.get(&place(0)).is_some());
    }

    /// Goal: arguments are bounded. Method: at the bound, and one byte more.
    #[test]
    fn long_arguments() {
        let params = |bytes: usize| RawObject::of("arguments", "a".repeat(bytes - 2));
        assert!(
            key(
                ("t", 0, [false; 4]),
                &params(CACHE_ARGUMENTS_BYTES_MAX),
                None
            )
            .is_some()
        );
        assert!(
            key(
                ("t", 0, [false; 4]),
                &params(CACHE_ARGUMENTS_BYTES_MAX + 1),
                None
            )
            .is_none()
        );
    }
}
