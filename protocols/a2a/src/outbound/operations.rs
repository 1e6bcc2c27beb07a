//! Operations as a client performs them: request, format and response.

use callboard_message::RawObject;
use callboard_message::json::{quote, raw_from_written};
use reqwest::Method;
use serde_json::value::RawValue;

use super::interface_selection::InterfaceCandidate;
use super::options::ProtocolVersion;
use crate::dialect::Operation;
use crate::wire::WireType;
use crate::{A2aError, Dialect};

/// An operation for a remote agent, independent of version and binding. `T` is the type of the
/// response, or of the events of a stream.
pub(super) struct ClientOperation<'a, T> {
    pub(super) operation: Operation,
    /// Path and query of the operation over HTTP+JSON. It follows the version or tenant.
    pub(super) path: String,
    /// Callback that writes the parameters, which are JSON-RPC params or an HTTP+JSON body. The
    /// tenant is omitted.
    write: &'a (dyn Fn(Dialect) -> Box<RawValue> + Sync),
    pub(super) read: fn(Dialect, &RawValue) -> Result<T, A2aError>,
}

impl<'a, T> ClientOperation<'a, T> {
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

    /// Returns the HTTP method of the operation over HTTP+JSON.
    pub(super) fn http_method(&self) -> Method {
        match self.operation {
            Operation::SendMessage
            | Operation::SendStreamingMessage
            | Operation::CancelTask
            | Operation::CreateTaskPushNotificationConfig => Method::POST,
            _ => Method::GET,
        }
    }

    /// Returns the JSON-RPC params of the operation, with the interface's tenant if the version is
    /// 1.0.
    pub(super) fn rpc_params(&self, to: &InterfaceCandidate) -> Box<RawValue> {
        let params = self.http_body(to);
        match params.get().strip_prefix('{') {
            Some(members) if to.version == ProtocolVersion::V10 && !to.tenant.is_empty() => {
                let comma = if members == "}" { "" } else { "," };
                raw_from_written(format!(
                    "{{\"tenant\":{}{comma}{members}",
                    quote(&to.tenant)
                ))
            }
            _ => params,
        }
    }

    /// Returns the HTTP+JSON body of the operation, without the tenant, because the path contains
    /// it.
    pub(super) fn http_body(&self, to: &InterfaceCandidate) -> Box<RawValue> {
        (self.write)(to.dialect())
    }
}

/// Percent-encodes an id as a single path segment. Slashes and colons are escaped, so that the id
/// can't add a segment or a custom method (`:cancel`).
pub(super) fn path_segment(id: &str) -> String {
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

/// Returns the members of a request as a URL query that begins with `?`; empty if there are none.
/// The tenant and the members named in `path` are omitted, because the path contains them.
pub(super) fn query_string(request: &impl WireType, path: &[&str]) -> String {
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

    /// Goal: an id stays one segment whatever is in it, and a query has the request's members.
    /// Method: rows.
    #[test]
    fn places_hold_ids() {
        for (id, path) in [
            ("a-1", "a-1"),
            ("a/../b", "a%2F%2E%2E%2Fb"),
            ("x:cancel?", "x%3Acancel%3F"),
        ] {
            assert_eq!(path_segment(id), path);
            let request = GetTaskRequest {
                id: id.into(),
                ..GetTaskRequest::default()
            };
            assert_eq!(query_string(&request, &["id"]), "");
        }
        let list = ListTasksRequest {
            tenant: "t".into(),
            context_id: "c d".into(),
            page_size: Some(5),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        assert_eq!(
            query_string(&list, &[]),
            "?contextId=c+d&pageSize=5&includeArtifacts=true"
        );
    }
}
