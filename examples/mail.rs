//! Two agents that exchange mail through a mailroom: one gets it delivered, the other fetches it.

use std::error::Error;
use std::time::Duration;

use callboard::agents::mailroom::{Mailroom, MailroomOptions, MemberDeclaration};
use callboard::message::mail::DeliverMessage;
use callboard::{Agent, Context, Failure, Handlers, SyncHandler, System};
use tokio::sync::mpsc;

/// Agent with delivered mail. A message counts as delivered when the handler replies.
struct Builder {
    told: mpsc::Sender<DeliverMessage>,
}

impl Agent for Builder {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DeliverMessage>();
    }
}

impl SyncHandler<DeliverMessage> for Builder {
    fn handle(&mut self, letter: DeliverMessage, _: &mut Context) -> Result<(), Failure> {
        self.told.try_send(letter).map_err(|_| Failure::unavailable("nobody takes it"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let system = System::start(1)?;
    let (told, mut mail) = mpsc::channel(8);
    let builder = system.spawn(Builder { told });
    system.directory().register("builder-agent", &builder)?;

    // A node's store would keep the mail; here it is in memory.
    let members =
        vec![MemberDeclaration::new("builder").with_delivery_agent("builder-agent"), MemberDeclaration::new("planner")];
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
