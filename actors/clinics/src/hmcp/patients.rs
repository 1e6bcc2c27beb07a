use std::collections::HashMap;

use callboard_macros::Message;
use callboard_message::surface::CreateMessage;
use callboard_message::text::folded_words;
use callboard_message::{Content, Failure, Message as _, RawObject};
use callboard_runtime::{ConcurrentHandler, Cx, Handlers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{
    Duty, Guarded, HMCP_CALLS_MAX, HmcpError, PatientDataConfig, PatientEntry, Said, given_or_asked,
};

/// Most patients that a patient-data agent knows.
pub const PATIENTS_MAX: usize = 10_000;
/// Bytes of a patient's longest name.
pub const PATIENT_NAME_BYTES_MAX: usize = 256;

/// Finds the identifier of a patient by name. Without a name it asks for one, or says that it needs one.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
// Both say who somebody is.
#[debug("FindPatient(..)")]
#[serde(deny_unknown_fields)]
#[message(name = "find_patient", reply = PatientFound, fallible, title = "Find patient", read_only, idempotent)]
pub struct FindPatient {
    /// The full name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A patient's identifier, or why there is none.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientFound({})", patient_id.is_some())]
pub struct PatientFound {
    /// In words.
    pub message: String,
    /// The identifier, for example `PT12345`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patient_id: Option<String>,
    /// What it lacks to find somebody, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

const WHO: &str = "Please specify which patient you need information for.";
const HOW: &str = "How can I help you access patient information?";
const NAME: &str = "name";

/// The patient-data agent of HMCP.
pub type PatientData = Guarded<Patients>;

/// What the patient-data agent knows.
pub struct Patients {
    model: String,
    by_words: HashMap<Vec<String>, PatientEntry>,
    /// Words of the longest name.
    words_max: usize,
}

/// Whom a text names.
enum Named<'a> {
    One(&'a PatientEntry),
    Several,
    Nobody,
}

impl PatientData {
    /// Reads who there is.
    ///
    /// # Errors
    /// Where a name or an identifier can't be one, or two patients have the same name.
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
        Ok(Self::of(Patients {
            model: config.model.clone(),
            by_words,
            words_max,
        }))
    }
}

impl Patients {
    /// Looks for full names in a text, at whole words, however they are spelled.
    fn named_in(&self, text: &str) -> Named<'_> {
        let words = folded_words(text);
        let mut rest = words.as_slice();
        let mut found = Named::Nobody;
        while !rest.is_empty() {
            // The longest name that begins here is the one that is meant.
            let mut longest = (1..=self.words_max.min(rest.len())).rev();
            let here = longest.find_map(|count| Some((count, self.by_words.get(&rest[..count])?)));
            found = match (found, here) {
                (Named::One(other), Some((_, patient))) if other.id != patient.id => {
                    return Named::Several;
                }
                (_, Some((_, patient))) => Named::One(patient),
                (found, None) => found,
            };
            rest = &rest[here.map_or(1, |(count, _)| count)..];
        }
        found
    }

    async fn work(&self, tool: FindPatient, cx: &Cx) -> Result<PatientFound, Failure> {
        let shape = json!({ "type": "string", "title": "Patient's full name", "minLength": 1,
            "maxLength": PATIENT_NAME_BYTES_MAX });
        let given = tool.name.filter(|name| !name.trim().is_empty());
        let name = given_or_asked(
            given,
            cx,
            ("Which patient?", NAME, shape),
            "no patient was named",
        )
        .await?;
        let Some(name) = name else {
            return Ok(PatientFound {
                message: WHO.into(),
                patient_id: None,
                missing: vec![NAME.to_owned()],
            });
        };
        let found = self.by_words.get(&folded_words(&name));
        let patient = found.ok_or_else(|| Failure::not_found("no patient goes by that name"))?;
        Ok(PatientFound {
            message: told(patient),
            patient_id: Some(patient.id.clone()),
            missing: Vec::new(),
        })
    }
}

fn told(PatientEntry { name, id }: &PatientEntry) -> String {
    format!("Patient identifier for {name}: patient_id={id}")
}

impl Duty for Patients {
    fn tools(on: &mut Handlers<PatientData>) {
        on.concurrent::<FindPatient>(HMCP_CALLS_MAX);
    }

    fn model(&self) -> &str {
        &self.model
    }

    async fn converse(&self, text: String, _: &Cx) -> Result<Said, Failure> {
        let asks = || {
            let words = folded_words(&text);
            ["patient", "identifier"]
                .into_iter()
                .all(|wanted| words.iter().any(|word| word == wanted))
        };
        Ok(match self.named_in(&text) {
            Named::One(patient) => Said {
                text: told(patient),
                missing: None,
            },
            Named::Nobody if !asks() => Said {
                text: HOW.to_owned(),
                missing: None,
            },
            // Who else is known here is told nobody.
            Named::Nobody | Named::Several => Said {
                text: WHO.to_owned(),
                missing: Some(NAME),
            },
        })
    }

    fn observe(&self) -> serde_json::Value {
        json!({ "patients": self.by_words.len() })
    }
}

impl ConcurrentHandler<FindPatient> for PatientData {
    fn handle(
        &mut self,
        message: FindPatient,
        cx: Cx,
    ) -> impl Future<Output = Result<PatientFound, Failure>> + Send + 'static {
        let asked = to_raw_value(&message).unwrap_or_default();
        self.between(FindPatient::NAME, asked, cx, |duty, cx| async move {
            duty.work(message, &cx).await
        })
    }
}

/// Bytes of the largest clinical data that is taken.
pub const CLINICAL_DATA_BYTES_MAX: usize = 256 * 1024;
/// Most digits of a patient's identifier.
pub const PATIENT_ID_DIGITS_MAX: usize = 16;

/// Whether a text can be a patient's identifier: `PT` and digits.
pub fn is_patient_id(text: &str) -> bool {
    text.strip_prefix("PT").is_some_and(|digits| {
        (1..=PATIENT_ID_DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The text of the last turn; the turns before it aren't looked at.
///
/// # Errors
/// `InvalidInput` where there is no turn.
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

/// What an EMR write-back agent is told.
#[derive(Debug, PartialEq)]
pub(super) enum Order {
    /// Clinical data and for whom.
    Write(RawObject, String),
    /// Clinical data for nobody in particular.
    WhoseIsIt,
    /// Anything else.
    Unclear,
}

/// Reads `clinical_data={json}`, then perhaps ` patient_id=ID`. An identifier inside the data is data.
pub(super) fn order(text: &str) -> Order {
    let Some((_, rest)) = text.split_once("clinical_data=") else {
        return Order::Unclear;
    };
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<RawObject>();
    let data = match values.next() {
        Some(Ok(data)) if !data.is_empty() => data,
        _ => return Order::Unclear,
    };
    let behind = rest.get(values.byte_offset()..).unwrap_or_default();
    let Some((before, id)) = behind.split_once("patient_id=") else {
        return Order::WhoseIsIt;
    };
    let id = id
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .trim_end_matches(['.', ',', ';']);
    let stands_apart = before.ends_with(char::is_whitespace);
    if stands_apart && is_patient_id(id) {
        Order::Write(data, id.to_owned())
    } else {
        Order::WhoseIsIt
    }
}
