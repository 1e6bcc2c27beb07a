//! What must outlast a process, on SQLite or Postgres: streams, tasks, mail, notes and audit behind the traits of the
//! runtime. Start at [`SqlStore::open`].
//!
//! One task writes ([`BATCH_WRITES_MAX`] writes a transaction), a pool reads. What is acknowledged is committed and synced.

mod append;
mod audit;
mod backup;
mod chain;
mod directory;
mod error;
mod files;
mod held;
mod journal;
mod mail;
mod notes;
mod open;
mod options;
mod parts;
mod place;
mod postgres;
mod retention;
mod sql;
mod sqlite;
mod tasks;
mod tx;
mod writer;

pub use append::RECORD_BYTES_MAX_DEFAULT;
pub use audit::{
    AUDIT_SHOWN_DEFAULT, AuditFilter, AuditLine, ExportError, VerifyOptions, verify_export,
};
pub use backup::BackupReport;
pub use chain::CHECKPOINT_ENTRIES;
pub use chain::verify::{AuditFault, ChainReport};
pub use directory::{
    DIRECTORY_FILE_BYTES_MAX, DIRECTORY_SPACE, DirectoryError, Imported, export_directory,
    import_directory, import_directory_once,
};
pub use error::StoreError;
pub use open::SqlStore;
pub use options::{Retention, StoreOptions, WRITER_NAME_BYTES_MAX};
pub use parts::Visitor;
pub use place::PAGE_MAX;
pub use retention::Cleaned;
pub use tasks::{CLAIM_TASKS_MAX, GRAPH_TASKS_MAX, PAGE_BYTES_MAX};
pub use tx::CLEAN_ROWS_MAX;
pub use writer::{BATCH_BYTES_MAX, BATCH_WRITES_MAX, StoreMeasures, WRITE_WAIT_MAX};
