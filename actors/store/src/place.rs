//! What the writer needs to know of either database.

use async_trait::async_trait;
use callboard_runtime::JournalError;

use crate::sql::Db;

/// An open store's database: it gives connections, and begins transactions.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    fn writer(&self) -> &str;

    fn size_max(&self) -> u64;

    /// From now on, transactions of another epoch of this writer are refused; SQLite's lock sees to that.
    fn is_epoch(&self, _epoch: i64) {}

    /// Begins a transaction that may write; `false` where another process has taken over.
    async fn begin(&self, db: &mut Db) -> Result<bool, sqlx::Error>;

    /// A new connection that writes, after the old one was lost.
    async fn reopen(&self) -> Result<Db, JournalError>;

    /// Closes the connection that writes, where there is one, and lets others have the store.
    async fn close(&self, db: Option<Db>) -> Result<(), sqlx::Error> {
        match db {
            Some(db) => db.close().await,
            None => Ok(()),
        }
    }

    /// Lets a write that makes room go past the limit by a little.
    async fn open_reserve(&self, _: &mut Db) -> Result<(), sqlx::Error> {
        Ok(())
    }

    async fn close_reserve(&self, _: &mut Db) -> Result<(), sqlx::Error> {
        Ok(())
    }

    /// Whether nothing but what makes room may be written. SQLite tells by itself, at each page.
    fn is_too_large(&self) -> bool {
        false
    }

    /// What a connection does when nothing waits.
    async fn tidy(&self, _: &mut Db) -> Result<(), sqlx::Error> {
        Ok(())
    }

    /// Bytes of the database, without its log.
    async fn bytes(&self, db: &mut Db) -> Result<u64, sqlx::Error>;

    /// Whether a transaction of `bytes` was refused by the limit, and not by a disk that is full.
    async fn is_at_limit(&self, db: &mut Db, bytes: u64) -> Result<bool, sqlx::Error> {
        // Pages hold more than what was bound: indexes, and what is split.
        let wanted = bytes.saturating_mul(3).saturating_add(AROUND_LIMIT_BYTES);
        Ok(self.bytes(db).await?.saturating_add(wanted) >= self.size_max())
    }
}

/// So near to the limit, it is the limit that was met: after a transaction is undone the file is smaller again.
const AROUND_LIMIT_BYTES: u64 = 64 * 1024;
