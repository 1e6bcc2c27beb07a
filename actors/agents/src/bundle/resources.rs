//! Resources: whose they are, and who is asked for one that nobody has listed.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use callboard_message::surface::{ReadResource, ReadResourceResult, Subscribe, Unsubscribe};
use callboard_message::{Failure, FailureKind, Message, RawObject};
use callboard_runtime::Cx;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::member::Member;
use super::{BUNDLE_READ_GRACE, BUNDLE_SUBSCRIPTIONS_MAX, BUNDLE_URI_BYTES_MAX, Parts};

/// Who was told that somebody follows a resource, and how often it was said.
pub(super) struct Followed {
    members: Vec<usize>,
    times: usize,
}

impl Parts {
    /// Remembers that a member has listed a resource. Of several the first in order counts.
    pub fn learn_owner(&self, uri: &str, at: usize) {
        let is_new = || self.owners.peek(uri).is_none_or(|owner| at < owner);
        if uri.len() <= BUNDLE_URI_BYTES_MAX && is_new() {
            self.owners.insert(uri.to_owned(), at);
        }
    }

    pub async fn read_resource(&self, params: RawObject, cx: &Cx) -> Result<ReadResourceResult, Failure> {
        let uri = params.text("uri").ok_or_else(|| Failure::invalid("`uri` must be a string"))?;
        let (at, read) = self.of_owner::<ReadResource>(&uri, Member::has_resources, params, cx).await?;
        // It may have moved.
        if uri.len() <= BUNDLE_URI_BYTES_MAX && self.owners.peek(&uri) != Some(at) {
            self.owners.insert(uri, at);
        }
        Ok(ReadResourceResult(read))
    }

    /// Asks the member that has listed `uri`; where none has, or that one hasn't it any more, all the others at once.
    async fn of_owner<M: Message>(
        &self,
        uri: &str,
        can: fn(&Member) -> bool,
        params: RawObject,
        cx: &Cx,
    ) -> Result<(usize, RawObject), Failure> {
        let owner = self.owners.get(uri);
        let mut why = None;
        if let Some((at, member)) = owner.and_then(|at| Some((at, self.members.get(at).filter(|m| can(m))?))) {
            match member.ask::<M>(params.clone(), cx).await {
                Err(failure) if is_unknown(&failure) => why = Some((at, failure)),
                decided => return decided.map(|reply| (at, reply)),
            }
        }
        let others = (0..self.members.len()).filter(|at| Some(*at) != owner && self.members.get(*at).is_some_and(can));
        self.first_of::<M>(others.collect(), params, why, cx).await
    }

    /// Asks these members at once. Where several answer, the first in order counts, if it isn't much later than the others.
    pub async fn first_of<M: Message>(
        &self,
        members: BTreeSet<usize>,
        params: RawObject,
        mut why: Option<(usize, Failure)>,
        cx: &Cx,
    ) -> Result<(usize, RawObject), Failure> {
        let ask = |at: usize| {
            let (member, params) = (self.members.get(at), params.clone());
            async move { Some((at, member?.ask::<M>(params, cx).await)) }
        };
        let mut asked: FuturesUnordered<_> = members.iter().map(|at| ask(*at)).collect();
        let mut open = members;
        let mut best: Option<(usize, RawObject)> = None;
        let mut limit: Option<Instant> = None;
        loop {
            let next = match limit {
                Some(limit) => timeout_at(limit, asked.next()).await.unwrap_or(None),
                None => asked.next().await,
            };
            let Some(answered) = next else { break };
            let Some((at, reply)) = answered else { continue };
            open.remove(&at);
            match reply {
                Ok(reply) => {
                    limit.get_or_insert_with(|| Instant::now() + BUNDLE_READ_GRACE);
                    if best.as_ref().is_none_or(|(before, _)| at < *before) {
                        best = Some((at, reply));
                    }
                }
                Err(failure) => {
                    let key = |at: usize, failure: &Failure| (grade(failure), at);
                    if why.as_ref().is_none_or(|(other, before)| key(at, &failure) < key(*other, before)) {
                        why = Some((at, failure));
                    }
                }
            }
            if best.as_ref().is_some_and(|(best, _)| open.first().is_none_or(|first| best < first)) {
                break;
            }
        }
        let failed = || why.map_or_else(|| Failure::not_found("no such resource"), |(_, failure)| failure);
        best.ok_or_else(failed)
    }

    /// Passes it on to whoever has the resource, the first time it is said.
    pub async fn subscribe(&self, params: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let uri = params.text("uri").ok_or_else(|| Failure::invalid("`uri` must be a string"))?;
        if self.follow(&uri, None)? {
            return Ok(RawObject::new());
        }
        let owner = self.owners.get(&uri);
        let can = |at: &usize| self.members.get(*at).is_some_and(Member::subscribes);
        let asked: Vec<usize> = match owner {
            // One that needn't know tells its changes anyway.
            Some(at) => Some(at).filter(can).into_iter().collect(),
            None => (0..self.members.len()).filter(can).collect(),
        };
        let asking = asked.iter().filter_map(|at| Some((*at, self.members.get(*at)?))).map(|(at, member)| {
            let params = params.clone();
            async move { (at, member.ask::<Subscribe>(params, cx).await) }
        });
        let (mut members, mut why) = (Vec::new(), None);
        for (at, answer) in futures::future::join_all(asking).await {
            match answer {
                Ok(_) => members.push(at),
                Err(failure) => why = Some(failure),
            }
        }
        let other_may_have_it = || owner.is_none() && self.members.iter().any(|m| m.has_resources() && !m.subscribes());
        if let Some(why) = why.filter(|_| members.is_empty() && !other_may_have_it()) {
            return Err(why);
        }
        self.follow(&uri, Some(members))?;
        Ok(RawObject::new())
    }

    /// Counts that somebody follows `uri`, where somebody does already or `members` have been told. Says whether it did.
    ///
    /// # Errors
    /// `Overloaded` where too many resources are followed.
    fn follow(&self, uri: &str, members: Option<Vec<usize>>) -> Result<bool, Failure> {
        let mut followed = self.followed();
        if let Some(before) = followed.get_mut(uri) {
            before.times += 1;
            return Ok(true);
        }
        if followed.len() >= BUNDLE_SUBSCRIPTIONS_MAX {
            let why = format!("more than {BUNDLE_SUBSCRIPTIONS_MAX} resources are followed");
            return Err(Failure::overloaded(why));
        }
        let is_told = members.is_some();
        if let Some(members) = members {
            followed.insert(uri.to_owned(), Followed { members, times: 1 });
        }
        Ok(is_told)
    }

    /// Passes it on to whoever was told, the last time it is said.
    pub async fn unsubscribe(&self, params: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let uri = params.text("uri").ok_or_else(|| Failure::invalid("`uri` must be a string"))?;
        let ended = match self.followed().entry(uri) {
            Entry::Occupied(mut entry) if entry.get().times > 1 => {
                entry.get_mut().times -= 1;
                None
            }
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        };
        let members = ended.map(|followed| followed.members).unwrap_or_default();
        let told = members.iter().filter_map(|at| self.members.get(*at));
        let told = told.map(|member| member.ask::<Unsubscribe>(params.clone(), cx));
        for failure in futures::future::join_all(told).await.into_iter().filter_map(Result::err) {
            callboard_message::log::debug!(kind = %failure.kind, "a member isn't told that nobody follows a resource any more");
        }
        Ok(RawObject::new())
    }
}

/// Whether a failure says that the resource is another's, if anyone's.
fn is_unknown(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::NotFound | FailureKind::InvalidInput)
}

/// What tells most comes first: one that is away may have what the others haven't.
fn grade(failure: &Failure) -> u8 {
    match failure.kind {
        FailureKind::NotFound => 1,
        FailureKind::InvalidInput => 2,
        _ => 0,
    }
}
