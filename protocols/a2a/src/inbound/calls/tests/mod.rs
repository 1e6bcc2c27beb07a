mod asking;
mod at_once;
mod kit;
mod owners;
mod picking;
mod restarting;
mod sending;
mod streaming;
