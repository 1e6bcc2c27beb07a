//! Programs on this machine.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::config::find_program;

/// Result of the search for a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProgramSearch {
    /// File that this user can execute.
    Found(PathBuf),
    /// File that this user can't execute.
    NotExecutable(PathBuf),
    Missing,
}

impl ProgramSearch {
    /// Searches for a program: at its path if that contains a slash, else in the folders of `PATH`.
    pub(super) fn of(program: &Path) -> Self {
        match program.to_str() {
            Some(name) if !is_path(program) => find_program(name).map_or(Self::Missing, Self::at),
            _ => Self::at(program.to_owned()),
        }
    }

    fn at(file: PathBuf) -> Self {
        match (file.is_file(), access(&file, Access::EXEC_OK)) {
            (false, _) => Self::Missing,
            (true, Ok(())) => Self::Found(file),
            (true, Err(_)) => Self::NotExecutable(file),
        }
    }
}

/// Returns whether a program is named by its path, not by its name.
pub(super) fn is_path(program: &Path) -> bool {
    program.as_os_str().as_encoded_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Goal: a program that can't be executed is told from none. Method: paths of files of both modes, of a folder, and a name.
    #[test]
    fn programs_are_found() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let file = home.path().join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            file
        };
        let (plain, tool) = (file("plain", 0o644), file("tool", 0o755));
        let search = ProgramSearch::of;
        assert_eq!(search(&tool), ProgramSearch::Found(tool.clone()));
        assert_eq!(search(&plain), ProgramSearch::NotExecutable(plain.clone()));
        assert_eq!(search(home.path()), ProgramSearch::Missing);
        assert_eq!(search(Path::new("no-such-program")), ProgramSearch::Missing);
    }
}
