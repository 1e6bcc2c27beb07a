//! Shared parts of server benches: rounds of calls, resource use of a process, a persistent HTTP
//! connection.

use std::fs;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout until a process listens.
const START_MAX: Duration = Duration::from_secs(20);
/// Unit of CPU time in `/proc`: 1/100 s on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The words of the command line, without cargo's own.
pub fn words() -> impl Iterator<Item = String> {
    std::env::args().filter(|word| word != "--bench")
}

/// Exit code of a bench: `Ok(true)` is short of the mark.
pub fn ended(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Maker of calls, one at a time.
pub trait Caller {
    /// One call, its answer looked at, and how long it took from the first byte out to the last byte in.
    fn call(&mut self) -> impl Future<Output = Result<Duration, String>>;
}

/// So many calls, shared out among the callers, which all call at once; how long each took.
pub async fn calls(callers: &mut [impl Caller], calls: u64) -> Result<Vec<Duration>, String> {
    let each = calls / callers.len() as u64;
    let all = callers.iter_mut().map(|caller| async move {
        let mut took = Vec::with_capacity(each as usize);
        for _ in 0..each {
            took.push(caller.call().await?);
        }
        Ok::<_, String>(took)
    });
    Ok(futures::future::try_join_all(all).await?.concat())
}

/// Results of one round.
#[derive(Clone, Copy)]
pub struct Measured {
    /// Over all connections.
    pub calls_a_second: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
    /// Of the server's process.
    pub cpu_us_a_call: f64,
}

impl Measured {
    /// Calls to warm up, then those that count, and what the server's process used meanwhile.
    pub async fn round(
        callers: &mut [impl Caller],
        warm_up: u64,
        total: u64,
        server: u32,
    ) -> Result<Self, String> {
        calls(callers, warm_up).await?;
        let (cpu, began) = (cpu_time(server)?, Instant::now());
        let mut took = calls(callers, total).await?;
        let (cpu, wall) = (cpu_time(server)? - cpu, began.elapsed());
        took.sort_unstable();
        let done = took.len();
        Ok(Self {
            calls_a_second: done as f64 / wall.as_secs_f64(),
            p50: took[done / 2],
            p99: took[done * 99 / 100],
            cpu_us_a_call: cpu.as_secs_f64() * 1e6 / done as f64,
        })
    }

    /// The median of each number; `None` of no rounds.
    pub fn median(rounds: &[Self]) -> Option<Self> {
        Some(Self {
            calls_a_second: middle(rounds.iter().map(|m| m.calls_a_second), f64::total_cmp)?,
            p50: middle(rounds.iter().map(|m| m.p50), Duration::cmp)?,
            p99: middle(rounds.iter().map(|m| m.p99), Duration::cmp)?,
            cpu_us_a_call: middle(rounds.iter().map(|m| m.cpu_us_a_call), f64::total_cmp)?,
        })
    }

    /// As a cell of a table.
    pub fn in_words(&self) -> String {
        let (p50, p99) = (self.p50.as_micros(), self.p99.as_micros());
        format!(
            "{:.0}; {p50}, {p99}; {:.1}",
            self.calls_a_second, self.cpu_us_a_call
        )
    }
}

/// The median.
pub fn middle<T: Copy>(
    values: impl Iterator<Item = T>,
    order: fn(&T, &T) -> std::cmp::Ordering,
) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(order);
    values.get(values.len() / 2).copied()
}

/// The CPU time that a process has used so far, of all its threads.
pub fn cpu_time(process: u32) -> Result<Duration, String> {
    let stat = read(process, "stat")?;
    // The program's name, in brackets, may have spaces in it.
    let fields = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref()?.get(at)?.parse::<u32>().ok();
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok(TICK * (user + system)),
        _ => Err(format!("no CPU time in {stat:?}")),
    }
}

/// Returns the resident memory of a process, in bytes.
pub fn resident(process: u32) -> Result<u64, String> {
    let status = read(process, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| "no VmRSS".to_owned())
}

fn read(process: u32, file: &str) -> Result<String, String> {
    let path = format!("/proc/{process}/{file}");
    fs::read_to_string(&path).map_err(|e| format!("{path} can't be read: {e}"))
}

/// A child process that is ended when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Result<Self, String> {
        command
            .spawn()
            .map(Self)
            .map_err(|e| format!("{:?} can't be started: {e}", command.get_program()))
    }

    /// Waits until something listens.
    #[expect(
        clippy::disallowed_methods,
        reason = "a bounded wait for another's socket, outside what is measured"
    )]
    pub fn listens(self, at: SocketAddr) -> Result<Self, String> {
        let began = Instant::now();
        while StdStream::connect(at).is_err() {
            if began.elapsed() > START_MAX {
                return Err(format!("nothing listens at {at}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A kept HTTP/1.1 connection with one request at a time.
pub struct Http {
    stream: TcpStream,
    address: SocketAddr,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Http {
    pub async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|e| format!("can't connect: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Self {
            stream,
            address,
            sent: Vec::with_capacity(2048),
            received: Vec::with_capacity(8192),
        })
    }

    /// Prepares a request.
    pub fn post(&mut self, path: &str, headers: &str, body: &str) {
        let (address, length) = (self.address, body.len());
        self.sent.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
        );
        self.sent.extend_from_slice(head.as_bytes());
        self.sent.extend_from_slice(body.as_bytes());
    }

    /// Sends what is prepared and reads the answer: its head, its body.
    pub async fn exchange(&mut self) -> Result<(&str, &str), String> {
        self.stream
            .write_all(&self.sent)
            .await
            .map_err(|e| format!("can't send: {e}"))?;
        let (head, end) = self.answer().await?;
        let answer = std::str::from_utf8(&self.received[..end]).map_err(|e| e.to_string())?;
        match answer.starts_with("HTTP/1.1 20") {
            true => Ok(answer.split_at(head)),
            false => Err(format!("refused: {answer}")),
        }
    }

    /// Reads an answer. Returns the ends of its head and of its body.
    async fn answer(&mut self) -> Result<(usize, usize), String> {
        let Self {
            stream, received, ..
        } = self;
        received.clear();
        loop {
            let read = stream
                .read_buf(received)
                .await
                .map_err(|e| format!("can't receive: {e}"))?;
            if read == 0 {
                return Err(format!(
                    "closed after {}",
                    String::from_utf8_lossy(received)
                ));
            }
            let Some(head) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let head = head + 4;
            let text = std::str::from_utf8(&received[..head]).map_err(|e| e.to_string())?;
            let end = match header(text, "content-length").map(str::parse::<usize>) {
                Some(Ok(length)) => Some(head + length),
                Some(Err(e)) => return Err(e.to_string()),
                None if header(text, "transfer-encoding").is_some() => {
                    received.ends_with(b"0\r\n\r\n").then_some(received.len())
                }
                None => Some(head),
            };
            if let Some(end) = end.filter(|end| *end <= received.len()) {
                return Ok((head, end));
            }
        }
    }
}

/// A header of an answer's head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head
        .split("\r\n")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let found = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}
