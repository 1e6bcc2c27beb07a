use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use callboard_message::{Failure, RawObject};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::HmcpError;

/// Most records in memory, by default.
pub const EMR_RECORDS_MAX_DEFAULT: usize = 10_000;
/// Bytes of the largest file, by default.
pub const EMR_FILE_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;

/// What was written about a patient, once.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize)]
// It is patient data: only the id is printed.
#[debug("EmrRecord({})", record)]
pub struct EmrRecord {
    /// Its id: a UUID of version 7.
    pub record: Uuid,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// About whom.
    pub patient_id: String,
    /// On whose behalf: a principal's id.
    pub by: String,
    /// The data as it came.
    pub clinical_data: RawObject,
}

/// Where clinical data goes: a file of JSON objects, one a line, or memory.
pub struct EmrStore {
    place: Arc<Mutex<Place>>,
    written: AtomicU64,
}

enum Place {
    Memory { records: VecDeque<EmrRecord>, records_max: usize },
    File { file: File, bytes: u64, bytes_max: u64 },
}

impl EmrStore {
    /// In memory: lost with the process. Holds [`EMR_RECORDS_MAX_DEFAULT`].
    pub fn in_memory() -> Self {
        Self::of(Place::Memory { records: VecDeque::new(), records_max: EMR_RECORDS_MAX_DEFAULT })
    }

    /// In a file that only this user may read; it and its folder are made. Holds [`EMR_FILE_BYTES_MAX_DEFAULT`].
    ///
    /// # Errors
    /// [`HmcpError::File`].
    pub fn open(path: &Path) -> Result<Self, HmcpError> {
        let opened = open(path).map_err(|source| HmcpError::File { path: path.to_owned(), source })?;
        Ok(Self::of(opened))
    }

    fn of(place: Place) -> Self {
        Self { place: Arc::new(Mutex::new(place)), written: AtomicU64::new(0) }
    }

    /// The same with other bounds: records in memory, bytes of the file.
    pub fn at_most(self, records: usize, bytes: u64) -> Self {
        match &mut *self.place.lock().unwrap_or_else(PoisonError::into_inner) {
            Place::Memory { records_max, .. } => *records_max = records,
            Place::File { bytes_max, .. } => *bytes_max = bytes,
        }
        self
    }

    /// Keeps data and answers the record's id. In a file it is on the disk then, whatever happens to this process.
    ///
    /// # Errors
    /// `Overloaded` where it is full, `Unavailable` where the file can't be written: nothing was kept.
    pub async fn write(&self, clinical_data: RawObject, patient_id: &str, by: &str) -> Result<String, Failure> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = EmrRecord {
            record: Uuid::now_v7(),
            at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            patient_id: patient_id.to_owned(),
            by: by.to_owned(),
            clinical_data,
        };
        let id = record.record.to_string();
        let place = self.place.clone();
        // A disk may be slow: not on a thread that others need.
        let keeping =
            tokio::task::spawn_blocking(move || place.lock().unwrap_or_else(PoisonError::into_inner).keep(record));
        keeping.await.map_err(|_| Failure::internal("the record's writer crashed"))??;
        self.written.fetch_add(1, Relaxed);
        Ok(id)
    }

    /// How many records were written since this was made.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The records in memory, oldest first; none where they are in a file.
    pub fn in_mind(&self) -> Vec<EmrRecord> {
        match &*self.place.lock().unwrap_or_else(PoisonError::into_inner) {
            Place::Memory { records, .. } => records.iter().cloned().collect(),
            Place::File { .. } => Vec::new(),
        }
    }
}

fn open(path: &Path) -> io::Result<Place> {
    const ONLY_THIS_USER: u32 = 0o600;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(ONLY_THIS_USER).open(path)?;
    let mut bytes = file.metadata()?.len();
    // A line that a crash cut short must not spoil the next.
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok(Place::File { file, bytes, bytes_max: EMR_FILE_BYTES_MAX_DEFAULT })
}

impl Place {
    fn keep(&mut self, record: EmrRecord) -> Result<(), Failure> {
        let full = || Failure::overloaded("the record store is full");
        match self {
            Self::Memory { records, records_max } => {
                if records.len() >= *records_max {
                    return Err(full());
                }
                records.push_back(record);
            }
            Self::File { file, bytes, bytes_max } => {
                let failed = |error: io::Error| {
                    callboard_message::log::error!(%error, "clinical data could not be written");
                    Failure::unavailable("the record store can't be written")
                };
                let mut line = serde_json::to_vec(&record).map_err(|error| failed(error.into()))?;
                line.push(b'\n');
                let longer = *bytes + line.len() as u64;
                if longer > *bytes_max {
                    return Err(full());
                }
                if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
                    // What was written of it doesn't count.
                    let _ = file.set_len(*bytes);
                    return Err(failed(error));
                }
                *bytes = longer;
            }
        }
        Ok(())
    }
}
