//! A `System` inside a plain tokio service: two threads for agents, asked from many tasks.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, ConcurrentHandler, Context, Handlers, Message, System};

/// Looks up a price in cents.
#[derive(Message)]
#[message(reply = u32, local)]
struct Price {
    article: u32,
}

/// Stand-in for something slow: a database, a model, a remote server.
struct Shop {
    delivery: u32,
}

impl Agent for Shop {
    fn handlers(on: &mut Handlers<Self>) {
        // Up to eight lookups run concurrently; the ninth waits in the mailbox.
        on.concurrent::<Price>(8);
    }
}

impl ConcurrentHandler<Price> for Shop {
    fn handle(&mut self, Price { article }: Price, _: Context) -> impl Future<Output = u32> + Send + 'static {
        // The state is accessible only when the handler starts; the future takes a copy along.
        let delivery = self.delivery;
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            article * 100 + delivery
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::start(2)?;
    let shop = system.spawn(Shop { delivery: 99 });

    let began = std::time::Instant::now();
    let asking = (1..=16).map(|article| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.ask(Price { article }).within(Duration::from_secs(5)).await })
    });
    let mut sum = 0;
    for price in asking.collect::<Vec<_>>() {
        sum += price.await??;
    }
    println!("16 articles cost {sum} cents; asked at once, they took {} ms", began.elapsed().as_millis());

    println!("{:?}", system.shutdown(Duration::from_secs(1)).await);
    Ok(())
}
