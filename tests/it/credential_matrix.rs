//! Every operation of every protocol with every kind of credential.

mod a2a_rows;
mod client_certificates;
#[cfg(feature = "grpc")]
mod grpc;
mod mail_rows;
mod mcp_rows;
mod operation;
mod rules;
mod site;

use std::collections::BTreeSet;

use callboard::rpc::RESOURCE_METADATA_PATH;
use futures::StreamExt;
use futures::stream;

use crate::kit::soon;
use crate::tidy::rust_files;
use client_certificates::REFUSED;
use operation::{MatrixRow, RequiredAccess, RowOutcome};
use site::{BadCredential, ExpectedRefusal, Ids, LISTENER_SCOPE, ShownCredential, TestNode};

/// Requests with bad credentials that are under way at a time.
const REQUESTS_MAX: usize = 16;

/// Places that add resources to an HTTP server, and their number. The tables of a place's routes are in the matrix, or its routes are
/// in [`a2a_rows::public_rows`].
const RESOURCES: [(&str, usize); 8] = [
    ("protocols/a2a/src/grpc/mod.rs", 1),
    ("protocols/a2a/src/inbound/server.rs", 6),
    ("protocols/mail/src/inbound/mod.rs", 4),
    ("protocols/mcp/src/inbound/http/bare.rs", 3),
    ("protocols/mcp/src/inbound/http/mod.rs", 8),
    ("protocols/rpc/src/serve/token_metadata.rs", 4),
    ("src/config/kinds/a2a.rs", 3),
    // A table of its own, which `console::every_route_needs_its_scope` goes through.
    ("src/console/routes.rs", 4),
];
/// Texts that add a resource, or a handler of one.
const ADDING: [&str; 7] = [
    "web::resource(",
    "web::scope(",
    ".route(web::",
    "config.route(",
    "config.service(",
    "default_service(",
    ".add_service(",
];

/// Goal: a credential opens what it is for and nothing else: each operation of MCP, A2A, mail and the bare dialect refuses a missing,
/// foreign, expired, revoked and forged one, and one that lacks a scope; with another's, an object is as one that isn't there. Method: a row for each
/// entry of the product's tables, and for each row a request with each credential.
/// Rows: H-17, H-37.
#[tokio::test]
async fn each_operation_with_each_credential() {
    check_rows(TestNode::start().await).await;
}

/// Goal: a client certificate opens what its principal may use and nothing else: one that isn't listed opens nothing, one without a
/// scope or of another principal as much as such a token, and one of a foreign authority no connection. Method: the rows of the
/// matrix at listeners that know their callers by certificates, and a request with each certificate that they can't accept.
#[tokio::test]
async fn each_operation_with_each_certificate() {
    check_rows(TestNode::start_with_certificates().await).await;
}

/// Goal: callers get of every operation what the rules permit them and nothing else, however valid their credentials are: lists and
/// descriptions have the items that they may use, other reads, calls, subscriptions, tasks and mail are refused, and no answer has a
/// text of an agent that it may not have. Method: the rows of the matrix at a node with rules, by the callers who may use everything,
/// by one who may use nothing and by two who may use a part; a row whose use of the agents isn't stated fails.
#[tokio::test]
async fn each_operation_with_rules() {
    rules::check_rows().await;
}

/// Sends each row with each credential of a node's callers. Fails if a cell is wrong.
async fn check_rows(site: TestNode) {
    let mut rows = rows(&site.bases);
    complete(&rows);
    if site.certificates.is_some() {
        // The bare dialect knows no certificates.
        rows.retain(|row| row.url.starts_with("https:"));
    }
    let mut wrong = handshakes(&site).await;
    wrong.extend(refusals(&site, &rows).await);
    for row in &rows {
        wrong.extend(foreign_objects(&site, row).await);
        wrong.extend(right(&site, row).await.1);
    }
    site.end().await;
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Goal: no route is served that the matrix doesn't know. Method: count the places that add one.
#[test]
fn resources_are_added_in_known_places() {
    let files = rust_files();
    let folders = ["src/", "actors/", "protocols/"];
    let is_product = |path: &str| {
        folders.iter().any(|folder| path.starts_with(folder)) && !path.contains("/tests/")
    };
    let products = files.iter().filter(|file| is_product(&file.path));
    let counted = products.filter_map(|file| {
        let code = file.text.split("#[cfg(test)]\nmod ").next()?;
        let counts = ADDING.iter().map(|added| code.matches(added).count());
        let count: usize = counts.sum();
        (count > 0).then_some((&*file.path, count))
    });
    let counted: BTreeSet<_> = counted.collect();
    let known: BTreeSet<_> = RESOURCES.into_iter().collect();
    assert_eq!(counted, known, "give the new routes rows in the matrix");
}

/// All rows, for listeners with these URLs.
fn rows(bases: &Ids) -> Vec<MatrixRow> {
    let mut rows = mcp_rows::rows(bases);
    rows.extend(a2a_rows::rows(bases));
    rows.extend(mail_rows::rows(bases));
    rows.extend(a2a_rows::public_rows(bases));
    rows
}

/// Checks that the product's tables and the rows have the same operations.
fn complete(rows: &[MatrixRow]) {
    let tables = mcp_rows::names()
        .chain(a2a_rows::names())
        .chain(mail_rows::names());
    let tables: BTreeSet<String> = tables.collect();
    let public = ["document ", "an inbox "];
    let listed = rows.iter().map(|row| row.name.clone());
    let listed: BTreeSet<String> = listed
        .filter(|name| !public.iter().any(|start| name.starts_with(start)))
        .collect();
    let without_row: Vec<_> = tables.difference(&listed).collect();
    let without_operation: Vec<_> = listed.difference(&tables).collect();
    assert!(
        without_row.is_empty() && without_operation.is_empty(),
        "operations without a row: {without_row:?}; rows without an operation: {without_operation:?}"
    );
}

/// Sends a request with each certificate that no handshake accepts to each listener with TLS. Returns the cells with an answer.
async fn handshakes(site: &TestNode) -> Vec<String> {
    let mut wrong = Vec::new();
    for (base, url) in &site.bases {
        for who in REFUSED.iter().filter(|_| url.starts_with("https:")) {
            let sent = site.request(who, "GET", url).send();
            if let Ok(answer) = soon("an end", sent).await {
                wrong.push(format!("{base} / {who}: {}", answer.status()));
            }
        }
    }
    wrong
}

/// Sends each row with each bad credential, and a right one that lacks the row's scope. Returns the wrong cells.
async fn refusals(site: &TestNode, rows: &[MatrixRow]) -> Vec<String> {
    let cells = rows.iter().flat_map(|row| {
        let all = site.bad.iter();
        all.map(move |credential| refusal(site, row, credential))
    });
    let cells = stream::iter(cells).buffer_unordered(REQUESTS_MAX);
    cells.filter_map(async |wrong| wrong).collect().await
}

async fn refusal(site: &TestNode, row: &MatrixRow, bad: &BadCredential) -> Option<String> {
    let credential = bad.credential();
    let outcome = row.send(site, "alice", credential, &site.ids[0]).await;
    let is_right = match (row.access, bad.refusal) {
        (RequiredAccess::Public, _) => {
            let none = ShownCredential {
                authorization: None,
                ..credential
            };
            let without = row.send(site, "alice", none, &site.ids[0]).await;
            is_right(row, &outcome) && outcome == without
        }
        (RequiredAccess::Local, ExpectedRefusal::Missing) => is_right(row, &outcome),
        // Nobody is told where to get a credential.
        (RequiredAccess::Local, _) => outcome.status == 401 && outcome.challenge == "Bearer",
        (RequiredAccess::Any | RequiredAccess::Scope(_), refusal) => is_refused(&outcome, refusal),
    };
    (!is_right).then(|| cell(row, bad.name, &outcome))
}

fn is_refused(outcome: &RowOutcome, refusal: ExpectedRefusal) -> bool {
    is_challenge(outcome, refusal, &format!("scope=\"{LISTENER_SCOPE}\""))
}

/// Returns whether an answer is this refusal, whose challenge ends with `scope`.
fn is_challenge(outcome: &RowOutcome, refusal: ExpectedRefusal, scope: &str) -> bool {
    let (status, start) = match refusal {
        ExpectedRefusal::Missing => (401, "Bearer resource_metadata=\""),
        ExpectedRefusal::Invalid => (401, "Bearer error=\"invalid_token\", resource_metadata=\""),
        ExpectedRefusal::Scope => (
            403,
            "Bearer error=\"insufficient_scope\", resource_metadata=\"",
        ),
    };
    let Some(rest) = outcome.challenge.strip_prefix(start) else {
        return false;
    };
    // The URL of the listener's metadata, and nothing else.
    let metadata = rest.strip_suffix(&format!("\", {scope}"));
    let is_metadata = |url: &str| url.contains(RESOURCE_METADATA_PATH) && !url.contains('"');
    outcome.status == status && metadata.is_some_and(is_metadata)
}

/// Sends a row as bob, with each object of alice's and with one that isn't there. Returns the wrong cells.
async fn foreign_objects(site: &TestNode, row: &MatrixRow) -> Vec<String> {
    let [alice, bob] = &site.ids;
    let mut wrong = Vec::new();
    if row.access == RequiredAccess::Public || row.access == RequiredAccess::Local {
        return wrong;
    }
    let credential = site.credential("bob");
    let named = row.objects(alice);
    if named.is_empty() {
        let seen = row.send(site, "bob", credential, bob).await;
        let own = alice.iter().filter(|(name, id)| bob[*name] == **id);
        let shown = own.filter(|(_, id)| seen.body.contains(&**id));
        wrong.extend(shown.map(|(name, _)| cell(row, &format!("shows another's {name}"), &seen)));
    }
    if row.is_of_claimed_agent() {
        let claimed = row.send(site, "alice", credential, bob).await;
        if claimed.status != 403 {
            wrong.push(cell(row, "another's agent id", &claimed));
        }
    }
    for name in named {
        let (theirs, nobodys) = (&alice[name], unknown(&alice[name]));
        let mut outcomes = Vec::new();
        for id in [theirs, &nobodys] {
            let mut ids = bob.clone();
            ids.insert(name, id.clone());
            let mut outcome = row.send(site, "bob", credential, &ids).await;
            outcome.body = outcome.body.replace(id, "ID");
            outcomes.push(outcome);
        }
        let is_refused = outcomes[0].status >= 400 || outcomes[0].code != 0;
        if !is_refused || outcomes[0] != outcomes[1] {
            let [theirs, nobodys] = &outcomes[..] else {
                unreachable!()
            };
            wrong.push(cell(row, &format!("another's {name}"), theirs));
            wrong.push(cell(row, &format!("nobody's {name}"), nobodys));
        }
    }
    wrong
}

/// Returns an id of the same form that nobody has.
fn unknown(id: &str) -> String {
    let (start, last) = id.split_at(id.len() - 1);
    format!("{start}{}", if last == "0" { "1" } else { "0" })
}

/// Sends a row with the right credential, and without the scope that it needs if it needs one. Returns the outcome with the right
/// credential, `None` for a row without one, and the wrong cells.
async fn right(site: &TestNode, row: &MatrixRow) -> (Option<RowOutcome>, Vec<String>) {
    let mut wrong = Vec::new();
    let who = match row.access {
        RequiredAccess::Public | RequiredAccess::Local => return (None, wrong),
        RequiredAccess::Any => "alice",
        RequiredAccess::Scope(scope) => {
            let credential = site.credential("bob");
            let outcome = row.send(site, "bob", credential, &site.ids[1]).await;
            let told = format!("scope=\"{LISTENER_SCOPE} {scope}\"");
            if !is_challenge(&outcome, ExpectedRefusal::Scope, &told) {
                wrong.push(cell(row, "wrong scope of the operation", &outcome));
            }
            site.caller_with(scope)
        }
    };
    let credential = site.credential(who);
    let outcome = row.send(site, who, credential, &site.ids[0]).await;
    if !is_right(row, &outcome) {
        wrong.push(cell(row, "right", &outcome));
    }
    (Some(outcome), wrong)
}

fn is_right(row: &MatrixRow, outcome: &RowOutcome) -> bool {
    (outcome.status, outcome.code) == row.right
}

fn cell(row: &MatrixRow, credential: &str, outcome: &RowOutcome) -> String {
    let RowOutcome {
        status,
        code,
        challenge,
        body,
    } = outcome;
    let body: String = body.chars().take(300).collect();
    format!(
        "{} at {} / {credential}: {status} {code} {challenge} {body}",
        row.name, row.url
    )
}
