use callboard_message::surface::{
    Describe, GetPrompt, ListPrompts, ListResourceTemplates, ListResources, ListTools, ReadResource,
};
use callboard_message::{Failure, Message};
use callboard_runtime::{Crossing, Part, Policy};
use futures::future::BoxFuture;

use super::guard::Guard;
use super::screen::Origin;

/// The guardrail before and behind every crossing: messages, replies, and the questions and answers between.
#[derive(Debug, Clone)]
pub struct GuardPolicy {
    guard: Guard,
}

impl GuardPolicy {
    /// Lets pass what `guard` passes.
    pub fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

impl Policy for GuardPolicy {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.guard.pass(crossing.payload, Origin::User))
    }

    fn judges_parts(&self) -> bool {
        true
    }

    fn judge_part<'a>(&'a self, part: Part, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.guard.pass(crossing.payload, origin(part, crossing.message)))
    }
}

/// Who wrote a part. A question asks for something, as a user does; what a model or a tool wrote has no orders to give.
fn origin(part: Part, message: &str) -> Origin {
    match (part, message) {
        (Part::Question, _) | (Part::Answer, "elicit" | "roots") => Origin::User,
        (Part::Answer, _) => Origin::ToolResult,
        (
            Part::Reply,
            Describe::NAME | ListTools::NAME | ListPrompts::NAME | ListResources::NAME | ListResourceTemplates::NAME,
        ) => Origin::Description,
        (Part::Reply, ReadResource::NAME) => Origin::Document,
        // A prompt is what a user chose to say.
        (Part::Reply, GetPrompt::NAME) => Origin::User,
        (Part::Reply, _) => Origin::ToolResult,
    }
}
