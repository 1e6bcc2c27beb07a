//! What is said to an HMCP agent, in its own small grammar: `clinical_data={json} patient_id=PT12345`.

use callboard_message::surface::CreateMessage;
use callboard_message::{Content, Failure, RawObject};
use serde_json::value::RawValue;

/// Bytes of the largest clinical data that is taken.
pub const CLINICAL_DATA_BYTES_MAX: usize = 256 * 1024;
/// Most digits of a patient's identifier.
pub const PATIENT_ID_DIGITS_MAX: usize = 16;

/// Whether a text can be a patient's identifier: `PT` and digits.
pub fn is_patient_id(text: &str) -> bool {
    text.strip_prefix("PT").is_some_and(|digits| {
        (1..=PATIENT_ID_DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The text of the last turn; the turns before it aren't looked at.
///
/// # Errors
/// `InvalidInput` where there is no turn.
pub(super) fn last_text(message: &CreateMessage) -> Result<String, Failure> {
    let turns: Vec<Box<RawValue>> = message.0.read("messages").unwrap_or_default();
    let last = turns.last().and_then(|turn| RawObject::parse(turn).ok());
    let last = last.ok_or_else(|| Failure::invalid("`messages` must be a list of at least one message"))?;
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
    let Some(at) = text.find(DATA) else { return Order::Unclear };
    let rest = text.get(at + DATA.len()..).unwrap_or_default();
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<RawObject>();
    let data = match values.next() {
        Some(Ok(data)) if !data.is_empty() => data,
        _ => return Order::Unclear,
    };
    let behind = rest.get(values.byte_offset()..).unwrap_or_default();
    let Some(at) = behind.find(ID) else { return Order::WhoseIsIt };
    let id = behind.get(at + ID.len()..).and_then(|id| id.split_whitespace().next()).unwrap_or_default();
    let id = id.trim_end_matches(['.', ',', ';']);
    let stands_apart = behind.get(..at).is_some_and(|before| before.ends_with(char::is_whitespace));
    match stands_apart && is_patient_id(id) {
        true => Order::Write(data, id.to_owned()),
        false => Order::WhoseIsIt,
    }
}

const DATA: &str = "clinical_data=";
const ID: &str = "patient_id=";
