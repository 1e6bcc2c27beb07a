//! Process of our server for one run of the suite.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::command::{Outcome, end, program};

/// Timeout until the server listens.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between two attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Running server process; killed on drop.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts the server on a free port, its output in a file, and waits until it listens.
    pub fn start(binary: &Path, log: &Path) -> Outcome<Self> {
        let port = free_port()?;
        let output =
            File::create(log).map_err(|e| format!("{} can't be written: {e}", log.display()))?;
        let errors = output
            .try_clone()
            .map_err(|e| format!("{} can't be written: {e}", log.display()))?;
        let mut command = program(&binary.to_string_lossy(), &[]);
        command
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let child = command
            .spawn()
            .map_err(|e| format!("{} can't be started: {e}", binary.display()))?;
        let mut server = Self { child, port };
        server.listens(log.to_owned())?;
        Ok(server)
    }

    /// Returns the server's URL. The suite needs a name or address of this machine.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn listens(&mut self, log: PathBuf) -> Outcome {
        let began = Instant::now();
        while began.elapsed() < START_TIME_MAX {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "the server ended with {status}; see {}",
                    log.display()
                ));
            }
            std::thread::park_timeout(TRY_EVERY);
        }
        Err(format!(
            "the server didn't listen within {START_TIME_MAX:?}; see {}",
            log.display()
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Returns a TCP port that was free when it was asked for.
fn free_port() -> Outcome<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|e| format!("no port is free: {e}"))
}
