//! Persistent storage on SQLite or Postgres behind the storage traits of `callboard_runtime`:
//! journal streams, tasks, mail, key-value entries and the audit log. Start at [`SqlStore::open`].
//!
//! A single writer task commits up to [`BATCH_WRITES_MAX`] writes a transaction; a connection pool
//! serves reads. An acknowledged write is committed and synced to disk.

mod append_records;
mod audit;
mod backend;
mod backup;
mod chain;
mod checkpointer;
mod directory;
mod error;
mod files;
mod journal;
mod kv_store;
mod mail;
mod options;
mod owner_quota;
mod postgres;
mod read_only_store;
mod retention;
mod retention_clock;
mod sql;
mod sql_store;
mod sqlite;
mod store_core;
mod tasks;
mod tx;
mod volatile_store;
mod writer;

pub use append_records::RECORD_BYTES_MAX_DEFAULT;
pub use audit::{
    AUDIT_LINES_DEFAULT, AuditCursor, AuditFilter, AuditFollowError, AuditLine, AuditPage,
    AuditVerifyOptions, CallFilter, CallLine, ExportError, verify_export,
};
pub use backend::PAGE_ROWS_MAX;
pub use backup::BackupReport;
pub use chain::CHECKPOINT_ENTRIES;
pub use chain::verify::{AuditFault, ChainReport};
pub use directory::{
    DIRECTORY_FILE_BYTES_MAX, DIRECTORY_SPACE, DirectoryError, ImportSummary, export_directory,
    import_directory, import_directory_once,
};
pub use error::StoreError;
pub use options::{Retention, StoreOptions, WRITER_NAME_BYTES_MAX};
pub use read_only_store::ReadOnlyStore;
pub use retention::CleanupReport;
pub use sql_store::SqlStore;
pub use tasks::{CLAIM_TASKS_MAX, GRAPH_TASKS_MAX, PAGE_BYTES_MAX, REQUEST_ROW_BYTES_MIN};
pub use tx::CLEANUP_ROWS_MAX;
pub use writer::{
    BATCH_BYTES_MAX, BATCH_LARGE_BYTES_MIN, BATCH_WRITES_MAX, LARGE_WRITE_BYTES_MIN, StoreMetrics,
    WRITE_WAIT_MAX,
};
