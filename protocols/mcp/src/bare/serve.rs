use std::net::TcpListener;

use callboard_rpc::Trust;
use callboard_rpc::serve::{self as door, ListenOptions, ServeError, Serving};
use callboard_runtime::AgentRef;

use super::inbound::{BareServer, BareServerOptions};

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
    let address = listener.local_addr()?;
    if options.trust == Trust::LoopbackOperator && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::OperatorBeyondLoopback { address });
    }
    let endpoint = BareServer::new(agent, options);
    door::serve(listener, listen, move |config| endpoint.configure(config))
}
