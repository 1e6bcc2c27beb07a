//! A counting agent: tell, ask and shutdown from a plain tokio `main`.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};

/// Adds to the count, without a reply. `local`: the message never leaves this process, so it needs
/// no JSON.
#[derive(Message)]
#[message(local)]
struct Add(u64);

/// Returns the count.
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
    fn handle(&mut self, Add(n): Add, _: &mut Context) {
        self.count += n;
    }
}

impl SyncHandler<Count> for Counter {
    fn handle(&mut self, _: Count, _: &mut Context) -> u64 {
        self.count
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The agents get a thread of their own; this one only sends.
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
