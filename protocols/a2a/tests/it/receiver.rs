//! A receiver of push notifications, and a scripted name service.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::kit::soon;

/// Maximum number of unread posts of a test.
const POSTS_MAX: usize = 1_024;

/// A received post.
#[derive(Debug)]
pub struct Post {
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Post {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| &**value)
    }

    /// Returns the number of the task's event in a body of 1.0.
    pub fn event(&self) -> u64 {
        let told = self
            .body
            .as_object()
            .and_then(|body| body.values().next())
            .unwrap();
        told["metadata"]["callboard/event"]
            .as_u64()
            .unwrap_or_else(|| panic!("{}", self.body))
    }
}

/// Receiver that answers posts one after the other. The last answer is repeated.
pub struct Receiver {
    pub address: SocketAddr,
    posts: mpsc::Receiver<Post>,
    connections: Arc<AtomicUsize>,
}

impl Receiver {
    /// Starts a receiver. An answer is a status, with headers after it if necessary: `503 Busy\r
    /// Retry-After: 1`.
    pub async fn start(ip: &str, answers: &[&str]) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let (sender, posts) = mpsc::channel(POSTS_MAX);
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            posts,
            connections: Arc::new(AtomicUsize::new(0)),
        };
        let answers: VecDeque<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let (answers, connections) = (Arc::new(Mutex::new(answers)), receiver.connections.clone());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(connection, sender.clone(), answers.clone()));
            }
        });
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub async fn post(&mut self) -> Post {
        soon(self.posts.recv()).await.unwrap()
    }

    /// Returns the number of unread posts.
    pub fn waiting(&self) -> usize {
        self.posts.len()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn answer(
    mut connection: TcpStream,
    posts: mpsc::Sender<Post>,
    answers: Arc<Mutex<VecDeque<String>>>,
) {
    let mut read = Vec::new();
    loop {
        if let Some((post, bytes)) = whole(&read) {
            read.drain(..bytes);
            let answer = {
                let mut answers = answers.lock().unwrap();
                if answers.len() > 1 {
                    answers.pop_front().unwrap()
                } else {
                    answers[0].clone()
                }
            };
            let _ = posts.try_send(post);
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
            if connection.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        match connection.read_buf(&mut read).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Parses a complete request and returns it with its length in bytes.
fn whole(read: &[u8]) -> Option<(Post, usize)> {
    let head_ends = read.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&read[..head_ends]).unwrap();
    let fields = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "));
    let headers: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or("0", |(_, value)| value);
    let ends = head_ends + length.parse::<usize>().unwrap();
    let body = read.get(head_ends..ends)?;
    Some((
        Post {
            headers,
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        },
        ends,
    ))
}

/// Name service that returns each answer once and repeats the last one. `None` means no answer.
pub struct Answers(Mutex<VecDeque<Option<&'static str>>>);

impl Answers {
    pub fn new(answers: &[Option<&'static str>]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(answers.iter().copied().collect())))
    }
}

impl Resolve for Answers {
    fn resolve(&self, _: Name) -> Resolving {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop_front().unwrap()
        } else {
            answers[0]
        };
        Box::pin(async move {
            let addresses = answer
                .ok_or_else(|| std::io::Error::other("no answer"))?
                .split(' ');
            let addresses: Vec<_> = addresses
                .map(|ip| SocketAddr::new(ip.parse().unwrap(), 0))
                .collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
