//! A process that is killed in mid-call. It is this binary again: a test that others start by its name, which serves a
//! [`Worker`] until its end.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use callboard::message::{Artifact, Content};
use callboard::rpc::{AccessControl, KeyStore, ReloadingKeyStore};
use callboard::store::{SqlStore, StoreOptions};
use callboard::{Agent, AgentRef, ConcurrentHandler, Context, Handlers, Message, System};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{Home, soon};

/// Variable with the child's folder, and whether its work ends: `FOLDER` or `FOLDER ends`.
const CHILD: &str = "CALLBOARD_IT_CHILD";

/// May be done twice.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "required", idempotent)]
struct Repeat {}

/// May not.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "required")]
struct Once {}

/// Worker that makes the artifact `draft` (`so far`) and at the end `done`.
struct Worker {
    ends: bool,
}

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Repeat>(8).concurrent::<Once>(8);
    }
}

impl Worker {
    fn work(&self, cx: Context) -> impl Future<Output = String> + Send + 'static {
        let ends = self.ends;
        async move {
            cx.artifact(Artifact::new("draft", [Content::text("so far")]));
            if !ends {
                cx.cancelled().await;
            }
            "done".to_owned()
        }
    }
}

impl ConcurrentHandler<Repeat> for Worker {
    fn handle(&mut self, _: Repeat, cx: Context) -> impl Future<Output = String> + Send + 'static {
        self.work(cx)
    }
}

impl ConcurrentHandler<Once> for Worker {
    fn handle(&mut self, _: Once, cx: Context) -> impl Future<Output = String> + Send + 'static {
        self.work(cx)
    }
}

/// System, worker and stores of the child.
pub struct Workplace {
    pub system: System,
    pub worker: AgentRef,
    pub access: AccessControl,
    pub listener: TcpListener,
    pub address: SocketAddr,
}

impl Workplace {
    /// None where nobody started this as a child: whoever runs all ignored tests runs such a test too.
    pub async fn of_child() -> Option<Self> {
        let told = std::env::var(CHILD).ok()?;
        let (folder, ends) = told
            .split_once(' ')
            .map_or((told.as_str(), false), |(folder, _)| (folder, true));
        let folder = Path::new(folder);
        let sql = SqlStore::open(&StoreOptions::sqlite(folder.join("store.sqlite")))
            .await
            .unwrap();
        let system = System::start(1).unwrap();
        system.set_store(sql.store()).unwrap();
        let worker = system.spawn(Worker { ends });
        let access =
            AccessControl::with_keys(ReloadingKeyStore::open(folder.join("keys")).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Some(Self {
            system,
            worker,
            access,
            listener,
            address,
        })
    }
}

/// Says where the child serves, and does so until it is killed.
pub async fn served(address: SocketAddr, server: impl Future<Output = std::io::Result<()>>) {
    println!("\nserves {address}");
    server.await.unwrap();
}

/// The keys of two who ask a child.
pub fn two_keys(home: &Home) -> [SecretString; 2] {
    fs::create_dir_all(home.path("tasks")).unwrap();
    let mut keys = KeyStore::load_or_new(home.path("tasks").join("keys")).unwrap();
    ["ann", "bob"].map(|name| keys.add(name, Vec::new()).unwrap())
}

/// A child, killed at the end.
pub struct Killable {
    process: Child,
    _out: Lines<BufReader<ChildStdout>>,
    pub address: String,
}

impl Killable {
    /// `test` is the child's whole name.
    pub async fn start(home: &Home, test: &str, ends: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--ignored", "--nocapture"])
            .kill_on_drop(true);
        let folder = home.path("tasks").display().to_string();
        command.env(
            CHILD,
            if ends {
                format!("{folder} ends")
            } else {
                folder
            },
        );
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = soon("the child", out.next_line())
                .await
                .unwrap()
                .expect("the child ended");
            if let Some(address) = line.strip_prefix("serves ") {
                break address.to_owned();
            }
        };
        Self {
            process,
            _out: out,
            address,
        }
    }

    /// With SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) {
        self.process.start_kill().unwrap();
        self.process.wait().await.unwrap();
    }
}
