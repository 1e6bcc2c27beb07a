//! Lock used throughout the runtime.

pub(crate) use parking_lot::{Mutex, MutexGuard};
