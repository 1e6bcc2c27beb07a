//! Message handlers of the aggregate agent.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use callboard_message::capabilities::{
    CallTool, CompleteArgument, CompleteResult, CreateMessage, DescribeAgent, DescribeAgentResult,
    GetPrompt, GetPromptResult, ListPrompts, ListResourceTemplates, ListResources, ListTools,
    ReadResource, ReadResourceResult, SubscribeResource, UnsubscribeResource,
};
use callboard_message::{Failure, FailureKind, Message, RawObject, SamplingAnswer, ToolResult};
use callboard_runtime::{
    Agent, AgentChanged, AgentProfile, ConcurrentHandler, Context, Handlers, SyncHandler,
};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::list::ListKind;
use super::member::{MemberState, MissingMembers, ProbeMember, TTL_META_KEY};
use super::resolve::NamedItem;
use super::{
    AGGREGATE_CALLS_MAX, AGGREGATE_MEMBERS_MAX, AGGREGATE_READ_GRACE, AGGREGATE_SUBSCRIPTIONS_MAX,
    AGGREGATE_URI_BYTES_MAX, AggregateAgent, AggregateState,
};

impl<const SAMPLES: bool> Agent for AggregateAgent<SAMPLES> {
    fn handlers(on: &mut Handlers<Self>) {
        const MAX: u32 = AGGREGATE_CALLS_MAX;
        on.sync::<AgentChanged>()
            .concurrent::<ProbeMember>(AGGREGATE_MEMBERS_MAX as u32)
            .concurrent::<DescribeAgent>(MAX);
        on.concurrent::<ListTools>(MAX).concurrent::<CallTool>(MAX);
        on.concurrent::<ListResources>(MAX)
            .concurrent::<ListResourceTemplates>(MAX)
            .concurrent::<ReadResource>(MAX);
        on.concurrent::<SubscribeResource>(MAX)
            .concurrent::<UnsubscribeResource>(MAX);
        on.concurrent::<ListPrompts>(MAX)
            .concurrent::<GetPrompt>(MAX)
            .concurrent::<CompleteArgument>(MAX);
        if SAMPLES {
            on.concurrent::<CreateMessage>(MAX);
        }
    }

    /// Returns the agent's profile: requests may be cancelled at any time, and handlers run in the
    /// caller's task, because the agent does little work of its own.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe().inline_concurrent()
    }

    /// Subscribes to changes of the members, so that watchers of the aggregate are notified of
    /// them.
    fn started(&mut self, cx: &mut Context) {
        if let Some(recipient) = cx.me().recipient::<AgentChanged>() {
            self.parts
                .members
                .iter()
                .for_each(|member| member.agent.follow(recipient.clone()));
        }
    }

    fn observe(&self) -> Value {
        let names = |is: fn(&MemberState) -> bool| {
            self.parts
                .members
                .iter()
                .filter(move |member| is(member))
                .map(|member| &*member.name)
                .collect::<Vec<_>>()
        };
        json!({ "members": names(|_| true), "missing": names(|member| member.absence().is_probing()) })
    }
}

impl<const SAMPLES: bool> SyncHandler<AgentChanged> for AggregateAgent<SAMPLES> {
    fn handle(&mut self, changed: AgentChanged, cx: &mut Context) {
        cx.notify_changed(changed.change);
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ProbeMember> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        probe: ProbeMember,
        cx: Context,
    ) -> impl Future<Output = ()> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.probe(probe, &cx).await }
    }
}

macro_rules! answers {
    ($($message:ident -> $reply:ty: $with:expr;)*) => {$(
        impl<const SAMPLES: bool> ConcurrentHandler<$message> for AggregateAgent<SAMPLES> {
            fn handle(
                &mut self,
                message: $message,
                cx: Context,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let parts = self.parts.clone();
                async move { $with(&*parts, message.0, &cx).await }
            }
        }
    )*};
}

answers! {
    DescribeAgent -> DescribeAgentResult: async |parts: &AggregateState, _, cx: &Context| parts.describe_members(cx).await;
    ListTools -> RawObject: async |parts: &AggregateState, params, cx: &Context| parts.list_page(ListKind::Tools, &params, cx).await;
    ListResources -> RawObject: async |parts: &AggregateState, params, cx: &Context| parts.list_page(ListKind::Resources, &params, cx).await;
    ListResourceTemplates -> RawObject:
        async |parts: &AggregateState, params, cx: &Context| parts.list_page(ListKind::Templates, &params, cx).await;
    ListPrompts -> RawObject: async |parts: &AggregateState, params, cx: &Context| parts.list_page(ListKind::Prompts, &params, cx).await;
    CallTool -> ToolResult: AggregateState::call_tool;
    ReadResource -> ReadResourceResult: AggregateState::read_resource;
    SubscribeResource -> RawObject: AggregateState::subscribe;
    UnsubscribeResource -> RawObject: AggregateState::unsubscribe;
    GetPrompt -> GetPromptResult: AggregateState::get_prompt;
    CompleteArgument -> CompleteResult: AggregateState::complete;
    CreateMessage -> SamplingAnswer: AggregateState::sample;
}

impl AggregateState {
    /// Collects the instructions of all members and their joint capabilities. A member that fails
    /// or is late is reported as missing.
    async fn describe_members(&self, cx: &Context) -> Result<DescribeAgentResult, Failure> {
        let describing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<DescribeAgent>());
        let asking = describing.map(|(at, member)| async move {
            let limit = member.deadline(self.list_timeout, cx);
            (
                at,
                member,
                member
                    .ask_until::<DescribeAgent>(RawObject::new(), limit, cx)
                    .await,
            )
        });
        let (mut instructions, mut missing, mut told) =
            (Vec::new(), MissingMembers::default(), HashMap::new());
        for (at, member, about) in join_all(asking).await {
            match about {
                Ok(about) => {
                    let theirs =
                        about
                            .text("instructions")
                            .map(|theirs| match self.members.len() {
                                1 => theirs,
                                _ => format!("{}: {theirs}", member.name),
                            });
                    instructions.extend(theirs);
                    told.extend(about.object("capabilities").map(|theirs| (at, theirs)));
                }
                Err(failure) => missing.add(member, at, &failure, cx),
            }
        }
        instructions.extend(missing.sentences());
        let mut about = RawObject::single("capabilities", self.capabilities(&told));
        if !missing.is_empty() {
            about.set(TTL_META_KEY, 0);
        }
        if !instructions.is_empty() {
            about.set("instructions", instructions.join("\n"));
        }
        Ok(DescribeAgentResult(about))
    }

    async fn call_tool(&self, mut params: RawObject, cx: &Context) -> Result<ToolResult, Failure> {
        let shown = string_param(&params, "name")?;
        let missing = || unknown_tool(&shown);
        match self
            .resolve_name(ListKind::Tools, &shown, cx, missing)
            .await?
        {
            NamedItem::Message(tool) => {
                let arguments = params
                    .remove("arguments")
                    .unwrap_or_else(|| RawObject::new().to_raw());
                let member = self.members.get(tool.member).ok_or_else(missing)?;
                let reply = member.ask_named(&tool.message, arguments, cx).await?;
                Ok(tool.reply.to_tool_result(&reply))
            }
            NamedItem::Listed(member, own) => {
                params.set("name", own);
                member.ask::<CallTool>(params, cx).await.map(ToolResult)
            }
        }
    }

    async fn get_prompt(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<GetPromptResult, Failure> {
        let shown = string_param(&params, "name")?;
        let (member, own) = self.resolve_prompt(&shown, cx).await?;
        params.set("name", own);
        member
            .ask::<GetPrompt>(params, cx)
            .await
            .map(GetPromptResult)
    }

    async fn resolve_prompt(
        &self,
        name: &str,
        cx: &Context,
    ) -> Result<(&MemberState, String), Failure> {
        let missing = || Failure::not_found("no such prompt");
        match self
            .resolve_name(ListKind::Prompts, name, cx, missing)
            .await?
        {
            NamedItem::Listed(member, own) => Ok((member, own)),
            NamedItem::Message(_) => Err(missing()),
        }
    }

    async fn complete(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<CompleteResult, Failure> {
        let mut about = params
            .object("ref")
            .ok_or_else(|| Failure::invalid("`ref` must be an object"))?;
        if let Some(shown) = about.text("name") {
            let (member, own) = self.resolve_prompt(&shown, cx).await?;
            if !member.handles::<CompleteArgument>() {
                return Ok(CompleteResult::from_values([]));
            }
            about.set("name", own);
            params.set("ref", about);
            return member
                .ask::<CompleteArgument>(params, cx)
                .await
                .map(CompleteResult);
        }
        let completing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<CompleteArgument>())
            .map(|(at, _)| at);
        let (_, completed) = self
            .ask_first::<CompleteArgument>(completing.collect(), params, None, cx)
            .await?;
        Ok(CompleteResult(completed))
    }

    async fn sample(&self, params: RawObject, cx: &Context) -> Result<SamplingAnswer, Failure> {
        let member = self.sampler.and_then(|at| self.members.get(at));
        let member = member.ok_or_else(|| {
            Failure::not_found("no member of this server answers sampling requests")
        })?;
        member
            .ask::<CreateMessage>(params, cx)
            .await
            .map(SamplingAnswer)
    }
}

fn string_param(params: &RawObject, member: &str) -> Result<String, Failure> {
    params
        .text(member)
        .ok_or_else(|| Failure::invalid(format!("`{member}` must be a string")))
}

fn unknown_tool(name: &str) -> Failure {
    const CHARS_MAX: usize = 80;
    let name: String = name
        .chars()
        .filter(|c| !c.is_control())
        .take(CHARS_MAX)
        .collect();
    Failure::invalid(format!("unknown tool: {name}"))
}

/// Subscriptions to one resource: the members that were asked to watch it, and the number of
/// subscribers.
pub(super) struct ResourceSubscription {
    members: BTreeSet<usize>,
    followers: usize,
    /// True if the members were asked outside of client sessions. A change that they report is then
    /// told to every follower.
    is_shared: bool,
}

impl AggregateState {
    /// Caches that the member at index `at` listed the resource `uri`. If several members list it,
    /// the first in the aggregate's order is kept.
    pub fn remember_owner(&self, uri: &str, at: usize) {
        let is_new = || self.owners.peek(uri).is_none_or(|owner| at < owner);
        if uri.len() <= AGGREGATE_URI_BYTES_MAX && is_new() {
            self.owners.insert(uri.to_owned(), at);
        }
    }

    pub async fn read_resource(
        &self,
        params: RawObject,
        cx: &Context,
    ) -> Result<ReadResourceResult, Failure> {
        let uri = string_param(&params, "uri")?;
        let (at, read) = self
            .ask_owner::<ReadResource>(&uri, MemberState::handles::<ReadResource>, params, cx)
            .await?;
        // The resource may have moved to another member.
        if uri.len() <= AGGREGATE_URI_BYTES_MAX && self.owners.peek(&uri) != Some(at) {
            self.owners.insert(uri, at);
        }
        Ok(ReadResourceResult(read))
    }

    /// Sends a request about the resource `uri` to the member that listed it. If no such member is
    /// known, or it no longer has the resource, all others are asked concurrently.
    async fn ask_owner<M: Message>(
        &self,
        uri: &str,
        can: fn(&MemberState) -> bool,
        params: RawObject,
        cx: &Context,
    ) -> Result<(usize, RawObject), Failure> {
        let owner = self.owners.get(uri);
        let mut why = None;
        if let Some((at, member)) =
            owner.and_then(|at| Some((at, self.members.get(at).filter(|m| can(m))?)))
        {
            match member.ask::<M>(params.clone(), cx).await {
                Err(failure) if is_not_found(&failure) => why = Some((at, failure)),
                decided => return decided.map(|reply| (at, reply)),
            }
        }
        let others = (0..self.members.len())
            .filter(|at| Some(*at) != owner && self.members.get(*at).is_some_and(can));
        self.ask_first::<M>(others.collect(), params, why, cx).await
    }

    /// Asks several members concurrently. If more than one answers, the first in the aggregate's
    /// order is preferred, unless its answer comes more than [`AGGREGATE_READ_GRACE`] after
    /// another.
    pub async fn ask_first<M: Message>(
        &self,
        members: BTreeSet<usize>,
        params: RawObject,
        mut why: Option<(usize, Failure)>,
        cx: &Context,
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
            let Some((at, reply)) = answered else {
                continue;
            };
            open.remove(&at);
            match reply {
                Ok(reply) => {
                    limit.get_or_insert_with(|| Instant::now() + AGGREGATE_READ_GRACE);
                    if best.as_ref().is_none_or(|(before, _)| at < *before) {
                        best = Some((at, reply));
                    }
                }
                Err(failure) => {
                    let key = |at: usize, failure: &Failure| (failure_rank(failure), at);
                    if why
                        .as_ref()
                        .is_none_or(|(other, before)| key(at, &failure) < key(*other, before))
                    {
                        why = Some((at, failure));
                    }
                }
            }
            if best
                .as_ref()
                .is_some_and(|(best, _)| open.first().is_none_or(|first| best < first))
            {
                break;
            }
        }
        let failed = || {
            why.map_or_else(
                || Failure::not_found("no such resource"),
                |(_, failure)| failure,
            )
        };
        best.ok_or_else(failed)
    }

    /// Subscribes to a resource. Each client session's subscription is sent on to members, because
    /// they may have a session for it. Of the others only the first is; later ones are only counted.
    pub async fn subscribe(&self, params: RawObject, cx: &Context) -> Result<RawObject, Failure> {
        let uri = string_param(&params, "uri")?;
        let in_session = cx.call().is_some_and(|call| call.session.is_some());
        if !in_session && self.add_follower(&uri, None, in_session)? {
            return Ok(RawObject::new());
        }
        let owner = self.owners.get(&uri);
        let can = |at: &usize| {
            self.members
                .get(*at)
                .is_some_and(MemberState::handles::<SubscribeResource>)
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
        self.add_follower(&uri, Some(members), in_session)?;
        Ok(RawObject::new())
    }

    /// Counts one more subscriber of the resource `uri`. If no member watches it for everybody, it is
    /// counted only if `members` names those that watch the resource now. Returns whether it was
    /// counted.
    ///
    /// # Errors
    /// `Overloaded`, if too many resources have subscriptions.
    fn add_follower(
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
            let why = format!("more than {AGGREGATE_SUBSCRIPTIONS_MAX} resources are followed");
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

    /// Unsubscribes from a resource. Only when the last subscriber leaves, the request is sent on
    /// to the members.
    pub async fn unsubscribe(&self, params: RawObject, cx: &Context) -> Result<RawObject, Failure> {
        let uri = string_param(&params, "uri")?;
        let ended = match self.subscriptions.lock().entry(uri) {
            Entry::Occupied(mut entry) if entry.get().followers > 1 => {
                entry.get_mut().followers -= 1;
                None
            }
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        };
        let members = ended.map(|followed| followed.members).unwrap_or_default();
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

/// Returns the rank of a failure by how informative it is, most informative first. An unavailable
/// member ranks high, since it may have what the others lack.
fn failure_rank(failure: &Failure) -> u8 {
    match failure.kind {
        FailureKind::NotFound => 1,
        FailureKind::InvalidInput => 2,
        _ => 0,
    }
}
