//! The kernel of callboard: agents on actix, with mailboxes, supervision and calls of their own.
//!
//! Start at [`System`], [`Agent`] and [`AgentRef`].

#![expect(private_interfaces, reason = "Target is sealed: what its methods name is for this crate only")]

mod agent;
mod agent_ref;
mod any_cell;
mod aside;
mod ask;
mod audit;
mod audit_policy;
mod body;
mod call;
mod calling;
mod cell;
mod changed;
mod cx;
mod dead_letter;
mod directory;
mod error;
mod events;
mod failure;
mod host;
mod ids;
pub mod inward;
mod journal;
mod judged;
mod lane;
mod mail;
mod mailbox;
#[cfg(test)]
mod mailbox_tests;
#[cfg(test)]
mod model;
mod notes;
mod ops;
pub mod outward;
mod patterns;
mod policy;
mod pool;
mod port;
mod profile;
mod rate_limit;
mod reply;
mod snapshot;
mod spawn;
mod store;
mod supervision;
mod sync;
mod system;
mod task;
mod tell;
#[cfg(feature = "testkit")]
pub mod testkit;
mod threads;
mod timer;
mod turn;

/// For whoever implements a store: its traits have async methods.
pub use async_trait::async_trait;

pub use agent::{Agent, ConcurrentHandler, Handler, Handlers, SyncHandler};
pub use agent_ref::{AgentRef, Recipient, Target};
pub use ask::Ask;
pub use audit::{AUDIT_QUEUED_MAX, Audit, AuditEntry, AuditLog, AuditValue, BodyMark, MemoryAudit};
pub use audit_policy::{AuditPolicy, ClassOf};
pub use call::{Answering, CallEvent, CallMeta, Caller, PeerSession, PendingQuestion};
pub use calling::{CALL_DEADLINE_DEFAULT, Call, RunningCall};
pub use changed::Changed;
pub use cx::Cx;
pub use dead_letter::{DEAD_LETTERS_KEPT_MAX, DeadLetter, DeadLetters};
pub use directory::{Directory, GROUP_DEFAULT, NameTaken};
pub use error::SendError;
pub use events::{Events, Published};
pub use ids::AgentId;
pub use journal::{Journal, JournalError, MemoryJournal, RECORDS_AT_ONCE_MAX, Record, storable};
pub use mail::{
    COPIES_AT_ONCE_MAX, EntryState, Letter, LetterAndCopy, LetterFilter, LetterOpen, LetterPage, MAIL_EVENTS_STREAM,
    MAIL_LOG_ROWS_A_LETTER, MAIL_LOOKED_MAX, MAIL_PAGE_MAX, MARKS_AT_ONCE_MAX, Mail, MailCopy, Mark, MemoryMail,
    NewLetter, SPREAD_MAX, StoredEvent,
};
pub use notes::{
    MemoryNotes, NOTE_BYTES_MAX_DEFAULT, NOTE_NAME_BYTES_MAX, NOTES_MAX_DEFAULT, Note, NoteError, Notes, check_note,
};
pub use patterns::Patterns;
pub use policy::{Crossing, Direction, Part, Policy, PolicyChain};
pub use pool::{Choice, Pool};
pub use profile::{CANCEL_GRACE_DEFAULT, MAILBOX_CAPACITY_DEFAULT, Profile};
pub use rate_limit::{RateLimit, ToolRateLimit};
pub use snapshot::{AgentSnapshot, AgentState};
pub use spawn::Spawn;
pub use store::{Store, StoreIsSet};
pub use supervision::{Backoff, ExitReason, Intensity, Strategy, Supervisor};
pub use system::{ShutdownReport, System};
pub use task::{
    Begun, By, CANCELLED_WHY, Claim, Claimed, Lease, LeaseView, MemoryTasks, NewTask, OnRestart, OpenQuestion,
    Released, RunnerHandle, RunnerOptions, TASK_BYTES_MAX_DEFAULT, TASK_DEPTH_MAX, TASK_LEASE, TASKS_AT_ONCE_MAX, Task,
    TaskError, TaskEvent, TaskFilter, TaskGraph, TaskId, TaskOutcome, TaskOwner, TaskPage, TaskRunner, TaskStep, Tasks,
    follow, live,
};
pub use tell::Tell;
pub use timer::Timer;
