//! What was typed and printed, kept in a file that the configuration names: a JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use callboard_message::time::rfc3339;
use callboard_message::{DataClass, RawObject};

/// Who may read it: what people say is theirs.
const MODE: u32 = 0o600;

/// The file. What is in it may be about people, and is marked so; none of it goes anywhere else.
pub(super) struct Log(Mutex<File>);

impl Log {
    /// Goes on with the file, or begins it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(MODE).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Keeps a line. `what` is `typed` or `printed`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn keep(&self, what: &str, text: &str) -> io::Result<()> {
        let now = rfc3339(SystemTime::now());
        let line = RawObject::new().with("at", now).with("class", DataClass::Personal.as_str()).with(what, text);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // In one go: another process may write to it too.
        file.write_all(format!("{}\n", line.to_raw().get()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    /// Goal: the file is its owner's, grows, and reads back. Method: open it twice, keep a line each with a line break in it.
    #[test]
    fn lines_are_kept_for_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for what in ["typed", "printed"] {
            Log::open(&path).unwrap().keep(what, "a\n\"b\"").unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0]["typed"].as_str(), lines[1]["printed"].as_str()), (Some("a\n\"b\""), Some("a\n\"b\"")));
        assert!(lines.iter().all(|line| line["class"] == "personal" && line["at"].is_string()));
    }
}
