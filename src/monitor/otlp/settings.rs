//! Settings of the export over OTLP: `[telemetry]`, and the variables of the OpenTelemetry specification.

use std::collections::HashMap;
use std::time::Duration;

use callboard_message::log;
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::Temporality;
use secrecy::ExposeSecret;

use super::TelemetryError;
use crate::config::{TelemetryDeclaration, WebUrl, read_secret};
use crate::monitor::names::otel;

/// Maximum number of ended spans that wait for export (`OTEL_BSP_MAX_QUEUE_SIZE`), 2,048 by default.
/// Further ones are dropped and counted.
const SPANS_QUEUED_MAX: usize = 2_048;
/// Upper limit of `OTEL_BSP_MAX_QUEUE_SIZE`, in spans. Fixed.
const SPANS_QUEUED_LIMIT: usize = 65_536;
/// Maximum number of spans in one request (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`), 512 by default.
const SPANS_EXPORTED_MAX: usize = 512;
/// Longest time that an ended span waits for others (`OTEL_BSP_SCHEDULE_DELAY`, in ms), 5 s by default.
const EXPORT_DELAY: Duration = Duration::from_secs(5);
/// Timeout of one export (`OTEL_EXPORTER_OTLP_TIMEOUT`, in ms), 10 s by default.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the service if neither the topology nor a variable has one.
const SERVICE_NAME_DEFAULT: &str = "callboard";
/// Beginning of the SDK's name of a service that has none.
const SERVICE_NAME_UNKNOWN: &str = "unknown_service";

/// Settings of the export of traces and metrics. They hold secrets, so they have no `Debug`.
pub(crate) struct TelemetrySettings {
    /// Receiver of traces; `None` if they aren't exported.
    pub(super) traces: Option<ExportTarget>,
    /// Receiver of metrics; `None` if they aren't exported.
    pub(super) metrics: Option<ExportTarget>,
    /// Whether metrics are sums since the start or since the last export.
    pub(super) temporality: Temporality,
    /// Sizes and delay of batches of spans.
    pub(super) batch: BatchLimits,
    /// Headers of `headers_env`. The exporters add those of the variables.
    pub(super) headers: HashMap<String, String>,
    /// Description of the node in traces and metrics.
    pub(super) resource: Resource,
    sample_ratio: f64,
}

/// Receiver of one signal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExportTarget {
    /// URL with the path of the signal.
    pub endpoint: String,
    /// Timeout of one export.
    pub timeout: Duration,
}

/// Limits of batches of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchLimits {
    /// Maximum number of ended spans that wait. Further ones are dropped.
    pub queued_max: usize,
    /// Maximum number of spans in one request.
    pub exported_max: usize,
    /// Longest time that a span waits for others.
    pub delay: Duration,
}

impl TelemetrySettings {
    /// Reads the settings of a node from its topology and the environment. Variables override the topology.
    /// Values that the specification doesn't know are logged and ignored. `None` if nothing is exported: without
    /// an endpoint, or with `OTEL_SDK_DISABLED=true`.
    ///
    /// # Errors
    /// [`TelemetryError::Headers`] if the headers can't be read; [`TelemetryError::Endpoint`] if an
    /// endpoint in a variable isn't a URL; [`TelemetryError::Compression`] if a variable with a compression is set.
    pub fn read(
        declared: Option<&TelemetryDeclaration>,
        node: &str,
    ) -> Result<Option<Self>, TelemetryError> {
        let variables = |name: &str| std::env::var(name).ok();
        Self::from_variables(declared, node, &Variables(&variables))
    }

    /// Returns the share of traces that begin at this node and are exported, from 0 to 1.
    pub fn sample_ratio(&self) -> f64 {
        self.sample_ratio
    }

    fn from_variables(
        declared: Option<&TelemetryDeclaration>,
        node: &str,
        variables: &Variables<'_>,
    ) -> Result<Option<Self>, TelemetryError> {
        let none = TelemetryDeclaration::default();
        let declared = declared.unwrap_or(&none);
        let is_disabled = variables
            .text("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if is_disabled {
            return Ok(None);
        }
        let base = declared
            .otlp_endpoint
            .as_ref()
            .map(|url| url.url().to_string());
        let traces = variables.target("TRACES", "v1/traces", base.as_deref())?;
        let metrics = variables.target("METRICS", "v1/metrics", base.as_deref())?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        variables.check_protocol();
        let headers = match &declared.headers_env {
            Some(place) => {
                let secret = read_secret(place).map_err(TelemetryError::Headers)?;
                parse_headers(secret.expose_secret())?
            }
            None => HashMap::new(),
        };
        Ok(Some(Self {
            traces,
            metrics,
            temporality: variables.temporality(),
            batch: variables.batch_limits(),
            headers,
            resource: variables.resource(declared.service_name.as_deref(), node),
            sample_ratio: variables.sample_ratio(declared.sample_ratio),
        }))
    }
}

/// Splits `NAME=VALUE,NAME=VALUE`.
fn parse_headers(text: &str) -> Result<HashMap<String, String>, TelemetryError> {
    let mut headers = HashMap::new();
    for entry in text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let Some((name, value)) = entry.split_once('=') else {
            let reason = "write the headers as NAME=VALUE,NAME=VALUE".to_owned();
            return Err(TelemetryError::Headers(reason));
        };
        headers.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    Ok(headers)
}

/// Variables of the environment. Empty ones count as absent, as the specification demands.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        text.parse().unwrap_or_else(|_| {
            log::warn!(
                variable = name,
                default,
                "ignored a variable: write a whole number"
            );
            default
        })
    }

    /// Returns the receiver of the signal `signal`, such as `TRACES`; `None` if it isn't exported.
    fn target(
        &self,
        signal: &str,
        path: &str,
        declared: Option<&str>,
    ) -> Result<Option<ExportTarget>, TelemetryError> {
        let exporter = format!("OTEL_{signal}_EXPORTER");
        match self.text(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(_) => log::warn!(
                variable = exporter,
                "ignored a variable: write otlp or none"
            ),
        }
        let below = |base: &str| format!("{}/{path}", base.trim_end_matches('/'));
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (variable, endpoint) = match (self.text(&own), self.text(all), declared) {
            (Some(url), ..) => (&*own, url),
            (None, Some(base), _) => (all, below(&base)),
            (None, None, Some(base)) => ("[telemetry] otlp_endpoint", below(base)),
            (None, None, None) => return Ok(None),
        };
        // The message repeats no value: a URL may hold a secret.
        WebUrl::try_from(endpoint.clone()).map_err(|reason| TelemetryError::Endpoint {
            variable: variable.to_owned(),
            reason,
        })?;
        self.check_compression(signal)?;
        let default = self.number(
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            EXPORT_TIMEOUT.as_millis() as u64,
        );
        let timeout = self.number(&format!("OTEL_EXPORTER_OTLP_{signal}_TIMEOUT"), default);
        Ok(Some(ExportTarget {
            endpoint,
            timeout: Duration::from_millis(timeout),
        }))
    }

    /// Refuses a compression, which the exporters read themselves: they fail on each value, also on an empty one and on
    /// `none`, and can't be told to leave it out.
    fn check_compression(&self, signal: &str) -> Result<(), TelemetryError> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_COMPRESSION");
        let all = "OTEL_EXPORTER_OTLP_COMPRESSION".to_owned();
        let is_set = |name: &String| (self.0)(name).is_some();
        match [own, all].into_iter().find(is_set) {
            Some(name) => Err(TelemetryError::Compression(name)),
            None => Ok(()),
        }
    }

    fn temporality(&self) -> Temporality {
        let name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        let preference = self.text(name).map(|value| value.to_ascii_lowercase());
        match preference.as_deref() {
            None | Some("cumulative") => Temporality::Cumulative,
            Some("delta") => Temporality::Delta,
            Some("lowmemory") => Temporality::LowMemory,
            Some(_) => {
                log::warn!(
                    variable = name,
                    "ignored a variable: write cumulative, delta or lowmemory"
                );
                Temporality::Cumulative
            }
        }
    }

    /// Logs that a protocol other than OTLP/HTTP with protobuf isn't supported.
    fn check_protocol(&self) {
        for name in [
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
        ] {
            if self
                .text(name)
                .is_some_and(|value| value != "http/protobuf")
            {
                log::warn!(
                    variable = name,
                    "ignored a variable: the only protocol is http/protobuf, at port 4318 of most receivers"
                );
            }
        }
    }

    fn batch_limits(&self) -> BatchLimits {
        let size = |name, default: usize| {
            let size = usize::try_from(self.number(name, default as u64));
            size.unwrap_or(SPANS_QUEUED_LIMIT)
                .clamp(1, SPANS_QUEUED_LIMIT)
        };
        let queued_max = size("OTEL_BSP_MAX_QUEUE_SIZE", SPANS_QUEUED_MAX);
        let delay = self.number("OTEL_BSP_SCHEDULE_DELAY", EXPORT_DELAY.as_millis() as u64);
        BatchLimits {
            queued_max,
            exported_max: size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", SPANS_EXPORTED_MAX)
                .min(queued_max),
            delay: Duration::from_millis(delay),
        }
    }

    /// Returns the share of sampled traces. The parent of a trace that begins elsewhere decides about it, whatever
    /// the sampler.
    fn sample_ratio(&self, declared: Option<f64>) -> f64 {
        let declared = declared.unwrap_or(1.0);
        match self.text("OTEL_TRACES_SAMPLER").as_deref() {
            None => declared,
            Some("always_on" | "parentbased_always_on") => 1.0,
            Some("always_off" | "parentbased_always_off") => 0.0,
            Some("traceidratio" | "parentbased_traceidratio") => {
                let Some(text) = self.text("OTEL_TRACES_SAMPLER_ARG") else {
                    return 1.0;
                };
                let ratio = text
                    .parse::<f64>()
                    .ok()
                    .filter(|ratio| (0.0..=1.0).contains(ratio));
                ratio.unwrap_or_else(|| {
                    log::warn!("ignored OTEL_TRACES_SAMPLER_ARG: write a number from 0 to 1");
                    1.0
                })
            }
            Some(_) => {
                log::warn!("ignored OTEL_TRACES_SAMPLER: write parentbased_traceidratio");
                declared
            }
        }
    }

    fn resource(&self, declared: Option<&str>, node: &str) -> Resource {
        // With OTEL_RESOURCE_ATTRIBUTES, whose `service.name` counts less than OTEL_SERVICE_NAME.
        let detected = Resource::builder();
        let of_attributes = Resource::builder()
            .build()
            .get(&Key::from_static_str(otel::SERVICE_NAME))
            .map(|name| name.to_string())
            .filter(|name| !name.starts_with(SERVICE_NAME_UNKNOWN));
        let name = self
            .text("OTEL_SERVICE_NAME")
            .or(of_attributes)
            .or_else(|| declared.map(str::to_owned))
            .unwrap_or_else(|| SERVICE_NAME_DEFAULT.to_owned());
        detected
            .with_service_name(name)
            .with_attributes([
                KeyValue::new(otel::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
                KeyValue::new(otel::NODE, node.to_owned()),
            ])
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        declared: &TelemetryDeclaration,
        variables: &[(&str, &str)],
    ) -> Result<Option<TelemetrySettings>, TelemetryError> {
        let look = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        TelemetrySettings::from_variables(Some(declared), "n", &Variables(&look))
    }

    fn declared(url: &str) -> TelemetryDeclaration {
        TelemetryDeclaration {
            otlp_endpoint: Some(url.to_owned().try_into().unwrap()),
            sample_ratio: Some(0.5),
            ..TelemetryDeclaration::default()
        }
    }

    fn endpoints(settings: &TelemetrySettings) -> [Option<&str>; 2] {
        [&settings.traces, &settings.metrics]
            .map(|target| target.as_ref().map(|target| &*target.endpoint))
    }

    /// Goal: nothing is exported without an endpoint, or if it is turned off. Method: rows of variables.
    #[test]
    fn export_needs_an_endpoint() {
        let none = TelemetryDeclaration::default();
        assert!(read(&none, &[]).unwrap().is_none());
        assert!(
            read(&none, &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")])
                .unwrap()
                .is_none()
        );
        let off = [("OTEL_SDK_DISABLED", "true")];
        assert!(read(&declared("http://a:4318"), &off).unwrap().is_none());
        let off = [
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ];
        assert!(read(&declared("http://a:4318"), &off).unwrap().is_none());
    }

    /// Goal: the signal's variable comes before the general one, and that before the topology; only a base gets a path.
    /// Method: each alone and together.
    #[test]
    fn variables_override_the_topology() {
        let file = declared("http://a:4318/");
        let settings = read(&file, &[]).unwrap().unwrap();
        assert_eq!(
            endpoints(&settings),
            [
                Some("http://a:4318/v1/traces"),
                Some("http://a:4318/v1/metrics")
            ]
        );
        assert_eq!(settings.sample_ratio(), 0.5);
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:1/x");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:2/own");
        let settings = read(&file, &[all, own, ("OTEL_METRICS_EXPORTER", "none")]);
        assert_eq!(
            endpoints(&settings.unwrap().unwrap()),
            [Some("http://c:2/own"), None]
        );
        let settings = read(&file, &[all]).unwrap().unwrap();
        assert_eq!(endpoints(&settings)[0], Some("http://b:1/x/v1/traces"));
        let bad = read(&file, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "secret")])
            .err()
            .unwrap();
        assert!(matches!(&bad, TelemetryError::Endpoint { variable, .. } if variable == all.0));
        assert!(!bad.to_string().contains("secret"), "{bad}");
    }

    /// Goal: samplers, times and sizes are those of the specification; what can't be read is the default. Method: rows.
    #[test]
    fn numbers_and_samplers() {
        let file = declared("http://a:4318");
        for (sampler, argument, ratio) in [
            ("always_off", "1", 0.0),
            ("parentbased_always_on", "0", 1.0),
            ("parentbased_traceidratio", "0.25", 0.25),
            ("traceidratio", "", 1.0),
            ("traceidratio", "7", 1.0),
            ("jaeger_remote", "", 0.5),
        ] {
            let variables = [
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ];
            let settings = read(&file, &variables).unwrap().unwrap();
            assert_eq!(settings.sample_ratio(), ratio, "{sampler} {argument}");
        }
        let settings = read(&file, &[("OTEL_BSP_MAX_QUEUE_SIZE", "x")])
            .unwrap()
            .unwrap();
        let default = BatchLimits {
            queued_max: SPANS_QUEUED_MAX,
            exported_max: SPANS_EXPORTED_MAX,
            delay: EXPORT_DELAY,
        };
        assert_eq!(settings.batch, default);
        let variables = [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "65537"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "30"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "40"),
        ];
        let settings = read(&file, &variables).unwrap().unwrap();
        assert_eq!(settings.batch.queued_max, SPANS_QUEUED_LIMIT);
        assert_eq!(settings.batch.exported_max, 1);
        assert_eq!(settings.batch.delay, Duration::from_millis(20));
        let timeouts = [settings.traces, settings.metrics].map(|target| target.unwrap().timeout);
        assert_eq!(timeouts, [30, 40].map(Duration::from_millis));
    }

    /// Goal: a preference and an exporter that aren't known are ignored; a compression is refused by the variable's name.
    /// Method: rows of variables.
    #[test]
    fn unknown_values_are_ignored() {
        let file = declared("http://a:4318");
        let name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        for (value, temporality) in [
            ("", Temporality::Cumulative),
            ("DELTA", Temporality::Delta),
            ("lowmemory", Temporality::LowMemory),
            ("stepwise", Temporality::Cumulative),
        ] {
            let settings = read(&file, &[(name, value)]).unwrap().unwrap();
            assert_eq!(settings.temporality, temporality, "{value}");
        }
        let settings = read(&file, &[("OTEL_TRACES_EXPORTER", "console")]).unwrap();
        assert!(settings.unwrap().traces.is_some());
        let compressions = [
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
        ];
        for name in compressions {
            for value in ["gzip", "none", ""] {
                let error = read(&file, &[(name, value)]).err().unwrap();
                assert!(error.to_string().starts_with(name), "{error}");
            }
        }
    }

    /// Goal: headers are split as the specification writes them. Method: two with spaces, none, and one without a value.
    #[test]
    fn headers_are_split() {
        let headers = parse_headers("authorization=Bearer a=b, x-team = t ,").unwrap();
        assert_eq!(headers["authorization"], "Bearer a=b");
        assert_eq!(headers["x-team"], "t");
        assert!(parse_headers("").unwrap().is_empty());
        let error = parse_headers("s3cret").unwrap_err().to_string();
        assert!(
            error.contains("NAME=VALUE") && !error.contains("s3cret"),
            "{error}"
        );
    }
}
