//! HTTP+SSE (2024-11-05): one event stream in, a POST a message out.

use std::sync::Arc;

use callboard_rpc::http1::{EventStream, Place};

use super::duplex::{CLIENT_ENDED, Duplex, Engine, Outbox};
use super::http::Http;
use super::{Link, LinkError, Said, number_of, read};
use crate::outbound::ear::Ear;

/// Opens the event stream, whose first event says where to post.
pub(crate) async fn open(http: Http, ear: Arc<Ear>) -> Result<Link, LinkError> {
    let limits = http.options().limits;
    let Some(response) = http.listen(None).await? else {
        return Err(LinkError::Status(405));
    };
    let mut events = EventStream::new(response, limits.body_bytes_max, Place::default());
    let first = tokio::time::timeout(http.options().connect_timeout, events.next());
    let first = first.await.map_err(|_| LinkError::TimedOut(http.options().connect_timeout))??;
    let first = first.filter(|event| event.kind() == "endpoint");
    let endpoint = first.and_then(|event| String::from_utf8(event.data).ok());
    let endpoint = endpoint.and_then(|said| http.url().join(said.trim()).ok());
    let Some(endpoint) = endpoint else {
        return Err(LinkError::Protocol("the event stream doesn't begin with an endpoint".into()));
    };
    // Another origin would get what was meant for this one.
    if endpoint.origin() != http.url().origin() {
        return Err(LinkError::Protocol("the event stream's endpoint has another origin".into()));
    }
    let server = endpoint.host_str().unwrap_or_default().to_owned();
    let post = http.at(endpoint);
    let (link, engine, outbox) = Duplex::open(ear.clone(), limits, &server);
    tokio::spawn(speak(engine, outbox, events, post, ear));
    Ok(link)
}

async fn speak(engine: Engine, mut outbox: Outbox, mut events: EventStream, post: Http, ear: Arc<Ear>) {
    let hear = async {
        loop {
            match events.next().await {
                Ok(Some(event)) if event.kind() == "message" => engine.take(&event.data),
                Ok(Some(_)) => {}
                Ok(None) => return LinkError::Broken("the server has closed the event stream"),
                Err(error) => return error.into(),
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            let number = match read(&message, &post.options().limits) {
                Ok(Said::Event(super::Heard::Request { id, .. })) => number_of(&id),
                _ => None,
            };
            match (post.send(message).await, number) {
                (Err(error), Some(number)) => ear.flights.answer(Some(number), Err(error)),
                (Err(error), None) => callboard_message::log::warn!(%error, "the server takes no message"),
                (Ok(()), _) => {}
            }
        }
        CLIENT_ENDED
    };
    engine.run(hear, write).await;
}
