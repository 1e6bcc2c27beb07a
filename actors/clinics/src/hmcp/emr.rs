use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use callboard_macros::Message;
use callboard_message::{Failure, Message as _, RawObject};
use callboard_runtime::{ConcurrentHandler, Cx, Handlers};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;
use uuid::Uuid;

use super::patients::{
    CLINICAL_DATA_BYTES_MAX, Order, PATIENT_ID_DIGITS_MAX, is_patient_id, order,
};
use super::{Duty, EmrConfig, Guarded, HMCP_CALLS_MAX, HmcpError, Said, given_or_asked};

/// Writes clinical data about a patient into the record system. Without a patient's identifier it asks for one, or says
/// that it needs one.
#[derive(derive_more::Debug, Clone, PartialEq, Message, Serialize, Deserialize, JsonSchema)]
// Clinical data is never printed.
#[debug("WriteClinicalData(..)")]
#[serde(deny_unknown_fields)]
#[message(name = "write_clinical_data", reply = Written, fallible, title = "Write clinical data", destructive = false)]
pub struct WriteClinicalData {
    /// The data: diagnosis, measurements, medication, whatever there is.
    pub clinical_data: RawObject,
    /// Whose, for example `PT12345`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patient_id: Option<String>,
}

/// What became of clinical data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// In words.
    pub message: String,
    /// Whether it was written.
    pub written: bool,
    /// The record that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// What it lacks to be written, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

const NEEDS_ID: &str =
    "Additional information required: Need patient_id to associate with this clinical data.";
const WRITTEN: &str =
    "Success: Clinical data has been written to the EMR system for the specified patient.";
const UNCLEAR: &str = "Please provide valid clinical_data to write to the EMR system.";
const WHOSE: &str = "Which patient is this clinical data about?";
const PATIENT_ID: &str = "patient_id";

/// The EMR write-back agent of HMCP.
pub type EmrWriteback = Guarded<Emr>;

/// What the EMR write-back agent does.
pub struct Emr {
    model: String,
    store: EmrStore,
}

impl EmrWriteback {
    /// Opens the file where there is one.
    ///
    /// # Errors
    /// [`HmcpError::File`].
    pub fn new(config: &EmrConfig) -> Result<Self, HmcpError> {
        let store = match &config.file {
            Some(file) => EmrStore::open(file)?,
            None => EmrStore::in_memory(),
        };
        Ok(Self::of(Emr {
            model: config.model.clone(),
            store,
        }))
    }
}

impl Emr {
    /// What was written.
    pub fn store(&self) -> &EmrStore {
        &self.store
    }

    async fn write(&self, data: RawObject, patient_id: &str, cx: &Cx) -> Result<String, Failure> {
        if data.to_raw().get().len() > CLINICAL_DATA_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "clinical_data has more than {CLINICAL_DATA_BYTES_MAX} bytes"
            )));
        }
        self.store.write(data, patient_id, &cx.principal().id).await
    }

    async fn work(&self, tool: WriteClinicalData, cx: &Cx) -> Result<Written, Failure> {
        if tool.clinical_data.is_empty() {
            return Err(Failure::invalid("clinical_data must not be empty"));
        }
        let shape = json!({ "type": "string", "title": "Patient identifier", "description": "For example PT12345",
            "minLength": 3, "maxLength": 2 + PATIENT_ID_DIGITS_MAX });
        let refused = "nothing was written: no patient_id was given";
        let patient_id =
            given_or_asked(tool.patient_id, cx, (WHOSE, PATIENT_ID, shape), refused).await?;
        let Some(patient_id) = patient_id else {
            let missing = vec![PATIENT_ID.to_owned()];
            return Ok(Written {
                message: NEEDS_ID.into(),
                written: false,
                record: None,
                missing,
            });
        };
        if !is_patient_id(&patient_id) {
            return Err(Failure::invalid(format!(
                "patient_id must be PT and 1 to {PATIENT_ID_DIGITS_MAX} digits"
            )));
        }
        let record = self.write(tool.clinical_data, &patient_id, cx).await?;
        Ok(Written {
            message: WRITTEN.into(),
            written: true,
            record: Some(record),
            missing: Vec::new(),
        })
    }
}

impl Duty for Emr {
    fn tools(on: &mut Handlers<EmrWriteback>) {
        on.concurrent::<WriteClinicalData>(HMCP_CALLS_MAX);
    }

    fn model(&self) -> &str {
        &self.model
    }

    async fn converse(&self, text: String, cx: &Cx) -> Result<Said, Failure> {
        let said = |text: &str| Said {
            text: text.to_owned(),
            missing: None,
        };
        match order(&text) {
            Order::Unclear => Ok(said(UNCLEAR)),
            Order::WhoseIsIt => Ok(Said {
                missing: Some(PATIENT_ID),
                ..said(NEEDS_ID)
            }),
            Order::Write(data, patient_id) => self
                .write(data, &patient_id, cx)
                .await
                .map(|_| said(WRITTEN)),
        }
    }

    fn observe(&self) -> serde_json::Value {
        json!({ "written": self.store.written() })
    }
}

impl ConcurrentHandler<WriteClinicalData> for EmrWriteback {
    fn handle(
        &mut self,
        message: WriteClinicalData,
        cx: Cx,
    ) -> impl Future<Output = Result<Written, Failure>> + Send + 'static {
        let asked = to_raw_value(&message).unwrap_or_default();
        self.between(WriteClinicalData::NAME, asked, cx, |duty, cx| async move {
            duty.work(message, &cx).await
        })
    }
}

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
    Memory {
        records: Vec<EmrRecord>,
        records_max: usize,
    },
    File {
        file: File,
        bytes: u64,
        bytes_max: u64,
    },
}

impl EmrStore {
    /// In memory: lost with the process. Holds [`EMR_RECORDS_MAX_DEFAULT`].
    pub fn in_memory() -> Self {
        Self::of(Place::Memory {
            records: Vec::new(),
            records_max: EMR_RECORDS_MAX_DEFAULT,
        })
    }

    /// In a file that only this user may read; it and its folder are made. Holds [`EMR_FILE_BYTES_MAX_DEFAULT`].
    ///
    /// # Errors
    /// [`HmcpError::File`].
    pub fn open(path: &Path) -> Result<Self, HmcpError> {
        open(path).map(Self::of).map_err(|source| HmcpError::File {
            path: path.to_owned(),
            source,
        })
    }

    fn of(place: Place) -> Self {
        Self {
            place: Arc::new(Mutex::new(place)),
            written: AtomicU64::new(0),
        }
    }

    /// The same with other bounds: records in memory, bytes of the file.
    pub fn at_most(self, records: usize, bytes: u64) -> Self {
        match &mut *self.place.lock() {
            Place::Memory { records_max, .. } => *records_max = records,
            Place::File { bytes_max, .. } => *bytes_max = bytes,
        }
        self
    }

    /// Keeps data and answers the record's id. In a file it is on the disk then, whatever happens to this process.
    ///
    /// # Errors
    /// `Overloaded` where it is full, `Unavailable` where the file can't be written: nothing was kept.
    pub async fn write(
        &self,
        clinical_data: RawObject,
        patient_id: &str,
        by: &str,
    ) -> Result<String, Failure> {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
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
        let keeping = tokio::task::spawn_blocking(move || place.lock().keep(record));
        keeping
            .await
            .map_err(|_| Failure::internal("the record's writer crashed"))??;
        self.written.fetch_add(1, Relaxed);
        Ok(id)
    }

    /// How many records were written since this was made.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The records in memory, oldest first; none where they are in a file.
    pub fn in_mind(&self) -> Vec<EmrRecord> {
        match &*self.place.lock() {
            Place::Memory { records, .. } => records.clone(),
            Place::File { .. } => Vec::new(),
        }
    }
}

fn open(path: &Path) -> io::Result<Place> {
    const ONLY_THIS_USER: u32 = 0o600;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(ONLY_THIS_USER)
        .open(path)?;
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
    Ok(Place::File {
        file,
        bytes,
        bytes_max: EMR_FILE_BYTES_MAX_DEFAULT,
    })
}

impl Place {
    fn keep(&mut self, record: EmrRecord) -> Result<(), Failure> {
        let full = || Failure::overloaded("the record store is full");
        match self {
            Self::Memory {
                records,
                records_max,
            } => {
                if records.len() >= *records_max {
                    return Err(full());
                }
                records.push(record);
            }
            Self::File {
                file,
                bytes,
                bytes_max,
            } => {
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
