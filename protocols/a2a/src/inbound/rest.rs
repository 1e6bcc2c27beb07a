//! Paths and queries of the HTTP+JSON binding, of 1.0 and (below `/v1`) of 0.3.

use actix_web::http::Method;
use callboard_message::RawObject;
use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use crate::{A2aError, Dialect, Operation};

/// What a request of the HTTP+JSON binding wants, as far as its path says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) dialect: Dialect,
    pub(super) operation: Operation,
    /// Empty: none.
    pub(super) tenant: String,
    /// Which task; empty: none.
    pub(super) task: String,
    /// Which of the task's push configurations; empty: none.
    pub(super) config: String,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Routed {
    To(Route),
    /// There is such a path, for other methods: what `Allow` says.
    Allow(&'static str),
    Nowhere,
}

/// Where `tail` leads: what follows an agent's address, with its `/`, as it was sent (percent-encoded).
pub(super) fn route(method: &Method, tail: &str) -> Routed {
    let tail = tail.strip_prefix('/').unwrap_or(tail);
    let tail = tail.strip_suffix('/').unwrap_or(tail);
    let segments: Vec<&str> = tail.split('/').collect();
    match &*segments {
        ["v1", rest @ ..] => in_dialect(method, Dialect::V03Rest, "", rest),
        [tenant, rest @ ..] => match in_dialect(method, Dialect::V10, "", &segments) {
            Routed::Nowhere if !tenant.is_empty() => in_dialect(method, Dialect::V10, tenant, rest),
            found => found,
        },
        [] => Routed::Nowhere,
    }
}

/// An operation that a path has, by method.
type Found = (&'static [(Method, Operation)], &'static str);

const SEND: Found = (&[(Method::POST, Operation::SendMessage)], "POST");
const STREAM: Found = (&[(Method::POST, Operation::SendStreamingMessage)], "POST");
const TASKS: Found = (&[(Method::GET, Operation::ListTasks)], "GET");
const TASK: Found = (&[(Method::GET, Operation::GetTask)], "GET");
const CANCEL: Found = (&[(Method::POST, Operation::CancelTask)], "POST");
const SUBSCRIBE: Found = (
    &[
        (Method::GET, Operation::SubscribeToTask),
        (Method::POST, Operation::SubscribeToTask),
    ],
    "GET, POST",
);
const CONFIGS: Found = (
    &[
        (Method::GET, Operation::ListTaskPushNotificationConfigs),
        (Method::POST, Operation::CreateTaskPushNotificationConfig),
    ],
    "GET, POST",
);
const CONFIG: Found = (
    &[
        (Method::GET, Operation::GetTaskPushNotificationConfig),
        (Method::DELETE, Operation::DeleteTaskPushNotificationConfig),
    ],
    "GET, DELETE",
);
const CARD: Found = (&[(Method::GET, Operation::GetExtendedAgentCard)], "GET");

fn in_dialect(method: &Method, dialect: Dialect, tenant: &str, segments: &[&str]) -> Routed {
    let is_old = dialect == Dialect::V03Rest;
    let (found, task, config) = match segments {
        [alone] => match decoded(alone).as_deref() {
            Some("message:send") => (SEND, "", ""),
            Some("message:stream") => (STREAM, "", ""),
            Some("tasks") => (TASKS, "", ""),
            Some("extendedAgentCard") if !is_old => (CARD, "", ""),
            Some("card") if is_old => (CARD, "", ""),
            _ => return Routed::Nowhere,
        },
        ["tasks", task] if !task.is_empty() => match task.rsplit_once(':') {
            Some((task, "cancel")) => (CANCEL, task, ""),
            Some((task, "subscribe")) => (SUBSCRIBE, task, ""),
            // Any other colon is the id's.
            _ => (TASK, *task, ""),
        },
        ["tasks", task, "pushNotificationConfigs"] => (CONFIGS, *task, ""),
        // As 0.3's schema has it.
        ["task", task, "pushNotificationConfigs"] if is_old => (CONFIGS, *task, ""),
        ["tasks", task, "pushNotificationConfigs", config] => (CONFIG, *task, *config),
        _ => return Routed::Nowhere,
    };
    let (Some(tenant), Some(task), Some(config)) =
        (decoded(tenant), decoded(task), decoded(config))
    else {
        return Routed::Nowhere;
    };
    let (operations, allow) = found;
    match operations.iter().find(|(of, _)| of == method) {
        Some(&(_, operation)) => Routed::To(Route {
            dialect,
            operation,
            tenant,
            task,
            config,
        }),
        None => Routed::Allow(allow),
    }
}

/// A segment of a path, decoded once; `None` where that is no UTF-8.
fn decoded(segment: &str) -> Option<String> {
    Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned())
}

/// Most parameters of a query.
/// At the limit: error -32602.
const PARAMETERS_MAX: usize = 32;

/// The parameters of a query as the members of an object, each a word: numbers and truths are read from words too. Each
/// may be there once.
///
/// # Errors
/// [`A2aError::invalid`].
pub(super) fn query_object(query: &str) -> Result<RawObject, A2aError> {
    let mut object = RawObject::new();
    for (nth, (name, value)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
        if nth == PARAMETERS_MAX {
            return Err(A2aError::invalid("", "has too many parameters"));
        }
        if object.get(&name).is_some() {
            return Err(A2aError::invalid(&name, "is there twice"));
        }
        object.set(&name, value);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every path of both versions leads where its specification says, and no other leads anywhere. Method: rows.
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
            let found = route(&method, tail);
            let Routed::To(route) = found else {
                panic!("{method} {tail}: {found:?}")
            };
            let Route {
                dialect,
                operation: is,
                tenant: of,
                task: t,
                config: c,
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
            let found = route(&method, tail);
            let Routed::To(route) = found else {
                panic!("{method} {tail}: {found:?}")
            };
            assert_eq!(
                (route.dialect, route.operation, &*route.task),
                (Dialect::V03Rest, operation, task),
                "{tail}"
            );
        }
    }

    /// Goal: a path of ours with another method says which it has; other paths lead nowhere. Method: rows.
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
                route(&method, tail),
                Routed::Allow(allow),
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
            assert_eq!(route(&Method::GET, tail), Routed::Nowhere, "{tail}");
        }
        assert_eq!(route(&Method::GET, "/tasks/%FF"), Routed::Nowhere);
    }

    /// Goal: what a query says arrives as it was meant, once. Method: rows.
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
        assert!(query_object(&many(PARAMETERS_MAX)).is_ok());
        assert!(query_object(&many(PARAMETERS_MAX + 1)).is_err());
    }
}
