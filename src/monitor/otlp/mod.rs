//! Export of traces and metrics over OTLP/HTTP, made from the events of a node.
//!
//! Spans have the ids that the node itself gave to calls and sends to peers, so that a trace is connected across
//! nodes. They hold no principals, arguments or texts.

mod http;
mod settings;
mod span;

use std::time::Duration;

use callboard_message::log;
use callboard_runtime::{
    EXCHANGE_DURATION_BOUNDS_MS, Exchange, ExchangeEnd, ExchangeKind, NodeEvent, QuestionEnd,
};
use http::ExportClient;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider as _};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use settings::{BatchLimits, ExportTarget};
use span::span_of_event;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use settings::TelemetrySettings;

use super::EventSink;
use super::names::{self, otel};

/// Number of the node's bounds of durations that are below those that the conventions for MCP advise.
const SHORT_BOUNDS: usize = 3;
/// Instrumentation scope of spans and metrics.
const SCOPE_NAME: &str = "callboard";
/// Time for the last exports at shutdown, for traces and metrics each. What isn't sent by then is lost. Fixed.
const EXPORT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Failure to start the export of traces and metrics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// The headers can't be read. The reason holds nothing of them.
    #[error("[telemetry] headers_env: {0}")]
    Headers(String),
    /// An endpoint isn't a URL.
    #[error("{variable} can't be used as the OTLP endpoint: {reason}")]
    Endpoint {
        /// Variable or key with the endpoint.
        variable: String,
        /// Reason, without the value.
        reason: &'static str,
    },
    /// A variable asks for compression, or its value can't be read.
    #[error("{0}: exports aren't compressed, so that the variable must be absent. Unset it")]
    Compression(String),
    /// An exporter can't be created from the variables `OTEL_EXPORTER_OTLP_*`.
    #[error("the OTLP exporter can't be created: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The HTTP client can't be created.
    #[error("the HTTP client of the OTLP exporter can't be created: {0}")]
    Client(#[from] reqwest::Error),
}

/// Returns the bounds of the buckets of durations, in seconds, as the conventions for MCP advise.
fn advised_bounds_s() -> Vec<f64> {
    let bounds = EXCHANGE_DURATION_BOUNDS_MS.iter().skip(SHORT_BOUNDS);
    let seconds = bounds.map(|ms| Duration::from_millis(*ms).as_secs_f64());
    seconds.collect()
}

/// Running export of traces and metrics.
pub(crate) struct OtlpExporter {
    /// Task that exports spans; it ends once the sink has been dropped.
    spans: Option<JoinHandle<()>>,
    metrics: Option<SdkMeterProvider>,
}

impl OtlpExporter {
    /// Starts the export. The sink makes spans and measurements of the events that it gets. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// See [`TelemetryError`].
    pub fn start(settings: &TelemetrySettings) -> Result<(Self, OtlpSink), TelemetryError> {
        let scope = InstrumentationScope::builder(SCOPE_NAME)
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let traces = match &settings.traces {
            Some(target) => {
                let builder = SpanExporter::builder().with_http();
                let mut exporter = configured(builder, target, settings)?.build()?;
                exporter.set_resource(&settings.resource);
                Some(exporter)
            }
            None => None,
        };
        let metrics = match &settings.metrics {
            Some(target) => {
                let builder = MetricExporter::builder()
                    .with_http()
                    .with_temporality(settings.temporality);
                let exporter = configured(builder, target, settings)?.build()?;
                let provider = SdkMeterProvider::builder()
                    .with_resource(settings.resource.clone())
                    .with_reader(PeriodicReader::builder(exporter).build());
                Some(provider.build())
            }
            None => None,
        };
        let durations = metrics
            .as_ref()
            .map(|provider| OperationDurations::new(&provider.meter_with_scope(scope.clone())));
        let (spans, queue) = traces
            .map(|exporter| SpanQueue::open(exporter, settings.batch))
            .unzip();
        let sink = OtlpSink {
            scope,
            spans: queue,
            durations,
        };
        Ok((Self { spans, metrics }, sink))
    }

    /// Exports what is left, for at most [`EXPORT_SHUTDOWN_TIMEOUT`] each. Call it after the end of the task that has
    /// the sink.
    pub async fn shutdown(self) {
        if let Some(spans) = self.spans
            && timeout(EXPORT_SHUTDOWN_TIMEOUT, spans).await.is_err()
        {
            tracing::warn!("the last spans weren't exported in time");
        }
        let Some(metrics) = self.metrics else {
            return;
        };
        // It blocks until its own thread has sent the last metrics, over the client on this runtime.
        let ended = tokio::task::spawn_blocking(move || metrics.shutdown());
        if !matches!(
            timeout(EXPORT_SHUTDOWN_TIMEOUT, ended).await,
            Ok(Ok(Ok(())))
        ) {
            tracing::warn!("the last metrics weren't exported");
        }
    }
}

fn configured<B: WithExportConfig + WithHttpConfig>(
    builder: B,
    target: &ExportTarget,
    settings: &TelemetrySettings,
) -> Result<B, TelemetryError> {
    Ok(builder
        .with_endpoint(&target.endpoint)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(target.timeout)
        .with_headers(settings.headers.clone())
        .with_http_client(ExportClient::new(target.timeout)?))
}

/// Ended spans on their way to the exporting task.
struct SpanQueue {
    sender: mpsc::Sender<SpanData>,
    /// Spans that didn't fit since the last report.
    dropped: u64,
}

impl SpanQueue {
    fn open(exporter: SpanExporter, limits: BatchLimits) -> (JoinHandle<()>, Self) {
        let (sender, receiver) = mpsc::channel(limits.queued_max);
        let task = tokio::spawn(export_spans(exporter, receiver, limits));
        (task, Self { sender, dropped: 0 })
    }

    fn push(&mut self, span: SpanData) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(span) {
            self.dropped += 1;
        }
    }

    fn report_dropped(&mut self) {
        if self.dropped > 0 {
            log::warn!(
                spans = self.dropped,
                "dropped spans: the OTLP receiver is too slow or away. Lower `sample_ratio`, or raise OTEL_BSP_MAX_QUEUE_SIZE"
            );
            self.dropped = 0;
        }
    }
}

/// Exports spans in batches until the queue has been closed and is empty. A batch that can't be sent is lost, which the
/// HTTP client logs.
async fn export_spans(
    exporter: SpanExporter,
    mut spans: mpsc::Receiver<SpanData>,
    limits: BatchLimits,
) {
    let mut batch = Vec::new();
    while spans.recv_many(&mut batch, limits.exported_max).await > 0 {
        let deadline = Instant::now() + limits.delay;
        while batch.len() < limits.exported_max {
            let room = limits.exported_max - batch.len();
            match timeout_at(deadline, spans.recv_many(&mut batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let _ = exporter.export(std::mem::take(&mut batch)).await;
    }
}

/// Histograms of the conventions for MCP.
struct OperationDurations {
    server: Histogram<f64>,
    client: Histogram<f64>,
}

impl OperationDurations {
    fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, description: &'static str| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(description)
                .with_boundaries(advised_bounds_s())
                .build()
        };
        Self {
            server: histogram(
                otel::MCP_SERVER_OPERATION_DURATION,
                "Duration of requests of MCP clients.",
            ),
            client: histogram(
                otel::MCP_CLIENT_OPERATION_DURATION,
                "Duration of requests to MCP servers, and of questions to MCP clients.",
            ),
        }
    }

    fn record(&self, event: &NodeEvent) {
        match event {
            NodeEvent::ExchangeEnded(end) => self.record_exchange(end),
            NodeEvent::QuestionEnded(end) => self.record_question(end),
            _ => {}
        }
    }

    fn record_exchange(&self, end: &ExchangeEnd) {
        let exchange = &*end.exchange;
        let histogram = match exchange.kind {
            _ if exchange.origin.protocol != names::PROTOCOL_MCP => return,
            ExchangeKind::Inbound => &self.server,
            ExchangeKind::Outbound => &self.client,
            ExchangeKind::Local => return,
        };
        histogram.record(
            end.duration.as_secs_f64(),
            &measured_attributes(end, exchange),
        );
    }

    fn record_question(&self, end: &QuestionEnd) {
        let question = &*end.question;
        if question.origin.protocol != names::PROTOCOL_MCP {
            return;
        }
        let method = names::question_method(&question.kind);
        let mut attributes = vec![KeyValue::new(otel::MCP_METHOD_NAME, method)];
        if let Some(failure) = end.failure {
            attributes.push(KeyValue::new(
                otel::ERROR_TYPE,
                names::failure_name(failure),
            ));
        }
        self.client.record(end.duration.as_secs_f64(), &attributes);
    }
}

/// Returns the attributes of a measurement. The tool is left out after a failure and an error of the tool, because it may be
/// any text of the client.
fn measured_attributes(end: &ExchangeEnd, exchange: &Exchange) -> Vec<KeyValue> {
    let origin = &exchange.origin;
    let method = names::method(origin, &exchange.message, exchange.tool.is_some());
    let mut attributes = vec![KeyValue::new(otel::MCP_METHOD_NAME, method)];
    for (name, value) in [
        (otel::MCP_PROTOCOL_VERSION, origin.version),
        (otel::NETWORK_TRANSPORT, origin.transport),
    ] {
        if !value.is_empty() {
            attributes.push(KeyValue::new(name, value));
        }
    }
    let error = names::error_type(end.failure, end.is_tool_error);
    if let Some(kind) = error {
        attributes.push(KeyValue::new(otel::ERROR_TYPE, kind));
    }
    if method == names::TOOLS_CALL {
        attributes.push(KeyValue::new(
            otel::GEN_AI_OPERATION_NAME,
            otel::EXECUTE_TOOL,
        ));
        if error.is_none() {
            let tool = exchange.tool.as_deref().unwrap_or(&exchange.message);
            attributes.push(KeyValue::new(otel::GEN_AI_TOOL_NAME, tool.to_owned()));
        }
    }
    attributes
}

/// Sink that makes spans and measurements of a node's events.
pub(crate) struct OtlpSink {
    scope: InstrumentationScope,
    spans: Option<SpanQueue>,
    durations: Option<OperationDurations>,
}

impl EventSink for OtlpSink {
    fn event(&mut self, event: &NodeEvent) {
        if let Some(durations) = &self.durations {
            durations.record(event);
        }
        if let Some(queue) = &mut self.spans
            && let Some(span) = span_of_event(event, &self.scope)
        {
            queue.push(span);
        }
    }

    fn flush(&mut self) {
        if let Some(queue) = &mut self.spans {
            queue.report_dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use callboard_message::capabilities::CallTool;
    use callboard_message::{CallId, FailureKind, Message, Principal, TraceContext};
    use callboard_runtime::CallOrigin;

    use super::*;

    /// Goal: a measurement names a tool only if it has answered. Method: an answer, a failure, an error of the tool.
    #[test]
    fn measurements_name_tools_that_answered() {
        let mut end = ExchangeEnd {
            exchange: Arc::new(Exchange {
                kind: ExchangeKind::Inbound,
                call: CallId::generate(),
                trace: TraceContext::root(),
                principal: Arc::new(Principal::agent("alice")),
                agent: "jira".into(),
                message: CallTool::NAME.into(),
                tool: Some("create".into()),
                origin: CallOrigin::MCP,
                began_at: SystemTime::UNIX_EPOCH,
                request_bytes: 2,
                content: None,
            }),
            duration: Duration::from_secs(1),
            failure: None,
            is_tool_error: false,
            reply_bytes: 2,
            content: None,
        };
        for (failure, is_tool_error, is_named) in [
            (None, false, true),
            (Some(FailureKind::NotFound), false, false),
            (None, true, false),
        ] {
            (end.failure, end.is_tool_error) = (failure, is_tool_error);
            let attributes = measured_attributes(&end, &end.exchange);
            let mut names = attributes.iter().map(|attribute| attribute.key.as_str());
            assert_eq!(
                names.any(|name| name == otel::GEN_AI_TOOL_NAME),
                is_named,
                "{attributes:?}"
            );
        }
    }
}
