//! `callboard msg watch`.

use callboard_mail::client::Heard;

use super::{DONE, MailArguments, MailFailure, words};
use crate::cli::{interrupted, show};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WatchArguments {
    /// Begin with what happened after this number; 0 is all that is kept. Without it, from now on.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Of these types only, for example message_read. With commas between.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    #[command(flatten)]
    mail: MailArguments,
}

pub(super) async fn run(arguments: &WatchArguments) -> Result<u8, MailFailure> {
    let types: Vec<&str> = arguments.types.iter().map(String::as_str).collect();
    let mut events = arguments.mail.client()?.events(arguments.after, &types);
    let ends = interrupted();
    tokio::pin!(ends);
    // Nobody is there: that is told at once, and not tried for ever.
    tokio::select! {
        ready = events.ready() => ready?,
        () = &mut ends => return DONE,
    }
    loop {
        let heard = tokio::select! {
            heard = events.next() => heard?,
            () = &mut ends => return DONE,
        };
        match heard {
            Heard::Event(event) if arguments.mail.json => show::line(&words::as_json(&event)?)?,
            Heard::Event(event) => show::line(&words::event(&event))?,
            Heard::Broken(why) => tracing::warn!(%why, "the connection broke, and is made anew"),
            _ => {}
        }
    }
}
