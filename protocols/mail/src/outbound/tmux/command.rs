//! The program `tmux`, asked one thing at a time: arguments are a list, no shell reads them.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use callboard_message::Failure;
use futures::future::try_join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// How long one command of tmux may take.
pub const TMUX_TIMEOUT: Duration = Duration::from_secs(2);
/// Most of what a command prints that is read, in bytes.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// What tmux finds its server by; nothing else of our surroundings concerns it.
const ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "TERM", "TMUX_TMPDIR"];

/// A server of tmux.
#[derive(Debug, Clone)]
pub(super) struct Tmux {
    socket: Option<String>,
}

impl Tmux {
    /// The user's own server, or that of a socket: a path where it has a `/`, else a name beside the user's own.
    pub(super) fn new(socket: Option<String>) -> Self {
        Self { socket }
    }

    /// What a command prints. `input` is what it reads.
    ///
    /// # Errors
    /// `Unavailable`: it says no, there is no server or no tmux, or it takes longer than [`TMUX_TIMEOUT`].
    pub(super) async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, Failure> {
        match timeout(TMUX_TIMEOUT, self.to_the_end(arguments, input)).await {
            Ok(Ok(Some(output))) => Ok(output),
            Ok(Ok(None)) => Err(Failure::unavailable("tmux refuses, or has no server")),
            Ok(Err(error)) => {
                callboard_message::log::warn!(%error, "tmux can't be run");
                Err(Failure::unavailable("tmux can't be run"))
            }
            Err(_) => Err(Failure::unavailable("tmux doesn't answer")),
        }
    }

    async fn to_the_end(&self, arguments: &[&str], input: Option<&str>) -> io::Result<Option<String>> {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .spawn()?;
        let (_, output) = try_join(feed(&mut child.stdin.take(), input), read(child.stdout.take())).await?;
        let status = child.wait().await?;
        Ok(status.success().then(|| String::from_utf8_lossy(&output).into_owned()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env_clear();
        command.envs(ENVIRONMENT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        // Without it, what isn't ASCII is captured as `_`.
        command.arg("-u");
        match &self.socket {
            Some(path) if path.contains('/') => command.args(["-S", path]),
            Some(name) => command.args(["-L", name]),
            None => &mut command,
        };
        command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command
    }
}

async fn feed(to: &mut Option<tokio::process::ChildStdin>, input: Option<&str>) -> io::Result<()> {
    if let (Some(mut to), Some(input)) = (to.take(), input) {
        to.write_all(input.as_bytes()).await?;
    }
    Ok(())
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(from) = from {
        from.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await?;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what tmux says is read up to a limit, and no further. Method: as much, and one byte more.
    #[tokio::test]
    async fn output_is_bounded() {
        for more in [0, 1] {
            let said = tokio::io::repeat(b'x').take(OUTPUT_BYTES_MAX + more);
            assert_eq!(read(Some(said)).await.unwrap().len() as u64, OUTPUT_BYTES_MAX);
        }
    }
}
