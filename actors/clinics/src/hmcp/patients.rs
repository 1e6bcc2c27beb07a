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

use crate::access::{HmcpAccess, NamedPatients};

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

impl FindPatient {
    /// Returns the name; `None` without one, or if it is blank.
    fn given_name(&self) -> Option<&str> {
        let name = self.name.as_deref();
        name.filter(|name| !name.trim().is_empty())
    }
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
        let directory = PatientDirectory {
            model: config.model.clone(),
            by_words,
            words_max,
        };
        Ok(Self::from_handler(directory, config.tenant.as_deref()))
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

    /// Returns the patient with this full name. Case and accents are ignored.
    fn find_by_name(&self, name: &str) -> Option<&PatientEntry> {
        self.by_words.get(&folded_words(name))
    }

    async fn run_tool(
        &self,
        tool: FindPatient,
        cx: &Context,
    ) -> Result<FindPatientResult, Failure> {
        let shape = json!({ "type": "string", "title": "Patient's full name", "minLength": 1,
            "maxLength": PATIENT_NAME_BYTES_MAX });
        let name = given_or_questioned(
            tool.given_name().map(str::to_owned),
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
        let found = self.find_by_name(&name);
        let patient = found.ok_or_else(|| Failure::not_found("no patient goes by that name"))?;
        Ok(FindPatientResult {
            message: describe_patient(patient),
            patient_id: Some(patient.id.clone()),
            missing: Vec::new(),
        })
    }
}

/// Words around a patient's name in a request for the identifier.
const REQUEST_WORDS: &[&str] = &[
    "a",
    "access",
    "can",
    "could",
    "do",
    "find",
    "for",
    "get",
    "give",
    "have",
    "hello",
    "hi",
    "i",
    "id",
    "identifier",
    "is",
    "look",
    "me",
    "mr",
    "mrs",
    "ms",
    "name",
    "named",
    "need",
    "of",
    "patient",
    "please",
    "provide",
    "s",
    "search",
    "tell",
    "thank",
    "thanks",
    "the",
    "to",
    "up",
    "what",
    "with",
    "you",
];

/// Returns whether a text has no other words than a patient's name and those of a request. Any other word
/// may be of another patient's name.
fn names_only(text: &str, name: &str) -> bool {
    let (words, name) = (folded_words(text), folded_words(name));
    let mut rest = words.as_slice();
    while let [first, behind @ ..] = rest {
        rest = match rest.strip_prefix(name.as_slice()) {
            Some(behind) => behind,
            None if REQUEST_WORDS.contains(&first.as_str()) => behind,
            None => return false,
        };
    }
    true
}

fn describe_patient(PatientEntry { name, id }: &PatientEntry) -> String {
    format!("Patient identifier for {name}: patient_id={id}")
}

impl HmcpHandler for PatientDirectory {
    const ACCESS: HmcpAccess = HmcpAccess::Read;

    fn register_tools(on: &mut Handlers<PatientDataAgent>) {
        on.concurrent::<FindPatient>(HMCP_CALLS_MAX);
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn patients_of_turn(&self, text: &str) -> NamedPatients {
        // The refusal must not reveal whether a name is known here, also beside another's.
        match self.find_named(text) {
            NameMatch::One(patient) if names_only(text, &patient.name) => {
                NamedPatients::One(patient.id.clone())
            }
            _ => NamedPatients::Unclear,
        }
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
        let name = message.given_name().map(str::to_owned);
        self.run_guarded(
            FindPatient::NAME,
            asked,
            move |duty: &PatientDirectory| match name.as_deref().map(|name| duty.find_by_name(name))
            {
                Some(Some(patient)) => NamedPatients::One(patient.id.clone()),
                // The refusal must not reveal whether a name is known here.
                Some(None) => NamedPatients::Unclear,
                None => NamedPatients::None,
            },
            cx,
            |duty, cx| async move { duty.run_tool(message, &cx).await },
        )
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

const DATA_NAME: &str = "clinical_data=";
const ID_NAME: &str = "patient_id=";

/// Parses a request of the form `clinical_data={json}`, optionally followed by ` patient_id=ID`. An
/// identifier inside the JSON is only data, and text before the request is ignored. Without JSON,
/// or with an empty object, the request is [`WriteRequest::Unclear`]; without a valid identifier,
/// [`WriteRequest::MissingPatient`].
pub(super) fn parse_write_request(text: &str) -> WriteRequest {
    let Some((_, rest)) = text.split_once(DATA_NAME) else {
        return WriteRequest::Unclear;
    };
    let Some((data, behind)) = split_data(rest) else {
        return WriteRequest::Unclear;
    };
    let Some((before, id)) = behind.split_once(ID_NAME) else {
        return WriteRequest::MissingPatient;
    };
    let id = first_word(id);
    let stands_apart = before.ends_with(char::is_whitespace);
    if stands_apart && is_patient_id(id) {
        WriteRequest::Write(data, id.to_owned())
    } else {
        WriteRequest::MissingPatient
    }
}

/// Returns the patients that a request names anywhere outside its clinical data, also where
/// [`parse_write_request`] ignores them.
pub(super) fn patients_of_write(text: &str) -> NamedPatients {
    let (before, rest) = text.split_once(DATA_NAME).unwrap_or((text, ""));
    let behind = split_data(rest).map_or(rest, |(_, behind)| behind);
    let named = [before, behind].into_iter();
    let mut ids = named
        .flat_map(|part| part.split(ID_NAME).skip(1))
        .map(first_word);
    let Some(id) = ids.next() else {
        return NamedPatients::None;
    };
    match ids.all(|other| other == id) {
        true => NamedPatients::One(id.to_owned()),
        false => NamedPatients::Unclear,
    }
}

/// Splits a text into the JSON object at its start and what follows it. `None` without an object, or
/// with an empty one.
fn split_data(text: &str) -> Option<(RawObject, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<RawObject>();
    let data = values.next()?.ok().filter(|data| !data.is_empty())?;
    let behind = text.get(values.byte_offset()..).unwrap_or_default();
    Some((data, behind))
}

/// Returns the first word of a text, without punctuation at its end.
fn first_word(text: &str) -> &str {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.trim_end_matches(['.', ',', ';'])
}
