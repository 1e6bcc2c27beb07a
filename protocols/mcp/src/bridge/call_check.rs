//! Checks of tool calls before they are sent: the server must list the tool, and the arguments must
//! fit its input schema.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::ListTools;
use callboard_message::json::raw_ref;
use callboard_message::{Failure, Message, RawMessage, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::outbound_policy::{REMOTE_TOOL_NAME_CHARS_MAX, exchange};
use callboard_runtime::{CallOrigin, Context};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::argument_schema::ArgumentSchemas;
use super::listed_tools::{ListMoment, ToolTable};
use super::options::BridgeToolOptions;
use super::pool::ConnectionLease;
use crate::outbound::{TransportError, UpstreamSession};
use crate::wire::error_mapping;

/// Maximum time for which a call waits for the list of tools. Without a list by then, the latest
/// one counts, and if there is none the call fails.
const LIST_FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Checker of the tool calls to one server.
pub(crate) struct CallChecker {
    server: String,
    checks_listed: bool,
    checks_arguments: bool,
    pages_max: u32,
    schemas: ArgumentSchemas,
}

impl CallChecker {
    /// Creates a checker for the server `server`, from whose list up to `pages_max` pages are read.
    pub fn new(server: &str, options: &BridgeToolOptions, pages_max: u32) -> Self {
        Self {
            server: server.to_owned(),
            checks_listed: options.checks_listed,
            checks_arguments: options.checks_arguments,
            pages_max,
            schemas: ArgumentSchemas::new(server),
        }
    }

    /// Checks the call with `params` that is about to be sent on `lease` for the call `cx`. The
    /// list of tools is that of the connection. It is fetched if there is none, and once more
    /// before the call is refused, but not at once again. A server that answers that it has no list
    /// isn't checked.
    ///
    /// # Errors
    /// `InvalidInput` if the tool isn't listed, or the arguments don't fit; the error of
    /// connecting, or of fetching the list if there is no earlier one.
    pub async fn check(
        &self,
        lease: &ConnectionLease,
        params: &RawObject,
        cx: &Context,
    ) -> Result<(), TransportError> {
        if !self.checks_listed && !self.checks_arguments {
            return Ok(());
        }
        let Some(tool) = params.text("name") else {
            return Ok(());
        };
        let session = lease.upstream().connect().await?;
        let known = match self.checks_listed {
            true => lease.listed().current(&session),
            // Nothing is fetched for a check of arguments alone.
            false => lease.listed().latest(),
        };
        let is_known = known.is_some();
        let table = match known {
            Some(table) => Some(table),
            None if self.checks_listed => self.fetch_once(lease, &session, cx).await?,
            None => None,
        };
        let Some(table) = table else { return Ok(()) };
        let Err(refusal) = self.judge(&table, &tool, params).await else {
            return Ok(());
        };
        // A list that was fetched for this call isn't fetched again.
        let judged = match is_known {
            true => match self.refetch(lease, &session, cx, &table).await {
                Some(table) => self.judge(&table, &tool, params).await,
                None => Err(refusal),
            },
            false => Err(refusal),
        };
        judged.map_err(TransportError::Failed)
    }

    async fn judge(
        &self,
        table: &ToolTable,
        tool: &str,
        params: &RawObject,
    ) -> Result<(), Failure> {
        let Some(listed) = table.get(tool) else {
            return match self.checks_listed {
                true => Err(unknown_tool(tool)),
                false => Ok(()),
            };
        };
        if !self.checks_arguments {
            return Ok(());
        }
        let arguments = params.get("arguments").unwrap_or_else(|| raw_ref("{}"));
        let checked = self.schemas.check(tool, listed, arguments).await;
        checked.map_err(Failure::invalid)
    }

    /// Fetches the list, unless another call has done it meanwhile, or there was none a short time
    /// ago. If it can't be fetched, the latest one counts.
    async fn fetch_once(
        &self,
        lease: &ConnectionLease,
        session: &Arc<UpstreamSession>,
        cx: &Context,
    ) -> Result<Option<Arc<ToolTable>>, TransportError> {
        let listed = lease.listed();
        let Ok(_fetching) = timeout_at(fetch_deadline(cx), listed.fetching.lock()).await else {
            let why = "the server's list of tools isn't there in time: try again later";
            let late = || TransportError::Failed(Failure::unavailable(why));
            return listed.latest().map(Some).ok_or_else(late);
        };
        if let Some(table) = listed.current(session) {
            return Ok(Some(table));
        }
        if listed.is_missing() {
            return Ok(listed.latest());
        }
        if let Some(latest) = listed.latest().filter(|_| listed.has_failed()) {
            return Ok(Some(latest));
        }
        match self.fetch(lease, session, cx).await {
            Ok(Some(table)) => Ok(Some(table)),
            Ok(None) => Ok(listed.latest()),
            Err(error) => {
                listed.record_failed();
                listed.latest().map(Some).ok_or(error)
            }
        }
    }

    /// Fetches the list again because a call doesn't fit `judged`, unless another call has done it
    /// meanwhile. `None` if there is no newer one, or one was fetched for this reason a short time
    /// ago.
    async fn refetch(
        &self,
        lease: &ConnectionLease,
        session: &Arc<UpstreamSession>,
        cx: &Context,
        judged: &Arc<ToolTable>,
    ) -> Option<Arc<ToolTable>> {
        let listed = lease.listed();
        let deadline = fetch_deadline(cx);
        let locked = timeout_at(deadline, listed.fetching.lock()).await;
        let _fetching = locked.ok()?;
        let latest = listed.latest();
        if let Some(newer) = latest.filter(|latest| !Arc::ptr_eq(latest, judged)) {
            return Some(newer);
        }
        if !listed.begin_refetch() {
            // Another call used the only fetch of this second, maybe before the server's change.
            let at = listed.refetch_time(session).filter(|at| *at < deadline)?;
            sleep_until(at).await;
            listed.begin_refetch();
        }
        self.fetch(lease, session, cx).await.ok().flatten()
    }

    /// Fetches the list of tools for the call `cx`, as its caller would get it. `None` if the
    /// server answers that it has none.
    async fn fetch(
        &self,
        lease: &ConnectionLease,
        session: &Arc<UpstreamSession>,
        cx: &Context,
    ) -> Result<Option<Arc<ToolTable>>, TransportError> {
        let moment = ListMoment::now(session);
        let deadline = fetch_deadline(cx);
        let (mut table, mut cursor) = (ToolTable::default(), None);
        for _ in 0..self.pages_max {
            let mut params = RawObject::new();
            params.set_some("cursor", &cursor);
            let page = match self.fetch_page(lease, params, cx, deadline).await {
                // Any other error may be caused by a caller or a policy, and says nothing about the
                // server's tools.
                Err(error) if error.is_method_not_found() => {
                    lease.listed().record_missing();
                    return Ok(None);
                }
                page => page?,
            };
            match table.add_page(&page) {
                Ok(Some(next)) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                Ok(_) => break,
                Err(()) => {
                    return Err(TransportError::Protocol(
                        "the server's answer to `tools/list` is no list of tools".to_owned(),
                    ));
                }
            }
        }
        let table = Arc::new(table);
        lease.listed().record(table.clone(), moment);
        Ok(Some(table))
    }

    /// Fetches one page, subject to the policies and without the tools that are left out.
    async fn fetch_page(
        &self,
        lease: &ConnectionLease,
        params: RawObject,
        cx: &Context,
        deadline: Instant,
    ) -> Result<Box<RawValue>, TransportError> {
        let message = RawMessage {
            name: ListTools::NAME.to_owned(),
            payload: params.to_raw(),
        };
        // The error itself says whether the request was sent, and is the server's.
        let failed = Mutex::new(None::<TransportError>);
        let send = |_| async {
            let listed = lease.upstream().request("tools/list", &params, cx).await;
            listed.map_err(|error| {
                *failed.lock() = Some(error.clone());
                Failure::from(error)
            })
        };
        let page = exchange(
            message,
            cx,
            &self.server,
            CallOrigin::MCP,
            || deadline,
            send,
        )
        .await;
        page.map_err(|failure| {
            let error = failed.into_inner();
            error.unwrap_or(TransportError::Failed(failure))
        })
    }

    /// Returns the checker's state as JSON for the admin page.
    pub fn observe(&self) -> serde_json::Value {
        self.schemas.observe()
    }
}

/// Returns the time until which the call `cx` waits for a list.
fn fetch_deadline(cx: &Context) -> Instant {
    let deadline = Instant::now() + LIST_FETCH_TIMEOUT;
    cx.deadline().map_or(deadline, |end| end.min(deadline))
}

/// Returns the error of a call of a tool that isn't listed: one of the protocol, which isn't shown
/// to a model.
fn unknown_tool(name: &str) -> Failure {
    let name: String = name
        .escape_debug()
        .take(REMOTE_TOOL_NAME_CHARS_MAX)
        .collect();
    error_mapping::from_rpc(&RpcError::invalid_params(format!("unknown tool: {name}")))
}
