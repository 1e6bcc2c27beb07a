mod commands;
mod kit;
mod plans;
mod recovery;
mod requests;
mod resume;
