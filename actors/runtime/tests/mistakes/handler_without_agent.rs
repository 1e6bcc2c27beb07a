//! A handler of a type that isn't an agent.

use callboard_macros::Message;
use callboard_runtime::{Context, SyncHandler};

#[derive(Message)]
#[message(reply = u64, local)]
struct Add(u64);

struct Counter(u64);

impl SyncHandler<Add> for Counter {
    fn handle(&mut self, Add(by): Add, _: &mut Context) -> u64 {
        self.0 += by;
        self.0
    }
}

fn main() {}
