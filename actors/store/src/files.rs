//! Files of a store: for their owner only, and on the disk with their folder's entry.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file that is made for its owner only.
pub(crate) fn private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until the entry of a file in its folder would survive a loss of power.
pub(crate) fn sync_entry(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}
