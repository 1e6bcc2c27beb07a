use std::net::TcpListener;

use callboard_rpc::serve::{self as door, ListenOptions, ServeError, Serving};
use callboard_rpc::{Access, Trust};
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
    if !Access::from(options.trust).may_listen_on(address.ip()) {
        return Err(match options.trust {
            Trust::LoopbackOperator => ServeError::OperatorBeyondLoopback { address },
            _ => ServeError::OpenBeyondLoopback { address },
        });
    }
    let endpoint = BareServer::new(agent, options);
    door::serve(listener, listen, move |config| endpoint.configure(config))
}
