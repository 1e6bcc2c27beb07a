//! Detection of changed files by their attributes.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// File attributes that reveal a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    modified: Option<SystemTime>,
    bytes: u64,
    /// Inode number, which changes when the file is replaced; 0 on systems without inodes.
    inode: u64,
    /// Permission bits, because a change of them leaves the other attributes; 0 on systems without.
    mode: u32,
}

impl FileVersion {
    /// Returns the version of a file, links followed; `None` if it can't be read.
    pub fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let (inode, mode) = {
            use std::os::unix::fs::MetadataExt;
            (about.ino(), about.mode())
        };
        #[cfg(not(unix))]
        let (inode, mode) = (0, 0);
        Some(Self {
            modified: about.modified().ok(),
            bytes: about.len(),
            inode,
            mode,
        })
    }
}
