//! Tools whose replies are blocks: text, a picture, sound, an error.

use callboard::message::{Content, ToolResult};
use callboard::{Cx, Handlers, Message, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fixture, PIXEL};

const SILENCE: &[u8] = include_bytes!("silence.wav");

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<SimpleText>().sync::<ImageContent>().sync::<AudioContent>().sync::<ErrorHandling>();
}

/// Answers a sentence.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_simple_text", reply = ToolResult)]
struct SimpleText;

impl SyncHandler<SimpleText> for Fixture {
    fn handle(&mut self, _: SimpleText, _: &mut Cx) -> ToolResult {
        ToolResult::text("This is a simple text response for testing.")
    }
}

/// Answers a picture.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_image_content", reply = ToolResult)]
struct ImageContent;

impl SyncHandler<ImageContent> for Fixture {
    fn handle(&mut self, _: ImageContent, _: &mut Cx) -> ToolResult {
        ToolResult::of([Content::image(PIXEL, "image/png")])
    }
}

/// Answers a sound.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_audio_content", reply = ToolResult)]
struct AudioContent;

impl SyncHandler<AudioContent> for Fixture {
    fn handle(&mut self, _: AudioContent, _: &mut Cx) -> ToolResult {
        ToolResult::of([Content::audio(SILENCE, "audio/wav")])
    }
}

/// Fails, always.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "test_error_handling", reply = ToolResult)]
struct ErrorHandling;

impl SyncHandler<ErrorHandling> for Fixture {
    fn handle(&mut self, _: ErrorHandling, _: &mut Cx) -> ToolResult {
        ToolResult::error("This tool intentionally returns an error for testing")
    }
}
