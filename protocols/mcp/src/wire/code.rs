//! Error codes of MCP beside those of JSON-RPC ([`callboard_rpc::code`]), and our own, which lie outside the reserved range.

/// No such resource, in the legacy era (server/resources). The modern one uses -32602.
pub const RESOURCE_NOT_FOUND_LEGACY: i64 = -32002;
/// The person must visit an address first (2025-11-25, client/elicitation).
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// A header says otherwise than the body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that the client hasn't declared (2026-07-28).
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// A revision that isn't spoken here (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A guard or a verifier stopped it. HMCP has this code, and MCP has it for a person who refuses a sample.
pub const BLOCKED: i64 = -1;
/// The guardrail stopped it: `data.reason` is `guardrail`, `data.rules` says by which rules.
pub const BLOCKED_BY_GUARDRAIL: i64 = 1_001;
/// The principal may not.
pub const DENIED: i64 = -2;
/// A limit was met: try again later.
pub const OVERLOADED: i64 = -3;
/// The agent or its network is away.
pub const UNAVAILABLE: i64 = -4;
/// The deadline passed.
pub const TIMED_OUT: i64 = -5;
/// The agent won't do it.
pub const REJECTED: i64 = -6;
/// The agent had a question and nobody could be asked.
pub const NOBODY_TO_ASK: i64 = -7;
/// The caller cancelled it.
pub const CANCELLED: i64 = -8;
