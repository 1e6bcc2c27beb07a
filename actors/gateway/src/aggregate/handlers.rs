//! Message handlers of the aggregate agent.

use std::collections::HashSet;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, CompleteResult, CreateMessage, DescribeAgent, DescribeAgentResult,
    GetPrompt, GetPromptResult, ListPrompts, ListResourceTemplates, ListResources, ListTools,
    ReadResource, ReadResourceResult, SubscribeResource, UnsubscribeResource,
};
use callboard_message::{Failure, RawObject, SamplingAnswer, ToolResult};
use callboard_runtime::{
    Agent, AgentChanged, AgentProfile, ConcurrentHandler, Context, Handlers,
    PRINCIPAL_SHARE_PERCENT_DEFAULT, SyncHandler,
};
use serde_json::{Value, json};

use super::member::{ListKind, MemberState};
use super::missing::{ProbeMember, probe_member};
use super::{AGGREGATE_CALLS_MAX, AGGREGATE_MEMBERS_MAX, AggregateAgent};

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
    /// caller's task, because the agent does little work of its own. Principals share the handlers,
    /// because a call may wait for a person.
    fn profile() -> AgentProfile {
        AgentProfile::default()
            .cancel_safe()
            .inline_concurrent()
            .authorizes_itself()
            .principal_share(PRINCIPAL_SHARE_PERCENT_DEFAULT)
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
        let AgentChanged { agent, change } = changed;
        let members = self.parts.members.iter().enumerate();
        let changes: HashSet<_> = members
            .filter(|(_, member)| member.agent.id() == agent)
            .flat_map(|(at, _)| self.parts.resource_index.shown_changes(at, change.clone()))
            .collect();
        for change in changes {
            cx.notify_changed(change);
        }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ProbeMember> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        probe: ProbeMember,
        cx: Context,
    ) -> impl Future<Output = ()> + Send + 'static {
        let parts = self.parts.clone();
        async move { probe_member(&parts.members, probe, parts.list_timeout, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<DescribeAgent> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        _: DescribeAgent,
        cx: Context,
    ) -> impl Future<Output = Result<DescribeAgentResult, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.descriptions.describe(&cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ListTools> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: ListTools,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.lists.page(ListKind::Tools, &message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ListResources> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: ListResources,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.lists.page(ListKind::Resources, &message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ListResourceTemplates> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: ListResourceTemplates,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.lists.page(ListKind::Templates, &message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ListPrompts> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: ListPrompts,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.lists.page(ListKind::Prompts, &message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<CallTool> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: CallTool,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.calls.call_tool(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<GetPrompt> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: GetPrompt,
        cx: Context,
    ) -> impl Future<Output = Result<GetPromptResult, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.calls.get_prompt(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<CompleteArgument> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: CompleteArgument,
        cx: Context,
    ) -> impl Future<Output = Result<CompleteResult, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.calls.complete(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<CreateMessage> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.calls.sample(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<ReadResource> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: ReadResource,
        cx: Context,
    ) -> impl Future<Output = Result<ReadResourceResult, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.resources.read(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<SubscribeResource> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: SubscribeResource,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.resources.subscribe(message.0, &cx).await }
    }
}

impl<const SAMPLES: bool> ConcurrentHandler<UnsubscribeResource> for AggregateAgent<SAMPLES> {
    fn handle(
        &mut self,
        message: UnsubscribeResource,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let parts = self.parts.clone();
        async move { parts.resources.unsubscribe(message.0, &cx).await }
    }
}
