//! Checks of tool calls before they are sent: the server must list the tool, and the arguments must
//! fit its input schema.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::ListTools;
use callboard_message::json::raw_from_written;
use callboard_message::{Failure, FailureKind, Message, RawMessage, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::Context;
use callboard_runtime::outbound_policy::{REMOTE_TOOL_NAME_CHARS_MAX, exchange};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::argument_schema::ArgumentSchemas;
use super::listed_tools::{ListMoment, ToolTable};
use super::options::BridgeToolOptions;
use super::pool::ConnectionLease;
use crate::outbound::{TransportError, UpstreamSession};
use crate::wire::error_mapping;

/// Maximum time for which a call waits for the list of tools. A list that isn't there by then
/// counts as unreadable, and the call is sent unchecked.
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
    /// before the call is refused. A server whose list can't be read isn't checked.
    ///
    /// # Errors
    /// `InvalidInput` if the tool isn't listed, or the arguments don't fit; the error of
    /// connecting.
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
            None if self.checks_listed => self.fetch_once(lease, &session, cx).await,
            None => None,
        };
        let Some(table) = table else { return Ok(()) };
        let Err(refusal) = self.judge(&table, &tool, params).await else {
            return Ok(());
        };
        // A list that was fetched for this call isn't fetched again.
        let judged = match is_known {
            true => match self.fetch(lease, &session, cx).await {
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
        let none = raw_from_written("{}".into());
        let arguments = params.get("arguments").unwrap_or(&none);
        let checked = self.schemas.check(tool, listed, arguments).await;
        checked.map_err(Failure::invalid)
    }

    /// Fetches the list, unless another call has done it meanwhile, or it couldn't be read a short
    /// time ago.
    async fn fetch_once(
        &self,
        lease: &ConnectionLease,
        session: &Arc<UpstreamSession>,
        cx: &Context,
    ) -> Option<Arc<ToolTable>> {
        let listed = lease.listed();
        let _fetching = listed.fetching.lock().await;
        if let Some(table) = listed.current(session) {
            return Some(table);
        }
        if listed.is_unreadable() {
            return listed.latest();
        }
        let fetched = self.fetch(lease, session, cx).await;
        fetched.or_else(|| listed.latest())
    }

    /// Fetches the list of tools for the call `cx`, as its caller would get it.
    async fn fetch(
        &self,
        lease: &ConnectionLease,
        session: &Arc<UpstreamSession>,
        cx: &Context,
    ) -> Option<Arc<ToolTable>> {
        let moment = ListMoment::now(session);
        let deadline = Instant::now() + LIST_FETCH_TIMEOUT;
        let deadline = cx.deadline().map_or(deadline, |end| end.min(deadline));
        let (mut table, mut cursor) = (ToolTable::default(), None);
        for _ in 0..self.pages_max {
            let mut params = RawObject::new();
            params.set_some("cursor", &cursor);
            let page = self.fetch_page(lease, params, cx, deadline).await;
            let is_answered = page.as_ref().err().is_none_or(is_answer);
            let next = page.map_err(drop).and_then(|page| table.add_page(&page));
            match next {
                Ok(Some(next)) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                Ok(_) => break,
                Err(()) => {
                    if is_answered {
                        lease.listed().record_unreadable();
                    }
                    return None;
                }
            }
        }
        let table = Arc::new(table);
        lease.listed().record(table.clone(), moment);
        Some(table)
    }

    /// Fetches one page, subject to the policies and without the tools that are left out.
    async fn fetch_page(
        &self,
        lease: &ConnectionLease,
        params: RawObject,
        cx: &Context,
        deadline: Instant,
    ) -> Result<Box<RawValue>, Failure> {
        let message = RawMessage {
            name: ListTools::NAME.to_owned(),
            payload: params.to_raw(),
        };
        let send = |_| async {
            let listed = lease.upstream().request("tools/list", &params, cx).await;
            listed.map_err(Failure::from)
        };
        exchange(message, cx, &self.server, || deadline, send).await
    }

    /// Returns the checker's state as JSON for the admin page.
    pub fn observe(&self) -> serde_json::Value {
        self.schemas.observe()
    }
}

/// Returns true for a failure that the server or a policy answers with, or for one of a server that
/// doesn't answer; false for one of the connection or the call.
fn is_answer(failure: &Failure) -> bool {
    use FailureKind as Kind;
    !matches!(
        failure.kind,
        Kind::Unavailable | Kind::Overloaded | Kind::Cancelled
    )
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
