//! An agent and its test, with paused time and a probe in another agent's place: `cargo test --example testing`.

use std::error::Error;
use std::time::Duration;

use callboard::{Agent, AgentRef, Context, Handler, Handlers, Message, System};

/// Rings after this time. The reply is whether there was a bell.
#[derive(Message)]
#[message(reply = bool, local)]
struct RingAfter(Duration);

/// Rings now.
#[derive(Message)]
#[message(local)]
struct Ring;

struct AlarmClock(AgentRef);

impl Agent for AlarmClock {
    fn handlers(on: &mut Handlers<Self>) {
        on.exclusive::<RingAfter>();
    }
}

impl Handler<RingAfter> for AlarmClock {
    async fn handle(&mut self, RingAfter(delay): RingAfter, _: &mut Context) -> bool {
        tokio::time::sleep(delay).await;
        self.0.ask(Ring).await.is_ok()
    }
}

struct Bell;

impl Agent for Bell {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent_with(1, |_: &mut Self, _: Ring, _| async { println!("the bell rings") });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::start(1)?;
    let clock = system.spawn(AlarmClock(system.spawn(Bell)));
    println!("rung: {}", clock.ask(RingAfter(Duration::from_millis(20))).await?);
    system.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[cfg(test)]
#[callboard::test]
async fn rings_in_time(system: &System) {
    let (bell, mut rings) = callboard::testkit::Probe::<Ring>::spawn(system, |_| ());
    let clock = system.spawn(AlarmClock(bell));
    let began = tokio::time::Instant::now();
    assert!(clock.ask(RingAfter(Duration::from_secs(8 * 3600))).await.unwrap());
    assert_eq!(began.elapsed().as_secs(), 8 * 3600);
    assert!(rings.try_recv().is_ok());
}
