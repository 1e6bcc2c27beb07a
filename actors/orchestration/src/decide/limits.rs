//! Limits of what decisions see and say.

use std::time::Duration;

/// Maximum characters of a request. A longer one is refused with `InvalidInput`. Fixed.
pub const REQUEST_CHARS_MAX: usize = 16_000;
/// Maximum turns of the conversation that a decider sees. Beyond it, the oldest are left out. Fixed.
pub const HISTORY_TURNS_MAX: usize = 20;
/// Maximum bytes of each of those turns. The rest of a longer one is cut. Fixed.
pub const TURN_BYTES_MAX: usize = 4 * 1_024;
/// Maximum steps of a plan. A plan with more is none: the request is done in one step. Fixed.
pub const STEPS_MAX: usize = 5;
/// Maximum bytes of a step's id. A plan with a longer one is none: the request is done in one step. Fixed.
pub const STEP_ID_BYTES_MAX: usize = 40;
/// Maximum bytes of a step's message. A plan with a longer one is none: the request is done in one step. Fixed.
pub const STEP_INPUT_BYTES_MAX: usize = 4 * 1_024;
/// Maximum bytes of a step's result, as other steps and the end see it. A longer one is cut. Fixed.
pub const STEP_RESULT_BYTES_MAX: usize = 8 * 1_024;
/// Maximum characters of a question that clarifies. With a longer one the request counts as clear. Fixed.
pub const QUESTION_CHARS_MAX: usize = 240;
/// Maximum characters of the reason for a decision. A longer one is cut. Fixed.
pub const WHY_CHARS_MAX: usize = 300;
/// Maximum characters of an error, as deciders see it. A longer one is cut. Fixed.
pub const ERROR_CHARS_MAX: usize = 500;
/// Maximum questions that clarify one request. After them the request counts as clear. Fixed.
pub const CLARIFY_ROUNDS_MAX: u32 = 2;
/// Maximum tools that a request is matched against. Further ones aren't seen. Fixed.
pub const WORLD_TOOLS_MAX: usize = 64;
/// Maximum agents that a request is matched against. Further ones aren't seen. Fixed.
pub const WORLD_AGENTS_MAX: usize = 256;
/// Maximum characters of a description of a tool, skill or agent, as deciders see it. A longer one is cut. Fixed.
pub const DESCRIPTION_CHARS_MAX: usize = 500;

/// Maximum risk of an action that is done without being confirmed, from 0 to 1.
pub const RISK_MAX_DEFAULT: f32 = 0.5;

/// Time limit of a decision by rules. After it the point's fallback holds. Fixed.
pub const RULES_WITHIN: Duration = Duration::from_secs(1);
/// Time limit of a decision by a model or an agent elsewhere. After it the point's fallback holds. Fixed.
pub const MODEL_WITHIN: Duration = Duration::from_secs(30);
/// Confidence of a decision whose decider gives none.
pub const CONFIDENCE_UNSAID: f32 = 0.7;
/// Maximum confidence of a plan's answer that only the fallback put together: below every sensible threshold.
pub const CONFIDENCE_FALLBACK: f32 = 0.39;
