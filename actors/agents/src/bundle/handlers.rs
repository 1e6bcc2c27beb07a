//! What a bundle answers.

use std::collections::HashMap;

use callboard_message::surface::{
    About, CallTool, Complete, CompleteResult, CreateMessage, Describe, GetPrompt, GetPromptResult, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, ReadResource, ReadResourceResult, Subscribe, Unsubscribe,
};
use callboard_message::{Failure, RawObject, SampleAnswer, ToolResult};
use callboard_runtime::{Agent, Changed, ConcurrentHandler, Cx, Handlers, Profile, SyncHandler};
use futures::future::join_all;

use super::away::{KEPT_FOR, Missing, Probe};
use super::list::What;
use super::member::Member;
use super::{BUNDLE_CALLS_MAX, BUNDLE_MEMBERS_MAX, Bundle, Parts};

/// A bundle that answers like a model, as one of its members does.
#[derive(Clone)]
pub(super) struct Sampling(pub(super) Bundle);

trait IsBundle {
    fn bundle(&self) -> &Bundle;
}

impl IsBundle for Bundle {
    fn bundle(&self) -> &Bundle {
        self
    }
}

impl IsBundle for Sampling {
    fn bundle(&self) -> &Bundle {
        &self.0
    }
}

fn handlers<B>(on: &mut Handlers<B>)
where
    B: Agent + SyncHandler<Changed> + ConcurrentHandler<Probe> + ConcurrentHandler<Describe>,
    B: ConcurrentHandler<ListTools> + ConcurrentHandler<CallTool> + ConcurrentHandler<ListPrompts>,
    B: ConcurrentHandler<ListResources> + ConcurrentHandler<ListResourceTemplates> + ConcurrentHandler<ReadResource>,
    B: ConcurrentHandler<Subscribe> + ConcurrentHandler<Unsubscribe> + ConcurrentHandler<GetPrompt>,
    B: ConcurrentHandler<Complete>,
{
    const MAX: u32 = BUNDLE_CALLS_MAX;
    on.sync::<Changed>().concurrent::<Probe>(BUNDLE_MEMBERS_MAX as u32).concurrent::<Describe>(MAX);
    on.concurrent::<ListTools>(MAX).concurrent::<CallTool>(MAX);
    on.concurrent::<ListResources>(MAX).concurrent::<ListResourceTemplates>(MAX).concurrent::<ReadResource>(MAX);
    on.concurrent::<Subscribe>(MAX).concurrent::<Unsubscribe>(MAX);
    on.concurrent::<ListPrompts>(MAX).concurrent::<GetPrompt>(MAX).concurrent::<Complete>(MAX);
}

macro_rules! agents {
    ($($agent:ident: $on:ident $more:block;)*) => {$(
        impl Agent for $agent {
            fn handlers($on: &mut Handlers<Self>) {
                handlers($on);
                $more
            }

            /// It has no state that a dropped request could leave half changed, and hardly any work of its own.
            fn profile() -> Profile {
                Profile::default().cancel_safe().with_askers()
            }

            fn started(&mut self, cx: &mut Cx) {
                self.bundle().follow_all(cx);
            }

            fn observe(&self) -> serde_json::Value {
                self.bundle().parts.observe()
            }
        }

        impl SyncHandler<Changed> for $agent {
            fn handle(&mut self, changed: Changed, cx: &mut Cx) {
                cx.changed(changed.change);
            }
        }

        impl ConcurrentHandler<Probe> for $agent {
            fn handle(&mut self, probe: Probe, cx: Cx) -> impl Future<Output = ()> + Send + 'static {
                let parts = self.bundle().parts.clone();
                async move { parts.probe(probe.member, &cx).await }
            }
        }
    )*};
}

agents! {
    Bundle: on {};
    Sampling: on { on.concurrent::<CreateMessage>(BUNDLE_CALLS_MAX); };
}

macro_rules! answers {
    ($($agent:ident { $($message:ident -> $reply:ty: $with:expr;)* })*) => {$($(
        impl ConcurrentHandler<$message> for $agent {
            fn handle(
                &mut self,
                message: $message,
                cx: Cx,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let parts = self.bundle().parts.clone();
                async move { $with(&*parts, message.0, &cx).await }
            }
        }
    )*)*};
}

macro_rules! answers_of {
    ($($agent:ident)*) => {answers! {$(
        $agent {
        Describe -> About: async |parts: &Parts, _, cx: &Cx| parts.about(cx).await;
        ListTools -> RawObject: async |parts: &Parts, params, cx: &Cx| parts.list(What::Tools, &params, cx).await;
        ListResources -> RawObject:
            async |parts: &Parts, params, cx: &Cx| parts.list(What::Resources, &params, cx).await;
        ListResourceTemplates -> RawObject:
            async |parts: &Parts, params, cx: &Cx| parts.list(What::Templates, &params, cx).await;
        ListPrompts -> RawObject: async |parts: &Parts, params, cx: &Cx| parts.list(What::Prompts, &params, cx).await;
        CallTool -> ToolResult: Parts::call_tool;
        ReadResource -> ReadResourceResult: Parts::read_resource;
        Subscribe -> RawObject: Parts::subscribe;
        Unsubscribe -> RawObject: Parts::unsubscribe;
        GetPrompt -> GetPromptResult: Parts::get_prompt;
        Complete -> CompleteResult: Parts::complete;
        }
    )*}};
}

answers_of! { Bundle Sampling }
answers! { Sampling { CreateMessage -> SampleAnswer: Parts::sample; } }

impl Parts {
    /// What the members say of themselves, and what they can do together.
    async fn about(&self, cx: &Cx) -> Result<About, Failure> {
        let describing = self.members.iter().enumerate().filter(|(_, member)| member.describes());
        let asking = describing.map(|(at, member)| async move {
            let limit = member.limit(self.list_timeout, cx);
            (at, member, member.ask_until::<Describe>(RawObject::new(), limit, cx).await)
        });
        let (mut instructions, mut missing, mut told) = (Vec::new(), Missing::default(), HashMap::new());
        for (at, member, about) in join_all(asking).await {
            match about {
                Ok(about) => {
                    let theirs = about.text("instructions").map(|theirs| match self.members.len() {
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
        let shown = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
        if let Some(tool) = self.by_name.get(&shown).and_then(|at| self.tools.get(*at)) {
            let arguments = params.remove("arguments").unwrap_or_else(|| RawObject::new().to_raw());
            let member = self.members.get(tool.member).ok_or_else(|| unknown_tool(&shown))?;
            let reply = member.ask_named(&tool.message, arguments, cx).await?;
            return Ok(tool.reply.result(&reply));
        }
        let (member, own) = self.find(What::Tools, &shown, cx, || unknown_tool(&shown)).await?;
        params.set("name", own);
        member.ask::<CallTool>(params, cx).await.map(ToolResult)
    }

    async fn get_prompt(&self, mut params: RawObject, cx: &Cx) -> Result<GetPromptResult, Failure> {
        let shown = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
        let (member, own) = self.find(What::Prompts, &shown, cx, no_prompt).await?;
        params.set("name", own);
        member.ask::<GetPrompt>(params, cx).await.map(GetPromptResult)
    }

    async fn complete(&self, mut params: RawObject, cx: &Cx) -> Result<CompleteResult, Failure> {
        let mut about = params.object("ref").ok_or_else(|| Failure::invalid("`ref` must be an object"))?;
        if let Some(shown) = about.text("name") {
            let (member, own) = self.find(What::Prompts, &shown, cx, no_prompt).await?;
            if !member.completes() {
                return Ok(CompleteResult::of([]));
            }
            about.set("name", own);
            params.set("ref", about);
            return member.ask::<Complete>(params, cx).await.map(CompleteResult);
        }
        let completing = self.members.iter().enumerate().filter(|(_, member)| member.completes()).map(|(at, _)| at);
        let (_, completed) = self.first_of::<Complete>(completing.collect(), params, None, cx).await?;
        Ok(CompleteResult(completed))
    }

    async fn sample(&self, params: RawObject, cx: &Cx) -> Result<SampleAnswer, Failure> {
        let member = self.sampler.and_then(|at| self.members.get(at));
        let member = member.ok_or_else(|| Failure::not_found("nothing here answers like a model"))?;
        member.ask::<CreateMessage>(params, cx).await.map(SampleAnswer)
    }

    fn observe(&self) -> serde_json::Value {
        let names = |is: fn(&Member) -> bool| {
            self.members.iter().filter(move |member| is(member)).map(|member| &*member.name).collect::<Vec<_>>()
        };
        serde_json::json!({ "members": names(|_| true), "missing": names(|member| member.away().is_missed()) })
    }
}

fn no_prompt() -> Failure {
    Failure::not_found("no such prompt")
}

fn unknown_tool(name: &str) -> Failure {
    const CHARS_MAX: usize = 80;
    let name: String = name.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect();
    Failure::invalid(format!("unknown tool: {name}"))
}
