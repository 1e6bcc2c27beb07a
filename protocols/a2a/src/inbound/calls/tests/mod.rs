mod asking;
mod kit;
mod owners;
mod picking;
mod restarting;
mod sending;
mod streaming;
