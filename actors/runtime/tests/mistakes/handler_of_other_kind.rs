//! An exclusive handler is registered as a synchronous one.

use callboard_macros::Message;
use callboard_runtime::{Agent, Context, Handler, Handlers};

#[derive(Message)]
#[message(reply = u64, local)]
struct Add(u64);

struct Counter(u64);

impl Agent for Counter {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>();
    }
}

impl Handler<Add> for Counter {
    async fn handle(&mut self, Add(by): Add, _: &mut Context) -> u64 {
        self.0 += by;
        self.0
    }
}

fn main() {}
