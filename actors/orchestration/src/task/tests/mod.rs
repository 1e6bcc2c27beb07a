mod combined;
mod commands;
mod frozen;
mod kit;
mod plans;
mod recovery;
mod requests;
mod resume;
