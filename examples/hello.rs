//! An agent that counts: tell it, ask it, shut down. From a plain tokio `main`.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, Cx, Handlers, Message, SyncHandler, System};

/// Adds to the count. Nothing comes back. `local`: it never leaves this process, so it needs no JSON.
#[derive(Message)]
#[message(local)]
struct Add(u64);

/// What the count is.
#[derive(Message)]
#[message(reply = u64, local)]
struct Count;

#[derive(Default)]
struct Counter {
    count: u64,
}

impl Agent for Counter {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Add>().sync::<Count>();
    }
}

impl SyncHandler<Add> for Counter {
    fn handle(&mut self, Add(n): Add, _: &mut Cx) {
        self.count += n;
    }
}

impl SyncHandler<Count> for Counter {
    fn handle(&mut self, _: Count, _: &mut Cx) -> u64 {
        self.count
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // One thread of its own for the agents; this one only sends.
    let system = System::start(1)?;
    let counter = system.spawn_with(Counter::default);

    // A tell waits for room in the mailbox, not for the handler. From one sender, messages arrive in order.
    for n in 1..=10 {
        counter.tell(Add(n)).await?;
    }
    // An ask waits for the reply.
    println!("1 + 2 + … + 10 = {}", counter.ask(Count).await?);

    let report = system.shutdown(Duration::from_secs(1)).await;
    println!("{} agent ended with nothing left to do", report.drained);
    Ok(())
}
