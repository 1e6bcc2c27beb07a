//! Members whose part of a list is missing: their report and their probes.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{ListPrompts, ListResources, ListTools, STILL_STARTING};
use callboard_message::{CapabilityChange, Failure, FailureKind, Message, RawObject};
use callboard_runtime::outbound_policy::AWAY_META_KEY;
use callboard_runtime::{CallContext, Context};
use tokio::time::Instant;

use super::AGGREGATE_MEMBERS_MAX;
use super::member::{Absence, MemberState};

/// Key in a list's `_meta` whose value names the members whose part is missing: `[{"server":
/// member, "why": sentence}]`.
pub const MISSING_META_KEY: &str = AWAY_META_KEY;

/// JSON key of the time for which a list may be cached, in milliseconds (MCP 2026-07-28, caching).
pub(super) const TTL_META_KEY: &str = "ttlMs";

/// Maximum characters of a member's own error message that are included in the reason for its
/// absence; the rest is cut.
const REASON_CHARS_MAX: usize = 200;

/// Message by which an aggregate schedules a probe of a missing member. When the member is
/// available again, watchers of the aggregate are notified.
pub(super) struct ProbeMember {
    pub member: usize,
    /// Call whose list misses the member; `None` outside a call. The probe is sent in the call's
    /// client session, because a member may have a connection of its own for each session. No probe
    /// is sent once that session is closed.
    pub call: Option<Arc<CallContext>>,
}

impl Message for ProbeMember {
    type Reply = ();
    const NAME: &'static str = "callboard.bundle.probe";
}

/// Members whose part of a list is missing: pairs of the member's name and the reason.
#[derive(Default)]
pub(super) struct MissingMembers {
    servers: Vec<(String, String)>,
    /// Shortest caching time that a member states for its part, in milliseconds; `None` if none
    /// states one.
    ttl_ms: Option<u64>,
}

impl MissingMembers {
    /// Records that `member`, whose index is `at`, is missing because of `failure`. Starts probing
    /// it if it may become available again. Does nothing after `NotFound`, which means that the
    /// member has no such list, and after `Cancelled`.
    pub fn add(&mut self, member: &MemberState, at: usize, failure: &Failure, cx: &Context) {
        if matches!(failure.kind, FailureKind::NotFound | FailureKind::Cancelled) {
            return;
        }
        let reason = absence_reason(member, failure);
        if reason == STILL_STARTING {
            callboard_message::log::debug!(by: &member.name, member = member.name, "a member is still starting: its items are missing from a list");
        } else if member.absence().report() {
            callboard_message::log::warn!(by: &member.name, member = member.name, kind = %failure.kind, "a member doesn't answer: its items are missing from lists until it is back");
        }
        self.servers.push((member.name.clone(), reason));
        if is_temporary(failure)
            && let Some(pause) = member.absence().start_probing()
        {
            let call = cx.call().map(|call| {
                Arc::new(CallContext {
                    session: call.session.clone(),
                    caller: call.caller.clone(),
                    ..CallContext::new(call.principal.clone())
                })
            });
            cx.tell_after(pause, ProbeMember { member: at, call });
        }
    }

    /// Records the parts that `member` itself reports as missing in a page of its list, and the
    /// page's caching time.
    pub fn add_reported(&mut self, member: &MemberState, page: &RawObject) {
        self.lower_ttl(page.read(TTL_META_KEY));
        let Some(meta) = page
            .get("_meta")
            .filter(|meta| meta.get().contains(MISSING_META_KEY))
        else {
            return;
        };
        let theirs = RawObject::parse(meta)
            .ok()
            .and_then(|meta| meta.read::<Vec<RawObject>>(MISSING_META_KEY));
        for entry in theirs
            .unwrap_or_default()
            .into_iter()
            .take(AGGREGATE_MEMBERS_MAX)
        {
            let (server, why) = (
                entry.text("server").unwrap_or_default(),
                entry.text("why").unwrap_or_default(),
            );
            let server = match server == member.name {
                true => server,
                false => format!("{}/{}", member.name, truncate_reason(&server)),
            };
            let entry = (server, truncate_reason(&why));
            if !self.servers.contains(&entry) {
                self.servers.push(entry);
            }
        }
    }

    pub fn append(&mut self, mut other: Self) {
        self.servers.append(&mut other.servers);
        self.lower_ttl(other.ttl_ms);
    }

    fn lower_ttl(&mut self, millis: Option<u64>) {
        self.ttl_ms = self.ttl_ms.into_iter().chain(millis).min();
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|(server, why)| match why.as_str() {
            STILL_STARTING => {
                format!("{server} is {why}: its lists are announced when it is there")
            }
            why => format!("{server} isn't available now: {why}"),
        })
    }

    /// Writes the missing members into the list's `_meta`. If there are any, the list is also
    /// marked as not cacheable; otherwise the shortest caching time of the members is written, if
    /// one is stated.
    pub fn write_meta(&self, page: &mut RawObject) {
        if self.is_empty() {
            self.ttl_ms
                .into_iter()
                .for_each(|millis| page.set(TTL_META_KEY, millis));
            return;
        }
        let entry =
            |(server, why): &(String, String)| RawObject::single("server", server).with("why", why);
        let missing: Vec<_> = self.servers.iter().map(entry).collect();
        page.set(TTL_META_KEY, 0);
        page.set("_meta", RawObject::single(MISSING_META_KEY, missing));
    }
}

/// Returns whether a member that failed in this way may become available again.
fn is_temporary(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Overloaded | FailureKind::TimedOut | FailureKind::Unavailable
    )
}

/// Returns the reason reported for a missing member. The message of an internal error is left out,
/// because it may hold data.
fn absence_reason(member: &MemberState, failure: &Failure) -> String {
    let own = failure
        .message
        .strip_prefix(&format!("{}: ", member.name))
        .unwrap_or(&failure.message);
    match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => truncate_reason(own),
    }
}

fn truncate_reason(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(REASON_CHARS_MAX)
        .collect()
}

/// Probes a missing member with a list request, for up to `list_timeout`. If the member is still
/// unavailable, schedules the next probe; otherwise ends probing and announces that its lists have
/// changed. If the client session of the probe is closed, probing ends without a request.
pub(super) async fn probe_member(
    members: &[MemberState],
    probe: ProbeMember,
    list_timeout: Duration,
    cx: &Context,
) {
    let ProbeMember { member: at, call } = probe;
    let Some(member) = members.get(at) else {
        return;
    };
    let is_over = |call: &Arc<CallContext>| {
        let session = call.session.as_ref();
        session.is_some_and(|session| session.closed.is_cancelled())
    };
    if call.as_ref().is_some_and(is_over) {
        // The next list that misses the member starts probing again.
        *member.absence() = Absence::default();
        return;
    }
    let in_call = call.clone().map(|call| cx.with_call(call));
    let cx = in_call.as_ref().unwrap_or(cx);
    let limit = Instant::now() + list_timeout;
    let asked = match () {
        () if member.lists_tools() => {
            member
                .ask_until::<ListTools>(RawObject::new(), limit, cx)
                .await
        }
        () if member.has_prompts() => {
            member
                .ask_until::<ListPrompts>(RawObject::new(), limit, cx)
                .await
        }
        () => {
            member
                .ask_until::<ListResources>(RawObject::new(), limit, cx)
                .await
        }
    };
    if asked.is_err_and(|failure| is_temporary(&failure)) {
        let pause = member.absence().next_pause();
        cx.tell_after(pause, ProbeMember { member: at, call });
        return;
    }
    *member.absence() = Absence::default();
    for (has, change) in [
        (member.lists_tools(), CapabilityChange::Tools),
        (member.has_prompts(), CapabilityChange::Prompts),
        (
            member.handles::<ListResources>(),
            CapabilityChange::Resources,
        ),
    ] {
        if has {
            cx.notify_changed(change);
        }
    }
}
