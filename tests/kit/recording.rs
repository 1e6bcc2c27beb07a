//! Logs of one test, whatever the others do beside it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

/// Records what this thread logs until it is dropped.
pub(crate) struct Recording {
    lines: Lines,
    _here: DefaultGuard,
    /// While there is but one subscriber, tracing asks the thread that meets a log line first whether anybody wants it,
    /// and remembers the answer for all: another test's thread would say no for this one.
    _second: Dispatch,
}

impl Recording {
    /// From now on, on this thread.
    pub(crate) fn start(level: LevelFilter) -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        let _here = tracing::subscriber::set_default(subscriber);
        Self {
            lines,
            _here,
            _second: Dispatch::new(tracing_subscriber::registry()),
        }
    }

    /// So far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
