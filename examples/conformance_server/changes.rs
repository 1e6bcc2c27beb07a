//! Tools that change what the server shows, and one whose argument travels in a header as well.

use callboard::message::{Change, ToolResult};
use callboard::{Cx, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fixture;

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<ChangeTools>().sync::<ChangePrompts>().sync::<Routed>();
}

/// Tells that the tools changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_tool_change", reply = ToolResult)]
struct ChangeTools;

impl SyncHandler<ChangeTools> for Fixture {
    fn handle(&mut self, _: ChangeTools, cx: &mut Cx) -> ToolResult {
        cx.changed(Change::Tools);
        ToolResult::text("told")
    }
}

/// Tells that the prompts changed.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_trigger_prompt_change", reply = ToolResult)]
struct ChangePrompts;

impl SyncHandler<ChangePrompts> for Fixture {
    fn handle(&mut self, _: ChangePrompts, cx: &mut Cx) -> ToolResult {
        cx.changed(Change::Prompts);
        ToolResult::text("told")
    }
}

/// Answers the region, by which a gateway may have routed the call.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_header_parameter", reply = ToolResult)]
struct Routed {
    /// Repeated in the header `Mcp-Param-Region`.
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

impl SyncHandler<Routed> for Fixture {
    fn handle(&mut self, Routed { region }: Routed, _: &mut Cx) -> ToolResult {
        ToolResult::text(region)
    }
}
