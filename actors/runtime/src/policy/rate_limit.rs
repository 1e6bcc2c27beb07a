//! Rate limits of messages, by principal or by name. A name pattern such as `read_*` matches all names that begin so.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use callboard_message::surface::{CallTool, RESERVED_PREFIX};
use callboard_message::{Failure, Message, Principal, PrincipalKind};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use serde::Deserialize;
use wildmatch::WildMatch;

use super::{Crossing, Direction, Policy, PolicyFuture};

/// Most senders that one limit counts apart at once. Those that have been idle for a second aren't counted; if there are
/// more still, they are counted in `RATE_CROWDS` groups until there are fewer.
const RATE_KEYS_MAX: usize = 65_536;
/// How many groups senders are counted in when there are too many to count apart.
const RATE_CROWDS: u64 = 1_024;
/// After so many messages idle senders are forgotten.
const SWEEP_EVERY: u32 = 1_024;
/// Characters of a tool's name that tell it from others.
const TOOL_CHARS_MAX: usize = 256;

/// Lets each principal send so many messages a second, with bursts of as many.
pub struct RateLimit {
    buckets: Buckets<(Who, Direction)>,
}

/// Lets each principal use a tool of an agent's so many times a second, with bursts of as many.
pub struct ToolRateLimit {
    limits: Patterns<Buckets<(Who, Direction, String, String)>>,
}

impl RateLimit {
    /// `per_second` messages a second, for each principal and direction.
    pub fn per_principal(per_second: NonZeroU32) -> Self {
        Self {
            buckets: Buckets::new(per_second),
        }
    }

    /// For each principal, agent, tool and direction as many calls a second as stand under the tool: its name, its name
    /// behind the agent's (`files.write`), or a pattern ([`Patterns`]). What fits none isn't limited.
    pub fn per_tool(per_second: impl IntoIterator<Item = (String, NonZeroU32)>) -> ToolRateLimit {
        let limits = per_second
            .into_iter()
            .map(|(pattern, per_second)| (pattern, Buckets::new(per_second)));
        ToolRateLimit {
            limits: limits.collect(),
        }
    }
}

impl Policy for RateLimit {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> PolicyFuture<'a> {
        let key = (who(crossing.principal), crossing.direction);
        verdict(
            self.buckets.allow(&key),
            "rate limit reached, try again in a second",
        )
    }
}

impl Policy for ToolRateLimit {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> PolicyFuture<'a> {
        let allowed = tool(&crossing).is_none_or(|tool| {
            let Some(buckets) = self
                .limits
                .get_any(&[&format!("{}.{tool}", crossing.agent), &tool])
            else {
                return true;
            };
            buckets.allow(&(
                who(crossing.principal),
                crossing.direction,
                crossing.agent.to_owned(),
                tool,
            ))
        });
        verdict(
            allowed,
            "rate limit of this tool reached, try again in a second",
        )
    }
}

fn verdict(allowed: bool, why: &str) -> PolicyFuture<'static> {
    Box::pin(std::future::ready(match allowed {
        true => Ok(()),
        false => Err(Failure::overloaded(why)),
    }))
}

/// An id is unique among its kind.
type Who = (PrincipalKind, String);

fn who(principal: &Principal) -> Who {
    (principal.kind, principal.id.clone())
}

/// The tool that a message uses: what `callboard.tools.call` names, or the message itself. `None` for the other messages
/// of a surface.
fn tool(crossing: &Crossing<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let name = match crossing.message {
        // One that names none is refused further on.
        CallTool::NAME => {
            serde_json::from_str::<Named>(crossing.payload.get())
                .ok()?
                .name
        }
        message if message.starts_with(RESERVED_PREFIX) => return None,
        message => message.to_owned(),
    };
    Some(match name.char_indices().nth(TOOL_CHARS_MAX) {
        Some((end, _)) => name.get(..end).unwrap_or_default().to_owned(),
        None => name,
    })
}

type Limiter<K, C> = RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// A bucket a key, as many as are in use.
struct Buckets<K: Hash + Eq + Clone, C: Clock = DefaultClock> {
    each: Limiter<K, C>,
    /// Takes the place of `each` while that has too many keys.
    crowds: Limiter<u64, C>,
    hasher: RandomState,
    is_crowded: AtomicBool,
    judged: AtomicU32,
    keys_max: usize,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    fn new(per_second: NonZeroU32) -> Self {
        Self::with(per_second, DefaultClock::default(), RATE_KEYS_MAX)
    }
}

impl<K: Hash + Eq + Clone, C: Clock + Clone> Buckets<K, C> {
    fn with(per_second: NonZeroU32, clock: C, keys_max: usize) -> Self {
        let quota = Quota::per_second(per_second);
        Self {
            each: RateLimiter::dashmap_with_clock(quota, clock.clone()),
            crowds: RateLimiter::dashmap_with_clock(quota, clock),
            hasher: RandomState::new(),
            is_crowded: AtomicBool::new(false),
            judged: AtomicU32::new(0),
            keys_max,
        }
    }

    fn allow(&self, key: &K) -> bool {
        if self.judged.fetch_add(1, Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.sweep();
        }
        match self.is_crowded.load(Relaxed) {
            false => self.each.check_key(key).is_ok(),
            true => self
                .crowds
                .check_key(&(self.hasher.hash_one(key) % RATE_CROWDS))
                .is_ok(),
        }
    }

    /// Forgets who is idle: a full bucket and none are the same.
    fn sweep(&self) {
        self.each.retain_recent();
        // Room for those that come until the next sweep.
        let most = self.keys_max.saturating_sub(SWEEP_EVERY as usize);
        self.is_crowded.store(self.each.len() > most, Relaxed);
    }
}

/// Values under names and patterns of names: `*` stands for any characters, `?` for one. Where several fit, the name
/// itself goes first, then the pattern that says most of the name.
#[derive(Clone)]
pub struct Patterns<T> {
    exact: HashMap<String, T>,
    /// What says most comes first.
    globs: Vec<(WildMatch, T)>,
}

impl<T> Patterns<T> {
    /// What `name` has.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.get_any(&[name])
    }

    /// What something with several names has.
    pub fn get_any(&self, names: &[&str]) -> Option<&T> {
        let exact = names.iter().find_map(|name| self.exact.get(*name));
        exact.or_else(|| {
            let mut globs = self.globs.iter();
            globs
                .find(|(glob, _)| names.iter().any(|name| glob.matches(name)))
                .map(|(_, value)| value)
        })
    }

    /// Whether anything fits `name`.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether nothing fits any name.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            globs: Vec::new(),
        }
    }
}

impl<T> FromIterator<(String, T)> for Patterns<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(all: I) -> Self {
        let (mut exact, mut globs) = (HashMap::new(), Vec::new());
        for (pattern, value) in all {
            match pattern.contains(['*', '?']) {
                true => globs.push((pattern, value)),
                false => drop(exact.insert(pattern, value)),
            }
        }
        // A map gives them in any order: the pattern itself breaks ties.
        globs.sort_by_cached_key(|(pattern, _)| (Reverse(said(pattern)), pattern.clone()));
        Self {
            exact,
            globs: globs
                .into_iter()
                .map(|(pattern, value)| (WildMatch::new(&pattern), value))
                .collect(),
        }
    }
}

/// A set.
impl FromIterator<String> for Patterns<()> {
    fn from_iter<I: IntoIterator<Item = String>>(all: I) -> Self {
        all.into_iter().map(|pattern| (pattern, ())).collect()
    }
}

fn said(pattern: &str) -> usize {
    pattern.chars().filter(|c| !matches!(c, '*' | '?')).count()
}

impl<T: fmt::Debug> fmt::Debug for Patterns<T> {
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
        let (direction, call) = (Direction::Inbound, CallId::fresh());
        let crossing = Crossing {
            direction,
            principal,
            call,
            agent,
            message,
            payload: &payload,
        };
        match limit.judge(crossing).now_or_never().unwrap() {
            Ok(()) => true,
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::Overloaded);
                false
            }
        }
    }

    /// Goal: each tool of each agent has a bucket a principal, and the most telling pattern decides. Method: one past the
    /// limit by a name, by agent and name, by pattern; then another tool, agent and principal.
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

    /// Goal: a tool that is called by `callboard.tools.call` is limited under its own name, and lists aren't. Method: both.
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
        // A name of any length takes a bounded place: what is past the bound tells nothing apart.
        let long = |end: &str| format!("{}{end}", "n".repeat(TOOL_CHARS_MAX));
        assert_eq!(
            [call(&long("a")), call(&long("b")), call("n")],
            [true, false, true]
        );
    }

    /// Goal: two kinds of principals with one id aren't one. Method: an agent and an anonymous peer.
    #[test]
    fn kinds_of_principals() {
        let limit = RateLimit::per_principal(NonZeroU32::MIN);
        let (one, other) = (Principal::anonymous(), Principal::agent("anonymous"));
        assert!(
            judge(&limit, &one, "a", "m", json!({})) && judge(&limit, &other, "a", "m", json!({}))
        );
        assert!(!judge(&limit, &one, "a", "m", json!({})));
    }

    /// Goal: who is idle is forgotten. Method: a sweep's worth of keys, a second on, and as many calls of one.
    #[test]
    fn idle_keys_are_forgotten() {
        let clock = FakeRelativeClock::default();
        let buckets: Buckets<u32, _> = Buckets::with(NonZeroU32::MIN, clock.clone(), RATE_KEYS_MAX);
        assert!((1..SWEEP_EVERY).all(|key| buckets.allow(&key)));
        assert_eq!(buckets.each.len(), 1_023);
        clock.advance(Duration::from_secs(2));
        assert!((0..SWEEP_EVERY).any(|_| !buckets.allow(&0)));
        assert_eq!(buckets.each.len(), 1);
    }

    /// Goal: never more keys than the bound, and who comes then is limited all the same. Method: twice the bound, all at
    /// one moment; then one of them again and again; then time for all to be idle.
    #[test]
    fn keys_are_bounded() {
        const KEYS_MAX: usize = 4_096;
        let clock = FakeRelativeClock::default();
        let buckets: Buckets<u32, _> = Buckets::with(NonZeroU32::MIN, clock.clone(), KEYS_MAX);
        for key in 0..2 * KEYS_MAX as u32 {
            buckets.allow(&key);
        }
        assert!(buckets.each.len() <= KEYS_MAX, "{}", buckets.each.len());
        assert!(buckets.is_crowded.load(Relaxed) && buckets.crowds.len() <= RATE_CROWDS as usize);
        buckets.allow(&4_000_000);
        assert!(!buckets.allow(&4_000_000));
        clock.advance(Duration::from_secs(2));
        // A sweep falls among them, whatever was refused.
        let allowed = (0..SWEEP_EVERY).filter(|_| buckets.allow(&0)).count();
        assert!((1..=2).contains(&allowed), "{allowed}");
        assert!(!buckets.is_crowded.load(Relaxed));
    }
}

#[cfg(test)]
mod patterns_tests {
    use super::*;

    /// Goal: one pattern decides, whatever the order they came in. Method: rows, forwards and backwards.
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
                .collect::<Patterns<u32>>()
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
                // `*_file` and `read_*` say five characters each, as does `read_?`: the text decides among them.
                assert_eq!(patterns.get(name), Some(&value), "{name}");
            }
        }
        assert_eq!(of(&rows).get_any(&["write_x", "read_file"]), Some(&3));
    }

    /// Goal: no pattern, nothing. Method: an empty set, and one that doesn't fit.
    #[test]
    fn what_does_not_fit() {
        assert!(Patterns::<()>::default().is_empty() && !Patterns::<()>::default().has(""));
        let set: Patterns<()> = ["a.*".to_owned()].into_iter().collect();
        assert!(set.has("a.") && !set.has("a") && !set.has("b.a.c") && !set.is_empty());
    }
}
