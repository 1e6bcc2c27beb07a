//! The future of a concurrent handler borrows the agent.

use callboard_macros::Message;
use callboard_runtime::{Agent, ConcurrentHandler, Context, Handlers};

#[derive(Message)]
#[message(reply = u64, local)]
struct Add(u64);

struct Counter(u64);

impl Agent for Counter {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Add>(4);
    }
}

impl ConcurrentHandler<Add> for Counter {
    fn handle(&mut self, Add(by): Add, _: Context) -> impl Future<Output = u64> + Send + 'static {
        async move {
            self.0 += by;
            self.0
        }
    }
}

fn main() {}
