//! Two agents that write to each other through a mailroom: one is told at once, the other looks when it likes.

use std::error::Error;
use std::time::Duration;

use callboard::agents::mailroom::{Declared, Mailroom, MailroomOptions};
use callboard::message::mail::Deliver;
use callboard::{Agent, Cx, Failure, Handlers, SyncHandler, System};
use tokio::sync::mpsc;

/// Has its mail handed to it. It is delivered once this replies.
struct Builder {
    told: mpsc::Sender<Deliver>,
}

impl Agent for Builder {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Deliver>();
    }
}

impl SyncHandler<Deliver> for Builder {
    fn handle(&mut self, letter: Deliver, _: &mut Cx) -> Result<(), Failure> {
        self.told.try_send(letter).map_err(|_| Failure::unavailable("nobody takes it"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::start(1)?;
    let (told, mut mail) = mpsc::channel(8);
    let builder = system.spawn(Builder { told });
    system.directory().register("builder-agent", &builder)?;

    // In a node's store mail outlives the process; here it is in memory.
    let members = vec![Declared::new("builder").with_way("builder-agent"), Declared::new("planner")];
    let mailroom = Mailroom::open(&system, MailroomOptions { members, ..MailroomOptions::default() }).await?;
    let agent = system.spawn(mailroom.clone());

    let planner = mailroom.mailbox(&agent, "planner")?;
    let sent = planner.send("builder", "Is the build green?").await?;
    println!("{}", sent.message);

    let letter = mail.recv().await.ok_or("no mail")?;
    println!("builder reads: {}", letter.text);
    mailroom.mailbox(&agent, "builder")?.reply(&letter.message_id, "It is.").await?;

    for message in planner.check().await?.messages {
        println!("planner reads: {}", message.text);
    }
    system.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
