//! Tests of routing and caps.

mod caps;
mod grants;
mod kit;
mod models;
mod routes;
