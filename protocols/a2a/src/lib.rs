//! A2A (Agent2Agent) server and client for callboard agents: protocol versions 1.0, 0.3 and 0.1
//! side by side.
//!
//! All code works on one model, the types of version 1.0 in [`wire`]. Only [`Dialect`] knows the
//! differences of older versions.

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
