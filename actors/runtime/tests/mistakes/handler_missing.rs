//! A message is registered without a handler.

use callboard_macros::Message;
use callboard_runtime::{Agent, Handlers};

#[derive(Message)]
#[message(reply = u64, local)]
struct Add(u64);

struct Counter(u64);

impl Agent for Counter {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>();
    }
}

fn main() {}
