//! What the writer asks of the audit chain: its entries are written in the transaction that they tell of.

use callboard_runtime::AuditEntry;
use futures::future::BoxFuture;

use crate::sql::Db;

/// This writer's chain. Its head is cached from one transaction to the next, and read anew after one that failed.
pub(crate) trait Chained: Send + Sync {
    /// The number of the chain's last entry, 0 where it has none. Called at the start of each transaction.
    fn head<'a>(&'a mut self, db: &'a mut Db) -> BoxFuture<'a, Result<u64, sqlx::Error>>;

    /// Writes all entries that a transaction collected, just before its commit; also called without any, for a checkpoint
    /// may be due. `sign`: one is wanted now, where there is something new.
    fn write<'a>(
        &'a mut self,
        db: &'a mut Db,
        entries: Vec<AuditEntry>,
        now_ms: i64,
        sign: bool,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;

    /// What the last [`Self::write`] wrote is in the store: the place for the anchor's line.
    fn committed(&mut self) -> BoxFuture<'_, ()>;

    /// It is not, or nobody knows: forget the head.
    fn undone(&mut self);
}
