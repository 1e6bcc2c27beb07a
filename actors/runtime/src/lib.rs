//! The kernel of callboard: agents on actix, with mailboxes, supervision and calls of their own.
//!
//! Start at [`System`], [`Agent`] and [`AgentRef`].

#![expect(
    private_interfaces,
    reason = "Target is sealed: what its methods name is for this crate only"
)]

mod agent;
mod audit;
mod call;
mod cell;
mod handle;
pub mod inward;
mod journal;
mod judged;
mod mail;
mod mailbox;
mod notes;
pub mod outward;
mod policy;
mod runner;
mod store;
mod sync;
mod system;
mod task;
#[cfg(feature = "testkit")]
pub mod testkit;

/// For whoever implements a store: its traits have async methods.
pub use async_trait::async_trait;

pub use agent::cx::{Cx, Timer};
pub use agent::{
    Agent, AgentId, AgentSnapshot, AgentState, CANCEL_GRACE_DEFAULT, ConcurrentHandler, Handler,
    Handlers, MAILBOX_CAPACITY_DEFAULT, Profile, SyncHandler,
};
pub use audit::{AUDIT_QUEUED_MAX, Audit, AuditEntry, AuditValue, BodyMark, MemoryAudit};
pub use call::{Answering, CallEvent, CallMeta, Caller, PeerSession, PendingQuestion};
pub use handle::ask::{Ask, CALL_DEADLINE_DEFAULT, Call, RunningCall, Tell};
pub use handle::pool::{Choice, Pool};
pub use handle::{AgentRef, Recipient, SendError, Target};
pub use journal::{
    Journal, JournalError, JournalResult, MemoryJournal, RECORDS_AT_ONCE_MAX, Record, storable,
};
pub use mail::{
    COPIES_AT_ONCE_MAX, EntryState, Letter, LetterAndCopy, LetterFilter, LetterOpen, LetterPage,
    MAIL_EVENTS_STREAM, MAIL_LOG_ROWS_A_LETTER, MAIL_LOOKED_MAX, MAIL_PAGE_MAX, MARKS_AT_ONCE_MAX,
    Mail, MailCopy, Mark, MemoryMail, NewLetter, SPREAD_MAX, StoredEvent,
};
pub use notes::{
    MemoryNotes, NOTE_BYTES_MAX_DEFAULT, NOTE_NAME_BYTES_MAX, NOTES_MAX_DEFAULT, Note, NoteError,
    Notes, check_note,
};
pub use policy::audit_policy::{AuditPolicy, ClassOf};
pub use policy::rate_limit::{Patterns, RateLimit, ToolRateLimit};
pub use policy::{Crossing, Direction, Part, Policy, PolicyChain};
pub use runner::{RunnerHandle, RunnerOptions, TaskRunner};
pub use store::{AuditLog, Store, StoreIsSet};
pub use system::directory::{
    Changed, DEAD_LETTERS_KEPT_MAX, DeadLetter, DeadLetters, Directory, Events, GROUP_DEFAULT,
    NameTaken, Published,
};
pub use system::supervision::{Backoff, ExitReason, Intensity, Strategy, Supervisor};
pub use system::{ShutdownReport, Spawn, System};
pub use task::{
    Begun, By, CANCELLED_WHY, Claim, Claimed, Lease, LeaseView, MemoryTasks, NewTask, OnRestart,
    OpenQuestion, Released, TASK_BYTES_MAX_DEFAULT, TASK_DEPTH_MAX, TASK_LEASE, TASKS_AT_ONCE_MAX,
    Task, TaskError, TaskEvent, TaskFilter, TaskGraph, TaskId, TaskOutcome, TaskOwner, TaskPage,
    TaskResult, TaskStep, Tasks, follow, in_dependency_order, live,
};
