//! Tools whose replies hold resources, and one with a schema of its own.

use callboard::message::{Content, RawObject, ResourceContent, ToolResult};
use callboard::{Cx, Handlers, Message, SyncHandler};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{Fixture, PIXEL};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<EmbeddedResource>().sync::<MultipleContentTypes>().sync::<Schema2020>();
}

/// Answers a resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_embedded_resource", reply = ToolResult)]
struct EmbeddedResource;

impl SyncHandler<EmbeddedResource> for Fixture {
    fn handle(&mut self, _: EmbeddedResource, _: &mut Cx) -> ToolResult {
        let text = "This is an embedded resource content.";
        ToolResult::of([Content::resource(ResourceContent::text("test://embedded-resource", "text/plain", text))])
    }
}

/// Answers text, a picture and a resource.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_multiple_content_types", reply = ToolResult)]
struct MultipleContentTypes;

impl SyncHandler<MultipleContentTypes> for Fixture {
    fn handle(&mut self, _: MultipleContentTypes, _: &mut Cx) -> ToolResult {
        let json = r#"{"test":"data","value":123}"#;
        let resource = ResourceContent::text("test://mixed-content-resource", "application/json", json);
        let text = Content::text("Multiple content types test:");
        ToolResult::of([text, Content::image(PIXEL, "image/png"), Content::resource(resource)])
    }
}

/// Tool with JSON Schema 2020-12 features.
#[derive(Message, Serialize, Deserialize)]
#[message(name = "json_schema_2020_12_tool", reply = ToolResult)]
struct Schema2020(RawObject);

impl JsonSchema for Schema2020 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Schema2020".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        serde_json::from_str(include_str!("schema_2020.json")).unwrap_or_default()
    }
}

impl SyncHandler<Schema2020> for Fixture {
    fn handle(&mut self, Schema2020(contact): Schema2020, _: &mut Cx) -> ToolResult {
        ToolResult::text(format!("{} members", contact.len()))
    }
}
