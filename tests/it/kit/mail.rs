//! A node with a mailroom, and those who write to each other through it.

use std::collections::HashMap;

use callboard::mail::client::MailClient;
use callboard::message::mail::MemberId;
use callboard::rpc::KeyStore;
use reqwest::{Method, RequestBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Finished, Home, Running, ended, gateway, mcp, soon};

/// `callboard serve` with a mailroom behind a mail listener and an MCP listener; killed when this is dropped.
pub struct Office {
    pub home: Home,
    process: Option<Running>,
    file: String,
    keys: HashMap<String, SecretString>,
    /// URL of the mail listener.
    pub mail: String,
    /// URL of the MCP listener.
    pub mcp: String,
    /// URLs of the other listeners.
    pub more: Vec<String>,
}

const NODE: &str = "[node]\nname = \"office\"\n[[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\n\
    agent = \"mailroom\"\nkeys = \"keys.toml\"\n[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\n\
    bind = \"127.0.0.1:0\"\nagent = \"mailroom\"\nkeys = \"keys.toml\"\n";

impl Office {
    /// `agents`: what else is in the file, the mailroom first of all. A key for each member, with its scopes.
    pub async fn open(agents: &str, members: &[(&str, &[&str])]) -> Self {
        let home = Home::new();
        let file = home.write("office.toml", &format!("{NODE}{agents}"));
        let mut store = KeyStore::load_or_new(home.path("keys.toml")).unwrap();
        let keys = members.iter().map(|(name, scopes)| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            ((*name).to_owned(), store.add(name, scopes).unwrap())
        });
        let keys = keys.collect();
        let mut office = Self {
            home,
            process: None,
            file,
            keys,
            mail: String::new(),
            mcp: String::new(),
            more: Vec::new(),
        };
        office.start().await;
        office
    }

    /// Starts the node, with what it had before.
    pub async fn start(&mut self) {
        let (process, listening) = gateway::serve(&self.home, &[&self.file]).await;
        let mut urls = listening.into_iter().map(|(_, url)| url);
        (self.mail, self.mcp) = (urls.next().unwrap(), urls.next().unwrap());
        self.more = urls.collect();
        self.process = Some(process);
    }

    /// Kills the node (SIGKILL) and waits for its end.
    pub async fn kill(&mut self) {
        let process = self.process.take().unwrap();
        process.signal("KILL").await;
        assert_eq!(process.finished().await.code, None);
    }

    /// Ends it in order.
    pub async fn close(mut self) {
        let process = self.process.take().unwrap();
        process.signal("INT").await;
        let ended = process.finished().await;
        let rejected = "rejected a request by its credential";
        let other = ended.err.lines().filter(|line| !line.contains(rejected));
        assert_eq!((ended.code, other.collect()), (Some(0), Vec::<&str>::new()));
    }

    pub fn key(&self, id: &str) -> &SecretString {
        &self.keys[id]
    }

    /// A command as that member.
    pub fn command(&self, id: &str, arguments: &[&str]) -> Command {
        let mut command = self.home.callboard(arguments);
        command
            .env("CALLBOARD_MAIL", &self.mail)
            .env("CALLBOARD_AGENT", id);
        command.env("CALLBOARD_KEY", self.keys[id].expose_secret());
        command
    }

    /// Runs a command as that member, with something on standard input.
    pub async fn run(&self, id: &str, input: &str, arguments: &[&str]) -> Finished {
        ended(&mut self.command(id, arguments), Some(input)).await
    }

    /// Mail as that member.
    pub fn client(&self, id: &str) -> MailClient {
        MailClient::new(
            self.mail.parse().unwrap(),
            self.keys[id].clone(),
            &MemberId::parse(id).unwrap(),
        )
        .unwrap()
    }

    /// A request of mail as that member.
    pub fn request(&self, id: &str, method: Method, path: &str) -> RequestBuilder {
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.mail));
        request
            .bearer_auth(self.keys[id].expose_secret())
            .header("X-Agent-ID", id)
    }

    /// An MCP call as that member: the whole response.
    pub async fn call(&self, id: &str, tool: &str, arguments: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let request = mcp::request(&self.mcp, &json!({}), "tools/call", params);
        mcp::response(request.bearer_auth(self.keys[id].expose_secret())).await
    }
}

/// The status and the body of a response.
pub async fn answered(request: RequestBuilder) -> (u16, String) {
    let response = soon("a response", request.send()).await.unwrap();
    let status = response.status().as_u16();
    (status, soon("a body", response.text()).await.unwrap())
}
