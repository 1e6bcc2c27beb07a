//! The one lock of the kernel.

pub(crate) use parking_lot::{Mutex, MutexGuard};
