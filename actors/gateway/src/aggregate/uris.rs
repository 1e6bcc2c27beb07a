//! Resources of several members: the member that has each URI, subscriptions, and the URIs under
//! which duplicates are shown.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use callboard_message::{CapabilityChange, Failure};
use callboard_runtime::{Caller, PeerSession};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::names::sanitize_name;
use super::{AGGREGATE_CACHE_ENTRIES_MAX, AGGREGATE_SUBSCRIPTIONS_MAX, AGGREGATE_URI_BYTES_MAX};

/// Text before the member's name at the end of an alias: the URI under which a resource is shown if
/// another member has a resource with the same one. `#` stands in front of the text, or `&` if the
/// URI has a fragment already.
const ALIAS_PARAMETER: &str = "callboard=";

/// Index of the resources of an aggregate's members.
///
/// Several members may have resources with one URI. The URI then stands for the resource of the
/// first of them. Those of the others have an alias: the URI with the member's name as fragment.
pub(super) struct ResourceIndex {
    /// Name of each member as it stands in aliases, by member index.
    names: Vec<String>,
    /// Cache of the member that has a resource, by URI: the index of the one that listed it or
    /// returned its content.
    owners: Cache<String, usize>,
    /// Subscriptions by the URI that the subscriber used.
    subscriptions: Mutex<HashMap<String, ResourceSubscription>>,
}

/// Subscriptions to one resource: the members that were asked to watch it, and the number of
/// subscribers.
struct ResourceSubscription {
    members: BTreeSet<usize>,
    followers: usize,
    /// True if the members were asked outside of client sessions. A change that they report is then
    /// told to every follower.
    is_shared: bool,
}

impl ResourceIndex {
    pub fn new<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            names: members.into_iter().map(sanitize_name).collect(),
            owners: Cache::new(AGGREGATE_CACHE_ENTRIES_MAX),
            subscriptions: Mutex::default(),
        }
    }

    /// Returns the alias of the resource `uri` of the member with index `member`.
    pub fn alias(&self, uri: &str, member: usize) -> String {
        let mark = if uri.contains('#') { '&' } else { '#' };
        let name = self.names.get(member).map_or("", String::as_str);
        format!("{uri}{mark}{ALIAS_PARAMETER}{name}")
    }

    /// Returns the index of the member that an alias names, with the member's own URI; `None` if
    /// `shown` is no alias.
    pub fn resolve_alias<'a>(&self, shown: &'a str) -> Option<(usize, &'a str)> {
        let (uri, name) = shown.rsplit_once(ALIAS_PARAMETER)?;
        let (own, mark) = uri.split_at_checked(uri.len().checked_sub(1)?)?;
        let member = self.names.iter().position(|other| other == name)?;
        (mark == if own.contains('#') { "&" } else { "#" }).then_some((member, own))
    }

    /// Returns the index of the member that is known to have the resource `uri`. `None` if the
    /// resource is in no list or content seen so far, or its entry isn't in the cache any more or
    /// was too long for it.
    pub fn owner(&self, uri: &str) -> Option<usize> {
        self.owners.get(uri)
    }

    /// Caches that `member` listed the resource `uri`. If several members list it, the first in the
    /// aggregate's order is kept.
    pub fn remember_listed(&self, uri: &str, member: usize) {
        let is_new = || self.owners.peek(uri).is_none_or(|owner| member < owner);
        if uri.len() <= AGGREGATE_URI_BYTES_MAX && is_new() {
            self.owners.insert(uri.to_owned(), member);
        }
    }

    /// Caches that `member` returned the content of the resource `uri`, which may have moved to it.
    pub fn remember_read(&self, uri: String, member: usize) {
        if uri.len() <= AGGREGATE_URI_BYTES_MAX && self.owners.peek(&uri) != Some(member) {
            self.owners.insert(uri, member);
        }
    }

    /// Returns whether a member with an index below `member` is known to have a resource with the
    /// same URI.
    pub fn is_duplicate(&self, uri: &str, member: usize) -> bool {
        self.owners.peek(uri).is_some_and(|owner| owner < member)
    }

    /// Counts one more subscriber of the resource `uri`. `members` are the indices of those that
    /// were asked to watch it for this subscriber, and `in_session` tells whether that was in a
    /// client session. With `None`, nobody was asked, and the subscriber is counted only if members
    /// watch the resource for all subscribers already. Returns whether it was counted; if not, the
    /// caller has to ask members.
    ///
    /// # Errors
    /// `Overloaded`, if the resource is a new one and [`AGGREGATE_SUBSCRIPTIONS_MAX`] others have
    /// subscriptions.
    pub fn add_follower(
        &self,
        uri: &str,
        members: Option<BTreeSet<usize>>,
        in_session: bool,
    ) -> Result<bool, Failure> {
        let mut followed = self.subscriptions.lock();
        if let Some(before) = followed.get_mut(uri) {
            let is_counted = before.is_shared || members.is_some();
            before.followers += usize::from(is_counted);
            before.members.extend(members.into_iter().flatten());
            before.is_shared |= is_counted && !in_session;
            return Ok(is_counted);
        }
        if followed.len() >= AGGREGATE_SUBSCRIPTIONS_MAX {
            let why = format!(
                "there are subscriptions to {AGGREGATE_SUBSCRIPTIONS_MAX} resources, which is the limit: end one first"
            );
            return Err(Failure::overloaded(why));
        }
        let is_told = members.is_some();
        if let Some(members) = members {
            followed.insert(
                uri.to_owned(),
                ResourceSubscription {
                    members,
                    followers: 1,
                    is_shared: !in_session,
                },
            );
        }
        Ok(is_told)
    }

    /// Counts one subscriber less of the resource `uri`. Returns the indices of the members that
    /// must stop watching it: none, unless this was the last subscriber. Members that watch it
    /// under the other of its two URIs, its own one and the alias, are left out.
    pub fn remove_follower(&self, uri: &str) -> Vec<usize> {
        let mut followed = self.subscriptions.lock();
        let ended = match followed.entry(uri.to_owned()) {
            Entry::Occupied(mut entry) if entry.get().followers > 1 => {
                entry.get_mut().followers -= 1;
                None
            }
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        };
        let is_watched = |member: &usize| {
            let other = match self.resolve_alias(uri) {
                Some((_, own)) => own.to_owned(),
                None => self.alias(uri, *member),
            };
            followed
                .get(&other)
                .is_some_and(|other| other.members.contains(member))
        };
        let members = ended.map(|followed| followed.members).unwrap_or_default();
        members.into_iter().filter(|at| !is_watched(at)).collect()
    }

    /// Returns the changes to announce to clients for a change of the member with index `member`. A
    /// changed resource is announced under its alias if that has subscribers, and under its own URI
    /// unless only another member is known to have that. Any other change is returned as it is.
    pub fn shown_changes(
        &self,
        member: usize,
        change: CapabilityChange,
    ) -> impl Iterator<Item = CapabilityChange> + use<> {
        let CapabilityChange::Resource(uri) = &change else {
            return [Some(change), None].into_iter().flatten();
        };
        let alias = self.alias(uri, member);
        let followed = self.subscriptions.lock();
        let is_watched = |uri: &str| {
            followed
                .get(uri)
                .is_some_and(|followed| followed.members.contains(&member))
        };
        // What a member tells of a resource that another one has under this URI is for the alias.
        let is_others = self.owners.peek(uri).is_some_and(|owner| owner != member);
        let has_alias = followed.contains_key(&alias);
        let is_plain = !is_others || is_watched(uri);
        drop(followed);
        let alias = has_alias.then_some(CapabilityChange::Resource(alias));
        [is_plain.then_some(change), alias].into_iter().flatten()
    }

    #[cfg(test)]
    pub fn owners_len(&self) -> usize {
        self.owners.len()
    }
}

/// Wraps a client session for a member, so that the member's changes are told to the client as the
/// aggregate shows them ([`ResourceIndex::shown_changes`]).
pub(super) fn member_session(
    session: &PeerSession,
    index: &Arc<ResourceIndex>,
    member: usize,
) -> Arc<PeerSession> {
    let caller = MemberSessionCaller {
        client: session.caller.clone(),
        index: index.clone(),
        member,
    };
    Arc::new(PeerSession {
        id: session.id,
        closed: session.closed.clone(),
        caller: Arc::new(caller),
        roots_changed: session.roots_changed.clone(),
        log_level: session.log_level.clone(),
    })
}

/// Caller of a client session, as one member of the aggregate sees it.
struct MemberSessionCaller {
    client: Arc<dyn Caller>,
    index: Arc<ResourceIndex>,
    member: usize,
}

impl Caller for MemberSessionCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.client)
    }

    fn changed(&self, change: CapabilityChange) {
        for change in self.index.shown_changes(self.member, change) {
            self.client.changed(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an alias leads back to its member and URI; nothing else is taken for one. Method: URIs
    /// with and without a fragment, an alias of an alias, names that no member has.
    #[test]
    fn aliases_there_and_back() {
        let index = ResourceIndex::new(["a", "b c"]);
        for (uri, alias) in [
            ("x:1", "x:1#callboard=b_c"),
            ("x:1#part", "x:1#part&callboard=b_c"),
            ("x:1#callboard=a", "x:1#callboard=a&callboard=b_c"),
            ("", "#callboard=b_c"),
        ] {
            assert_eq!(index.alias(uri, 1), alias);
            assert_eq!(index.resolve_alias(alias), Some((1, uri)));
        }
        for other in [
            "x:1",
            "x:1#callboard=c",
            "x:1?callboard=a",
            "x:1&callboard=a",
            "x:1#p#callboard=a",
            "callboard=a",
            "é",
        ] {
            assert_eq!(index.resolve_alias(other), None, "{other}");
        }
    }
}
