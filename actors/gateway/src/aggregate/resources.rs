//! Reading of, and subscriptions to, the members' resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use callboard_message::capabilities::{
    ReadResource, ReadResourceResult, SubscribeResource, UnsubscribeResource,
};
use callboard_message::{Failure, FailureKind, Message, RawObject};
use callboard_runtime::{AccessItem, Context};
use futures::future::join_all;

use super::member::{MemberState, ask_first, text_param};
use super::uris::ResourceIndex;

/// Router of requests about resources to the members that have them.
pub(super) struct ResourceRouter {
    members: Arc<[MemberState]>,
    index: Arc<ResourceIndex>,
}

impl ResourceRouter {
    pub fn new(members: Arc<[MemberState]>, index: Arc<ResourceIndex>) -> Self {
        Self { members, index }
    }

    /// Returns the content of a resource. Its URI may be an alias.
    ///
    /// # Errors
    /// `InvalidInput` without a URI; `NotFound`, if no member has the resource; the failure of a
    /// member that may have it.
    pub async fn read(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<ReadResourceResult, Failure> {
        let uri = text_param(&params, "uri")?;
        if let Some((at, own)) = self.index.resolve_alias(&uri) {
            let can = MemberState::handles::<ReadResource>;
            let member = self.members.get(at).filter(|member| can(member));
            let member = member.ok_or_else(|| {
                Failure::not_found("no such resource: list the resources for their URIs")
            })?;
            params.set("uri", own);
            let mut read = member.ask::<ReadResource>(params, cx).await?;
            self.show_contents(&mut read, own, at);
            return Ok(ReadResourceResult(read));
        }
        let (at, read) = self
            .ask_owner::<ReadResource>(&uri, MemberState::handles::<ReadResource>, params, cx)
            .await?;
        // What another caller may read at its owner stays there.
        if self
            .index
            .owner(&uri)
            .is_none_or(|owner| self.is_permitted(owner, &uri, cx))
        {
            self.index.remember_read(uri, at);
        }
        Ok(ReadResourceResult(read))
    }

    /// Returns whether the caller of `cx` may use a resource of the member with index `at`.
    fn is_permitted(&self, at: usize, own: &str, cx: &Context) -> bool {
        let member = self.members.get(at);
        member.is_some_and(|it| it.is_permitted(AccessItem::Resource(own.into()), cx))
    }

    /// Gives the contents that the member with index `member` returned for its resource `own` the
    /// URIs under which they are shown.
    fn show_contents(&self, read: &mut RawObject, own: &str, member: usize) {
        let mut contents: Vec<RawObject> = read.read("contents").unwrap_or_default();
        for content in &mut contents {
            if let Some(uri) = content.text("uri")
                && (uri == own || self.index.is_duplicate(&uri, member))
            {
                content.set("uri", self.index.alias(&uri, member));
            }
        }
        read.set("contents", contents);
    }

    /// Sends a request about the resource `uri` to the member that listed it. If no such member is
    /// known, or it no longer has the resource, all others are asked concurrently: see
    /// [`ask_first`]. Only members for which `can` holds are asked. Returns the index of the member
    /// that answered, and its reply.
    ///
    /// # Errors
    /// The failure of the member that listed the resource, unless it no longer has it; else the
    /// most informative failure of all that were asked, or `NotFound` if there is none to ask.
    async fn ask_owner<M: Message>(
        &self,
        uri: &str,
        can: fn(&MemberState) -> bool,
        params: RawObject,
        cx: &Context,
    ) -> Result<(usize, RawObject), Failure> {
        let may_ask = |member: &MemberState| {
            can(member) && member.is_permitted(AccessItem::Resource(uri.into()), cx)
        };
        let owner = self.index.owner(uri);
        let mut why = None;
        if let Some((at, member)) =
            owner.and_then(|at| Some((at, self.members.get(at).filter(|m| may_ask(m))?)))
        {
            match member.ask::<M>(params.clone(), cx).await {
                Err(failure) if is_not_found(&failure) => why = Some((at, failure)),
                decided => return decided.map(|reply| (at, reply)),
            }
        }
        let others = (0..self.members.len())
            .filter(|at| Some(*at) != owner && self.members.get(*at).is_some_and(may_ask));
        ask_first::<M>(&self.members, others.collect(), params, why, cx).await
    }

    /// Subscribes to a resource. A subscription in a client session is always sent on to members,
    /// because they may have a session for each. Of the subscriptions outside client sessions only
    /// the first is sent on; later ones are only counted.
    ///
    /// # Errors
    /// `InvalidInput` without a URI; `Overloaded` beyond [`super::AGGREGATE_SUBSCRIPTIONS_MAX`];
    /// the failure of a member if all that were asked failed.
    pub async fn subscribe(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let uri = text_param(&params, "uri")?;
        let alias = self.index.resolve_alias(&uri);
        let own = alias.map_or(&*uri, |(_, own)| own);
        let is_permitted = |at: usize| self.is_permitted(at, own, cx);
        let owner = match alias {
            Some((at, _)) => Some(at),
            None => self.index.owner(&uri).filter(|at| is_permitted(*at)),
        };
        let may_watch = match owner {
            Some(at) => is_permitted(at),
            None => (0..self.members.len()).any(is_permitted),
        };
        if !may_watch {
            return Err(Failure::not_found(
                "no such resource: list the resources for their URIs",
            ));
        }
        let in_session = cx.call().is_some_and(|call| call.session.is_some());
        if !in_session && self.index.add_follower(&uri, None, in_session)? {
            return Ok(RawObject::new());
        }
        params.set("uri", own);
        let can = |at: &usize| {
            let member = self.members.get(*at);
            is_permitted(*at) && member.is_some_and(MemberState::handles::<SubscribeResource>)
        };
        let asked: Vec<usize> = match owner {
            // A member that doesn't handle subscriptions announces changes without them.
            Some(at) => Some(at).filter(can).into_iter().collect(),
            None => (0..self.members.len()).filter(can).collect(),
        };
        let asking = asked
            .iter()
            .filter_map(|at| Some((*at, self.members.get(*at)?)))
            .map(|(at, member)| {
                let params = params.clone();
                async move { (at, member.ask::<SubscribeResource>(params, cx).await) }
            });
        let (mut members, mut why) = (BTreeSet::new(), None);
        for (at, answer) in join_all(asking).await {
            match answer {
                Ok(_) => _ = members.insert(at),
                Err(failure) => why = Some(failure),
            }
        }
        let other_may_have_it = || {
            owner.is_none()
                && self
                    .members
                    .iter()
                    .any(|m| m.handles::<ReadResource>() && !m.handles::<SubscribeResource>())
        };
        if let Some(why) = why.filter(|_| members.is_empty() && !other_may_have_it()) {
            return Err(why);
        }
        self.index.add_follower(&uri, Some(members), in_session)?;
        Ok(RawObject::new())
    }

    /// Unsubscribes from a resource. Only when the last subscriber leaves, the request is sent on
    /// to the members, whose failures are only logged.
    ///
    /// # Errors
    /// `InvalidInput` without a URI.
    pub async fn unsubscribe(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<RawObject, Failure> {
        let uri = text_param(&params, "uri")?;
        let members = self.index.remove_follower(&uri);
        if let Some((_, own)) = self.index.resolve_alias(&uri) {
            params.set("uri", own);
        }
        let told = members.iter().filter_map(|at| self.members.get(*at));
        let told = told.map(|member| member.ask::<UnsubscribeResource>(params.clone(), cx));
        for failure in join_all(told).await.into_iter().filter_map(Result::err) {
            callboard_message::log::debug!(kind = %failure.kind, "failed to unsubscribe from a resource of a member");
        }
        Ok(RawObject::new())
    }
}

/// Returns whether a failure means that the member doesn't have the requested resource.
fn is_not_found(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::NotFound | FailureKind::InvalidInput
    )
}
