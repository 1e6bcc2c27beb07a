//! A query as the object that it would be in JSON.

use callboard_message::RawObject;
use url::form_urlencoded;

use crate::A2aError;

/// Most parameters of a query.
const PARAMETERS_MAX: usize = 32;

/// The parameters of a query as the members of an object, each a word: numbers and truths are read from words too. Each
/// may be there once.
///
/// # Errors
/// [`A2aError::invalid`].
pub(super) fn object(query: &str) -> Result<RawObject, A2aError> {
    let mut object = RawObject::new();
    for (nth, (name, value)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
        if nth == PARAMETERS_MAX {
            return Err(A2aError::invalid("", "has too many parameters"));
        }
        if object.get(&name).is_some() {
            return Err(A2aError::invalid(&name, "is there twice"));
        }
        object.set(&name, value);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a query says arrives as it was meant, once. Method: rows.
    #[test]
    fn queries_are_objects() {
        for (query, json) in [
            ("", "{}"),
            ("historyLength=3", r#"{"historyLength":"3"}"#),
            (
                "status=TASK_STATE_WORKING&includeArtifacts=true",
                r#"{"status":"TASK_STATE_WORKING","includeArtifacts":"true"}"#,
            ),
            ("contextId=a%20b%26c+d&pageToken=%22", r#"{"contextId":"a b&c d","pageToken":"\""}"#),
        ] {
            assert_eq!(object(query).ok().map(|o| o.to_raw().get().to_owned()).as_deref(), Some(json), "{query}");
        }
        assert!(object("a=1&a=2").is_err());
        let many = |n: usize| (0..n).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        assert!(object(&many(PARAMETERS_MAX)).is_ok());
        assert!(object(&many(PARAMETERS_MAX + 1)).is_err());
    }
}
