use std::net::TcpListener;

use callboard_runtime::AgentRef;

use super::inbound::{BareServer, BareServerOptions};
use crate::listen::{self, ListenOptions, ServeError, Serving};

/// Serves `agent` in the bare dialect on a bound listener, with every timeout set. Call it within a tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    agent: AgentRef,
    options: BareServerOptions,
    listen: &ListenOptions,
) -> Result<Serving, ServeError> {
    let endpoint = BareServer::new(agent, options);
    let trust = endpoint.options().trust;
    listen::serve(listener, trust, listen, move |config| endpoint.configure(config))
}
