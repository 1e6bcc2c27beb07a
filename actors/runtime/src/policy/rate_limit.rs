//! Rate limits for messages, by principal or by tool name. A name pattern such as `read_*` matches
//! all names with that prefix.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use callboard_message::capabilities::{CallTool, RESERVED_PREFIX};
use callboard_message::{Failure, Message, Principal, PrincipalKind};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use serde::Deserialize;
use wildmatch::WildMatch;

use super::{Direction, Policy, PolicyFuture, PolicyRequest};

/// Maximum number of keys (a principal, or a principal and a tool) with a token bucket of their own
/// in one limit. Further keys share [`RATE_OVERFLOW_SHARDS`] buckets by hash until idle keys have
/// been evicted.
const TRACKED_PRINCIPALS_MAX: usize = 65_536;
/// Number of shared token buckets for keys beyond [`TRACKED_PRINCIPALS_MAX`].
const RATE_OVERFLOW_SHARDS: u64 = 1_024;
/// Number of messages between two evictions of idle keys.
const SWEEP_INTERVAL_MESSAGES: u32 = 1_024;
/// Number of leading characters of a tool name that a limit compares.
const TOOL_NAME_CHARS_MAX: usize = 256;

/// Policy that limits requests per second for each principal. Only inbound messages count: those
/// that a request causes on its way, such as one to each server of a list, don't. A burst of up to
/// one second's quota is permitted.
pub struct RateLimit {
    per_second: NonZeroU32,
    buckets: KeyedBuckets<PrincipalKey>,
}

/// Policy that limits calls per second for each principal, agent, tool and direction. A burst of up
/// to one second's quota is permitted.
pub struct ToolRateLimit {
    limits: NamePatterns<KeyedBuckets<(PrincipalKey, Direction, String, String)>>,
}

impl RateLimit {
    /// Creates a limit of `per_second` requests for each principal.
    pub fn per_principal(per_second: NonZeroU32) -> Self {
        Self {
            per_second,
            buckets: KeyedBuckets::new(per_second),
        }
    }

    /// Creates limits for tools, in calls per second, from pairs of name and limit. A name is a
    /// tool name, an agent and tool name (`files.write`), or a pattern ([`NamePatterns`]). Tools
    /// that match none aren't limited. Each principal, agent, tool and direction has its own
    /// bucket.
    pub fn per_tool(per_second: impl IntoIterator<Item = (String, NonZeroU32)>) -> ToolRateLimit {
        let limits = per_second
            .into_iter()
            .map(|(pattern, per_second)| (pattern, KeyedBuckets::new(per_second)));
        ToolRateLimit {
            limits: limits.collect(),
        }
    }
}

impl Policy for RateLimit {
    fn check<'a>(&'a self, request: PolicyRequest<'a>) -> PolicyFuture<'a> {
        let is_counted = request.direction == Direction::Inbound;
        let allowed = !is_counted || self.buckets.allow(&principal_key(request.principal));
        allow_or_reject(allowed, || {
            format!(
                "rate limit of {} requests per second reached (`per_client_per_second`), try again in a second",
                self.per_second
            )
        })
    }
}

impl Policy for ToolRateLimit {
    fn check<'a>(&'a self, request: PolicyRequest<'a>) -> PolicyFuture<'a> {
        let allowed = tool_name(&request).is_none_or(|tool| {
            // The name in a list of several agents, in the form that limits are written in.
            let dotted = tool.replacen("__", ".", 1);
            let Some(buckets) =
                self.limits
                    .get_any(&[&format!("{}.{tool}", request.agent), &tool, &dotted])
            else {
                return true;
            };
            buckets.allow(&(
                principal_key(request.principal),
                request.direction,
                request.agent.to_owned(),
                dotted,
            ))
        });
        allow_or_reject(allowed, || {
            "rate limit of this tool reached (`per_tool_per_second`), try again in a second"
                .to_owned()
        })
    }
}

fn allow_or_reject(allowed: bool, why: impl FnOnce() -> String) -> PolicyFuture<'static> {
    Box::pin(std::future::ready(match allowed {
        true => Ok(()),
        false => Err(Failure::overloaded(why())),
    }))
}

/// Kind and id of a principal. Ids are unique only within a kind.
type PrincipalKey = (PrincipalKind, String);

fn principal_key(principal: &Principal) -> PrincipalKey {
    (principal.kind, principal.id.clone())
}

/// Returns the tool that a message calls: the name in a `callboard.tools.call`, or the message name
/// itself, cut to [`TOOL_NAME_CHARS_MAX`] characters. `None` for other reserved messages, and for a
/// tool call without a name.
pub(crate) fn tool_name<'a>(request: &PolicyRequest<'a>) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct ToolCallName<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let name = match request.message {
        // A call without a tool name is rejected later.
        CallTool::NAME => {
            let call: ToolCallName<'a> = serde_json::from_str(request.payload.get()).ok()?;
            call.name
        }
        message if message.starts_with(RESERVED_PREFIX) => return None,
        message => Cow::Borrowed(message),
    };
    Some(match name.char_indices().nth(TOOL_NAME_CHARS_MAX) {
        Some((end, _)) => Cow::Owned(name.get(..end).unwrap_or_default().to_owned()),
        None => name,
    })
}

type Limiter<K, C> = RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// Token buckets of a limit by key, with shared buckets for keys beyond the maximum number.
struct KeyedBuckets<K: Hash + Eq + Clone, C: Clock = DefaultClock> {
    per_key: Limiter<K, C>,
    /// Shared buckets, used instead of `per_key` while there are too many keys.
    overflow: Limiter<u64, C>,
    hasher: RandomState,
    is_overflowing: AtomicBool,
    checked_count: AtomicU32,
    keys_max: usize,
}

impl<K: Hash + Eq + Clone> KeyedBuckets<K> {
    fn new(per_second: NonZeroU32) -> Self {
        Self::with_clock(per_second, DefaultClock::default(), TRACKED_PRINCIPALS_MAX)
    }
}

impl<K: Hash + Eq + Clone, C: Clock + Clone> KeyedBuckets<K, C> {
    fn with_clock(per_second: NonZeroU32, clock: C, keys_max: usize) -> Self {
        let quota = Quota::per_second(per_second);
        Self {
            per_key: RateLimiter::dashmap_with_clock(quota, clock.clone()),
            overflow: RateLimiter::dashmap_with_clock(quota, clock),
            hasher: RandomState::new(),
            is_overflowing: AtomicBool::new(false),
            checked_count: AtomicU32::new(0),
            keys_max,
        }
    }

    fn allow(&self, key: &K) -> bool {
        if self.checked_count.fetch_add(1, Relaxed) % SWEEP_INTERVAL_MESSAGES
            == SWEEP_INTERVAL_MESSAGES - 1
        {
            self.sweep();
        }
        match self.is_overflowing.load(Relaxed) {
            false => self.per_key.check_key(key).is_ok(),
            true => self
                .overflow
                .check_key(&(self.hasher.hash_one(key) % RATE_OVERFLOW_SHARDS))
                .is_ok(),
        }
    }

    /// Evicts idle keys, whose buckets are full: a full bucket is equivalent to none.
    fn sweep(&self) {
        self.per_key.retain_recent();
        // Leaves room for the keys that arrive before the next sweep.
        let most = self
            .keys_max
            .saturating_sub(SWEEP_INTERVAL_MESSAGES as usize);
        self.is_overflowing
            .store(self.per_key.len() > most, Relaxed);
    }
}

/// Map from names and name patterns to values. `*` matches any characters, `?` one. An exact name
/// takes precedence, then the pattern with the most literal characters.
#[derive(Clone)]
pub struct NamePatterns<T> {
    exact: HashMap<String, T>,
    /// Patterns with their values, those with the most literal characters first.
    globs: Vec<(WildMatch, T)>,
}

impl<T> NamePatterns<T> {
    /// Returns the value of the entry that matches `name` best: an exact name, else the pattern
    /// with the most literal characters.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.get_any(&[name])
    }

    /// Returns the value for something that has several names. An exact match of any name takes
    /// precedence, then the pattern with the most literal characters.
    pub fn get_any(&self, names: &[&str]) -> Option<&T> {
        let exact = names.iter().find_map(|name| self.exact.get(*name));
        exact.or_else(|| {
            let mut globs = self.globs.iter();
            globs
                .find(|(glob, _)| names.iter().any(|name| glob.matches(name)))
                .map(|(_, value)| value)
        })
    }

    /// Returns true if a name or pattern matches `name`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns true if there are no names and patterns.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }
}

impl<T> Default for NamePatterns<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            globs: Vec::new(),
        }
    }
}

impl<T> FromIterator<(String, T)> for NamePatterns<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(all: I) -> Self {
        let (mut exact, mut globs) = (HashMap::new(), Vec::new());
        for (pattern, value) in all {
            match pattern.contains(['*', '?']) {
                true => globs.push((pattern, value)),
                false => drop(exact.insert(pattern, value)),
            }
        }
        // The input may be in any order, so the pattern itself breaks ties.
        globs.sort_by_cached_key(|(pattern, _)| (Reverse(literal_chars(pattern)), pattern.clone()));
        Self {
            exact,
            globs: globs
                .into_iter()
                .map(|(pattern, value)| (WildMatch::new(&pattern), value))
                .collect(),
        }
    }
}

/// Collects names and patterns into a set without values.
impl FromIterator<String> for NamePatterns<()> {
    fn from_iter<I: IntoIterator<Item = String>>(all: I) -> Self {
        all.into_iter().map(|pattern| (pattern, ())).collect()
    }
}

fn literal_chars(pattern: &str) -> usize {
    pattern.chars().filter(|c| !matches!(c, '*' | '?')).count()
}

impl<T: fmt::Debug> fmt::Debug for NamePatterns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globs = self
            .globs
            .iter()
            .map(|(glob, value)| (glob.to_string(), value));
        f.debug_map().entries(&self.exact).entries(globs).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use callboard_message::CallId;
    use futures::FutureExt;
    use governor::clock::FakeRelativeClock;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use callboard_message::FailureKind;

    use super::*;

    fn judge(
        limit: &impl Policy,
        principal: &Principal,
        agent: &str,
        message: &str,
        payload: serde_json::Value,
    ) -> bool {
        let payload = to_raw_value(&payload).unwrap();
        let (direction, call) = (Direction::Inbound, CallId::generate());
        let request = PolicyRequest {
            direction,
            principal,
            call,
            agent,
            message,
            payload: &payload,
        };
        match limit.check(request).now_or_never().unwrap() {
            Ok(()) => true,
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::Overloaded);
                false
            }
        }
    }

    /// Goal: each tool of each agent has a bucket for each principal, and the most specific pattern
    /// decides. Method: one call past the limit by name, by agent and name, and by pattern; then
    /// another tool, agent and principal.
    /// Rows: M-59.
    #[test]
    fn limits_of_tools() {
        let two = NonZeroU32::new(2).unwrap();
        let limits = [
            ("write", NonZeroU32::MIN),
            ("files.wr*", two),
            ("read_*", two),
        ];
        let limit = RateLimit::per_tool(limits.map(|(tool, n)| (tool.to_owned(), n)));
        let [ann, bob] = ["ann", "bob"].map(Principal::agent);
        let calls = |principal, agent, tool, n| {
            (0..n)
                .map(|_| judge(&limit, principal, agent, tool, json!({})))
                .collect()
        };
        let seen: Vec<bool> = calls(&ann, "files", "write", 2);
        assert_eq!(seen, [true, false], "the name itself goes before a pattern");
        let seen: Vec<bool> = calls(&ann, "files", "wrap", 3);
        assert_eq!(seen, [true, true, false]);
        let seen: Vec<bool> = calls(&ann, "files", "read_a", 3);
        assert_eq!(seen, [true, true, false]);
        assert!(judge(&limit, &ann, "files", "read_b", json!({})));
        assert!(judge(&limit, &ann, "other", "write", json!({})));
        assert!(judge(&limit, &bob, "files", "write", json!({})));
        let seen: Vec<bool> = calls(&ann, "files", "free", 9);
        assert!(seen.into_iter().all(|allowed| allowed));
    }

    /// Goal: a tool called by `callboard.tools.call` is limited under its own name, and tool lists
    /// aren't limited. Method: both.
    #[test]
    fn tools_behind_a_surface() {
        let limit = RateLimit::per_tool([("*".to_owned(), NonZeroU32::MIN)]);
        let ann = Principal::agent("ann");
        let call = |name: &str| {
            judge(
                &limit,
                &ann,
                "files",
                CallTool::NAME,
                json!({ "name": name, "arguments": {} }),
            )
        };
        assert_eq!([call("a"), call("a"), call("b")], [true, false, true]);
        assert!((0..3).all(|_| judge(&limit, &ann, "files", "callboard.tools.list", json!({}))));
        // Names are truncated to bound memory, so those that differ only beyond the limit share a
        // bucket.
        let long = |end: &str| format!("{}{end}", "n".repeat(TOOL_NAME_CHARS_MAX));
        assert_eq!(
            [call(&long("a")), call(&long("b")), call("n")],
            [true, false, true]
        );
    }

    /// Goal: a request counts once, however many messages it causes, and the failure names limit
    /// and key. Method: more outbound messages than the limit, then inbound ones to the limit and
    /// one past it.
    #[test]
    fn inner_messages_are_not_counted() {
        let limit = RateLimit::per_principal(NonZeroU32::new(2).unwrap());
        let ann = Principal::agent("ann");
        let payload = to_raw_value(&json!({})).unwrap();
        let check = |direction| {
            let request = PolicyRequest {
                direction,
                principal: &ann,
                call: CallId::generate(),
                agent: "files",
                message: "callboard.tools.list",
                payload: &payload,
            };
            limit.check(request).now_or_never().unwrap()
        };
        assert!((0..9).all(|_| check(Direction::Outbound).is_ok()));
        assert!((0..2).all(|_| check(Direction::Inbound).is_ok()));
        assert!(check(Direction::Outbound).is_ok());
        let refused = check(Direction::Inbound).unwrap_err();
        assert!(
            refused
                .message
                .contains("2 requests per second reached (`per_client_per_second`)"),
            "{refused:?}"
        );
    }

    /// Goal: a limit holds for the name of a tool in a list of several agents, whatever the
    /// separator. Method: one call past the limit, by both names.
    #[test]
    fn limits_of_prefixed_tools() {
        let limit = RateLimit::per_tool([("files.write".to_owned(), NonZeroU32::MIN)]);
        let ann = Principal::agent("ann");
        let seen = ["files__write", "files.write", "files__read"]
            .map(|tool| judge(&limit, &ann, "bundle", tool, json!({})));
        assert_eq!(seen, [true, false, true]);
    }

    /// Goal: principals of different kinds with the same id are distinct. Method: an agent and an
    /// anonymous peer.
    #[test]
    fn kinds_of_principals() {
        let limit = RateLimit::per_principal(NonZeroU32::MIN);
        let (one, other) = (Principal::anonymous(), Principal::agent("anonymous"));
        assert!(
            judge(&limit, &one, "a", "m", json!({})) && judge(&limit, &other, "a", "m", json!({}))
        );
        assert!(!judge(&limit, &one, "a", "m", json!({})));
    }

    /// Goal: idle keys are evicted. Method: as many keys as one sweep interval, two seconds later
    /// as many calls with one key.
    #[test]
    fn idle_keys_are_forgotten() {
        let clock = FakeRelativeClock::default();
        let buckets: KeyedBuckets<u32, _> =
            KeyedBuckets::with_clock(NonZeroU32::MIN, clock.clone(), TRACKED_PRINCIPALS_MAX);
        assert!((1..SWEEP_INTERVAL_MESSAGES).all(|key| buckets.allow(&key)));
        assert_eq!(buckets.per_key.len(), 1_023);
        clock.advance(Duration::from_secs(2));
        assert!((0..SWEEP_INTERVAL_MESSAGES).any(|_| !buckets.allow(&0)));
        assert_eq!(buckets.per_key.len(), 1);
    }

    /// Goal: the number of keys is bounded, and further principals are still limited. Method: twice
    /// the bound at one moment; then one key repeatedly; then enough time for all to be idle.
    #[test]
    fn keys_are_bounded() {
        const KEYS_MAX: usize = 4_096;
        let clock = FakeRelativeClock::default();
        let buckets: KeyedBuckets<u32, _> =
            KeyedBuckets::with_clock(NonZeroU32::MIN, clock.clone(), KEYS_MAX);
        for key in 0..2 * KEYS_MAX as u32 {
            buckets.allow(&key);
        }
        assert!(
            buckets.per_key.len() <= KEYS_MAX,
            "{}",
            buckets.per_key.len()
        );
        assert!(
            buckets.is_overflowing.load(Relaxed)
                && buckets.overflow.len() <= RATE_OVERFLOW_SHARDS as usize
        );
        buckets.allow(&4_000_000);
        assert!(!buckets.allow(&4_000_000));
        clock.advance(Duration::from_secs(2));
        // A sweep happens among these calls.
        let allowed = (0..SWEEP_INTERVAL_MESSAGES)
            .filter(|_| buckets.allow(&0))
            .count();
        assert!((1..=2).contains(&allowed), "{allowed}");
        assert!(!buckets.is_overflowing.load(Relaxed));
    }
}

#[cfg(test)]
mod patterns_tests {
    use super::*;

    /// Goal: the most specific pattern decides, whatever the order of insertion. Method: rows,
    /// forwards and backwards.
    #[test]
    fn what_says_most_decides() {
        let rows = [
            ("*", 1),
            ("read_*", 2),
            ("read_file", 3),
            ("*_file", 4),
            ("read_?", 5),
            ("a*b*c", 6),
        ];
        let of = |rows: &[(&str, u32)]| {
            rows.iter()
                .map(|(p, n)| ((*p).to_owned(), *n))
                .collect::<NamePatterns<u32>>()
        };
        let (there, back) = (
            of(&rows),
            of(&rows.iter().rev().copied().collect::<Vec<_>>()),
        );
        for patterns in [there, back] {
            for (name, value) in [
                ("x", 1),
                ("read_all", 2),
                ("read_file", 3),
                ("write_file", 4),
                ("read_x", 2),
                ("a-b-c", 6),
            ] {
                // `*_file`, `read_*` and `read_?` have five literal characters each: the text
                // breaks the tie.
                assert_eq!(patterns.get(name), Some(&value), "{name}");
            }
        }
        assert_eq!(of(&rows).get_any(&["write_x", "read_file"]), Some(&3));
    }

    /// Goal: without a matching pattern there is no value. Method: an empty set, and one that
    /// doesn't match.
    #[test]
    fn what_does_not_fit() {
        assert!(NamePatterns::<()>::default().is_empty() && !NamePatterns::<()>::default().has(""));
        let set: NamePatterns<()> = ["a.*".to_owned()].into_iter().collect();
        assert!(set.has("a.") && !set.has("a") && !set.has("b.a.c") && !set.is_empty());
    }
}
