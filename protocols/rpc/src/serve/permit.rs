use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of a bounded number, until it is dropped.
pub struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// `None` where there are `max` already.
    pub fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(count.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
