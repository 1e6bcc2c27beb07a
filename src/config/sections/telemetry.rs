//! Export of traces and metrics over OpenTelemetry's protocol (`[telemetry]`).

use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::ProblemCollector;
use crate::config::secret::check_secret;
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, WebUrl};

/// Maximum length of `service_name` in bytes. A longer name is refused. Fixed.
const SERVICE_NAME_BYTES_MAX: usize = 256;

/// Export of traces and metrics over OTLP (`[telemetry]`). The standard variables `OTEL_*` override it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryDeclaration {
    /// Base URL of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`. Traces go to `/v1/traces` below
    /// it, metrics to `/v1/metrics`. Default: none, so that nothing is exported.
    pub otlp_endpoint: Option<WebUrl>,
    /// Share of traces that begin at this node and are exported, from 0 to 1. Default: 1.
    pub sample_ratio: Option<f64>,
    /// Environment variable with headers of the exports, as `NAME=VALUE,NAME=VALUE`.
    pub headers_env: Option<String>,
    /// Name of the service in traces and metrics. Default: `callboard`.
    pub service_name: Option<String>,
}

impl SectionDeclaration for TelemetryDeclaration {
    fn check(&self, tree: &ConfigTree, _: &DeclaredNames<'_>, problems: &mut ProblemCollector<'_>) {
        if !cfg!(feature = "otlp") {
            problems.error_with(
                Some(tree.span.clone()),
                "this callboard has no export of traces and metrics",
                Some("build it with `--features otlp`, or leave [telemetry] out".to_owned()),
            );
        }
        if let Some(url) = &self.otlp_endpoint
            && url.url().query().is_some()
        {
            problems.error_with(
                tree.span_of("otlp_endpoint"),
                "`otlp_endpoint` can't have a query",
                Some(
                    "write secrets as headers, in the variable that `headers_env` names".to_owned(),
                ),
            );
        }
        if let Some(ratio) = self.sample_ratio
            && !(0.0..=1.0).contains(&ratio)
        {
            let message = format!("`sample_ratio` must be from 0 to 1, not {ratio}");
            problems.error(tree.span_of("sample_ratio"), message);
        }
        if let Some(name) = &self.service_name
            && (name.trim().is_empty()
                || name.len() > SERVICE_NAME_BYTES_MAX
                || name.contains(char::is_control))
        {
            let message = format!(
                "`service_name` must have 1 to {SERVICE_NAME_BYTES_MAX} bytes and no control characters"
            );
            problems.error(tree.span_of("service_name"), message);
        }
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        if let Some(place) = &self.headers_env {
            check_secret(place, tree.span_of("headers_env"), problems);
        }
    }
}
