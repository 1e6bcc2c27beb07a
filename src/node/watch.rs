//! Tells when a topology file may have changed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::NodeError;

/// How long a file must have been left alone before it is read: an editor writes it in several steps.
const QUIET: Duration = Duration::from_millis(100);

/// A file that is watched, and SIGHUP, which says that it is to be read again.
pub(crate) struct Watch {
    path: PathBuf,
    /// What was read last.
    before: Option<Vec<u8>>,
    touched: mpsc::Receiver<()>,
    hangup: Signal,
    _watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches the folder of `path`, for editors put a new file in the old one's place. Where the system can't, SIGHUP
    /// alone tells. Within a tokio runtime only.
    ///
    /// # Errors
    /// [`NodeError::Io`].
    pub(crate) fn of(path: &Path) -> Result<Self, NodeError> {
        let hangup = signal(SignalKind::hangup())?;
        let (touch, touched) = mpsc::channel(1);
        let watcher = watcher(path, touch).map_err(NodeError::Watch);
        let watcher = watcher.inspect_err(|error| tracing::warn!(%error, "only SIGHUP reloads it")).ok();
        Ok(Self { path: path.to_owned(), before: fs::read(path).ok(), touched, hangup, _watcher: watcher })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends when the file is another than before, or on SIGHUP. May be dropped and called again.
    pub(crate) async fn changed(&mut self) {
        loop {
            let hung_up = tokio::select! {
                _ = self.hangup.recv() => true,
                touched = self.touched.recv(), if self._watcher.is_some() => touched.is_none(),
            };
            if !hung_up {
                while let Ok(Some(())) = tokio::time::timeout(QUIET, self.touched.recv()).await {}
            }
            let now = fs::read(&self.path).ok();
            // A file that is away for a moment is about to be another one.
            let is_other = now.is_some() && now != self.before;
            if is_other {
                self.before = now;
            }
            if is_other || hung_up {
                return;
            }
        }
    }
}

fn watcher(path: &Path, touch: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let name = path.file_name().unwrap_or_default().to_owned();
    // Mounted configuration is a link into a folder `..data` that is replaced as a whole.
    let concerns = move |file: &OsStr| file == name || file.as_encoded_bytes().starts_with(b"..");
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let is_ours = event.is_ok_and(|event| {
            !event.kind.is_access() && event.paths.iter().filter_map(|path| path.file_name()).any(&concerns)
        });
        if is_ours {
            // One that waits already says the same.
            let _ = touch.try_send(());
        }
    })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
