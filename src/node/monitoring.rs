//! Monitor of a node's events, with the export of its traces and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use callboard_message::DataClass;
use callboard_runtime::{ContentFilter, NodeEventOptions, System};
use tokio_util::sync::CancellationToken;

use super::NodeError;
use super::policy::DataClassRegistry;
use crate::config::{ConsoleDeclaration, Topology};
#[cfg(feature = "otlp")]
use crate::monitor::otlp::{OtlpExporter, TelemetryError, TelemetrySettings};
use crate::monitor::{MonitorOptions, NodeMonitor};

/// Running monitor of a node.
pub(super) struct NodeMonitoring {
    monitor: NodeMonitor,
    /// Data classes of agents, which decide whose contents are shown.
    classes: DataClassRegistry,
    /// Whether requests and replies are recorded.
    reads_content: Arc<AtomicBool>,
    /// Cancelled after the node's calls have ended, so that their ends are still read.
    stop: CancellationToken,
    #[cfg(feature = "otlp")]
    exporter: Option<OtlpExporter>,
}

impl NodeMonitoring {
    /// Starts the monitor if the topology exports traces and metrics, or `has_console` is set. Returns `None` if nobody
    /// reads events.
    ///
    /// # Errors
    /// [`NodeError::Telemetry`] if the export can't be started.
    pub(super) fn start(
        system: &System,
        topology: &Topology,
        has_console: bool,
    ) -> Result<Option<Self>, NodeError> {
        #[cfg(feature = "otlp")]
        let settings =
            TelemetrySettings::read(topology.section(), &topology.name).map_err(to_node_error)?;
        #[cfg(feature = "otlp")]
        let (exports, sample_ratio) = (
            settings.is_some(),
            settings.as_ref().map(TelemetrySettings::sample_ratio),
        );
        #[cfg(not(feature = "otlp"))]
        let (exports, sample_ratio) = (false, None);
        if !exports && !has_console {
            return Ok(None);
        }
        let classes = DataClassRegistry::default();
        classes.raise(topology);
        let reads_content = Arc::new(AtomicBool::new(records_content(topology)));
        let filter = shown_agents(&classes);
        let is_on = reads_content.clone();
        let recorded: ContentFilter = Arc::new(move |agent| is_on.load(Relaxed) && filter(agent));
        let default = NodeEventOptions::default();
        let options = MonitorOptions {
            node: topology.name.clone(),
            events: NodeEventOptions {
                content: Some(recorded),
                sample_ratio: sample_ratio.unwrap_or(default.sample_ratio),
                // Exported traces and metrics are made of recorded exchanges.
                recorded_per_second: default.recorded_per_second.filter(|_| !exports),
                ..default
            },
        };
        let stop = CancellationToken::new();
        let started = NodeMonitor::start(system, options, stop.clone());
        let monitor = started.map_err(|error| NodeError::Telemetry(error.to_string()))?;
        #[cfg(feature = "otlp")]
        let exporter = match &settings {
            None => None,
            Some(settings) => {
                let (exporter, sink) = OtlpExporter::start(settings).map_err(to_node_error)?;
                monitor.add_sink(Box::new(sink));
                Some(exporter)
            }
        };
        Ok(Some(Self {
            monitor,
            classes,
            reads_content,
            stop,
            #[cfg(feature = "otlp")]
            exporter,
        }))
    }

    /// Returns the monitor.
    pub(super) fn monitor(&self) -> &NodeMonitor {
        &self.monitor
    }

    /// Returns the agents whose texts may be shown: those of the classes public and internal.
    pub(super) fn shown_agents(&self) -> ContentFilter {
        shown_agents(&self.classes)
    }

    /// Takes over the data classes of a changed topology, and whether contents are recorded. Must be called before its
    /// agents start.
    pub(super) fn update(&self, topology: &Topology) {
        self.classes.raise(topology);
        let reads_content = records_content(topology);
        self.reads_content.store(reads_content, Relaxed);
        self.monitor.set_shows_content(reads_content);
    }

    /// Reads the last events, and exports them.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.monitor.ended().await;
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            exporter.shutdown().await;
        }
    }
}

fn records_content(topology: &Topology) -> bool {
    let declared: Option<&ConsoleDeclaration> = topology.section();
    declared.is_some_and(|declared| declared.read_content)
}

fn shown_agents(classes: &DataClassRegistry) -> ContentFilter {
    let classes = classes.clone();
    Arc::new(move |agent| classes.class_or_highest(agent) <= DataClass::Internal)
}

#[cfg(feature = "otlp")]
fn to_node_error(error: TelemetryError) -> NodeError {
    NodeError::Telemetry(error.to_string())
}
