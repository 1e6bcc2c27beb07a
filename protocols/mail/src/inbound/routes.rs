//! One table of routes: the server and its description both read it.

use self::Kind::{Integer, Place, Text, Truth};

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Broadcast,
    Send,
    Agents,
    Agent,
    EndAgent,
    AgentBack,
    Messages,
    Message,
    MarkRead,
    Reply,
    AgentLogs,
    Events,
    Description,
}

/// A method of a path.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    /// For whoever reads the description.
    pub(super) summary: &'static str,
    /// What its query may have.
    pub(super) parameters: &'static [Parameter],
}

/// A parameter of a query.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
}

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Truth,
    /// A number, or `now`.
    Place,
    /// One of these.
    Word(&'static [&'static str]),
}

const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

/// Whether the whole [`Sent`](callboard_message::mail::Sent) is wanted.
const DETAIL: Parameter = parameter("detail", Truth, "Answer also the message's id, its thread and whose box is full.");
const AFTER: Parameter = parameter("after", Integer, "Go on where a page ended.");

/// Every route.
pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "POST",
        path: "/api/broadcast_message",
        operation: Operation::Broadcast,
        summary: "Tell all active agents, or a group, something that concerns them all",
        parameters: &[DETAIL],
    },
    Route {
        method: "POST",
        path: "/api/send_message",
        operation: Operation::Send,
        summary: "Write to one agent, or to a list",
        parameters: &[DETAIL],
    },
    Route {
        method: "GET",
        path: "/api/agents",
        operation: Operation::Agents,
        summary: "Who is here, as far as the caller sees them",
        parameters: &[parameter("state", Kind::Word(&["active", "away", "terminated"]), "In this state only.")],
    },
    Route {
        method: "GET",
        path: "/api/agents/{agent_id}",
        operation: Operation::Agent,
        summary: "One of them",
        parameters: &[],
    },
    Route {
        method: "POST",
        path: "/api/agents/{agent_id}/end",
        operation: Operation::EndAgent,
        summary: "Say that an agent is terminated: it neither sends nor gets mail (scope mail.admin)",
        parameters: &[],
    },
    Route {
        method: "POST",
        path: "/api/agents/{agent_id}/back",
        operation: Operation::AgentBack,
        summary: "Say that an agent is back (scope mail.admin)",
        parameters: &[],
    },
    Route {
        method: "GET",
        path: "/api/messages",
        operation: Operation::Messages,
        summary: "Messages to the caller, newest first: those shown count as delivered; or from it, or both",
        parameters: &[
            parameter("box", Kind::Word(&["in", "out", "all"]), "To the caller (in, the default), from it, or both."),
            parameter("from", Text, "From this agent only."),
            parameter("with", Text, "Between the caller and this agent, both ways."),
            parameter("topic", Text, "Of this topic only."),
            parameter("thread", Text, "Of this thread only."),
            parameter("text", Text, "With these words in it, in any case."),
            parameter("since", Text, "Not before this time (RFC 3339)."),
            parameter("until", Text, "Before this time (RFC 3339)."),
            parameter(
                "state",
                Kind::Word(&["accepted", "delivered", "read"]),
                "Only those in this state: what came, with the caller; what it sent, with its last recipient.",
            ),
            AFTER,
            parameter("limit", Integer, "At most so many, 1 to 100 (50)."),
        ],
    },
    Route {
        method: "GET",
        path: "/api/messages/{message_id}",
        operation: Operation::Message,
        summary: "One message; it counts as delivered to the caller",
        parameters: &[parameter(
            "receipts",
            Truth,
            "Also how far it has come with each recipient: to its sender only.",
        )],
    },
    Route {
        method: "POST",
        path: "/api/messages/{message_id}/read",
        operation: Operation::MarkRead,
        summary: "Say that a message is read; again does no harm",
        parameters: &[],
    },
    Route {
        method: "POST",
        path: "/api/messages/{message_id}/reply",
        operation: Operation::Reply,
        summary: "Answer a message, in its thread",
        parameters: &[DETAIL],
    },
    Route {
        method: "GET",
        path: "/api/agent_logs",
        operation: Operation::AgentLogs,
        summary: "Who wrote to whom, oldest first: the caller's own, or all (scope mail.watch)",
        parameters: &[
            parameter("agent_id", Text, "Of this recipient only."),
            AFTER,
            parameter("limit", Integer, "At most so many, 1 to 1000 (100)."),
        ],
    },
    Route {
        method: "GET",
        path: "/api/events",
        operation: Operation::Events,
        summary: "What happens to mail, over WebSocket, a JSON object a frame",
        parameters: &[
            parameter(
                "after",
                Place,
                "Begin with the events after this number, or `now`, and number each: {\"sequence\": N, \"event\": {…}}. \
                 What one thing gave rise to has one number.",
            ),
            parameter("types", Text, "Of these types only, with commas between."),
        ],
    },
    Route {
        method: "GET",
        path: "/api/openapi.json",
        operation: Operation::Description,
        summary: "This description",
        parameters: &[],
    },
];

/// Each path once.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    let first = |(nth, route): &(usize, &'static Route)| ROUTES[..*nth].iter().all(|before| before.path != route.path);
    ROUTES.iter().enumerate().filter(first).map(|(_, route)| route.path)
}

/// The route of a path and method; else the methods that the path has.
///
/// # Errors
/// The value of `Allow`.
pub(super) fn find(path: &str, method: &str) -> Result<&'static Route, String> {
    let of_path = || ROUTES.iter().filter(|route| route.path == path);
    let found = of_path().find(|route| route.method == method);
    found.ok_or_else(|| of_path().map(|route| route.method).collect::<Vec<_>>().join(", "))
}

impl Route {
    /// Whether its query may have this parameter.
    pub(super) fn knows(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|known| known.name == parameter)
    }
}
