use callboard_macros::Message;
use callboard_message::{Failure, Message as _, RawObject};
use callboard_runtime::{ConcurrentHandler, Cx, Handlers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::config::EmrConfig;
use super::emr_store::EmrStore;
use super::error::HmcpError;
use super::grammar::{CLINICAL_DATA_BYTES_MAX, Order, PATIENT_ID_DIGITS_MAX, is_patient_id, order};
use super::guarded::{Duty, Guarded, HMCP_CALLS_MAX, Said, ask};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// What it lacks to be written, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

const NEEDS_ID: &str = "Additional information required: Need patient_id to associate with this clinical data.";
const WRITTEN: &str = "Success: Clinical data has been written to the EMR system for the specified patient.";
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
        Ok(Self::of(Emr { model: config.model.clone(), store }))
    }
}

impl Emr {
    /// What was written.
    pub fn store(&self) -> &EmrStore {
        &self.store
    }

    async fn write(&self, data: RawObject, patient_id: &str, cx: &Cx) -> Result<String, Failure> {
        if data.to_raw().get().len() > CLINICAL_DATA_BYTES_MAX {
            return Err(Failure::invalid(format!("clinical_data has more than {CLINICAL_DATA_BYTES_MAX} bytes")));
        }
        self.store.write(data, patient_id, &cx.principal().id).await
    }

    async fn work(&self, tool: WriteClinicalData, cx: &Cx) -> Result<Written, Failure> {
        if tool.clinical_data.is_empty() {
            return Err(Failure::invalid("clinical_data must not be empty"));
        }
        let shape = json!({ "type": "string", "title": "Patient identifier", "description": "For example PT12345",
            "minLength": 3, "maxLength": 2 + PATIENT_ID_DIGITS_MAX });
        let patient_id = match tool.patient_id {
            Some(patient_id) => patient_id,
            None => match ask(cx, WHOSE, PATIENT_ID, shape, "nothing was written: no patient_id was given").await? {
                Some(patient_id) => patient_id.trim().to_owned(),
                None => {
                    let missing = vec![PATIENT_ID.to_owned()];
                    return Ok(Written { message: NEEDS_ID.into(), written: false, record: None, missing });
                }
            },
        };
        if !is_patient_id(&patient_id) {
            return Err(Failure::invalid(format!("patient_id must be PT and 1 to {PATIENT_ID_DIGITS_MAX} digits")));
        }
        let record = self.write(tool.clinical_data, &patient_id, cx).await?;
        Ok(Written { message: WRITTEN.into(), written: true, record: Some(record), missing: Vec::new() })
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
        let said = |text: &str| Said { text: text.to_owned(), missing: None };
        match order(&text) {
            Order::Unclear => Ok(said(UNCLEAR)),
            Order::WhoseIsIt => Ok(Said { missing: Some(PATIENT_ID), ..said(NEEDS_ID) }),
            Order::Write(data, patient_id) => self.write(data, &patient_id, cx).await.map(|_| said(WRITTEN)),
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
        self.between(WriteClinicalData::NAME, asked, cx, |duty, cx| async move { duty.work(message, &cx).await })
    }
}
