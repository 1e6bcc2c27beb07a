//! Calls of the members' tools, prompts, completions and models.

use std::sync::Arc;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, CompleteResult, CreateMessage, GetPrompt, GetPromptResult,
};
use callboard_message::{Failure, RawObject, SamplingAnswer, ToolResult};
use callboard_runtime::{AccessItem, Context};

use super::member::{ListKind, MemberState, ask_first, text_param};
use super::resolve::{NameResolver, NamedItem};

/// Name of sampling requests in rules about what may be used.
const SAMPLE_TOOL: &str = "sample";

/// Router of calls to the member that a name stands for.
pub(super) struct CallRouter {
    members: Arc<[MemberState]>,
    names: Arc<NameResolver>,
}

impl CallRouter {
    pub fn new(members: Arc<[MemberState]>, names: Arc<NameResolver>) -> Self {
        Self { members, names }
    }

    /// Returns whether at least one member answers sampling requests.
    pub fn has_sampler(&self) -> bool {
        self.members.iter().any(MemberState::answers_samples)
    }

    pub async fn call_tool(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<ToolResult, Failure> {
        let shown = text_param(&params, "name")?;
        let missing = || unknown_tool(&shown);
        match self
            .names
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

    pub async fn get_prompt(
        &self,
        mut params: RawObject,
        cx: &Context,
    ) -> Result<GetPromptResult, Failure> {
        let shown = text_param(&params, "name")?;
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
        let missing = || Failure::not_found(format!("no such prompt: {}", printable(name)));
        match self
            .names
            .resolve_name(ListKind::Prompts, name, cx, missing)
            .await?
        {
            NamedItem::Listed(member, own) => Ok((member, own)),
            NamedItem::Message(_) => Err(missing()),
        }
    }

    pub async fn complete(
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
        let uri = about.text("uri").unwrap_or_default();
        let permitted =
            |member: &MemberState| member.is_permitted(AccessItem::Resource((&*uri).into()), cx);
        let completing = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.handles::<CompleteArgument>() && permitted(member))
            .map(|(at, _)| at);
        let (_, completed) =
            ask_first::<CompleteArgument>(&self.members, completing.collect(), params, None, cx)
                .await?;
        Ok(CompleteResult(completed))
    }

    /// Has a sampling request answered by the member that answers such requests. Of several, it is
    /// the one whose name comes first in the hints of the request's model preferences.
    ///
    /// # Errors
    /// `NotFound`, if no member answers sampling requests; `InvalidInput`, if several do and the
    /// hints name none of them; the failure of the member.
    pub async fn sample(&self, params: RawObject, cx: &Context) -> Result<SamplingAnswer, Failure> {
        let samplers: Vec<_> = self
            .members
            .iter()
            .filter(|member| member.answers_samples())
            .filter(|member| member.is_permitted(AccessItem::tool(SAMPLE_TOOL), cx))
            .collect();
        let member = match &*samplers {
            [] => {
                let why =
                    "no member of this server answers sampling requests (`sampling/createMessage`)";
                return Err(Failure::not_found(why));
            }
            [only] => only,
            several => preferred_member(several, &params)?,
        };
        member
            .ask::<CreateMessage>(params, cx)
            .await
            .map(SamplingAnswer)
    }
}

/// Returns the member that the hints of a sampling request (`modelPreferences.hints`) name first,
/// by its exact name.
///
/// # Errors
/// `InvalidInput`, if the hints name none of the members.
fn preferred_member<'a>(
    members: &[&'a MemberState],
    params: &RawObject,
) -> Result<&'a MemberState, Failure> {
    let preferences = params.object("modelPreferences").unwrap_or_default();
    let hints: Vec<RawObject> = preferences.read("hints").unwrap_or_default();
    let hints = hints.iter().filter_map(|hint| hint.text("name"));
    let mut named = hints.filter_map(|hint| members.iter().find(|member| member.name == hint));
    named.next().copied().ok_or_else(|| {
        let names: Vec<_> = members.iter().map(|member| &*member.name).collect();
        Failure::invalid(format!(
            "several members answer sampling requests: name one of {} in `modelPreferences.hints`, or connect to /agents/ID/mcp",
            names.join(", ")
        ))
    })
}

fn unknown_tool(name: &str) -> Failure {
    Failure::invalid(format!("unknown tool: {}", printable(name)))
}

/// Returns a client's name for use in an error message: without control characters, cut to 80
/// characters.
fn printable(name: &str) -> String {
    const CHARS_MAX: usize = 80;
    name.chars()
        .filter(|c| !c.is_control())
        .take(CHARS_MAX)
        .collect()
}
