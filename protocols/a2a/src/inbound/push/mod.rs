//! Push notifications.

mod config;
mod desk;
mod inbox;
mod sender;
