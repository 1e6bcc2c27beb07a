//! What a bundle answers.

use callboard_message::surface::{
    About, CallTool, Complete, CompleteResult, Describe, GetPrompt, GetPromptResult, ListPrompts,
    ListResourceTemplates, ListResources, ListTools, ReadResource, ReadResourceResult,
};
use callboard_message::{Failure, FailureKind, RawObject, ToolResult};
use callboard_runtime::{Agent, Changed, ConcurrentHandler, Cx, Handlers, Profile, SyncHandler};

use super::list::What;
use super::{BUNDLE_CALLS_MAX, Bundle, Parts};

impl Agent for Bundle {
    fn handlers(on: &mut Handlers<Self>) {
        const MAX: u32 = BUNDLE_CALLS_MAX;
        on.sync::<Changed>().concurrent::<Describe>(MAX).concurrent::<ListTools>(MAX).concurrent::<CallTool>(MAX);
        on.concurrent::<ListResources>(MAX).concurrent::<ListResourceTemplates>(MAX).concurrent::<ReadResource>(MAX);
        on.concurrent::<ListPrompts>(MAX).concurrent::<GetPrompt>(MAX).concurrent::<Complete>(MAX);
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn started(&mut self, cx: &mut Cx) {
        self.follow_all(cx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "members": self.parts.members.iter().map(|member| &member.name).collect::<Vec<_>>() })
    }
}

impl SyncHandler<Changed> for Bundle {
    fn handle(&mut self, changed: Changed, cx: &mut Cx) {
        cx.changed(changed.change);
    }
}

macro_rules! answers {
    ($($message:ident -> $reply:ty: $with:expr;)*) => {$(
        impl ConcurrentHandler<$message> for Bundle {
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
    GetPrompt -> GetPromptResult: Parts::get_prompt;
    Complete -> CompleteResult: Parts::complete;
}

impl Parts {
    async fn call_tool(&self, mut params: RawObject, cx: &Cx) -> Result<ToolResult, Failure> {
        let shown = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
        if let Some(tool) = self.by_name.get(&shown).and_then(|at| self.tools.get(*at)) {
            let arguments = params.remove("arguments").unwrap_or_else(|| RawObject::new().to_raw());
            let member = self.members.get(tool.member).ok_or_else(|| unknown_tool(&shown))?;
            let reply = member.ask_named(&tool.message, arguments, cx).await?;
            return Ok(tool.reply.result(&reply));
        }
        let (member, own) =
            self.find::<ListTools>(What::Tools, &shown, cx).await.ok_or_else(|| unknown_tool(&shown))?;
        params.set("name", own);
        member.ask::<CallTool>(params, cx).await.map(ToolResult)
    }

    /// The members are asked in order; the first that has it answers.
    async fn read_resource(&self, params: RawObject, cx: &Cx) -> Result<ReadResourceResult, Failure> {
        let mut missing = Failure::not_found("no such resource");
        for member in self.members.iter().filter(|member| member.has_resources()) {
            match member.ask::<ReadResource>(params.clone(), cx).await {
                Err(failure) if failure.kind == FailureKind::NotFound => missing = failure,
                answered => return answered.map(ReadResourceResult),
            }
        }
        Err(missing)
    }

    async fn get_prompt(&self, mut params: RawObject, cx: &Cx) -> Result<GetPromptResult, Failure> {
        let shown = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
        let found = self.find::<ListPrompts>(What::Prompts, &shown, cx).await;
        let (member, own) = found.ok_or_else(|| Failure::not_found("no such prompt"))?;
        params.set("name", own);
        member.ask::<GetPrompt>(params, cx).await.map(GetPromptResult)
    }

    async fn complete(&self, mut params: RawObject, cx: &Cx) -> Result<CompleteResult, Failure> {
        let mut about = params.object("ref").ok_or_else(|| Failure::invalid("`ref` must be an object"))?;
        if let Some(shown) = about.text("name") {
            let found = self.find::<ListPrompts>(What::Prompts, &shown, cx).await;
            let (member, own) = found.ok_or_else(|| Failure::not_found("no such prompt"))?;
            if !member.completes() {
                return Ok(CompleteResult::of([]));
            }
            about.set("name", own);
            params.set("ref", about);
            return member.ask::<Complete>(params, cx).await.map(CompleteResult);
        }
        let mut missing = Failure::not_found("no such resource");
        for member in self.members.iter().filter(|member| member.completes()) {
            match member.ask::<Complete>(params.clone(), cx).await {
                Err(failure) if matches!(failure.kind, FailureKind::NotFound | FailureKind::InvalidInput) => {
                    missing = failure;
                }
                answered => return answered.map(CompleteResult),
            }
        }
        Err(missing)
    }
}

fn unknown_tool(name: &str) -> Failure {
    const CHARS_MAX: usize = 80;
    let name: String = name.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect();
    Failure::invalid(format!("unknown tool: {name}"))
}
