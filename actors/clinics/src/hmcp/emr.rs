use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use callboard_macros::Message;
use callboard_message::{Failure, Message as _, RawObject};
use callboard_runtime::{ConcurrentHandler, Context, Handlers};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;
use uuid::Uuid;

use crate::access::{HmcpAccess, NamedPatients};

use super::patients::{
    CLINICAL_DATA_BYTES_MAX, PATIENT_ID_DIGITS_MAX, WriteRequest, is_patient_id,
    parse_write_request, patients_of_write,
};
use super::{
    EmrConfig, GuardedAgent, HMCP_CALLS_MAX, HmcpError, HmcpHandler, HmcpReply, given_or_questioned,
};

/// Writes clinical data about a patient into the record system. Without a patient's identifier it
/// asks for one, or states that it needs one.
#[derive(derive_more::Debug, Clone, PartialEq, Message, Serialize, Deserialize, JsonSchema)]
// Clinical data is never printed.
#[debug("WriteClinicalData(..)")]
#[serde(deny_unknown_fields)]
#[message(name = "write_clinical_data", reply = EmrWriteResult, fallible, title = "Write clinical data", destructive = false)]
pub struct WriteClinicalData {
    /// Clinical data as a JSON object: diagnosis, measurements, medication.
    pub clinical_data: RawObject,
    /// Identifier of the patient, for example `PT12345`; if absent, the caller is asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patient_id: Option<String>,
}

/// Result of writing clinical data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Written")]
pub struct EmrWriteResult {
    /// Result as a sentence.
    pub message: String,
    /// Whether the data was written.
    pub written: bool,
    /// Id of the new record; absent if nothing was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Names of the parameters that the write lacks; empty if the data was written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

const NEEDS_ID: &str =
    "Additional information required: Need patient_id to associate with this clinical data.";
const WRITTEN: &str =
    "Success: Clinical data has been written to the EMR system for the specified patient.";
const INVALID_DATA: &str = "Please provide valid clinical_data to write to the EMR system.";
const PATIENT_QUESTION: &str = "Which patient is this clinical data about?";
const PATIENT_ID: &str = "patient_id";

/// EMR write-back agent of HMCP: writes clinical data to an [`EmrStore`].
pub type EmrWritebackAgent = GuardedAgent<EmrHandler>;

/// Handler of an EMR write-back agent. Holds the agent's model name and its store of records.
pub struct EmrHandler {
    model: String,
    store: EmrStore,
}

impl EmrWritebackAgent {
    /// Creates the agent. Opens the file if one is configured, else stores data in memory.
    ///
    /// # Errors
    /// [`HmcpError::File`], if the file can't be opened.
    pub fn new(config: &EmrConfig) -> Result<Self, HmcpError> {
        let store = match &config.file {
            Some(file) => EmrStore::open(file)?,
            None => EmrStore::in_memory(),
        };
        let handler = EmrHandler {
            model: config.model.clone(),
            store,
        };
        Ok(Self::from_handler(handler, config.tenant.as_deref()))
    }
}

impl EmrHandler {
    /// Returns the store to which this agent writes.
    pub fn store(&self) -> &EmrStore {
        &self.store
    }

    async fn write(
        &self,
        data: RawObject,
        patient_id: &str,
        cx: &Context,
    ) -> Result<String, Failure> {
        if data.to_raw().get().len() > CLINICAL_DATA_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "clinical_data has more than {CLINICAL_DATA_BYTES_MAX} bytes"
            )));
        }
        self.store.write(data, patient_id, &cx.principal().id).await
    }

    async fn run_tool(
        &self,
        tool: WriteClinicalData,
        cx: &Context,
    ) -> Result<EmrWriteResult, Failure> {
        if tool.clinical_data.is_empty() {
            return Err(Failure::invalid("clinical_data must not be empty"));
        }
        let shape = json!({ "type": "string", "title": "Patient identifier", "description": "For example PT12345",
            "minLength": 3, "maxLength": 2 + PATIENT_ID_DIGITS_MAX });
        let refused = "nothing was written: no patient_id was given";
        let patient_id = given_or_questioned(
            tool.patient_id,
            cx,
            (PATIENT_QUESTION, PATIENT_ID, shape),
            refused,
        )
        .await?;
        let Some(patient_id) = patient_id else {
            let missing = vec![PATIENT_ID.to_owned()];
            return Ok(EmrWriteResult {
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
        Ok(EmrWriteResult {
            message: WRITTEN.into(),
            written: true,
            record: Some(record),
            missing: Vec::new(),
        })
    }
}

impl HmcpHandler for EmrHandler {
    const ACCESS: HmcpAccess = HmcpAccess::Write;

    fn register_tools(on: &mut Handlers<EmrWritebackAgent>) {
        on.concurrent::<WriteClinicalData>(HMCP_CALLS_MAX);
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn patients_of_turn(&self, text: &str) -> NamedPatients {
        patients_of_write(text)
    }

    async fn converse(&self, text: String, cx: &Context) -> Result<HmcpReply, Failure> {
        let said = |text: &str| HmcpReply {
            text: text.to_owned(),
            missing: None,
        };
        match parse_write_request(&text) {
            WriteRequest::Unclear => Ok(said(INVALID_DATA)),
            WriteRequest::MissingPatient => Ok(HmcpReply {
                missing: Some(PATIENT_ID),
                ..said(NEEDS_ID)
            }),
            WriteRequest::Write(data, patient_id) => self
                .write(data, &patient_id, cx)
                .await
                .map(|_| said(WRITTEN)),
        }
    }

    fn observe(&self) -> serde_json::Value {
        json!({ "written": self.store.written_count() })
    }
}

impl ConcurrentHandler<WriteClinicalData> for EmrWritebackAgent {
    fn handle(
        &mut self,
        message: WriteClinicalData,
        cx: Context,
    ) -> impl Future<Output = Result<EmrWriteResult, Failure>> + Send + 'static {
        let asked = to_raw_value(&message).unwrap_or_default();
        let named = NamedPatients::from(message.patient_id.clone());
        self.run_guarded(
            WriteClinicalData::NAME,
            asked,
            |_| named,
            cx,
            |duty, cx| async move { duty.run_tool(message, &cx).await },
        )
    }
}

/// Default maximum number of records of an [`EmrStore`] in memory. At the maximum, writes fail with
/// `Overloaded`. Changed by [`EmrStore::with_limits`].
pub const EMR_RECORDS_MAX_DEFAULT: usize = 10_000;
/// Default maximum size of the file of an [`EmrStore`], in bytes. A write beyond it fails with
/// `Overloaded`. Changed by [`EmrStore::with_limits`].
pub const EMR_FILE_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;

/// Stored record of one write of clinical data.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize)]
// Patient data: only the record's id is printed.
#[debug("EmrRecord({})", record)]
pub struct EmrRecord {
    /// Id of the record: a UUID of version 7.
    pub record: Uuid,
    /// Time of the write, in Unix milliseconds.
    pub at_ms: u64,
    /// Identifier of the patient.
    pub patient_id: String,
    /// Id of the principal on whose behalf the data was written.
    pub by: String,
    /// Clinical data, unchanged.
    pub clinical_data: RawObject,
}

/// Store for clinical data: either a file with one JSON object a line, or memory.
pub struct EmrStore {
    sink: Arc<Mutex<EmrSink>>,
    written: AtomicU64,
}

enum EmrSink {
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
    /// Creates a store in memory, whose records are lost when the process ends. It holds up to
    /// [`EMR_RECORDS_MAX_DEFAULT`] records.
    pub fn in_memory() -> Self {
        Self::of(EmrSink::Memory {
            records: Vec::new(),
            records_max: EMR_RECORDS_MAX_DEFAULT,
        })
    }

    /// Opens a store in a file. Creates the file and its folder if they are missing, the file
    /// accessible by this user only, the folder with default permissions. Ends an incomplete last
    /// line, but reads no records. The file holds up to [`EMR_FILE_BYTES_MAX_DEFAULT`] bytes.
    ///
    /// # Errors
    /// [`HmcpError::File`], if the file can't be opened.
    pub fn open(path: &Path) -> Result<Self, HmcpError> {
        open_file(path)
            .map(Self::of)
            .map_err(|source| HmcpError::File {
                path: path.to_owned(),
                source,
            })
    }

    fn of(place: EmrSink) -> Self {
        Self {
            sink: Arc::new(Mutex::new(place)),
            written: AtomicU64::new(0),
        }
    }

    /// Replaces the default limit: `records` of a store in memory, or `bytes` of a store in a file;
    /// the other number is ignored. A write beyond the limit fails with `Overloaded`.
    pub fn with_limits(self, records: usize, bytes: u64) -> Self {
        match &mut *self.sink.lock() {
            EmrSink::Memory { records_max, .. } => *records_max = records,
            EmrSink::File { bytes_max, .. } => *bytes_max = bytes,
        }
        self
    }

    /// Stores clinical data and returns the id of its record. `by` is the id of the principal.
    /// Neither the patient's id nor the size of the data is checked. A file is synced to disk
    /// before the call returns. Dropping the future doesn't stop a write that has begun.
    ///
    /// # Errors
    /// `Overloaded`, if the store is full: nothing was stored. `Unavailable`, if the file can't be
    /// written: what was written is removed if possible. `Internal`, if the write crashed: the data
    /// may have been stored.
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
        let place = self.sink.clone();
        // A slow disk must not block a thread that other tasks need.
        let keeping = tokio::task::spawn_blocking(move || place.lock().append(record));
        keeping.await.map_err(|_| {
            Failure::internal("writing the record crashed: it may or may not be written")
        })??;
        self.written.fetch_add(1, Relaxed);
        Ok(id)
    }

    /// Returns the number of records written since the store was created or opened.
    pub fn written_count(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns the records in memory, oldest first; empty if the store is a file.
    pub fn memory_records(&self) -> Vec<EmrRecord> {
        match &*self.sink.lock() {
            EmrSink::Memory { records, .. } => records.clone(),
            EmrSink::File { .. } => Vec::new(),
        }
    }
}

fn open_file(path: &Path) -> io::Result<EmrSink> {
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
    // A line that a crash left incomplete must not spoil the next.
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok(EmrSink::File {
        file,
        bytes,
        bytes_max: EMR_FILE_BYTES_MAX_DEFAULT,
    })
}

impl EmrSink {
    fn append(&mut self, record: EmrRecord) -> Result<(), Failure> {
        let full = || {
            Failure::overloaded(
                "the record store is full, nothing was written: its operator has to make room",
            )
        };
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
                    Failure::unavailable(
                        "the record store can't be written: its operator finds the reason in the log",
                    )
                };
                let mut line = serde_json::to_vec(&record).map_err(|error| failed(error.into()))?;
                line.push(b'\n');
                let longer = *bytes + line.len() as u64;
                if longer > *bytes_max {
                    return Err(full());
                }
                if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
                    // Removes the part that was written.
                    let _ = file.set_len(*bytes);
                    return Err(failed(error));
                }
                *bytes = longer;
            }
        }
        Ok(())
    }
}
