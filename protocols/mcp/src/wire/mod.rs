//! Names, revisions and codes of MCP that both sides of the protocol share. Source: the specification's schemas.

pub use self::revision::{Era, Revision};

pub mod code;
pub(crate) mod failure;
pub mod header;
pub(crate) mod hmcp;
pub mod meta;
mod revision;
