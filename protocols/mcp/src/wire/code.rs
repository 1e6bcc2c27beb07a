//! Error codes of MCP in addition to those of JSON-RPC ([`callboard_rpc::code`]), and codes of this
//! system, which are outside the reserved range.

/// Resource not found, in the legacy era (server/resources). The modern one uses -32602.
pub const RESOURCE_NOT_FOUND_LEGACY: i64 = -32002;
/// The user must visit a URL first (2025-11-25, client/elicitation).
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// A header contradicts the body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that the client hasn't declared (2026-07-28).
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// Unsupported protocol revision (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Blocked by a policy or a verifier. HMCP uses this code, and MCP uses it for a user's rejection
/// of a sampling request.
pub const BLOCKED: i64 = -1;
/// Blocked by the guardrail. `data.reason` is `guardrail`, `data.rules` lists the rules.
pub const BLOCKED_BY_GUARDRAIL: i64 = 1_001;
/// The principal isn't authorized.
pub const DENIED: i64 = -2;
/// A limit was reached: try again later.
pub const OVERLOADED: i64 = -3;
/// The agent or its network is unavailable.
pub const UNAVAILABLE: i64 = -4;
/// The deadline passed.
pub const TIMED_OUT: i64 = -5;
/// The agent rejected the request.
pub const REJECTED: i64 = -6;
/// The agent had a question, and no client could answer it.
pub const NO_RESPONDER: i64 = -7;
/// The caller cancelled the request.
pub const CANCELLED: i64 = -8;
