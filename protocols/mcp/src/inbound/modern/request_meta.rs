use callboard_message::json::text;
use callboard_message::{CallerCapabilities, LogLevel, RawObject, TraceContext};
use callboard_rpc::RpcError;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::inbound::client_messages::ProgressReporter;
use crate::inbound::endpoint::AgentEndpoint;
use crate::inbound::request::{McpMethod, McpRequest, MetaName, ParamName, RequestParams};
use crate::wire::code::{HEADER_MISMATCH, UNSUPPORTED_VERSION};
use crate::wire::header::{HeaderParam, HeaderParamKind};
use crate::wire::meta::{CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION};
use crate::wire::{Era, Revision, header};

/// Metadata of a modern-era request: its `_meta`, and the members that resume a suspended call.
pub(crate) struct RequestMeta {
    /// Capabilities that the client declares for this request.
    pub abilities: CallerCapabilities,
    /// Minimum level of the log messages that the client wants; `None` if it wants none.
    pub log_level: Option<LogLevel>,
    /// Progress reporter; `None` if the client wants no progress.
    pub progress: Option<ProgressReporter>,
    pub trace: TraceContext,
    /// Number of agents through which the request has passed.
    pub hops: u16,
    /// Answers to questions of the suspended call that this request resumes.
    pub input_responses: Option<RawObject>,
    /// Signed state of the suspended call that this request resumes.
    pub request_state: Option<String>,
}

impl RequestMeta {
    /// Parses the metadata of a request.
    ///
    /// # Errors
    /// `INVALID_PARAMS` if a required member is missing or a member has the wrong type,
    /// `UNSUPPORTED_VERSION` for another revision. Both must be answered with HTTP status 400.
    pub fn parse(params: &RequestParams) -> Result<Self, RpcError> {
        if params.get(ParamName::Meta).is_none() {
            return Err(missing_member("_meta"));
        }
        if !params.is_meta_valid() {
            return Err(malformed_member("_meta", "an object"));
        }
        // `null` counts as missing.
        let member = |name| params.meta(name).filter(|value| value.get() != "null");
        let version =
            member(MetaName::ProtocolVersion).ok_or_else(|| missing_member(PROTOCOL_VERSION))?;
        let version =
            text(version).ok_or_else(|| malformed_member(PROTOCOL_VERSION, "a string"))?;
        if !is_supported_version(&version) {
            return Err(unsupported_version(&version));
        }
        let capabilities = member(MetaName::ClientCapabilities)
            .ok_or_else(|| missing_member(CLIENT_CAPABILITIES))?;
        let capabilities = RawObject::parse(capabilities)
            .map_err(|_| malformed_member(CLIENT_CAPABILITIES, "an object"))?;
        let level = member(MetaName::LogLevel)
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose();
        let level = level.map_err(|_| malformed_member(LOG_LEVEL, "a level of RFC 5424"))?;
        let token = member(MetaName::ProgressToken);
        if token.is_some_and(|token| !ProgressReporter::is_progress_token(token)) {
            return Err(malformed_member(PROGRESS_TOKEN, "a string or a number"));
        }
        let responses = params
            .get(ParamName::InputResponses)
            .map(RawObject::parse)
            .transpose();
        let state = params
            .get(ParamName::RequestState)
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose();
        Ok(Self {
            abilities: CallerCapabilities(capabilities),
            log_level: level,
            progress: token.map(ProgressReporter::for_token),
            trace: params.trace(),
            hops: params.hops(),
            input_responses: responses
                .map_err(|_| malformed_member("inputResponses", "an object"))?,
            request_state: state.map_err(|_| malformed_member("requestState", "a string"))?,
        })
    }
}

/// Returns the revisions that a modern-era request may name.
pub(crate) fn supported_versions() -> impl Iterator<Item = &'static str> {
    Revision::ALL
        .into_iter()
        .filter(|revision| revision.era() == Era::Modern)
        .map(Revision::as_str)
}

fn is_supported_version(version: &str) -> bool {
    supported_versions().any(|spoken| spoken == version)
}

fn unsupported_version(requested: &str) -> RpcError {
    const CHARS_MAX: usize = 64;
    let requested: String = requested.chars().take(CHARS_MAX).collect();
    let supported: Vec<&str> = supported_versions().collect();
    let message = format!(
        "unsupported protocol version: this server speaks {}",
        supported.join(", ")
    );
    let data = RawObject::single("supported", supported).with("requested", requested);
    RpcError {
        data: to_raw_value(&data).ok(),
        ..RpcError::new(UNSUPPORTED_VERSION, message)
    }
}

fn missing_member(name: &str) -> RpcError {
    RpcError::invalid_params(format!("missing `{name}`"))
}

fn malformed_member(name: &str, expected: &str) -> RpcError {
    RpcError::invalid_params(format!("`{name}` must be {expected}"))
}

/// Result of looking up a request header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderField<'a> {
    Missing,
    /// Value of a header that occurs once, in bytes.
    One(&'a [u8]),
    /// The header occurs several times.
    Several,
}

/// Looks up a header by its lower-case name.
pub(crate) type HeaderLookup<'f, 'h> = &'f dyn Fn(&str) -> HeaderField<'h>;

/// Checks the headers of a streamable HTTP request against its body (2026-07-28,
/// basic/transports/streamable-http, Server Validation).
///
/// A body without a revision, or with an unsupported one, passes; [`RequestMeta::parse`] rejects
/// it.
///
/// # Errors
/// `HEADER_MISMATCH`, to be answered with status 400. The message repeats no header value.
pub(crate) fn check_headers(
    endpoint: &AgentEndpoint,
    field: HeaderLookup<'_, '_>,
    request: &McpRequest,
) -> Result<(), RpcError> {
    let params = &request.params;
    let Some(version) = params.protocol_version() else {
        return Ok(());
    };
    check_plain_header(field, header::PROTOCOL_VERSION, &version)?;
    if !is_supported_version(&version) {
        return Ok(());
    }
    check_plain_header(field, header::METHOD, &request.name)?;
    let repeated = request.method.repeated_param();
    let about = repeated.and_then(|(param, is_required)| {
        let is_checked = is_required || field(header::NAME) != HeaderField::Missing;
        params.text(param).filter(|_| is_checked)
    });
    // Params that lack it are rejected later, for that reason.
    if let Some(about) = &about {
        check_encoded_header(field, header::NAME, about)?;
    }
    if let Some(tool) = about.filter(|_| request.method == McpMethod::CallTool) {
        let adapter = endpoint.adapter();
        let repeated = adapter.header_params(&tool);
        if !repeated.is_empty() {
            let arguments = params
                .get(ParamName::Arguments)
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default();
            repeated
                .iter()
                .try_for_each(|param| check_argument_header(field, param, &arguments))?;
        }
    }
    Ok(())
}

/// Checks that a header has the value `body`. The header is never Base64-encoded.
fn check_plain_header(field: HeaderLookup<'_, '_>, name: &str, body: &str) -> Result<(), RpcError> {
    match single_value(field, name)?.trim_ascii() == body.as_bytes() {
        true => Ok(()),
        false => Err(mismatch_error(name)),
    }
}

/// Checks that a header has the value `body`, plain or Base64-encoded.
fn check_encoded_header(
    field: HeaderLookup<'_, '_>,
    name: &str,
    body: &str,
) -> Result<(), RpcError> {
    match header::decode(single_value(field, name)?) {
        Some(value) if value == body => Ok(()),
        Some(_) => Err(mismatch_error(name)),
        None => Err(header_error(format!(
            "the header {name} holds invalid characters or encoding"
        ))),
    }
}

fn single_value<'h>(field: HeaderLookup<'_, 'h>, name: &str) -> Result<&'h [u8], RpcError> {
    match field(name) {
        HeaderField::One(value) => Ok(value),
        HeaderField::Missing => Err(header_error(format!("the header {name} is missing"))),
        HeaderField::Several => Err(header_error(format!(
            "the header {name} occurs several times"
        ))),
    }
}

/// Checks an `Mcp-Param-*` header against its argument in the body. The header must be present if
/// and only if the argument is present and not `null`.
fn check_argument_header(
    field: HeaderLookup<'_, '_>,
    param: &HeaderParam,
    arguments: &Value,
) -> Result<(), RpcError> {
    let name = param.header.as_str();
    let mut found = Some(arguments);
    for member in &param.path {
        found = found.and_then(|value| value.get(member));
    }
    match (found.filter(|value| !value.is_null()), param.kind) {
        (None, _) if field(name) == HeaderField::Missing => Ok(()),
        (None, _) => Err(mismatch_error(name)),
        (Some(Value::String(text)), HeaderParamKind::String) => {
            check_encoded_header(field, name, text)
        }
        (Some(Value::Bool(flag)), HeaderParamKind::Boolean) => {
            check_encoded_header(field, name, if *flag { "true" } else { "false" })
        }
        (Some(Value::Number(number)), HeaderParamKind::Integer) => {
            let sent = header::decode(single_value(field, name)?);
            let sent = sent.and_then(|text| serde_json::from_str::<serde_json::Number>(&text).ok());
            let same = sent.is_some_and(|sent| match (sent.as_i64(), number.as_i64()) {
                (Some(sent), Some(body)) => sent == body,
                _ => sent.as_f64() == number.as_f64(),
            });
            if same {
                Ok(())
            } else {
                Err(mismatch_error(name))
            }
        }
        // A value of another type than the schema's can't be repeated in a header.
        (Some(_), _) => Err(mismatch_error(name)),
    }
}

fn mismatch_error(name: &str) -> RpcError {
    header_error(format!("the header {name} doesn't match the body"))
}

fn header_error(message: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message)
}
