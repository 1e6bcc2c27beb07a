//! What differs between versions and bindings, so that nobody else needs to know.
//!
//! A server reads requests and writes responses, a client the other way round; each of these is a method here, named after
//! what is read or written.

mod hybrid;
mod method;
mod request;
mod response;

pub use method::Operation;
pub use response::EventWriter;

/// In which words a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// 1.0, whatever the binding.
    V10,
    /// 0.3 over JSON-RPC.
    V03,
    /// 0.3 over HTTP+JSON: the ProtoJSON of its schema.
    V03Rest,
    /// 0.1 over JSON-RPC, with `tasks/send`.
    V01,
}
