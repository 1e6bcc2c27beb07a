//! A webhook: keeps what it was told.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Outcome;

/// Pushes that wait to be looked at.
const PUSHES_MAX: usize = 16;
/// Longest that a push is waited for.
const SOON: Duration = Duration::from_secs(30);

/// Receiver of push notifications.
pub struct Hook {
    /// URL of the receiver.
    pub url: String,
    told: mpsc::Receiver<(String, Value)>,
}

type Told = mpsc::Sender<(String, Value)>;

impl Hook {
    /// Listens at a free port.
    pub async fn open() -> Outcome<Self> {
        let (tell, told) = mpsc::channel(PUSHES_MAX);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let router = Router::new().route("/hook", post(receive)).with_state(tell);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, told })
    }

    /// Waits until a push says that a task is completed: the `Authorization` that it came with.
    pub async fn completed(&mut self) -> Outcome<String> {
        loop {
            let told = timeout(SOON, self.told.recv())
                .await
                .map_err(|_| "no push said that it is completed")?;
            let (authorization, body) = told.ok_or("the hook is closed")?;
            let task = body.get("task").or_else(|| body.get("statusUpdate"));
            if task.is_some_and(|task| task["status"]["state"] == "TASK_STATE_COMPLETED") {
                return Ok(authorization);
            }
        }
    }
}

async fn receive(State(tell): State<Told>, headers: HeaderMap, body: Bytes) {
    let authorization = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    // The round may be over.
    let _ = tell.try_send((authorization.to_owned(), body));
}
