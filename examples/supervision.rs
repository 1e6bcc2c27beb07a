//! Supervision: a handler panics, its ask fails, a new agent takes over; queued messages are kept.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, Context, Handlers, Message, SyncHandler, System};

/// Adds a line to the list.
#[derive(Message)]
#[message(local)]
struct Write(&'static str);

/// Returns the list.
#[derive(Message)]
#[message(reply = Vec<&'static str>, local)]
struct Read;

#[derive(Default)]
struct ShoppingList {
    lines: Vec<&'static str>,
}

impl Agent for ShoppingList {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Write>().sync::<Read>();
    }
}

impl SyncHandler<Write> for ShoppingList {
    fn handle(&mut self, Write(line): Write, _: &mut Context) {
        assert!(!line.is_empty(), "an empty line: a bug of this agent's, on purpose");
        self.lines.push(line);
    }
}

impl SyncHandler<Read> for ShoppingList {
    fn handle(&mut self, _: Read, _: &mut Context) -> Vec<&'static str> {
        self.lines.clone()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let system = System::start(1)?;
    // The factory makes the first agent and each replacement.
    let list = system.prepare_with(ShoppingList::default).label("shopping list").spawn();
    list.tell(Write("milk")).await?;
    println!("before: {:?}", list.ask(Read).await?);

    // Sent together: the first panics while the others wait in the mailbox.
    let (broken, bread, eggs) = tokio::join!(list.ask(Write("")), list.tell(Write("bread")), list.tell(Write("eggs")));
    println!("the ask that panicked: {broken:?}");
    bread?;
    eggs?;
    println!("after:  {:?}  (milk was the state of the one that panicked)", list.ask(Read).await?);
    println!("{}", serde_json::to_string_pretty(&list.snapshot())?);
    system.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
