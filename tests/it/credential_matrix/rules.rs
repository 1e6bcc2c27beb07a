//! Every operation at a node with rules about who may use what.

use callboard::mcp::wire::code as mcp;
use callboard::rpc::code;
use futures::StreamExt;
use futures::stream;
use serde_json::Value;

use super::operation::{MatrixRow, RequiredAccess, RowOutcome};
use super::site::{CALLERS, Ids, ShownCredential, TestNode};
use super::{REQUESTS_MAX, cell, is_right, right, rows};
use crate::kit::found;

/// Rules of the node. `CALLERS` stands for the callers of the matrix.
const RULES: &str = r#"
[[policy.rules]]
id = "callers"
effect = "allow"
principals = [CALLERS]

[[policy.rules]]
id = "reader"
effect = "allow"
principals = ["token:corp.reader"]
agents = ["one", "work*"]
tools = ["who", "work"]
resources = ["x:*"]

[[policy.rules]]
id = "watcher"
effect = "allow"
principals = ["corp.watcher"]
agents = ["one", "room"]
tools = ["wait", "get_agent_status"]
prompts = ["*"]
"#;

/// Part of the node's agents that rules permit or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedItem {
    /// Tool of the upstream.
    Who,
    /// Tool of the upstream, which no row calls.
    Wait,
    /// Resource of the upstream.
    Resource,
    /// Prompt of the upstream, with its completions.
    Prompt,
    /// Patients of the HMCP agent.
    Patients,
    /// Tool that may be a task.
    Work,
    /// Tool that asks its caller.
    Ask,
    /// Members of the mailroom, and its description.
    Members,
    /// Mail.
    Mail,
    /// Entry of an agent in the catalogue.
    CatalogEntry,
}

/// Texts by which an answer shows an item. No refusal repeats one of them.
const ITEM_TEXTS: &[(ServedItem, &str)] = &[
    (ServedItem::Who, "description of who"),
    (ServedItem::Who, "answer of one"),
    (ServedItem::Wait, "description of wait"),
    (ServedItem::Resource, "resource entry y"),
    (ServedItem::Resource, "resource content y"),
    // Of an accepted subscription.
    (ServedItem::Resource, "\"resourceSubscriptions\""),
    (ServedItem::Prompt, "prompt entry x"),
    (ServedItem::Prompt, "prompt content x"),
    (ServedItem::Prompt, "prompt value x"),
    (ServedItem::Patients, "find_patient"),
    (ServedItem::Patients, "PT67890"),
    (ServedItem::Work, "\"name\":\"work\""),
    (ServedItem::Work, "answer of work"),
    (ServedItem::Ask, "\"name\":\"ask\""),
    // Of the instructions.
    (ServedItem::Members, "shows who is here"),
    (ServedItem::Members, "\"get_agent_status\""),
    (ServedItem::Members, "corp.dave"),
    (ServedItem::Mail, "\"message_history\""),
    (ServedItem::Mail, "One message whole"),
    (ServedItem::Mail, "text of the letter"),
    (ServedItem::CatalogEntry, "urn:air:"),
];

/// A caller whom the rules permit a part of what the agents have.
pub struct LimitedCaller {
    pub name: &'static str,
    pub items: &'static [ServedItem],
}

/// Limited callers with a credential.
pub static LIMITED: [LimitedCaller; 3] = [
    LimitedCaller {
        name: "guest",
        items: &[],
    },
    LimitedCaller {
        name: "reader",
        items: &[
            ServedItem::Who,
            ServedItem::Resource,
            ServedItem::Work,
            ServedItem::CatalogEntry,
        ],
    },
    LimitedCaller {
        name: "watcher",
        items: &[
            ServedItem::Wait,
            ServedItem::Prompt,
            ServedItem::Members,
            ServedItem::CatalogEntry,
        ],
    },
];
/// A reader of public documents without a credential.
static NOBODY: LimitedCaller = LimitedCaller {
    name: "nobody",
    items: &[],
};
/// Scopes of each limited caller: those that any row needs.
const SCOPES: &str = "hmcp:read mail.admin mail.watch";

/// Use of the agents by an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentUse {
    /// None: it is answered as ever.
    Session,
    /// A list or a description: it shows all that the caller may use, and nothing else.
    List,
    /// A list of the caller's own tasks.
    OwnTasks,
    /// Something about a task of alice's: it is refused.
    OthersTask,
    Read(ServedItem),
    Call(ServedItem),
    Subscribe(ServedItem),
    Mail(ServedItem),
}

impl AgentUse {
    /// The only item that an operation is about.
    fn item(self) -> Option<ServedItem> {
        match self {
            Self::Read(item) | Self::Call(item) | Self::Subscribe(item) | Self::Mail(item) => {
                Some(item)
            }
            Self::Session | Self::List | Self::OwnTasks | Self::OthersTask => None,
        }
    }
}

/// Objects of alice's that the requests of others name.
const OTHERS_OBJECTS: [&str; 4] = [
    "{task}",
    "{legacy_task}",
    "{modern_task}",
    "{suspended_call}",
];
/// Words in the name of a row that tell apart the versions of an operation.
const VERSIONS: [&str; 7] = ["legacy", "modern", "mcp", "a2a", "1.0", "0.3", "0.1"];
/// Operation without its version and the address of its agent, a text of its request, and its use of the agents. The first that fits
/// counts.
const OPERATIONS: &[(&str, &str, AgentUse)] = &[
    // MCP.
    ("initialize", "", AgentUse::List),
    ("server/discover", "", AgentUse::List),
    ("ping", "", AgentUse::Session),
    ("logging/setLevel", "", AgentUse::Session),
    ("tools/list", "", AgentUse::List),
    ("tools/call", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("tools/call", "\"work\"", AgentUse::Call(ServedItem::Work)),
    (
        "tools/call",
        "\"get_agent_status\"",
        AgentUse::Mail(ServedItem::Members),
    ),
    (
        "tools/call",
        "\"send_message\"",
        AgentUse::Mail(ServedItem::Mail),
    ),
    ("resources/list", "", AgentUse::List),
    ("resources/templates/list", "", AgentUse::List),
    (
        "resources/read",
        "\"x:y\"",
        AgentUse::Read(ServedItem::Resource),
    ),
    (
        "resources/read",
        "callboard://messages/",
        AgentUse::Mail(ServedItem::Mail),
    ),
    (
        "resources/subscribe",
        "\"x:y\"",
        AgentUse::Subscribe(ServedItem::Resource),
    ),
    ("resources/unsubscribe", "", AgentUse::Session),
    // The answer lists the accepted subscriptions.
    ("subscriptions/listen", "", AgentUse::List),
    ("prompts/list", "", AgentUse::List),
    ("prompts/get", "\"x\"", AgentUse::Read(ServedItem::Prompt)),
    (
        "completion/complete",
        "\"x\"",
        AgentUse::Read(ServedItem::Prompt),
    ),
    (
        "sampling/createMessage",
        "",
        AgentUse::Call(ServedItem::Patients),
    ),
    ("tasks/list", "", AgentUse::OwnTasks),
    ("POST /mcp", "", AgentUse::Session),
    ("GET (WebSocket) /mcp", "", AgentUse::Session),
    ("GET /mcp", "", AgentUse::Session),
    ("DELETE /mcp", "", AgentUse::Session),
    ("GET /sse", "", AgentUse::Session),
    ("POST /messages", "", AgentUse::Session),
    // A2A.
    ("SendMessage", "\"who\"", AgentUse::Call(ServedItem::Who)),
    (
        "SendStreamingMessage",
        "\"who\"",
        AgentUse::Call(ServedItem::Who),
    ),
    ("message/send", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("message/stream", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("tasks/send", "\"who\"", AgentUse::Call(ServedItem::Who)),
    (
        "tasks/sendSubscribe",
        "\"who\"",
        AgentUse::Call(ServedItem::Who),
    ),
    ("ListTasks", "", AgentUse::OwnTasks),
    ("GetExtendedAgentCard", "", AgentUse::List),
    ("agent/getAuthenticatedExtendedCard", "", AgentUse::List),
    (
        "POST message:send",
        "\"who\"",
        AgentUse::Call(ServedItem::Who),
    ),
    (
        "POST message:stream",
        "\"who\"",
        AgentUse::Call(ServedItem::Who),
    ),
    ("GET tasks", "", AgentUse::OwnTasks),
    ("GET extendedAgentCard", "", AgentUse::List),
    ("GET card", "", AgentUse::List),
    ("at /a2a", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("at /", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("at ", "\"who\"", AgentUse::Call(ServedItem::Who)),
    ("at /a2a/{tail:.*}", "", AgentUse::OwnTasks),
    ("at /v1/{tail:.*}", "", AgentUse::OwnTasks),
    // Mail.
    (
        "mail GET /api/agents",
        "",
        AgentUse::Mail(ServedItem::Members),
    ),
    (
        "mail GET /api/agents/{agent_id}",
        "",
        AgentUse::Mail(ServedItem::Members),
    ),
];

/// Returns the use of the agents by a row; `None` if [`OPERATIONS`] doesn't state it. A method that the server doesn't know uses
/// none, and mail is refused unless stated otherwise.
fn use_of(row: &MatrixRow) -> Option<AgentUse> {
    if row.access == RequiredAccess::Public {
        return Some(AgentUse::List);
    }
    if row.access == RequiredAccess::Local || row.right.1 == code::METHOD_NOT_FOUND {
        return Some(AgentUse::Session);
    }
    if OTHERS_OBJECTS.iter().any(|object| row.mentions(object)) {
        return Some(AgentUse::OthersTask);
    }
    let words = row.name.split(' ').filter(|word| !VERSIONS.contains(word));
    let words: Vec<_> = words.collect();
    let name = words.join(" ").replace("/agents/{name}", "");
    let mut stated = OPERATIONS
        .iter()
        .filter(|(operation, text, _)| *operation == name && row.mentions(text));
    let stated = stated.next().map(|(.., used)| *used);
    let is_mail = name.starts_with("mail ");
    stated.or_else(|| is_mail.then_some(AgentUse::Mail(ServedItem::Mail)))
}

/// Returns the items that a text shows, each with the text by which it does.
pub fn shown_items(answer: &str) -> Vec<(ServedItem, &'static str)> {
    let texts = ITEM_TEXTS.iter().copied();
    texts.filter(|(_, text)| answer.contains(text)).collect()
}

/// Starts a node with the rules, at which the limited callers have no sessions yet.
pub async fn start() -> TestNode {
    let all = CALLERS.map(|(who, _)| format!("\"corp.{who}\""));
    let rules = RULES.replace("CALLERS", &all.join(", "));
    let limited = LIMITED.iter().map(|caller| (caller.name, SCOPES));
    TestNode::start_with_rules(&rules, limited).await
}

/// A limited caller with sessions. Objects that it doesn't have are alice's.
struct OpenCaller {
    limits: &'static LimitedCaller,
    ids: Ids,
}

/// Sends each row as a caller who may use everything, and as each limited one. Fails if a cell is wrong.
pub async fn check_rows() {
    let mut site = start().await;
    let mut callers = vec![OpenCaller {
        limits: &NOBODY,
        ids: site.ids[0].clone(),
    }];
    for limits in &LIMITED {
        let mut ids = site.open_sessions(limits.name).await;
        for (name, id) in &site.ids[0] {
            ids.entry(*name).or_insert_with(|| id.clone());
        }
        callers.push(OpenCaller { limits, ids });
    }
    let rows = rows(&site.bases);
    let unstated = rows.iter().filter(|row| use_of(row).is_none());
    let unstated: Vec<_> = unstated.map(|row| &row.name).collect();
    assert!(
        unstated.is_empty(),
        "add the use of the agents by these rows to OPERATIONS: {unstated:?}"
    );

    let (mut permitted, mut wrong) = (Vec::new(), Vec::new());
    for row in &rows {
        let (outcome, cells) = permitted_outcome(&site, row).await;
        permitted.push(outcome);
        wrong.extend(cells);
    }
    // A text that nobody is shown couldn't be missed.
    let is_shown = |text: &str| permitted.iter().any(|outcome| outcome.body.contains(text));
    let unshown = ITEM_TEXTS.iter().filter(|(_, text)| !is_shown(text));
    wrong.extend(unshown.map(|unshown| format!("{unshown:?} is in no answer")));
    wrong.extend(limited_cells(&site, &rows, &permitted, &callers).await);
    site.end().await;
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Sends a row as a caller who may use everything, or as the operator if the listener is for this machine. Returns the outcome and
/// the wrong cells.
async fn permitted_outcome(site: &TestNode, row: &MatrixRow) -> (RowOutcome, Vec<String>) {
    let (outcome, mut wrong) = right(site, row).await;
    if let Some(outcome) = outcome {
        return (outcome, wrong);
    }
    let credential = match row.access {
        // Rules don't bind the operator.
        RequiredAccess::Local => ShownCredential {
            certificate_of: "",
            authorization: None,
        },
        _ => site.credential("alice"),
    };
    let outcome = row.send(site, "alice", credential, &site.ids[0]).await;
    if !is_right(row, &outcome) {
        wrong.push(cell(row, "right", &outcome));
    }
    (outcome, wrong)
}

/// Sends each row as each limited caller, the public ones without a credential too. `permitted` are the outcomes of the rows for
/// callers who may use everything. Returns the wrong cells.
async fn limited_cells(
    site: &TestNode,
    rows: &[MatrixRow],
    permitted: &[RowOutcome],
    callers: &[OpenCaller],
) -> Vec<String> {
    let rights = rows.iter().zip(permitted);
    let rights = rights.filter(|(row, _)| row.access != RequiredAccess::Local);
    let cells = rights.flat_map(|right| {
        let has_credential = move |caller: &OpenCaller| {
            let credential = site.credential(caller.limits.name);
            credential.authorization.is_some()
        };
        let is_public = right.0.access == RequiredAccess::Public;
        let callers = callers.iter();
        let callers = callers.filter(move |caller| is_public || has_credential(caller));
        callers.map(move |caller| limited_cell(site, rows, right, caller))
    });
    let cells = stream::iter(cells).buffer_unordered(REQUESTS_MAX);
    cells.filter_map(async |wrong| wrong).collect().await
}

async fn limited_cell(
    site: &TestNode,
    rows: &[MatrixRow],
    (row, right): (&MatrixRow, &RowOutcome),
    caller: &OpenCaller,
) -> Option<String> {
    let LimitedCaller { name, items } = caller.limits;
    let used = use_of(row)?;
    let credential = site.credential(name);
    let mut outcome = row.send(site, name, credential, &caller.ids).await;
    if used == AgentUse::Call(ServedItem::Work) {
        outcome = settled(site, rows, caller, outcome).await;
    }
    let why = mistake((row, used), items, &outcome, right)?;
    Some(cell(row, &format!("{name} {why}"), &outcome))
}

/// Returns the mistake in the outcome of a row for a caller who may use these items; `None` without one. `right` is the outcome for a
/// caller who may use everything.
fn mistake(
    (row, used): (&MatrixRow, AgentUse),
    items: &[ServedItem],
    outcome: &RowOutcome,
    right: &RowOutcome,
) -> Option<&'static str> {
    let may_see = |(item, _): &(ServedItem, &str)| items.contains(item);
    let shown = shown_items(&outcome.body);
    if !shown.iter().all(may_see) {
        return Some("is shown what it may not use");
    }
    let (is_answered, is_denied) = (is_right(row, outcome), is_denied(row, outcome));
    let is_as_ruled = match (used, used.item()) {
        (AgentUse::List, _) => {
            let listed = shown_items(&right.body).into_iter();
            let listed: Vec<_> = listed.filter(may_see).collect();
            shown == listed && (is_answered || is_denied && listed.is_empty())
        }
        (_, Some(item)) if items.contains(&item) => is_answered,
        (AgentUse::Session | AgentUse::OwnTasks, _) => is_answered,
        _ => is_denied,
    };
    (!is_as_ruled).then_some("isn't answered as the rules say")
}

/// Returns whether an operation is refused by rules: as denied, or as about something that isn't there.
fn is_denied(row: &MatrixRow, outcome: &RowOutcome) -> bool {
    /// Error code of A2A.
    const TASK_NOT_FOUND: i64 = -32_001;
    let has_code = |codes: &[i64]| outcome.status == 200 && codes.contains(&outcome.code);
    let is_denied = match row.name.split(' ').next() {
        Some("mail") => outcome.status == 403,
        Some("a2a") => {
            [400, 404].contains(&outcome.status)
                || has_code(&[TASK_NOT_FOUND, code::INVALID_PARAMS])
        }
        _ => has_code(&[
            mcp::DENIED,
            mcp::RESOURCE_NOT_FOUND_LEGACY,
            code::INVALID_PARAMS,
        ]),
    };
    // Another credential would not help.
    is_denied && outcome.challenge.is_empty()
}

/// Returns the body of an outcome, with a number in the place of that of the request.
fn json_of(outcome: &RowOutcome) -> Value {
    let body = outcome.body.replace("NUMBER", "0");
    serde_json::from_str(&body).unwrap_or_default()
}

/// Returns the answer to a call; if the call has become a task, the outcome of the task.
async fn settled(
    site: &TestNode,
    rows: &[MatrixRow],
    caller: &OpenCaller,
    outcome: RowOutcome,
) -> RowOutcome {
    let read = json_of(&outcome);
    let result = &read["result"];
    let begun = [
        (
            "legacy_task",
            "legacy tasks/result",
            &result["task"]["taskId"],
        ),
        ("modern_task", "modern tasks/get", &result["taskId"]),
    ];
    let mut begun = begun
        .into_iter()
        .filter_map(|(object, asks, id)| Some((object, asks, id.as_str()?)));
    let Some((object, asks, id)) = begun.next() else {
        return outcome;
    };
    let mut ids = caller.ids.clone();
    ids.insert(object, id.to_owned());
    let row = rows.iter().find(|row| row.name == asks).unwrap();
    let name = caller.limits.name;
    found("the end of a task", async || {
        let credential = site.credential(name);
        let mut ended = row.send(site, name, credential, &ids).await;
        let read = json_of(&ended);
        let task = &read["result"];
        ended.code = task["error"]["code"].as_i64().unwrap_or(ended.code);
        (task["status"] != "working").then_some(ended)
    })
    .await
}
