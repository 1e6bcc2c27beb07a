//! How much of what a decision may see, and how much it may say.

use std::time::Duration;

/// Longest request, in characters.
pub const REQUEST_CHARS_MAX: usize = 16_000;
/// Turns of the conversation that a decider sees: the newest.
pub const HISTORY_TURNS_MAX: usize = 20;
/// Longest turn of them, in bytes: the rest is cut off.
pub const TURN_BYTES_MAX: usize = 4 * 1_024;
/// Steps of one plan.
pub const STEPS_MAX: usize = 5;
/// Longest id of a step, in bytes.
pub const STEP_ID_BYTES_MAX: usize = 40;
/// Longest message of a step, in bytes.
pub const STEP_INPUT_BYTES_MAX: usize = 4 * 1_024;
/// Longest result of a step that others get to see, in bytes.
pub const STEP_RESULT_BYTES_MAX: usize = 8 * 1_024;
/// Longest question that clarifies, in characters.
pub const QUESTION_CHARS_MAX: usize = 240;
/// Longest account of why something was decided, in characters.
pub const WHY_CHARS_MAX: usize = 300;
/// Longest error that a decider sees, in characters.
pub const ERROR_CHARS_MAX: usize = 500;
/// How often one request is clarified.
pub const CLARIFY_ROUNDS_MAX: u32 = 2;
/// Tools of one world.
pub const WORLD_TOOLS_MAX: usize = 64;
/// Agents of one world.
pub const WORLD_AGENTS_MAX: usize = 256;
/// Longest description of a tool, skill or agent in a world, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 500;

/// How long rules may take.
pub const RULES_WITHIN: Duration = Duration::from_secs(1);
/// How long a model, or an agent elsewhere, may take.
pub const MODEL_WITHIN: Duration = Duration::from_secs(30);
/// How sure a decision counts as where whoever made it didn't say.
pub const CONFIDENCE_UNSAID: f32 = 0.7;
/// How sure an answer of a plan may be at most where nobody but the fallback put it together: below every sensible threshold.
pub const CONFIDENCE_FALLBACK: f32 = 0.39;

/// The first `chars_max` characters.
pub fn cut_chars(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(at, _)| &text[..at])
}

/// The first `bytes_max` bytes, or fewer, so that no character is cut in two.
pub fn cut_bytes(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max.min(text.len())).rev().find_map(|at| text.get(..at)).unwrap_or_default()
}
