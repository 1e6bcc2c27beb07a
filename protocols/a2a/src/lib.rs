//! A2A: server and client over callboard calls, versions 1.0, 0.3 and 0.1 side by side.
//!
//! Inside there is one model, [`wire`]: that of 1.0. What older versions say otherwise is known to [`Dialect`] only.

pub mod card;
mod convert;
mod dialect;
mod error;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod inbound;
pub mod limits;
pub mod outbound;
pub mod wire;

pub use dialect::{Dialect, EventWriter, Operation};
pub use error::{A2aError, ErrorKind};
