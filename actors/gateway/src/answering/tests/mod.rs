//! Who answers, and what it may cost.

mod caps;
mod grants;
mod kit;
mod models;
mod routes;
