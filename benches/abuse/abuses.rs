//! The ten abuses, and the process that commits one of them.

use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use crate::kit::Running;
use crate::misuse::{Attempt, Offender};
use crate::node::Addresses;

/// Interval at which the process prints its counts.
const COUNTS_INTERVAL: Duration = Duration::from_millis(250);
/// Time from the start of an abuse until its effect is measured.
const BUILD_UP: Duration = Duration::from_secs(2);

/// One way to misbehave: an attempt, made by several tasks at once, again and again.
pub struct Abuse {
    pub title: &'static str,
    tasks: usize,
    /// Pause after a refusal.
    pause: Duration,
    attempt: fn(Offender) -> Pin<Box<dyn Future<Output = Attempt>>>,
}

const fn abuse(
    title: &'static str,
    tasks: usize,
    pause_ms: u64,
    attempt: fn(Offender) -> Pin<Box<dyn Future<Output = Attempt>>>,
) -> Abuse {
    Abuse {
        title,
        tasks,
        pause: Duration::from_millis(pause_ms),
        attempt,
    }
}

/// All abuses. Those that hold something pause after a refusal; the others are as fast as the node lets them.
pub const ABUSES: [Abuse; 10] = [
    abuse("150 half-sent bodies", 150, 100, |by| {
        Box::pin(by.half_sent_body())
    }),
    abuse("64 connections with unread answers", 64, 100, |by| {
        Box::pin(by.unread_answers())
    }),
    abuse("unanswered questions", 16, 20, |by| {
        Box::pin(by.unanswered_question())
    }),
    abuse("a flood of calls", 64, 0, |by| Box::pin(by.small_call())),
    abuse("a flood of sessions", 16, 0, |by| Box::pin(by.session())),
    abuse("1,000 event streams", 1_000, 100, |by| {
        Box::pin(by.stream())
    }),
    abuse("24 texts of 1 MiB for the guard", 24, 0, |by| {
        Box::pin(by.huge_text())
    }),
    abuse("oversized bodies", 16, 0, |by| {
        Box::pin(by.oversized_body())
    }),
    abuse("wrong keys", 16, 0, |by| Box::pin(by.wrong_key())),
    abuse("tasks that fill the store", 8, 0, |by| {
        Box::pin(by.stored_text())
    }),
];

/// Numbers of attempts that ended.
#[derive(Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
}

/// Misbehaves until the process is ended. `words` are those of `--misbehave`.
pub async fn misbehave(words: &[String]) -> Result<bool, String> {
    let [title, mcp, a2a, mail, key] = words else {
        return Err("a title, three addresses and a key are needed".to_owned());
    };
    let abuse = ABUSES.iter().find(|abuse| abuse.title == title);
    let abuse = abuse.ok_or_else(|| format!("no abuse: {title}"))?;
    let address = |text: &String| text.parse().map_err(|_| format!("no address: {text}"));
    let at = Addresses {
        mcp: address(mcp)?,
        a2a: address(a2a)?,
        mail: address(mail)?,
    };
    let offender = Offender::new(at, key.clone())?;
    let counts = Counts::default();
    let tasks = (0..abuse.tasks).map(|_| commit(abuse, &offender, &counts));
    tokio::select! {
        _ = join_all(tasks) => Ok(false),
        // Its reader is gone.
        ended = print_counts(&counts) => ended.map(|()| false).map_err(|e| e.to_string()),
    }
}

/// Makes attempts without end.
async fn commit(abuse: &Abuse, offender: &Offender, counts: &Counts) {
    loop {
        if (abuse.attempt)(offender.clone()).await == Ok(true) {
            counts.served.fetch_add(1, Relaxed);
        } else {
            counts.refused.fetch_add(1, Relaxed);
            sleep(abuse.pause).await;
        }
    }
}

async fn print_counts(counts: &Counts) -> std::io::Result<()> {
    loop {
        sleep(COUNTS_INTERVAL).await;
        let (served, refused) = (counts.served.load(Relaxed), counts.refused.load(Relaxed));
        writeln!(std::io::stdout(), "{served} {refused}")?;
    }
}

/// Process that misbehaves, ended when this is dropped.
pub struct OffenderProcess {
    _process: Running,
    counts: Arc<Counts>,
}

impl OffenderProcess {
    /// Starts it, and waits until what it holds has built up.
    pub async fn start(abuse: &Abuse, at: Addresses, key: &str) -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(here).arg("--misbehave");
        command
            .arg(abuse.title)
            .args([at.mcp, at.a2a, at.mail].map(|address| address.to_string()))
            .arg(key)
            .stdout(Stdio::piped());
        let mut process = Running::start(&mut command)?;
        let output = process.0.stdout.take().ok_or("a process without output")?;
        let counts = Arc::new(Counts::default());
        let read = counts.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut numbers = line.split(' ').map(|number| number.parse().unwrap_or(0));
                read.served.store(numbers.next().unwrap_or(0), Relaxed);
                read.refused.store(numbers.next().unwrap_or(0), Relaxed);
            }
        });
        sleep(BUILD_UP).await;
        Ok(Self {
            _process: process,
            counts,
        })
    }

    /// Returns the numbers of attempts that were served, and refused.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.counts.served.load(Relaxed),
            self.counts.refused.load(Relaxed),
        )
    }
}
