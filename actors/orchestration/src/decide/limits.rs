//! Limits of decider input and output.

use std::time::Duration;

/// Maximum characters of a request. A longer one is refused with `InvalidInput`. Fixed.
pub const REQUEST_CHARS_MAX: usize = 16_000;
/// Maximum turns of the conversation that a decider sees. Older turns are left out. Fixed.
pub const HISTORY_TURNS_MAX: usize = 20;
/// Maximum bytes of each turn of the conversation that a decider sees. Longer turns are cut. Fixed.
pub const TURN_BYTES_MAX: usize = 4 * 1_024;
/// Maximum steps of a plan. A plan with more steps is discarded and the request is handled in one
/// step. Fixed.
pub const STEPS_MAX: usize = 5;
/// Maximum bytes of a step id. A plan with a longer id is discarded and the request is handled in
/// one step. Fixed.
pub const STEP_ID_BYTES_MAX: usize = 40;
/// Maximum bytes of a step's input message. A plan with a longer one is discarded and the request
/// is handled in one step. Fixed.
pub const STEP_INPUT_BYTES_MAX: usize = 4 * 1_024;
/// Maximum bytes of a step's result as dependent steps and the synthesis see it. Longer results are
/// cut. Fixed.
pub const STEP_RESULT_BYTES_MAX: usize = 8 * 1_024;
/// Maximum characters of a clarifying question. A decision with a longer one isn't used. Fixed.
pub const QUESTION_CHARS_MAX: usize = 240;
/// Maximum characters of the reason for a decision. Longer reasons are cut. Fixed.
pub const DECISION_REASON_CHARS_MAX: usize = 300;
/// Maximum characters of an error message as deciders see it. Longer messages are cut. Fixed.
pub const ERROR_CHARS_MAX: usize = 500;
/// Maximum bytes of a tool's text result. The rest is left out and replaced by a note. A combined
/// decision (DP0) with a longer answer isn't used. Fixed.
pub const TOOL_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Maximum clarifying questions for one request. After that many, the request counts as clear.
/// Fixed.
pub const CLARIFY_ROUNDS_MAX: u32 = 2;
/// Maximum tools in the routing context of a request. Further tools are left out. Fixed.
pub const CONTEXT_TOOLS_MAX: usize = 64;
/// Maximum agents in the routing context of a request. Further agents are left out. Fixed.
pub const CONTEXT_AGENTS_MAX: usize = 256;
/// Maximum characters of a description of a tool, skill or agent as deciders see it. Longer ones
/// are cut. Fixed.
pub const DESCRIPTION_CHARS_MAX: usize = 500;

/// Default risk threshold, 0 to 1. Riskier actions need confirmation.
pub const RISK_MAX_DEFAULT: f32 = 0.5;

/// Time limit of a decision by rules. After it, the next decider or the fallback of the decision
/// point applies. Fixed.
pub const RULES_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of a decision by a model or another agent. After it, the next decider or the fallback
/// of the decision point applies. Fixed.
pub const MODEL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a decision by embeddings. After it, the next decider or the fallback of the
/// decision point applies. Fixed.
pub const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum deciders of one decision point. With more, the topology isn't read. Fixed.
pub const DECIDERS_MAX: usize = 4;
/// Confidence assumed for a decision without a stated confidence, 0 to 1.
pub const CONFIDENCE_DEFAULT: f32 = 0.7;
/// Maximum confidence of a synthesized answer that comes from the fallback, or from a decider that
/// isn't the first one. It lies below every sensible confirmation threshold, so that a person is
/// asked.
pub const CONFIDENCE_FALLBACK: f32 = 0.39;
