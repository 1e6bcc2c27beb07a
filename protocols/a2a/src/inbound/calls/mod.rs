//! Messages become calls, calls are seen as tasks.

mod begin;
mod caller;
mod follow_up;
mod history;
mod live;
mod owner;
mod pick;
mod recover;
mod skills;
mod stream;
mod view;
mod wait;
