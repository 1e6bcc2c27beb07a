//! What must outlast a process, on SQLite or Postgres: streams, tasks, mail, notes and audit behind the traits of the
//! runtime. Start at [`SqlStore::open`].
//!
//! One task writes ([`BATCH_WRITES_MAX`] writes a transaction), a pool reads. What is acknowledged is committed and synced.

mod audit;
mod backup;
mod directory;
mod error;
mod files;
mod journal;
mod mail;
mod notes;
mod open;
mod options;
mod place;
mod postgres;
mod retention;
mod sql;
mod sqlite;
mod tasks;
mod tx;
mod writer;

pub use audit::{
    AUDIT_SHOWN_DEFAULT, AuditFault, AuditFilter, AuditLine, CHECKPOINT_ENTRIES, ChainReport, ExportError,
    VerifyOptions, verify_export,
};
pub use backup::BackupReport;
pub use directory::{
    DIRECTORY_FILE_BYTES_MAX, DIRECTORY_SPACE, DirectoryError, Imported, export_directory, import_directory,
    import_directory_once,
};
pub use error::StoreError;
pub use journal::RECORD_BYTES_MAX_DEFAULT;
pub use open::{SqlStore, Visitor};
pub use options::{Retention, StoreOptions, WRITER_NAME_BYTES_MAX};
pub use place::PAGE_MAX;
pub use retention::{CLEAN_ROWS_MAX, Cleaned};
pub use tasks::{CLAIM_TASKS_MAX, GRAPH_TASKS_MAX, PAGE_BYTES_MAX};
pub use writer::{BATCH_BYTES_MAX, BATCH_WRITES_MAX, StoreMeasures, WRITE_WAIT_MAX};
