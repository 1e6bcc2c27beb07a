//! The agent that the REPL is connected to.

use callboard_a2a::outbound::{RemoteA2aAgent, RemoteOptions};
use callboard_message::{CallId, FAILURE_META_KEY, Failure, RawObject, TaskState, ToolResult};
use callboard_orchestration::peer_registry::PeerRegistry;
use callboard_rpc::EgressPolicy;
use callboard_runtime::{AgentRef, System};
use url::Url;

use super::command::ConnectTarget;
use crate::node::spawn_cloned;

/// Member of a result's `_meta` and of a failure's data that holds the remote task's id and state.
const A2A_META_KEY: &str = "a2a";

/// Connection to a remote agent.
pub(super) struct RemoteConnection {
    pub(super) agent: AgentRef,
    /// Id of the remote agent in this node.
    pub(super) id: String,
    pub(super) name: String,
    /// Address as typed.
    pub(super) typed_address: String,
    /// Host and port for the prompt.
    pub(super) host_and_port: String,
    /// Id of the conversation with the remote agent.
    pub(super) context_id: String,
}

/// Connects to an agent by its address or its position in the list of known agents.
///
/// # Errors
/// Two texts for the user: the agent as typed, and the reason.
pub(super) async fn connect(
    known: &PeerRegistry,
    whom: ConnectTarget,
) -> Result<RemoteConnection, (String, String)> {
    let (typed, id) = match whom {
        ConnectTarget::Address(typed) => (typed, None),
        ConnectTarget::Number(number) => match number
            .checked_sub(1)
            .and_then(|at| known.list().into_iter().nth(at))
        {
            Some(of_list) if of_list.url.is_empty() => (of_list.id.clone(), Some(of_list)),
            Some(of_list) => (of_list.url, None),
            None => {
                return Err((
                    number.to_string(),
                    "there is no agent of that number: :servers lists them".to_owned(),
                ));
            }
        },
    };
    let why = |failure: Failure| (typed.clone(), failure.message);
    let found = match id {
        Some(declared) => declared,
        None => known.connect(&typed).await.map_err(why)?,
    };
    let agent = known.agent_ref(&found.id).await.map_err(why)?;
    let at = host_and_port(&typed);
    Ok(RemoteConnection {
        agent,
        id: found.id,
        name: found.name,
        typed_address: typed,
        host_and_port: at,
        context_id: CallId::generate().to_string(),
    })
}

/// Returns whether an address is this agent's own listener.
pub(super) fn is_own_address(typed: &str, listening: &str) -> bool {
    let port = |address: &str| {
        host_and_port(address)
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse::<u16>().ok())
    };
    let at = host_and_port(typed);
    let host = at.rsplit_once(':').map_or(&*at, |(host, _)| host);
    let ours = host_and_port(listening);
    let is_local = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"].contains(&host) || ours == at;
    is_local && port(typed).is_some() && port(typed) == port(listening)
}

/// Connects to this agent itself over its listener, as other agents do.
///
/// # Errors
/// Text for the user: the reason.
pub(super) async fn connect_to_self(
    system: &System,
    typed: String,
    id: &str,
) -> Result<RemoteConnection, String> {
    let url = Url::parse(&format!("http://{}", host_and_port(&typed)))
        .map_err(|error| error.to_string())?;
    let options = RemoteOptions {
        egress: EgressPolicy::public_internet().with_loopback(),
        ..RemoteOptions::default()
    };
    let remote = RemoteA2aAgent::new(url, options).map_err(|error| error.to_string())?;
    let name = remote
        .card()
        .await
        .map_err(|failure| failure.message)?
        .name
        .clone();
    let agent = spawn_cloned(system, id, remote);
    let (at, context) = (host_and_port(&typed), CallId::generate().to_string());
    Ok(RemoteConnection {
        agent,
        id: id.to_owned(),
        name,
        typed_address: typed,
        host_and_port: at,
        context_id: context,
    })
}

/// Returns host and port of a typed address as written: without scheme and path.
fn host_and_port(typed: &str) -> String {
    let rest = typed.split_once("://").map_or(typed, |(_, rest)| rest);
    rest.split(['/', '?', '#'])
        .next()
        .unwrap_or(rest)
        .to_owned()
}

/// Returns id and state of the remote task from the reply of its agent. The id is `None` if the
/// agent answered without a task.
///
/// # Errors
/// Text for the user: the reason why the task wasn't sent or its id isn't known.
pub(super) fn parse_sent_task(
    reply: &Result<ToolResult, Failure>,
) -> Result<(Option<String>, TaskState), String> {
    let (place, otherwise) = match reply {
        Ok(result) => {
            let meta = result.0.object("_meta").unwrap_or_default();
            if let (None, true) = (
                meta.object(A2A_META_KEY),
                result.is_error() && meta.has(FAILURE_META_KEY),
            ) {
                return Err(result.texts());
            }
            let otherwise = if result.is_error() {
                TaskState::Failed
            } else {
                TaskState::Completed
            };
            (meta.object(A2A_META_KEY).unwrap_or_default(), otherwise)
        }
        Err(failure) => {
            let data = failure
                .data
                .as_ref()
                .and_then(|data| serde_json::value::to_raw_value(data).ok());
            let place = data
                .and_then(|data| RawObject::parse(&data).ok())
                .filter(|place| place.has("taskId"));
            (
                place.ok_or_else(|| failure.message.clone())?,
                TaskState::Failed,
            )
        }
    };
    Ok((
        place.text("taskId"),
        place.read("state").unwrap_or(otherwise),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: the prompt shows where one is connected. Method: addresses in the forms that people type.
    /// Rows: B-35.
    #[test]
    fn places() {
        for (typed, at) in [
            ("localhost:8080", "localhost:8080"),
            ("http://localhost:4201", "localhost:4201"),
            ("https://agent2.example/a2a?x=1", "agent2.example"),
            ("http://[::1]:80/", "[::1]:80"),
        ] {
            assert_eq!(host_and_port(typed), at);
        }
    }

    /// Goal: an agent knows its own address, however it is typed. Method: its own ones, and others.
    #[test]
    fn one_s_own_address() {
        for typed in [
            "localhost:8080",
            "http://127.0.0.1:8080/",
            "http://localhost:8080",
        ] {
            assert!(is_own_address(typed, "http://0.0.0.0:8080"), "{typed}");
        }
        assert!(is_own_address("192.0.2.1:80", "http://192.0.2.1:80"));
        for typed in [
            "localhost:8081",
            "localhost",
            "192.0.2.1:8080",
            "agent.example:8080",
        ] {
            assert!(!is_own_address(typed, "http://0.0.0.0:8080"), "{typed}");
        }
    }

    /// Goal: what is told of a task is what the agent said of it. Method: a task's result, a failed one, a cancelled one, an
    /// answer without a task, and two ways in which nothing was sent.
    /// Rows: B-40.
    #[test]
    fn tasks_are_told() {
        let place = |state: &str| json!({ "taskId": "t-1", "contextId": "c", "state": state });
        let with = |result: ToolResult, state: &str| {
            Ok(ToolResult(
                result.0.with("_meta", json!({ "a2a": place(state) })),
            ))
        };
        let is = |task: Option<&str>, state| Ok((task.map(str::to_owned), state));
        assert_eq!(
            parse_sent_task(&with(ToolResult::text("ok"), "completed")),
            is(Some("t-1"), TaskState::Completed)
        );
        assert_eq!(
            parse_sent_task(&with(ToolResult::error("no"), "rejected")),
            is(Some("t-1"), TaskState::Rejected)
        );
        let cancelled = Failure::cancelled("gone").with_data(place("canceled"));
        assert_eq!(
            parse_sent_task(&Err(cancelled)),
            is(Some("t-1"), TaskState::Canceled)
        );
        assert_eq!(
            parse_sent_task(&Ok(ToolResult::text("hello"))),
            is(None, TaskState::Completed)
        );
        let refused = ToolResult(ToolResult::error("no such skill").0.with(
            "_meta",
            json!({ FAILURE_META_KEY: { "kind": "not_found" } }),
        ));
        assert_eq!(
            parse_sent_task(&Ok(refused)),
            Err("no such skill".to_owned())
        );
        assert_eq!(
            parse_sent_task(&Err(Failure::unavailable("it is away"))),
            Err("it is away".to_owned())
        );
    }
}
