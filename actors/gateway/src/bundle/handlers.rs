//! What a bundle answers.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use callboard_message::surface::{
    About, CallTool, Complete, CompleteResult, CreateMessage, Describe, GetPrompt, GetPromptResult,
    ListPrompts, ListResourceTemplates, ListResources, ListTools, ReadResource, ReadResourceResult,
    Subscribe, Unsubscribe,
};
use callboard_message::{Failure, FailureKind, Message, RawObject, SampleAnswer, ToolResult};
use callboard_runtime::{Agent, Changed, ConcurrentHandler, Cx, Handlers, Profile, SyncHandler};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::list::What;
use super::member::{KEPT_FOR, Member, Missing, Probe};
use super::{
    BUNDLE_CALLS_MAX, BUNDLE_MEMBERS_MAX, BUNDLE_READ_GRACE, BUNDLE_SUBSCRIPTIONS_MAX,
    BUNDLE_URI_BYTES_MAX, Bundle, Parts,
};

impl<const SAMPLES: bool> Agent for Bundle<SAMPLES> {
    fn handlers(on: &mut Handlers<Self>) {
        const MAX: u32 = BUNDLE_CALLS_MAX;
        on.sync::<Changed>()
            .concurrent::<Probe>(BUNDLE_MEMBERS_MAX as u32)
            .concurrent::<Describe>(MAX);
        on.concurrent::<ListTools>(MAX).concurrent::<CallTool>(MAX);
        on.concurrent::<ListResources>(MAX)
            .concurrent::<ListResourceTemplates>(MAX)
            .concurrent::<ReadResource>(MAX);
        on.concurrent::<Subscribe>(MAX)
            .concurrent::<Unsubscribe>(MAX);
        on.concurrent::<ListPrompts>(MAX)
            .concurrent::<GetPrompt>(MAX)
            .concurrent::<Complete>(MAX);
        if SAMPLES {
            on.concurrent::<CreateMessage>(MAX);
        }
    }

    /// It has no state that a dropped request could leave half changed, and hardly any work of its own.
    fn profile() -> Profile {
        Profile::default().cancel_safe().with_askers()
    }

    /// Follows the members, so that whoever follows the bundle hears of their changes.
    fn started(&mut self, cx: &mut Cx) {
        if let Some(recipient) = cx.me().recipient::<Changed>() {
            self.parts
                .members
                .iter()
                .for_each(|member| member.agent.follow(recipient.clone()));
        }
    }

    fn observe(&self) -> Value {
        let names = |is: fn(&Member) -> bool| {
            self.parts
                .members
                .iter()
                .filter(move |member| is(member))
                .map(|member| &*member.name)
                .collect::<Vec<_>>()
        };
        json!({ "members": names(|_| true), "missing": names(|member| member.away().is_missed()) })
    }
}

impl<const SAMPLES: bool> SyncHandler<Changed> for Bundle<SAMPLES> {
    fn handle(&mut self, changed: Changed, cx: &mut Cx) {
        cx.changed(changed.change);
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<Probe> for Bundle<SAMPLES> {
    fn handle(&mut self, probe: Probe, cx: Cx) -> impl Future<Output = ()> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.probe(probe.member, &cx).await }
    }
}

macro_rules! answers {
    ($($message:ident -> $reply:ty: $with:expr;)*) => {$(
        impl<const SAMPLES: bool> ConcurrentHandler<$message> for Bundle<SAMPLES> {
            fn handle(
                &mut self,
                message: $message,
                cx: Cx,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let parts = self.parts.clone();
                async move { $with(&*parts, message.0, &cx).await }
            }
        }
    )*};
}

answers! {
    Describe -> About: async |parts: &Parts, _, cx: &Cx| parts.about(cx).await;
    ListTools -> RawObject: async |parts: &Parts, params, cx: &Cx| parts.list(What::Tools, &params, cx).await;
    ListResources -> RawObject: async |parts: &Parts, params, cx: &Cx| parts.list(What::Resources, &params, cx).await;
    ListResourceTemplates -> RawObject:
        async |parts: &Parts, params, cx: &Cx| parts.list(What::Templates, &params, cx).await;
    ListPrompts -> RawObject: async |parts: &Parts, params, cx: &Cx| parts.list(What::Prompts, &params, cx).await;
    CallTool -> ToolResult: Parts::call_tool;
    ReadResource -> ReadResourceResult: Parts::read_resource;
    Subscribe -> RawObject: Parts::subscribe;
    Unsubscribe -> RawObject: Parts::unsubscribe;
    GetPrompt -> GetPromptResult: Parts::get_prompt;
    Complete -> CompleteResult: Parts::complete;
    CreateMessage -> SampleAnswer: Parts::sample;
}

impl Parts {
    /// What the members say of themselves, and what they can do together.
    async fn about(&self, cx: &Cx) -> Result<About, Failure> {
        let describing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<Describe>());
        let asking = describing.map(|(at, member)| async move {
            let limit = member.limit(self.list_timeout, cx);
            (
                at,
                member,
                member
                    .ask_until::<Describe>(RawObject::new(), limit, cx)
                    .await,
            )
        });
        let (mut instructions, mut missing, mut told) =
            (Vec::new(), Missing::default(), HashMap::new());
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
        let mut about = RawObject::of("capabilities", self.capabilities(&told));
        if !missing.is_empty() {
            about.set(KEPT_FOR, 0);
        }
        if !instructions.is_empty() {
            about.set("instructions", instructions.join("\n"));
        }
        Ok(About(about))
    }

    async fn call_tool(&self, mut params: RawObject, cx: &Cx) -> Result<ToolResult, Failure> {
        let shown = text(&params, "name")?;
        if let Some(tool) = self.by_name.get(&shown).and_then(|at| self.tools.get(*at)) {
            let arguments = params
                .remove("arguments")
                .unwrap_or_else(|| RawObject::new().to_raw());
            let member = self
                .members
                .get(tool.member)
                .ok_or_else(|| unknown_tool(&shown))?;
            let reply = member.ask_named(&tool.message, arguments, cx).await?;
            return Ok(tool.reply.result(&reply));
        }
        let (member, own) = self
            .find(What::Tools, &shown, cx, || unknown_tool(&shown))
            .await?;
        params.set("name", own);
        member.ask::<CallTool>(params, cx).await.map(ToolResult)
    }

    async fn get_prompt(&self, mut params: RawObject, cx: &Cx) -> Result<GetPromptResult, Failure> {
        let shown = text(&params, "name")?;
        let (member, own) = self.find(What::Prompts, &shown, cx, no_prompt).await?;
        params.set("name", own);
        member
            .ask::<GetPrompt>(params, cx)
            .await
            .map(GetPromptResult)
    }

    async fn complete(&self, mut params: RawObject, cx: &Cx) -> Result<CompleteResult, Failure> {
        let mut about = params
            .object("ref")
            .ok_or_else(|| Failure::invalid("`ref` must be an object"))?;
        if let Some(shown) = about.text("name") {
            let (member, own) = self.find(What::Prompts, &shown, cx, no_prompt).await?;
            if !member.handles::<Complete>() {
                return Ok(CompleteResult::of([]));
            }
            about.set("name", own);
            params.set("ref", about);
            return member.ask::<Complete>(params, cx).await.map(CompleteResult);
        }
        let completing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<Complete>())
            .map(|(at, _)| at);
        let (_, completed) = self
            .first_of::<Complete>(completing.collect(), params, None, cx)
            .await?;
        Ok(CompleteResult(completed))
    }

    async fn sample(&self, params: RawObject, cx: &Cx) -> Result<SampleAnswer, Failure> {
        let member = self.sampler.and_then(|at| self.members.get(at));
        let member =
            member.ok_or_else(|| Failure::not_found("nothing here answers like a model"))?;
        member
            .ask::<CreateMessage>(params, cx)
            .await
            .map(SampleAnswer)
    }
}

fn text(params: &RawObject, member: &str) -> Result<String, Failure> {
    params
        .text(member)
        .ok_or_else(|| Failure::invalid(format!("`{member}` must be a string")))
}

fn no_prompt() -> Failure {
    Failure::not_found("no such prompt")
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

    pub async fn read_resource(
        &self,
        params: RawObject,
        cx: &Cx,
    ) -> Result<ReadResourceResult, Failure> {
        let uri = text(&params, "uri")?;
        let (at, read) = self
            .of_owner::<ReadResource>(&uri, Member::handles::<ReadResource>, params, cx)
            .await?;
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
        if let Some((at, member)) =
            owner.and_then(|at| Some((at, self.members.get(at).filter(|m| can(m))?)))
        {
            match member.ask::<M>(params.clone(), cx).await {
                Err(failure) if is_unknown(&failure) => why = Some((at, failure)),
                decided => return decided.map(|reply| (at, reply)),
            }
        }
        let others = (0..self.members.len())
            .filter(|at| Some(*at) != owner && self.members.get(*at).is_some_and(can));
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
            let Some((at, reply)) = answered else {
                continue;
            };
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

    /// Passes it on to whoever has the resource, the first time it is said.
    pub async fn subscribe(&self, params: RawObject, cx: &Cx) -> Result<RawObject, Failure> {
        let uri = text(&params, "uri")?;
        if self.follow(&uri, None)? {
            return Ok(RawObject::new());
        }
        let owner = self.owners.get(&uri);
        let can = |at: &usize| {
            self.members
                .get(*at)
                .is_some_and(Member::handles::<Subscribe>)
        };
        let asked: Vec<usize> = match owner {
            // One that needn't know tells its changes anyway.
            Some(at) => Some(at).filter(can).into_iter().collect(),
            None => (0..self.members.len()).filter(can).collect(),
        };
        let asking = asked
            .iter()
            .filter_map(|at| Some((*at, self.members.get(*at)?)))
            .map(|(at, member)| {
                let params = params.clone();
                async move { (at, member.ask::<Subscribe>(params, cx).await) }
            });
        let (mut members, mut why) = (Vec::new(), None);
        for (at, answer) in join_all(asking).await {
            match answer {
                Ok(_) => members.push(at),
                Err(failure) => why = Some(failure),
            }
        }
        let other_may_have_it = || {
            owner.is_none()
                && self
                    .members
                    .iter()
                    .any(|m| m.handles::<ReadResource>() && !m.handles::<Subscribe>())
        };
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
        let mut followed = self.followed.lock();
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
        let uri = text(&params, "uri")?;
        let ended = match self.followed.lock().entry(uri) {
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
        for failure in join_all(told).await.into_iter().filter_map(Result::err) {
            callboard_message::log::debug!(kind = %failure.kind, "a member isn't told that nobody follows a resource any more");
        }
        Ok(RawObject::new())
    }
}

/// Whether a failure says that the resource is another's, if anyone's.
fn is_unknown(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::NotFound | FailureKind::InvalidInput
    )
}

/// What tells most comes first: one that is away may have what the others haven't.
fn grade(failure: &Failure) -> u8 {
    match failure.kind {
        FailureKind::NotFound => 1,
        FailureKind::InvalidInput => 2,
        _ => 0,
    }
}
