//! Lists that many pages read from the store again after each change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which a list counts as current.
const LIST_TIME: Duration = Duration::from_secs(1);

/// List that is read at most once in [`LIST_TIME`], by one request at a time; the others wait for it.
pub(super) struct CachedList<T>(Mutex<Option<(Instant, Arc<Vec<T>>)>>);

impl<T> Default for CachedList<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> CachedList<T> {
    /// Returns the list; if it isn't current, as `read` returns it.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) async fn get<E>(
        &self,
        read: impl Future<Output = Result<Vec<T>, E>>,
    ) -> Result<Arc<Vec<T>>, E> {
        // Meant to be held while the list is read: one request reads it for all.
        let mut kept = self.0.lock().await;
        if let Some((at, list)) = &*kept
            && at.elapsed() < LIST_TIME
        {
            return Ok(list.clone());
        }
        let list = Arc::new(read.await?);
        *kept = Some((Instant::now(), list.clone()));
        Ok(list)
    }

    /// Forgets the list, so that the next request reads it again.
    pub(super) async fn clear(&self) {
        *self.0.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    /// Goal: a list is read once for all requests of a second, and again after a change of the reader's own or a failure.
    /// Method: paused time; readers at once, after the time, after it was cleared.
    #[tokio::test(start_paused = true)]
    async fn one_reads_for_all() {
        let (list, reads) = (CachedList::default(), AtomicUsize::new(0));
        let read = async || {
            let reading = async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(vec![reads.fetch_add(1, Ordering::Relaxed)])
            };
            list.get(reading).await.unwrap()[0]
        };
        assert_eq!(join_all((0..10).map(|_| read())).await, [0; 10]);
        tokio::time::advance(LIST_TIME).await;
        assert_eq!(read().await, 1);
        list.clear().await;
        assert_eq!(read().await, 2);
        list.clear().await;
        assert_eq!(list.get(async { Err(()) }).await, Err(()));
        assert_eq!(read().await, 3);
    }
}
