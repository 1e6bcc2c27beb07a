//! A plain tokio service hosts a `System` on two threads of its own and asks its agents from many tasks.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, ConcurrentHandler, Cx, Handlers, Message, System};

/// Looks a price up, in cents.
#[derive(Message)]
#[message(reply = u32, local)]
struct Price {
    article: u32,
}

/// Stands for something slow: a database, a model, a server far away.
struct Shop {
    delivery: u32,
}

impl Agent for Shop {
    fn handlers(on: &mut Handlers<Self>) {
        // Up to eight are looked up at once; the ninth waits in the mailbox.
        on.concurrent::<Price>(8);
    }
}

impl ConcurrentHandler<Price> for Shop {
    fn handle(&mut self, Price { article }: Price, _: Cx) -> impl Future<Output = u32> + Send + 'static {
        // The state is at hand when a message begins; what the future needs of it goes along.
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
