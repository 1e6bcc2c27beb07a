//! Clinics for tests: the examples as processes, and hosts that ask them.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use super::gateway::serve;
use super::mail::answered;
use super::{Finished, Home, Running, example};

/// One clinic, a process that listens.
pub struct Served {
    pub running: Running,
    pub url: String,
}

impl Served {
    /// Starts `callboard serve` with `arguments` and waits until it is ready.
    pub async fn start(home: &Home, arguments: &[&str]) -> Self {
        let (running, mut listening) = serve(home, arguments).await;
        Self {
            running,
            url: listening.remove(0).1,
        }
    }

    /// An example of `examples/clinics`, on a free port.
    pub async fn example(home: &Home, name: &str) -> Self {
        Self::start(home, &[&format!("example:{name}"), "--free-ports"]).await
    }

    /// Posts a body; status and answer.
    pub async fn post(&self, body: impl Into<reqwest::Body>) -> (u16, String) {
        answered(
            reqwest::Client::new()
                .post(&self.url)
                .header("content-type", "application/json")
                .body(body),
        )
        .await
    }

    /// Calls a tool; the whole response.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params = serde_json::json!({ "name": tool, "arguments": arguments });
        let body = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        serde_json::from_str(&self.post(body.to_string()).await.1).unwrap()
    }

    /// Ends it in order.
    pub async fn end(self) -> Finished {
        self.running.signal("TERM").await;
        self.running.finished().await
    }
}

/// A URL where nobody listens.
pub fn nobody() -> String {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    format!("http://{address}/mcp")
}

/// The text of an example host file, its clinics at these URLs (in the order of the file).
pub fn host(file: &str, urls: &[&str]) -> String {
    let mut text = fs::read_to_string(example(file)).unwrap();
    for (url, port) in urls.iter().zip(8001..) {
        let declared = format!("http://127.0.0.1:{port}/mcp");
        assert!(
            text.contains(&declared),
            "{file} has no clinic at {declared}"
        );
        text = text.replace(&declared, url);
    }
    text
}

/// Returns the identifying values of an example's patients: names, numbers, addresses, telephones.
pub fn identities(specialty: &str) -> Vec<String> {
    let seed: Value =
        serde_json::from_str(&fs::read_to_string(example(&format!("{specialty}.json"))).unwrap())
            .unwrap();
    let patients = seed["patients"].as_array().unwrap();
    let fields = ["name", "government_id", "address", "phone"];
    let texts = patients
        .iter()
        .flat_map(|patient| fields.iter().filter_map(|field| patient[field].as_str()));
    let texts: Vec<_> = texts.map(str::to_owned).collect();
    assert!(
        texts.len() > patients.len(),
        "the seed's fields are called otherwise"
    );
    texts
}
