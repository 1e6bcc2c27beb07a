//! Files of a store (for their owner only, on the disk with their folder's entry), and the lock of the process that writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::error::StoreError;

/// Opens a file that is made for its owner only.
pub(crate) fn private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

/// The text of a file, if it is there.
pub(crate) fn read_some(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

pub(crate) fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Waits until the entry of a file in its folder would survive a loss of power.
pub(crate) fn sync_entry(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// Longest number in a lock file, in bytes.
const PID_BYTES_MAX: u64 = 16;

/// The lock, until it is released or dropped.
pub(crate) struct Lock(Mutex<Option<File>>);

impl Lock {
    /// Whether somebody had it at some time.
    pub(crate) fn is_there(file: &Path) -> bool {
        path_of(file).exists()
    }

    pub(crate) fn take(file: &Path) -> Result<Self, StoreError> {
        let path = path_of(file);
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
        let mut lock = private(&path, &mut options).map_err(not_created)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    what: file.display().to_string(),
                    pid: pid(&mut lock),
                });
            }
            Err(TryLockError::Error(source)) => return Err(not_created(source)),
        }
        // Only a hint for whoever finds it taken: that it can't be written (a full disk) changes nothing.
        let _ = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self(Mutex::new(Some(lock))))
    }

    /// Others may have it, also while this value lives on.
    pub(crate) fn release(&self) {
        if let Some(lock) = self.0.lock().take() {
            // Said, and not left to the file's closing: a child between fork and exec has it open too.
            let _ = lock.unlock();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release();
    }
}

fn path_of(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn pid(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a lock that was let go of is free, though a child that was just forked still has its file open. Method: a second
    /// handle to the same open file, as a child has one.
    #[test]
    fn a_child_does_not_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.sqlite");
        let lock = Lock::take(&file).unwrap();
        let child = lock.0.lock().as_ref().unwrap().try_clone().unwrap();
        assert!(Lock::take(&file).is_err());
        lock.release();
        let second = Lock::take(&file).unwrap();
        let of_second = second.0.lock().as_ref().unwrap().try_clone().unwrap();
        drop(second);
        assert!(Lock::take(&file).is_ok());
        drop((child, of_second));
    }
}
