//! The gRPC binding.

mod convert;
mod service;
