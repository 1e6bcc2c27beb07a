//! Private files of a store, synced together with their folder's entry, and the lock file of the
//! writing process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::StoreError;

/// Opens a file. If it is created, only its owner may access it (mode 0600 on Unix).
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

/// Reads a file as text. Returns `None` if it doesn't exist.
pub(crate) fn read_if_exists(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Syncs the folder of `path`, so that a new file's entry survives a power loss.
pub(crate) fn sync_folder_entry(path: &Path) -> io::Result<()> {
    File::open(parent_folder(path))?.sync_all()
}

/// Maximum bytes read from a lock file, which holds a process id.
const PID_BYTES_MAX: u64 = 16;

/// Exclusive lock on the file `FILE.lock`, held until it is released or dropped, so that only one
/// process writes to a SQLite store.
pub(crate) struct WriterLock(Mutex<Option<File>>);

impl WriterLock {
    /// Returns whether the lock file of `file` exists. If so, a process has opened the store for
    /// writing before.
    pub(crate) fn exists(file: &Path) -> bool {
        lock_path(file).exists()
    }

    pub(crate) fn acquire(file: &Path) -> Result<Self, StoreError> {
        let path = lock_path(file);
        let not_created = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => StoreError::ReadOnly {
                path: file.to_owned(),
            },
            _ => StoreError::NotCreated {
                path: path.clone(),
                source,
            },
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut lock = open_private(&path, &mut options).map_err(not_created)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    what: file.display().to_string(),
                    pid: read_pid(&mut lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(not_created(source)),
        }
        // The process id is only a hint for error messages, so a failed write (full disk) is
        // ignored.
        let _ = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self(Mutex::new(Some(lock))))
    }

    /// Releases the lock before this value is dropped.
    pub(crate) fn release(&self) {
        if let Some(lock) = self.0.lock().take() {
            // Unlocked explicitly: a child process between fork and exec still has the file open,
            // so closing our handle isn't enough.
            let _ = lock.unlock();
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        self.release();
    }
}

fn lock_path(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn read_pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a released lock is free, even while a child process that was just forked has its file
    /// open. Method: a second handle to the same open file, as a child has one.
    #[test]
    fn a_child_does_not_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.sqlite");
        let lock = WriterLock::acquire(&file).unwrap();
        let child = lock.0.lock().as_ref().unwrap().try_clone().unwrap();
        assert!(WriterLock::acquire(&file).is_err());
        lock.release();
        let second = WriterLock::acquire(&file).unwrap();
        let of_second = second.0.lock().as_ref().unwrap().try_clone().unwrap();
        drop(second);
        assert!(WriterLock::acquire(&file).is_ok());
        drop((child, of_second));
    }
}
