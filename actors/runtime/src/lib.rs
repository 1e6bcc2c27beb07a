//! Actor runtime of callboard: agents on actix with bounded mailboxes, supervision and calls.
//!
//! Start at [`System`], [`Agent`] and [`AgentRef`].

#![expect(
    private_interfaces,
    reason = "Target is sealed: what its methods name is for this crate only"
)]

mod access_log;
mod agent;
mod agent_cell;
mod audit;
mod call;
pub mod child_process;
mod handle;
pub mod inbound_policy;
mod journal;
mod kv_store;
mod mail;
mod mailbox;
mod node_events;
pub mod outbound_policy;
mod policy;
mod policy_caller;
mod shares;
mod store;
mod sync;
mod system;
mod task;
mod task_runner;
#[cfg(feature = "testkit")]
pub mod testkit;
mod waiting_questions;

/// Re-exported for implementations of the store traits, which have async methods.
pub use async_trait::async_trait;

pub use agent::context::{Context, Timer};
pub use agent::{
    Agent, AgentId, AgentProfile, AgentSnapshot, AgentState, CANCEL_GRACE_DEFAULT,
    ConcurrentHandler, Handler, Handlers, MAILBOX_CAPACITY_DEFAULT, SyncHandler,
};
pub use audit::{
    AUDIT_QUEUED_MAX, AuditEntry, AuditStore, AuditValue, BodyDigest, CALLS_EVENT,
    CALLS_LINES_DETAIL, MemoryAuditStore, call_line_name,
};
pub use call::{
    CallContext, CallEvent, Caller, HandlerPlace, PeerSession, PendingQuestion, QuestionRouter,
};
pub use handle::ask::{Ask, CALL_DEADLINE_DEFAULT, Call, RunningCall, Tell};
pub use handle::pool::{Pool, PoolStrategy};
pub use handle::{AgentRef, Recipient, SendError, Target};
pub use journal::{
    JOURNAL_BATCH_MAX, Journal, JournalError, JournalRecord, JournalResult, MemoryJournal,
    check_storable,
};
pub use kv_store::{
    KV_KEY_BYTES_MAX, KV_SPACE_ENTRIES_MAX_DEFAULT, KV_VALUE_BYTES_MAX_DEFAULT, KvEntry, KvError,
    KvStore, MemoryKvStore, check_kv_entry, keyed_hash, kv_secret, list_all,
};
pub use mail::{
    DeliveryState, FAN_OUT_BATCH_MAX, INLINE_COPIES_MAX, MAIL_EVENTS_STREAM,
    MAIL_LOG_ROWS_PER_MESSAGE, MAIL_PAGE_MAX, MAIL_SCAN_MAX, MailCopy, MailHistoryEntry,
    MailHistoryPage, MailMessage, MailMessageFilter, MailMessageWithCopy, MailStore,
    MemoryMailStore, NewMailMessage, RECEIPT_BATCH_MAX, ReceiptUpdate, StoredMailEvent,
};
pub use node_events::{
    AgentEvent, CallOrigin, ContentFilter, CountedExchanges, DurationCounts,
    EVENT_CONTENT_BYTES_MAX, EXCHANGE_DURATION_BOUNDS_MS, EXCHANGE_SERIES_MAX,
    EXCHANGES_RECORDED_PER_SECOND_DEFAULT, Exchange, ExchangeCounts, ExchangeEnd, ExchangeKind,
    ExchangeSeries, LatencyCounts, NODE_EVENTS_MAX_DEFAULT, NodeEvent, NodeEventOptions,
    NodeEventReader, NodeEvents, NodeEventsTaken, OTHER_SERIES, OutcomeCounts, PolicyRefusal,
    QuestionEnd, QuestionEvent, TaskStateChange, UpstreamChange,
};
pub use policy::access::{
    ACCESS_ENTRY_BYTES_MAX, ACCESS_RULE_ENTRIES_MAX, ACCESS_RULES_MAX, APPROVAL_MINUTES_DEFAULT,
    APPROVAL_MINUTES_MAX, APPROVERS_BYTES_MAX, AccessDecision, AccessEffect, AccessItem,
    AccessRule, AccessRuleError, AccessRules, AccessTarget, ApprovalTerms, ArgumentCondition,
    has_ambiguous_names,
};
pub use policy::approval::{
    APPROVAL_ARGUMENTS_BYTES_MAX, APPROVAL_REASON_BYTES_MAX, APPROVAL_WAITS_PER_PRINCIPAL_MAX,
    APPROVALS_PER_PRINCIPAL_MAX, Approval, ApprovalDecision, ApprovalError, ApprovalState,
    approvals, decide_approval, find_approval, visible,
};
pub use policy::audit_policy::{AuditPolicy, DataClassLookup};
pub use policy::quota::{
    ModelUse, QUOTA_COUNTERS_MAX, QUOTA_ID_BYTES_MAX, QUOTA_USD_MAX, QUOTAS_MAX, Quota, QuotaError,
    QuotaShare, QuotaUsage, QuotaWindow, Quotas, quota_usage,
};
pub use policy::rate_limit::{NamePatterns, RateLimit, ToolRateLimit};
pub use policy::tool_pins::{
    PINNED_DEFINITION_BYTES_MAX, PINNED_TOOLS_MAX, PinMode, PinnedTool, ToolPins, ToolVersion,
    approve_tool, pinned_tools,
};
pub use policy::{Direction, ExchangePart, Policy, PolicyChain, PolicyRequest};
pub use shares::{
    FairShare, PRINCIPAL_SHARE_PERCENT_DEFAULT, PrincipalShares, ShareError, ShareOwner,
    SharePermit,
};
pub use store::{AuditLog, CALL_LINES_QUEUED_MAX, Store, StoreAlreadySet};
pub use system::directory::{
    AgentChanged, DEAD_LETTERS_KEPT_MAX, DeadLetter, DeadLetters, Directory, EventBus,
    GROUP_DEFAULT, NameTakenError, PublishReport,
};
pub use system::supervision::{Backoff, ExitReason, RestartIntensity, RestartStrategy, Supervisor};
pub use system::{ShutdownReport, SpawnBuilder, System};
pub use task::{
    CANCEL_REASON_DEFAULT, ClaimRequest, ClaimedTask, CreateOutcome, Lease, LeaseView,
    MemoryTaskStore, NewTask, OnRestart, OpenQuestion, ReleaseReason, TASK_BATCH_MAX,
    TASK_BYTES_MAX_DEFAULT, TASK_DEPTH_MAX, TASK_LEASE, TASK_RERUNS_MAX_DEFAULT, Task, TaskActor,
    TaskError, TaskEvent, TaskFilter, TaskGraph, TaskId, TaskOutcome, TaskOwner, TaskPage,
    TaskResult, TaskStep, TaskStore, follow_task, running, topological_order,
};
pub use task_runner::{TaskRunner, TaskRunnerHandle, TaskRunnerOptions};
pub use waiting_questions::{
    WAITING_QUESTIONS_MAX, WAITING_QUESTIONS_PER_PRINCIPAL_MAX, WaitingQuestion,
    WaitingQuestionError, WaitingQuestions,
};

/// Former name of [`Context`].
#[deprecated(note = "renamed to `Context`")]
pub type Cx = Context;
