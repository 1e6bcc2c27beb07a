//! A tell that isn't awaited sends nothing.
#![deny(unused_must_use)]

use callboard_macros::Message;
use callboard_runtime::AgentRef;

#[derive(Message)]
#[message(reply = u64, local)]
struct Add(u64);

async fn add(counter: &AgentRef) {
    counter.tell(Add(1));
}

fn main() {}
