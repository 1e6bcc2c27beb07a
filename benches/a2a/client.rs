//! The load: kept connections, each with one call at a time, and every answer read to its end and looked at.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::kit::{Caller, Http};

/// Size of each text, in bytes.
const TEXT_BYTES: usize = 1024;

/// A client: one connection.
pub struct Client {
    http: Http,
    path: &'static str,
    /// Among all clients of the run: no two calls have one text.
    number: usize,
    calls: u64,
}

/// Required members of an answer.
#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: Sent<'a>,
}

#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    task: Task<'a>,
}

#[derive(Deserialize)]
struct Task<'a> {
    #[serde(borrow)]
    status: Status<'a>,
    artifacts: [Artifact<'a>; 1],
}

#[derive(Deserialize)]
struct Status<'a> {
    state: &'a str,
}

#[derive(Deserialize)]
struct Artifact<'a> {
    #[serde(borrow)]
    parts: [Part<'a>; 1],
}

#[derive(Deserialize)]
struct Part<'a> {
    text: &'a str,
}

impl Client {
    /// Connects.
    pub async fn open(
        address: SocketAddr,
        path: &'static str,
        number: usize,
    ) -> Result<Self, String> {
        Ok(Self {
            http: Http::open(address).await?,
            path,
            number,
            calls: 0,
        })
    }
}

impl Caller for Client {
    async fn call(&mut self) -> Result<Duration, String> {
        self.calls += 1;
        let (id, number) = (self.calls, self.number);
        let text = format!("{:.<TEXT_BYTES$}", format!("call {id} of client {number} "));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"SendMessage","params":{{"message":{{"messageId":"m-{number}-{id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
        );
        self.http.post(
            self.path,
            "a2a-version: 1.0\r\naccept: application/json\r\n",
            &body,
        );
        let began = Instant::now();
        let (_, body) = self.http.exchange().await?;
        let took = began.elapsed();
        let answer: Answer<'_> =
            serde_json::from_str(body).map_err(|e| format!("no echo: {e}: {body}"))?;
        let Task {
            status,
            artifacts: [Artifact { parts: [part] }],
        } = answer.result.task;
        match answer.id == id && status.state == "TASK_STATE_COMPLETED" && part.text == text {
            true => Ok(took),
            false => Err(format!(
                "call {id} of client {number} was answered as {}: {}",
                answer.id, status.state
            )),
        }
    }
}
