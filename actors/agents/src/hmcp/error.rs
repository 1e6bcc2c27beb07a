use std::io;
use std::path::PathBuf;

/// Why an HMCP agent can't be made; each names what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HmcpError {
    /// Check the path and its permissions.
    #[error("failed to open {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Correct the identifier of the patient in that place of the list, from 1.
    #[error("patient {place}: the identifier must be PT and 1 to {digits_max} digits")]
    PatientId {
        /// Its place.
        place: usize,
        /// Most digits.
        digits_max: usize,
    },
    /// Correct the name of the patient in that place of the list, from 1.
    #[error("patient {place}: the name must have a letter, and at most {bytes_max} bytes")]
    PatientName {
        /// Its place.
        place: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// Two have the same name: tell them apart.
    #[error("patient {place}: another patient has the same name")]
    SameName {
        /// Its place, from 1.
        place: usize,
    },
    /// List fewer.
    #[error("more than {max} patients")]
    TooManyPatients {
        /// Most.
        max: usize,
    },
}
