//! Routes of the HTTP+JSON binding of 1.0 and, below `/v1`, of 0.3.

use actix_web::http::Method;
use callboard_message::RawObject;
use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use crate::{A2aError, Dialect, Operation};

/// The operation and ids that a request's path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestRoute {
    pub(super) dialect: Dialect,
    pub(super) operation: Operation,
    /// Tenant; empty if the path names none.
    pub(super) tenant: String,
    /// Id of the task; empty if the path names none.
    pub(super) task_id: String,
    /// Id of the push configuration; empty if the path names none.
    pub(super) config_id: String,
}

/// Result of matching a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RouteMatch {
    Matched(RestRoute),
    /// The path exists, but not with this method. Contains the value of the header `Allow`.
    MethodNotAllowed(&'static str),
    NotFound,
}

/// Finds the operation of an HTTP+JSON request. `tail` is the percent-encoded part of the path
/// after the agent's address.
pub(super) fn match_route(method: &Method, tail: &str) -> RouteMatch {
    let tail = tail.strip_prefix('/').unwrap_or(tail);
    let tail = tail.strip_suffix('/').unwrap_or(tail);
    let segments: Vec<&str> = tail.split('/').collect();
    match &*segments {
        ["v1", rest @ ..] => match_segments(method, Dialect::V03Rest, "", rest),
        [tenant, rest @ ..] => match match_segments(method, Dialect::V10, "", &segments) {
            RouteMatch::NotFound if !tenant.is_empty() => {
                match_segments(method, Dialect::V10, tenant, rest)
            }
            found => found,
        },
        [] => RouteMatch::NotFound,
    }
}

/// Operations that a path allows, by HTTP method, and the value of its header `Allow`.
type PathOperations = (&'static [(Method, Operation)], &'static str);

const SEND: PathOperations = (&[(Method::POST, Operation::SendMessage)], "POST");
const STREAM: PathOperations = (&[(Method::POST, Operation::SendStreamingMessage)], "POST");
const TASKS: PathOperations = (&[(Method::GET, Operation::ListTasks)], "GET");
const TASK: PathOperations = (&[(Method::GET, Operation::GetTask)], "GET");
const CANCEL: PathOperations = (&[(Method::POST, Operation::CancelTask)], "POST");
const SUBSCRIBE: PathOperations = (
    &[
        (Method::GET, Operation::SubscribeToTask),
        (Method::POST, Operation::SubscribeToTask),
    ],
    "GET, POST",
);
const CONFIGS: PathOperations = (
    &[
        (Method::GET, Operation::ListTaskPushNotificationConfigs),
        (Method::POST, Operation::CreateTaskPushNotificationConfig),
    ],
    "GET, POST",
);
const CONFIG: PathOperations = (
    &[
        (Method::GET, Operation::GetTaskPushNotificationConfig),
        (Method::DELETE, Operation::DeleteTaskPushNotificationConfig),
    ],
    "GET, DELETE",
);
const CARD: PathOperations = (&[(Method::GET, Operation::GetExtendedAgentCard)], "GET");

/// A path of the binding, below the agent's address.
struct RestPath {
    /// Segments, of which `{task}` and `{config}` stand for ids.
    pattern: &'static str,
    /// Versions that have the path.
    dialects: &'static [Dialect],
    operations: PathOperations,
}

const OLD: &[Dialect] = &[Dialect::V03Rest];
const NEW: &[Dialect] = &[Dialect::V10];
const BOTH: &[Dialect] = &[Dialect::V10, Dialect::V03Rest];

const fn path(
    pattern: &'static str,
    dialects: &'static [Dialect],
    operations: PathOperations,
) -> RestPath {
    RestPath {
        pattern,
        dialects,
        operations,
    }
}

/// Paths of both versions, in the order in which they are tried.
const PATHS: [RestPath; 11] = [
    path("message:send", BOTH, SEND),
    path("message:stream", BOTH, STREAM),
    path("tasks", BOTH, TASKS),
    path("extendedAgentCard", NEW, CARD),
    path("card", OLD, CARD),
    path("tasks/{task}:cancel", BOTH, CANCEL),
    path("tasks/{task}:subscribe", BOTH, SUBSCRIBE),
    // Any other colon is part of the id.
    path("tasks/{task}", BOTH, TASK),
    path("tasks/{task}/pushNotificationConfigs", BOTH, CONFIGS),
    // Path as in the schema of 0.3.
    path("task/{task}/pushNotificationConfigs", OLD, CONFIGS),
    path(
        "tasks/{task}/pushNotificationConfigs/{config}",
        BOTH,
        CONFIG,
    ),
];

/// Returns the routes of the HTTP+JSON binding: version, HTTP method, and path below the agent's
/// address, in which `{task}` and `{config}` stand for ids. Those of 0.3 are below `/v1` there; those
/// of 1.0 may have a tenant in front.
#[doc(hidden)]
pub fn rest_routes() -> impl Iterator<Item = (Dialect, &'static str, &'static str)> {
    PATHS.into_iter().flat_map(|path| {
        let operations = path.operations.0.iter();
        operations.flat_map(move |(method, _)| {
            let dialects = path.dialects.iter();
            dialects.map(move |dialect| (*dialect, method.as_str(), path.pattern))
        })
    })
}

impl RestPath {
    /// Returns the ids of the task and the configuration in a path, each empty if the path has none;
    /// `None` if it is another path. An id can't be empty.
    fn match_ids<'s>(&self, segments: &[&'s str]) -> Option<(&'s str, &'s str)> {
        let parts = self.pattern.split('/');
        if parts.clone().count() != segments.len() {
            return None;
        }
        let (mut task, mut config) = ("", "");
        for (part, segment) in parts.zip(segments) {
            if let Some(verb) = part.strip_prefix("{task}") {
                task = segment.strip_suffix(verb).filter(|id| !id.is_empty())?;
            } else if part == "{config}" {
                config = Some(*segment).filter(|id| !id.is_empty())?;
            } else if segments.len() > 1 && *segment != part || decode_segment(segment)? != part {
                return None;
            }
        }
        Some((task, config))
    }
}

fn match_segments(
    method: &Method,
    dialect: Dialect,
    tenant: &str,
    segments: &[&str],
) -> RouteMatch {
    let mut paths = PATHS.iter().filter(|path| path.dialects.contains(&dialect));
    let found = paths.find_map(|path| Some((path.operations, path.match_ids(segments)?)));
    let Some(((operations, allow), (task, config))) = found else {
        return RouteMatch::NotFound;
    };
    let (Some(tenant), Some(task), Some(config)) = (
        decode_segment(tenant),
        decode_segment(task),
        decode_segment(config),
    ) else {
        return RouteMatch::NotFound;
    };
    match operations.iter().find(|(of, _)| of == method) {
        Some(&(_, operation)) => RouteMatch::Matched(RestRoute {
            dialect,
            operation,
            tenant,
            task_id: task,
            config_id: config,
        }),
        None => RouteMatch::MethodNotAllowed(allow),
    }
}

/// Decodes a segment of a path; `None` if it isn't UTF-8.
fn decode_segment(segment: &str) -> Option<String> {
    Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned())
}

/// Maximum number of query parameters.
/// At the limit: error -32602.
const QUERY_PARAMETERS_MAX: usize = 32;

/// Returns the parameters of a query as an object. All values are strings; the wire types read
/// numbers and booleans from strings too.
///
/// # Errors
/// `InvalidParams` if a parameter occurs twice, or there are more than [`QUERY_PARAMETERS_MAX`].
pub(super) fn query_object(query: &str) -> Result<RawObject, A2aError> {
    let mut object = RawObject::new();
    for (nth, (name, value)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
        if nth == QUERY_PARAMETERS_MAX {
            return Err(A2aError::invalid_params(
                "",
                &format!("has more than {QUERY_PARAMETERS_MAX} parameters"),
            ));
        }
        if object.get(&name).is_some() {
            return Err(A2aError::invalid_params(&name, "occurs twice"));
        }
        object.set(&name, value);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every path of both versions has the operation of its specification, and no other path
    /// has one. Method: rows.
    #[test]
    fn paths() {
        use Operation as O;
        const GET: Method = Method::GET;
        const POST: Method = Method::POST;
        const DELETE: Method = Method::DELETE;
        for (method, tail, tenant, operation, task, config) in [
            (POST, "/message:send", "", O::SendMessage, "", ""),
            (POST, "/message%3Asend", "", O::SendMessage, "", ""),
            (
                POST,
                "/message:stream/",
                "",
                O::SendStreamingMessage,
                "",
                "",
            ),
            (GET, "/tasks", "", O::ListTasks, "", ""),
            (GET, "/tasks/", "", O::ListTasks, "", ""),
            (GET, "/tasks/t-1", "", O::GetTask, "t-1", ""),
            (GET, "/tasks/a%2Fb%3Ac", "", O::GetTask, "a/b:c", ""),
            (GET, "/tasks/a%252Fb", "", O::GetTask, "a%2Fb", ""),
            (GET, "/tasks/a:b", "", O::GetTask, "a:b", ""),
            (GET, "/tasks/x%3Acancel", "", O::GetTask, "x:cancel", ""),
            (POST, "/tasks/a:b:cancel", "", O::CancelTask, "a:b", ""),
            (GET, "/tasks/t:subscribe", "", O::SubscribeToTask, "t", ""),
            (POST, "/tasks/t:subscribe", "", O::SubscribeToTask, "t", ""),
            (
                POST,
                "/tasks/t/pushNotificationConfigs",
                "",
                O::CreateTaskPushNotificationConfig,
                "t",
                "",
            ),
            (
                GET,
                "/tasks/t/pushNotificationConfigs",
                "",
                O::ListTaskPushNotificationConfigs,
                "t",
                "",
            ),
            (
                GET,
                "/tasks/t/pushNotificationConfigs/c%20d",
                "",
                O::GetTaskPushNotificationConfig,
                "t",
                "c d",
            ),
            (
                DELETE,
                "/tasks/t/pushNotificationConfigs/c",
                "",
                O::DeleteTaskPushNotificationConfig,
                "t",
                "c",
            ),
            (
                GET,
                "/extendedAgentCard",
                "",
                O::GetExtendedAgentCard,
                "",
                "",
            ),
            (POST, "/east/message:send", "east", O::SendMessage, "", ""),
            (GET, "/e%20t/tasks", "e t", O::ListTasks, "", ""),
            (
                GET,
                "/east/tasks/t:subscribe",
                "east",
                O::SubscribeToTask,
                "t",
                "",
            ),
            (
                GET,
                "/east/extendedAgentCard",
                "east",
                O::GetExtendedAgentCard,
                "",
                "",
            ),
        ] {
            let found = match_route(&method, tail);
            let RouteMatch::Matched(route) = found else {
                panic!("{method} {tail}: {found:?}")
            };
            let RestRoute {
                dialect,
                operation: is,
                tenant: of,
                task_id: t,
                config_id: c,
            } = route;
            assert_eq!(
                (dialect, is, &*of, &*t, &*c),
                (Dialect::V10, operation, tenant, task, config),
                "{tail}"
            );
        }
        for (method, tail, operation, task) in [
            (POST, "/v1/message:send", O::SendMessage, ""),
            (POST, "/v1/message:stream", O::SendStreamingMessage, ""),
            (GET, "/v1/tasks", O::ListTasks, ""),
            (GET, "/v1/tasks/t", O::GetTask, "t"),
            (POST, "/v1/tasks/t:cancel", O::CancelTask, "t"),
            (GET, "/v1/tasks/t:subscribe", O::SubscribeToTask, "t"),
            (
                POST,
                "/v1/task/t/pushNotificationConfigs",
                O::CreateTaskPushNotificationConfig,
                "t",
            ),
            (
                POST,
                "/v1/tasks/t/pushNotificationConfigs",
                O::CreateTaskPushNotificationConfig,
                "t",
            ),
            (GET, "/v1/card", O::GetExtendedAgentCard, ""),
        ] {
            let found = match_route(&method, tail);
            let RouteMatch::Matched(route) = found else {
                panic!("{method} {tail}: {found:?}")
            };
            assert_eq!(
                (route.dialect, route.operation, &*route.task_id),
                (Dialect::V03Rest, operation, task),
                "{tail}"
            );
        }
    }

    /// Goal: a known path with another method reports its methods; other paths aren't found.
    /// Method: rows.
    #[test]
    fn other_methods_and_paths() {
        for (method, tail, allow) in [
            (Method::GET, "/message:send", "POST"),
            (Method::DELETE, "/tasks", "GET"),
            (Method::GET, "/tasks/t:cancel", "POST"),
            (Method::PUT, "/tasks/t:subscribe", "GET, POST"),
            (
                Method::PATCH,
                "/tasks/t/pushNotificationConfigs/c",
                "GET, DELETE",
            ),
            (Method::GET, "/v1/message:send", "POST"),
        ] {
            assert_eq!(
                match_route(&method, tail),
                RouteMatch::MethodNotAllowed(allow),
                "{method} {tail}"
            );
        }
        let bad_paths = [
            "",
            "/",
            "/v1",
            "/nothing",
            "/a/b/tasks",
            "/tasks/a/b",
            "/v1/east/tasks",
            "/v1/extendedAgentCard",
            "/card",
        ];
        for tail in bad_paths.into_iter().chain([
            "/%FF/tasks",
            "//tasks",
            "/tasks/t/pushNotificationConfigs/c/d",
        ]) {
            assert_eq!(
                match_route(&Method::GET, tail),
                RouteMatch::NotFound,
                "{tail}"
            );
        }
        assert_eq!(
            match_route(&Method::GET, "/tasks/%FF"),
            RouteMatch::NotFound
        );
    }

    /// Goal: the parameters of a query are decoded, each once. Method: rows.
    #[test]
    fn queries_are_objects() {
        for (query, json) in [
            ("", "{}"),
            ("historyLength=3", r#"{"historyLength":"3"}"#),
            (
                "status=TASK_STATE_WORKING&includeArtifacts=true",
                r#"{"status":"TASK_STATE_WORKING","includeArtifacts":"true"}"#,
            ),
            (
                "contextId=a%20b%26c+d&pageToken=%22",
                r#"{"contextId":"a b&c d","pageToken":"\""}"#,
            ),
        ] {
            assert_eq!(
                query_object(query)
                    .ok()
                    .map(|o| o.to_raw().get().to_owned())
                    .as_deref(),
                Some(json),
                "{query}"
            );
        }
        assert!(query_object("a=1&a=2").is_err());
        let many = |n: usize| {
            (0..n)
                .map(|n| format!("p{n}=1"))
                .collect::<Vec<_>>()
                .join("&")
        };
        assert!(query_object(&many(QUERY_PARAMETERS_MAX)).is_ok());
        assert!(query_object(&many(QUERY_PARAMETERS_MAX + 1)).is_err());
    }
}
