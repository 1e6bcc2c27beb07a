//! Operations as a client uses them: what goes out, in which words, and what comes back.

use callboard_message::RawObject;
use callboard_message::json::{quote, raw};
use reqwest::Method;
use serde_json::value::RawValue;

use super::choose::Candidate;
use super::options::Version;
use crate::dialect::Operation;
use crate::wire::Wire;
use crate::{A2aError, Dialect};

/// One operation as a client asks for it; `T` is what comes back, once or as a stream's events.
pub(super) struct Ask<'a, T> {
    pub(super) operation: Operation,
    /// Over HTTP+JSON: the path behind version and tenant.
    pub(super) path: String,
    /// Writes JSON-RPC's params, which are the body over HTTP+JSON, without a tenant.
    write: &'a (dyn Fn(Dialect) -> Box<RawValue> + Sync),
    pub(super) read: fn(Dialect, &RawValue) -> Result<T, A2aError>,
}

impl<'a, T> Ask<'a, T> {
    pub(super) fn new(
        operation: Operation,
        path: impl Into<String>,
        write: &'a (dyn Fn(Dialect) -> Box<RawValue> + Sync),
        read: fn(Dialect, &RawValue) -> Result<T, A2aError>,
    ) -> Self {
        Self {
            operation,
            path: path.into(),
            write,
            read,
        }
    }

    /// The method over HTTP+JSON.
    pub(super) fn method(&self) -> Method {
        match self.operation {
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::CancelTask
            | Operation::CreateTaskPushNotificationConfig => Method::POST,
            _ => Method::GET,
        }
    }

    /// JSON-RPC's params, with the tenant that the interface wants: 1.0 has them.
    pub(super) fn params(&self, to: &Candidate) -> Box<RawValue> {
        let params = self.body(to);
        match params.get().strip_prefix('{') {
            Some(members) if to.version == Version::V10 && !to.tenant.is_empty() => {
                let comma = if members == "}" { "" } else { "," };
                raw(format!(
                    "{{\"tenant\":{}{comma}{members}",
                    quote(&to.tenant)
                ))
            }
            _ => params,
        }
    }

    /// The body over HTTP+JSON, where the path says the tenant.
    pub(super) fn body(&self, to: &Candidate) -> Box<RawValue> {
        (self.write)(to.dialect())
    }
}

/// An id as one segment of a path: nothing in it ends the segment or names a method.
pub(super) fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let mut written = String::with_capacity(id.len());
    for byte in id.bytes() {
        match plain(byte) {
            true => written.push(char::from(byte)),
            false => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

/// What a request says, but for its `path` members and its tenant, as a query; empty where that is nothing.
pub(super) fn query(request: &impl Wire, path: &[&str]) -> String {
    let said = RawObject::parse(&request.to_raw()).unwrap_or_default();
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in said
        .iter()
        .filter(|(name, _)| *name != "tenant" && !path.contains(name))
    {
        let text =
            serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned());
        query.append_pair(name, &text);
    }
    let query = query.finish();
    if query.is_empty() {
        query
    } else {
        format!("?{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{GetTaskRequest, ListTasksRequest};

    /// Goal: an id stays one segment whatever is in it, and a query says what the request says. Method: rows.
    #[test]
    fn places_hold_ids() {
        for (id, path) in [
            ("a-1", "a-1"),
            ("a/../b", "a%2F%2E%2E%2Fb"),
            ("x:cancel?", "x%3Acancel%3F"),
        ] {
            assert_eq!(segment(id), path);
            let request = GetTaskRequest {
                id: id.into(),
                ..GetTaskRequest::default()
            };
            assert_eq!(query(&request, &["id"]), "");
        }
        let list = ListTasksRequest {
            tenant: "t".into(),
            context_id: "c d".into(),
            page_size: Some(5),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        assert_eq!(
            query(&list, &[]),
            "?contextId=c+d&pageSize=5&includeArtifacts=true"
        );
    }
}
