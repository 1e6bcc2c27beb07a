//! Members that are away or slow: the others' lists are of use without theirs, and say so.

use std::time::Duration;

use callboard_message::surface::{ListPrompts, ListResources, ListTools};
use callboard_message::{Change, Failure, FailureKind, Message, RawObject};
use callboard_runtime::Cx;
use tokio::time::Instant;

use super::member::Member;
use super::{
    BUNDLE_MEMBERS_MAX, BUNDLE_PROBE_PAUSE_MAX, BUNDLE_PROBE_PAUSE_MIN, BUNDLE_SLOW_FOR, BUNDLE_SLOW_WAIT, Parts,
};

/// In the `_meta` of a list: `[{"server": member, "why": sentence}]`, the members whose part is missing.
pub const MISSING: &str = "callboard/away";
/// How long a list may be kept, in milliseconds (MCP 2026-07-28, caching).
pub(super) const KEPT_FOR: &str = "ttlMs";
/// Most characters of a member's own sentence that are told.
const WHY_CHARS_MAX: usize = 200;

/// What is known of a member's absence.
#[derive(Default)]
pub(super) struct Away {
    slow_until: Option<Instant>,
    /// It will be looked after, next after this pause.
    probing: Option<Duration>,
}

impl Away {
    pub fn returned(&mut self) {
        self.slow_until = None;
    }

    pub fn is_slow(&mut self) {
        self.slow_until = Some(Instant::now() + BUNDLE_SLOW_FOR);
    }

    pub fn patience(&self, patience: Duration) -> Duration {
        match self.slow_until {
            Some(until) if Instant::now() < until => patience.min(BUNDLE_SLOW_WAIT),
            _ => patience,
        }
    }

    /// How long until it is looked after; `None` where that is under way.
    fn begin(&mut self) -> Option<Duration> {
        self.probing.is_none().then(|| *self.probing.insert(BUNDLE_PROBE_PAUSE_MIN))
    }

    fn longer(&mut self) -> Duration {
        let pause = self.probing.unwrap_or_default().saturating_mul(2);
        *self.probing.insert(pause.clamp(BUNDLE_PROBE_PAUSE_MIN, BUNDLE_PROBE_PAUSE_MAX))
    }

    pub fn is_missed(&self) -> bool {
        self.probing.is_some()
    }
}

/// Looks whether a member is there again; followers of the bundle are told when it is.
pub(super) struct Probe {
    pub member: usize,
}

impl Message for Probe {
    type Reply = ();
    const NAME: &'static str = "callboard.bundle.probe";
}

/// Which members' parts are missing, and why.
#[derive(Default)]
pub(super) struct Missing {
    servers: Vec<(String, String)>,
    /// How long what there is may be kept, in milliseconds, where a member says so.
    kept_for: Option<u64>,
}

impl Missing {
    /// Puts a failure to the account of `member`; one that has no such thing isn't missing.
    pub fn add(&mut self, member: &Member, at: usize, failure: &Failure, cx: &Cx) {
        use FailureKind::{Cancelled, NotFound, Overloaded, TimedOut, Unavailable};
        if matches!(failure.kind, NotFound | Cancelled) {
            return;
        }
        callboard_message::log::warn!(by: &member.name, member = member.name, kind = %failure.kind, "a member's part is missing");
        self.servers.push((member.name.clone(), why(member, failure)));
        let may_return = matches!(failure.kind, Overloaded | TimedOut | Unavailable);
        if may_return && let Some(pause) = member.away().begin() {
            cx.tell_after(pause, Probe { member: at });
        }
    }

    /// Puts down what is missing of `member`'s own list, as it says itself, and how long that may be kept.
    pub fn add_theirs(&mut self, member: &Member, page: &RawObject) {
        self.keep(page.read(KEPT_FOR));
        let Some(meta) = page.get("_meta").filter(|meta| meta.get().contains(MISSING)) else { return };
        let theirs = RawObject::parse(meta).ok().and_then(|meta| meta.read::<Vec<RawObject>>(MISSING));
        for entry in theirs.unwrap_or_default().into_iter().take(BUNDLE_MEMBERS_MAX) {
            let (server, why) = (entry.text("server").unwrap_or_default(), entry.text("why").unwrap_or_default());
            let server = match server == member.name {
                true => server,
                false => format!("{}/{}", member.name, told(&server)),
            };
            let entry = (server, told(&why));
            if !self.servers.contains(&entry) {
                self.servers.push(entry);
            }
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.servers.append(&mut other.servers);
        self.keep(other.kept_for);
    }

    fn keep(&mut self, millis: Option<u64>) {
        self.kept_for = self.kept_for.into_iter().chain(millis).min();
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|(server, why)| format!("{server} isn't available now: {why}"))
    }

    /// Says it in a list's `_meta`; a list that lacks something is kept by nobody.
    pub fn note(&self, page: &mut RawObject) {
        if self.is_empty() {
            self.kept_for.into_iter().for_each(|millis| page.set(KEPT_FOR, millis));
            return;
        }
        let entry = |(server, why): &(String, String)| RawObject::of("server", server).with("why", why);
        let missing: Vec<_> = self.servers.iter().map(entry).collect();
        page.set(KEPT_FOR, 0);
        page.set("_meta", RawObject::of(MISSING, missing));
    }
}

/// A bug's sentence stays here, because a panic or a parser may have put data in it.
fn why(member: &Member, failure: &Failure) -> String {
    let own = failure.message.strip_prefix(&format!("{}: ", member.name)).unwrap_or(&failure.message);
    match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => told(own),
    }
}

fn told(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect()
}

impl Parts {
    /// Asks a missing member for a list, and again later while it is away.
    pub async fn probe(&self, at: usize, cx: &Cx) {
        let Some(member) = self.members.get(at) else { return };
        let limit = Instant::now() + self.list_timeout;
        let asked = match () {
            () if member.lists_tools() => member.ask_until::<ListTools>(RawObject::new(), limit, cx).await,
            () if member.has_prompts() => member.ask_until::<ListPrompts>(RawObject::new(), limit, cx).await,
            () => member.ask_until::<ListResources>(RawObject::new(), limit, cx).await,
        };
        use FailureKind::{Overloaded, TimedOut, Unavailable};
        if asked.is_err_and(|failure| matches!(failure.kind, Overloaded | TimedOut | Unavailable)) {
            let pause = member.away().longer();
            cx.tell_after(pause, Probe { member: at });
            return;
        }
        *member.away() = Away::default();
        for (has, change) in [
            (member.lists_tools(), Change::Tools),
            (member.has_prompts(), Change::Prompts),
            (member.lists_resources(), Change::Resources),
        ] {
            if has {
                cx.changed(change);
            }
        }
    }
}
