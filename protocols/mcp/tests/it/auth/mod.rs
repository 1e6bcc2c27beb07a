//! Tests against a scripted authorization server, over loopback HTTP.

mod consent;
mod flow;
mod hostile;
mod site;
