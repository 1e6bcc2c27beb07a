//! Configuration file of an application: read, backed up and replaced whole.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::{CLIENT_FILE_BYTES_MAX, ClientFileError};

/// Ending of the copy of a file as it was before a change. A further copy has a number after it.
const BACKUP_ENDING: &str = ".bak";
/// Maximum number of copies of one file. Beyond it, the earlier ones are kept and none is added. Fixed.
const BACKUPS_MAX: usize = 5;

/// Configuration file as it was read.
pub(super) struct ClientFile {
    path: PathBuf,
    /// Text; `None` if there is no file.
    text: Option<String>,
}

impl ClientFile {
    /// Reads a file. It doesn't have to exist.
    ///
    /// # Errors
    /// [`ClientFileError::Read`] or [`ClientFileError::TooLarge`].
    pub(super) fn read(path: &Path) -> Result<Self, ClientFileError> {
        // A symbolic link is kept: its target is replaced.
        let path = match path.is_symlink() {
            true => fs::canonicalize(path).map_err(read_error(path))?,
            false => path.to_owned(),
        };
        let text = read_if_present(&path)?;
        Ok(Self { path, text })
    }

    /// Returns the path, with a symbolic link resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text, which is empty if there is no file.
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Replaces the file as a whole, or creates it. A file that exists keeps its owner and permissions; a new one belongs to the owner
    /// of the folder, if that can be set, and is for its owner only. Returns the path of the backup if this call made one.
    ///
    /// # Errors
    /// [`ClientFileError::Changed`] if the file isn't as it was read; [`ClientFileError::Write`].
    pub(super) fn write(&self, text: &str) -> Result<Option<PathBuf>, ClientFileError> {
        let failed = |source| ClientFileError::Write {
            path: self.path.clone(),
            source,
        };
        fs::create_dir_all(self.folder()).map_err(failed)?;
        let backup = match &self.text {
            Some(old) => self.back_up(old).map_err(failed)?,
            None => None,
        };
        let new = self.write_part(text).map_err(failed)?;
        let changed = || ClientFileError::Changed {
            path: self.path.clone(),
        };
        if read_if_present(&self.path)? != self.text {
            return Err(changed());
        }
        let persisted = match self.text {
            Some(_) => new.persist(&self.path),
            None => new.persist_noclobber(&self.path),
        };
        match persisted {
            Ok(_) => Ok(backup),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Err(changed()),
            Err(error) => Err(failed(error.error)),
        }
    }

    fn folder(&self) -> &Path {
        let folder = self.path.parent();
        folder
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }

    /// Writes a text beside the file, with the owner and the permissions of the file.
    fn write_part(&self, text: &str) -> io::Result<NamedTempFile> {
        // Created with mode 0600.
        let mut part = NamedTempFile::new_in(self.folder())?;
        part.write_all(text.as_bytes())?;
        match fs::metadata(&self.path) {
            Ok(metadata) => {
                copy_owner(&metadata, part.as_file())?;
                part.as_file().set_permissions(metadata.permissions())?;
            }
            Err(_) => {
                let folder = fs::metadata(self.folder())?;
                // Only root can give a file to others; a file of this user's own can be used too.
                let _ = copy_owner(&folder, part.as_file());
            }
        }
        part.as_file().sync_all()?;
        Ok(part)
    }

    /// Writes a copy with the text `old`, unless there is one or there are [`BACKUPS_MAX`] others.
    fn back_up(&self, old: &str) -> io::Result<Option<PathBuf>> {
        let mut part = self.write_part(old)?;
        for nth in 0..BACKUPS_MAX {
            let backup = self.backup_path(nth);
            match part.persist_noclobber(&backup) {
                Ok(_) => return Ok(Some(backup)),
                Err(error) if error.error.kind() == ErrorKind::AlreadyExists => part = error.file,
                Err(error) => return Err(error.error),
            }
            // A copy that can't be read is another one.
            if read_text(&backup, CLIENT_FILE_BYTES_MAX).is_ok_and(|text| text == old) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns the path of the nth copy, from 0.
    fn backup_path(&self, nth: usize) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(BACKUP_ENDING);
        if nth > 0 {
            name.push(format!(".{nth}"));
        }
        self.path.with_file_name(name)
    }
}

/// Gives a file to the user and the group of another one, if it has others.
fn copy_owner(wanted: &Metadata, file: &File) -> io::Result<()> {
    let own = file.metadata()?;
    let user = (own.uid() != wanted.uid()).then_some(wanted.uid());
    let group = (own.gid() != wanted.gid()).then_some(wanted.gid());
    match (user, group) {
        (None, None) => Ok(()),
        _ => fchown(file, user, group),
    }
}

/// Reads a configuration file; `None` if there is none.
fn read_if_present(path: &Path) -> Result<Option<String>, ClientFileError> {
    match read_text(path, CLIENT_FILE_BYTES_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(ClientFileError::TooLarge {
            path: path.to_owned(),
        }),
        Err(error) => Err(read_error(path)(error)),
    }
}

/// Reads a text file of at most `bytes_max` bytes.
///
/// # Errors
/// Those of the file; `InvalidInput` for a folder, a pipe or a device, `FileTooLarge` for a larger file.
pub(in crate::cli) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    // Before the file is opened, which waits for the other end of a pipe.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a file"));
    }
    let mut text = String::new();
    let mut bounded = File::open(path)?.take(bytes_max.saturating_add(1));
    bounded.read_to_string(&mut text)?;
    match bounded.limit() {
        0 => Err(ErrorKind::FileTooLarge.into()),
        _ => Ok(text),
    }
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> ClientFileError {
    let path = path.to_owned();
    move |source| ClientFileError::Read {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Goal: only a file within the limit is read, and nothing else is opened. Method: texts at the limit and above, a folder, a socket
    /// and nothing.
    #[test]
    fn reads_are_bounded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let kind = |path: &Path| read_text(path, 4).unwrap_err().kind();
        assert_eq!(kind(&path), ErrorKind::NotFound);
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        fs::write(&path, "12345").unwrap();
        assert_eq!(kind(&path), ErrorKind::FileTooLarge);
        assert_eq!(kind(home.path()), ErrorKind::InvalidInput);
        let socket = home.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(kind(&socket), ErrorKind::InvalidInput);
    }

    /// Goal: each text is copied once, up to the limit, and no copy is replaced. Method: more texts than copies, each twice.
    #[test]
    fn backups_are_bounded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for nth in 0..=BACKUPS_MAX {
            fs::write(&path, format!("text {nth}")).unwrap();
            let file = ClientFile::read(&path).unwrap();
            let expected = (nth < BACKUPS_MAX).then(|| file.backup_path(nth));
            assert_eq!(file.back_up(file.text()).unwrap(), expected);
            assert_eq!(file.back_up(file.text()).unwrap(), None);
        }
        let file = ClientFile::read(&path).unwrap();
        for nth in 0..BACKUPS_MAX {
            let copy = fs::read_to_string(file.backup_path(nth)).unwrap();
            assert_eq!(copy, format!("text {nth}"));
        }
        let names = fs::read_dir(home.path()).unwrap();
        assert_eq!(names.count(), BACKUPS_MAX + 1);
    }

    /// Goal: a file that somebody changed or made in the meantime is left. Method: a change, and a new file, between reading and writing.
    #[test]
    fn changes_in_the_meantime() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for text in ["made", "changed"] {
            let before = ClientFile::read(&path).unwrap();
            fs::write(&path, text).unwrap();
            let error = before.write("ours").unwrap_err();
            assert!(matches!(error, ClientFileError::Changed { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
