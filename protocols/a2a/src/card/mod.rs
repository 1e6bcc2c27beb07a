//! Agent cards: made, served, signed, verified.

mod build;
mod catalog;
mod hybrid;
mod keys;
mod serve;
mod sign;
mod verify;
