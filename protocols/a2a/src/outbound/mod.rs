//! The client: a remote A2A agent that looks like any other.

mod agent;
mod auth;
mod choose;
mod connection;
mod conversation;
mod errand;
mod jsonrpc;
mod lenient;
mod options;
mod poll;
mod push;
mod resolve;
mod rest;
mod stream;
mod tools;
