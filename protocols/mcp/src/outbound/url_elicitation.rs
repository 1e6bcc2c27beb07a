//! Addresses that a server may have a person visit.

use callboard_message::{Failure, Question, RawObject};
use callboard_rpc::is_loopback_host;
use reqwest::Url;
use serde_json::value::RawValue;

use super::exchange::TransportError;
use crate::wire::code::URL_ELICITATION_REQUIRED;

/// Checks that a question doesn't send a person to an address without encryption.
///
/// # Errors
/// `Rejected` for a URL elicitation whose address isn't `https`, or `http` on a loopback address.
pub(crate) fn check_question(question: &Question) -> Result<(), Failure> {
    match question {
        Question::Elicit(elicitation) if elicitation.is_url() => {
            check_address(elicitation.target_url().as_deref())
        }
        _ => Ok(()),
    }
}

/// Replaces an error by which a server requires visits, if one of its addresses isn't one that
/// [`check_question`] passes, or they can't be read. Other errors are returned unchanged.
pub(crate) fn screen_error(error: TransportError) -> TransportError {
    let TransportError::Rpc { error: rpc, .. } = &error else {
        return error;
    };
    if rpc.code != URL_ELICITATION_REQUIRED {
        return error;
    }
    match check_required(rpc.data.as_deref()) {
        Ok(()) => error,
        Err(refusal) => TransportError::Failed(refusal),
    }
}

/// Checks the elicitations in the data of an error. A client may read what this can't, so each must
/// be an object with an address.
fn check_required(data: Option<&RawValue>) -> Result<(), Failure> {
    let data = data.and_then(|data| RawObject::parse(data).ok());
    let required: Option<Vec<Box<RawValue>>> = data.and_then(|data| data.read("elicitations"));
    let required = required.ok_or_else(|| {
        Failure::rejected(
            "the server requires visits, but its error has no list `elicitations` that can be read",
        )
    })?;
    required.iter().try_for_each(|elicitation| {
        let elicitation = RawObject::parse(elicitation).ok();
        let address = elicitation.and_then(|elicitation| elicitation.text("url"));
        check_address(address.as_deref())
    })
}

fn check_address(url: Option<&str>) -> Result<(), Failure> {
    let url = url.and_then(|url| Url::parse(url).ok());
    let scheme = url.as_ref().map_or("", Url::scheme);
    match scheme {
        "https" => Ok(()),
        "http" if url.as_ref().is_some_and(is_loopback_host) => Ok(()),
        scheme => Err(Failure::rejected(format!(
            "the server asks to visit an address with the scheme `{scheme}`: it must be `https`, or `http` on a loopback address"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::Elicitation;
    use callboard_rpc::RpcError;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    /// Goal: a person is sent to encrypted pages and pages of this machine only, by a question and
    /// by an error. Method: a table of addresses, each as both.
    #[test]
    fn addresses() {
        for (url, passes) in [
            ("https://a.example/x?y", true),
            ("http://localhost:8080/", true),
            ("http://127.0.0.1/", true),
            ("http://[::1]:1/", true),
            ("http://a.example/", false),
            ("http://localhost.a.example/", false),
            ("http://127.0.0.1.a.example/", false),
            ("http://192.168.0.1/", false),
            ("javascript:alert(1)", false),
            ("file:///etc/passwd", false),
            ("data:text/html,x", false),
            ("HTTPS://a.example", true),
            ("a.example", false),
            ("", false),
        ] {
            let question = Question::Elicit(Elicitation::url("Go", url, "e1"));
            assert_eq!(check_question(&question).is_ok(), passes, "{url}");
            let elicitations = json!({ "elicitations": [
                { "mode": "url", "url": "https://a.example" }, { "mode": "url", "url": url }
            ] });
            let rpc = RpcError {
                data: Some(to_raw_value(&elicitations).unwrap()),
                ..RpcError::new(URL_ELICITATION_REQUIRED, "visit")
            };
            let error = TransportError::Rpc {
                error: rpc,
                status: None,
            };
            let is_kept = matches!(screen_error(error), TransportError::Rpc { .. });
            assert_eq!(is_kept, passes, "{url}");
        }
        assert!(check_question(&Question::elicit("Name?", json!({}))).is_ok());
    }

    /// Goal: an error whose addresses can't be read is refused, since a client may read them.
    /// Method: data that are none, no object, without a list, and with items that can't be read.
    #[test]
    fn unreadable_addresses() {
        for (data, passes) in [
            (r#"{"elicitations":[]}"#, true),
            (r#"{"elicitations":[{"url":"https://a.example"}]}"#, true),
            ("", false),
            ("[]", false),
            ("{}", false),
            (r#"{"elicitations":{"url":"http://a.example"}}"#, false),
            (r#"{"elicitations":[7]}"#, false),
            (
                r#"{"elicitations":[{"url":"https://a.example"},{}]}"#,
                false,
            ),
            (
                r#"{"elicitations":[{"url":"https://a.example","url":"http://a.example"}]}"#,
                false,
            ),
        ] {
            let error = TransportError::Rpc {
                error: RpcError {
                    data: RawValue::from_string(data.into()).ok(),
                    ..RpcError::new(URL_ELICITATION_REQUIRED, "visit")
                },
                status: None,
            };
            let is_kept = matches!(screen_error(error), TransportError::Rpc { .. });
            assert_eq!(is_kept, passes, "{data}");
        }
    }
}
