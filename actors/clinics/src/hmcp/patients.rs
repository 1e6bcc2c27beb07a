use std::collections::HashMap;

use callboard_macros::Message;
use callboard_message::capabilities::CreateMessage;
use callboard_message::text::folded_words;
use callboard_message::{Content, Failure, Message as _, RawObject};
use callboard_runtime::{ConcurrentHandler, Context, Handlers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{
    GuardedAgent, HMCP_CALLS_MAX, HmcpError, HmcpHandler, HmcpReply, PatientDataConfig,
    PatientEntry, given_or_questioned,
};

/// Maximum number of patients of a patient-data agent. With more, the agent can't be created.
/// Fixed.
pub const PATIENTS_MAX: usize = 10_000;
/// Maximum length of a patient's name, in bytes. With a longer one in its configuration, the agent
/// can't be created. Fixed.
pub const PATIENT_NAME_BYTES_MAX: usize = 256;

/// Finds the identifier of a patient by name. Without a name it asks for one, or states that it
/// needs one.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
// Name and identifier identify a person, so neither is printed.
#[debug("FindPatient(..)")]
#[serde(deny_unknown_fields)]
#[message(name = "find_patient", reply = FindPatientResult, fallible, title = "Find patient", read_only, idempotent)]
pub struct FindPatient {
    /// Full name of the patient; if absent, the caller is asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Result of a search: a patient's identifier, or the reason there is none.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientFound({})", patient_id.is_some())]
#[schemars(rename = "PatientFound")]
pub struct FindPatientResult {
    /// Result as a sentence.
    pub message: String,
    /// Identifier of the patient, for example `PT12345`; absent if the search lacks a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patient_id: Option<String>,
    /// Names of the parameters that the search lacks; empty if a patient was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

const NAME_QUESTION: &str = "Please specify which patient you need information for.";
const HELP_QUESTION: &str = "How can I help you access patient information?";
const NAME_PARAM: &str = "name";

/// Patient-data agent of HMCP: finds the identifier of a patient by name.
pub type PatientDataAgent = GuardedAgent<PatientDirectory>;

/// Handler of a patient-data agent. Holds the agent's model name and its patients by name.
pub struct PatientDirectory {
    model: String,
    by_words: HashMap<Vec<String>, PatientEntry>,
    /// Number of words of the longest patient name.
    words_max: usize,
}

/// Result of searching a text for patients' names.
enum NameMatch<'a> {
    One(&'a PatientEntry),
    Several,
    Nobody,
}

impl PatientDataAgent {
    /// Creates the agent with the patients of its configuration.
    ///
    /// # Errors
    /// [`HmcpError`], if there are too many patients, a name or an identifier is invalid, or two
    /// patients have the same name.
    pub fn new(config: &PatientDataConfig) -> Result<Self, HmcpError> {
        if config.patients.len() > PATIENTS_MAX {
            return Err(HmcpError::TooManyPatients);
        }
        let mut by_words = HashMap::new();
        for (at, patient) in config.patients.iter().enumerate() {
            let place = at + 1;
            if !is_patient_id(&patient.id) {
                return Err(HmcpError::PatientId { place });
            }
            let key = folded_words(&patient.name);
            if key.is_empty() || patient.name.len() > PATIENT_NAME_BYTES_MAX {
                return Err(HmcpError::PatientName { place });
            }
            if by_words.insert(key, patient.clone()).is_some() {
                return Err(HmcpError::SameName { place });
            }
        }
        let words_max = by_words.keys().map(Vec::len).max().unwrap_or(0);
        Ok(Self::from_handler(PatientDirectory {
            model: config.model.clone(),
            by_words,
            words_max,
        }))
    }
}

impl PatientDirectory {
    /// Finds full patient names in a text. Only whole words match; case and accents are ignored. A
    /// patient who is named several times counts once.
    fn find_named(&self, text: &str) -> NameMatch<'_> {
        let words = folded_words(text);
        let mut rest = words.as_slice();
        let mut found = NameMatch::Nobody;
        while !rest.is_empty() {
            // Of several names that start at this word, the longest is meant.
            let mut longest = (1..=self.words_max.min(rest.len())).rev();
            let here = longest.find_map(|count| Some((count, self.by_words.get(&rest[..count])?)));
            found = match (found, here) {
                (NameMatch::One(other), Some((_, patient))) if other.id != patient.id => {
                    return NameMatch::Several;
                }
                (_, Some((_, patient))) => NameMatch::One(patient),
                (found, None) => found,
            };
            rest = &rest[here.map_or(1, |(count, _)| count)..];
        }
        found
    }

    async fn run_tool(
        &self,
        tool: FindPatient,
        cx: &Context,
    ) -> Result<FindPatientResult, Failure> {
        let shape = json!({ "type": "string", "title": "Patient's full name", "minLength": 1,
            "maxLength": PATIENT_NAME_BYTES_MAX });
        let given = tool.name.filter(|name| !name.trim().is_empty());
        let name = given_or_questioned(
            given,
            cx,
            ("Which patient?", NAME_PARAM, shape),
            "no patient was named",
        )
        .await?;
        let Some(name) = name else {
            return Ok(FindPatientResult {
                message: NAME_QUESTION.into(),
                patient_id: None,
                missing: vec![NAME_PARAM.to_owned()],
            });
        };
        let found = self.by_words.get(&folded_words(&name));
        let patient = found.ok_or_else(|| Failure::not_found("no patient goes by that name"))?;
        Ok(FindPatientResult {
            message: describe_patient(patient),
            patient_id: Some(patient.id.clone()),
            missing: Vec::new(),
        })
    }
}

fn describe_patient(PatientEntry { name, id }: &PatientEntry) -> String {
    format!("Patient identifier for {name}: patient_id={id}")
}

impl HmcpHandler for PatientDirectory {
    fn register_tools(on: &mut Handlers<PatientDataAgent>) {
        on.concurrent::<FindPatient>(HMCP_CALLS_MAX);
    }

    fn model(&self) -> &str {
        &self.model
    }

    async fn converse(&self, text: String, _: &Context) -> Result<HmcpReply, Failure> {
        let asks = || {
            let words = folded_words(&text);
            ["patient", "identifier"]
                .into_iter()
                .all(|wanted| words.iter().any(|word| word == wanted))
        };
        Ok(match self.find_named(&text) {
            NameMatch::One(patient) => HmcpReply {
                text: describe_patient(patient),
                missing: None,
            },
            NameMatch::Nobody if !asks() => HmcpReply {
                text: HELP_QUESTION.to_owned(),
                missing: None,
            },
            // The reply must not reveal who else is known here.
            NameMatch::Nobody | NameMatch::Several => HmcpReply {
                text: NAME_QUESTION.to_owned(),
                missing: Some(NAME_PARAM),
            },
        })
    }

    fn observe(&self) -> serde_json::Value {
        json!({ "patients": self.by_words.len() })
    }
}

impl ConcurrentHandler<FindPatient> for PatientDataAgent {
    fn handle(
        &mut self,
        message: FindPatient,
        cx: Context,
    ) -> impl Future<Output = Result<FindPatientResult, Failure>> + Send + 'static {
        let asked = to_raw_value(&message).unwrap_or_default();
        self.run_guarded(FindPatient::NAME, asked, cx, |duty, cx| async move {
            duty.run_tool(message, &cx).await
        })
    }
}

/// Maximum size of clinical data in one request to an EMR write-back agent, in bytes. A larger one
/// fails with `InvalidInput`. Fixed.
pub const CLINICAL_DATA_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of digits of a patient's identifier. An identifier with more is invalid. Fixed.
pub const PATIENT_ID_DIGITS_MAX: usize = 16;

/// Returns whether a text is a valid patient identifier: `PT` and 1 to [`PATIENT_ID_DIGITS_MAX`]
/// digits.
pub fn is_patient_id(text: &str) -> bool {
    text.strip_prefix("PT").is_some_and(|digits| {
        (1..=PATIENT_ID_DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Returns the text of the last turn of a conversation, whatever its role; earlier turns are
/// ignored. Several text contents are joined with line breaks; a turn without readable text results
/// in an empty one.
///
/// # Errors
/// `InvalidInput`, if there is no turn, or the last one isn't a JSON object.
pub(super) fn last_text(message: &CreateMessage) -> Result<String, Failure> {
    let turns: Vec<Box<RawValue>> = message.0.read("messages").unwrap_or_default();
    let last = turns.last().and_then(|turn| RawObject::parse(turn).ok());
    let last =
        last.ok_or_else(|| Failure::invalid("`messages` must be a list of at least one message"))?;
    let blocks: Vec<Content> = match last.get("content").map(RawValue::get) {
        Some(several) if several.starts_with('[') => last.read("content").unwrap_or_default(),
        _ => last.read("content").into_iter().collect(),
    };
    let texts: Vec<String> = blocks.iter().filter_map(Content::as_text).collect();
    Ok(texts.join("\n"))
}

/// Request to an EMR write-back agent, parsed from the text of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum WriteRequest {
    /// Write clinical data for the patient with this identifier.
    Write(RawObject, String),
    /// Clinical data without a valid identifier of a patient.
    MissingPatient,
    /// Text without clinical data, or with an empty object of it.
    Unclear,
}

/// Parses a request of the form `clinical_data={json}`, optionally followed by ` patient_id=ID`. An
/// identifier inside the JSON is only data, and text before the request is ignored. Without JSON,
/// or with an empty object, the request is [`WriteRequest::Unclear`]; without a valid identifier,
/// [`WriteRequest::MissingPatient`].
pub(super) fn parse_write_request(text: &str) -> WriteRequest {
    let Some((_, rest)) = text.split_once("clinical_data=") else {
        return WriteRequest::Unclear;
    };
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<RawObject>();
    let data = match values.next() {
        Some(Ok(data)) if !data.is_empty() => data,
        _ => return WriteRequest::Unclear,
    };
    let behind = rest.get(values.byte_offset()..).unwrap_or_default();
    let Some((before, id)) = behind.split_once("patient_id=") else {
        return WriteRequest::MissingPatient;
    };
    let id = id
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .trim_end_matches(['.', ',', ';']);
    let stands_apart = before.ends_with(char::is_whitespace);
    if stands_apart && is_patient_id(id) {
        WriteRequest::Write(data, id.to_owned())
    } else {
        WriteRequest::MissingPatient
    }
}
