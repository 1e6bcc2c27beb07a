//! Paths of the console: one table with method, path, and the right that each needs.

use std::time::Duration;

use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, SET_COOKIE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::AccessControl;
use callboard_rpc::serve::idle_timeout;
use callboard_runtime::AuditEntry;
use tokio::time::timeout;

use super::ConsoleState;
use super::access::{Role, check_same_page};
use super::actions::{Action, act};
use super::feed::open_feed;
use super::json::{JsonView, json_view};
use super::pages;
use super::request::{
    ConsoleError, ConsoleRequest, Fields, html, redirect, text, with_security_headers,
};
use super::screens::{Page, PagePart, show_page, show_part};
use super::views;

/// Maximum time of the store to answer whether the node is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Space of the store that is read to see whether it answers. It is empty.
const READY_SPACE: &str = "console";
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Browsers keep assets: their addresses have the version.
const ASSET_CACHING: &str = "public, max-age=31536000, immutable";
const ETAG_VALUE: &str = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
const STOPPING_MESSAGE: &str = "the node is stopping";

/// Handler of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Page(Page),
    Part(PagePart),
    Json(JsonView),
    Action(Action),
    Feed,
    Metrics,
    Health,
    Readiness,
    Asset,
    SignInForm,
    SignIn,
    SignOut,
}

/// Route of the console.
#[derive(Debug, Clone, Copy)]
struct Route {
    method: &'static str,
    path: &'static str,
    role: Role,
    endpoint: Endpoint,
}

impl Route {
    /// Returns whether the route answers a method. A `HEAD` is answered as a `GET`, whose body the server leaves out.
    fn has_method(&self, method: &Method) -> bool {
        let is_head = *method == Method::HEAD && self.endpoint != Endpoint::Feed;
        *method == *self.method || (is_head && self.method == "GET")
    }
}

const fn get(path: &'static str, role: Role, endpoint: Endpoint) -> Route {
    Route {
        method: "GET",
        path,
        role,
        endpoint,
    }
}

const fn post(path: &'static str, role: Role, endpoint: Endpoint) -> Route {
    Route {
        method: "POST",
        path,
        role,
        endpoint,
    }
}

/// All routes. Those of one path lie together.
const ROUTES: &[Route] = &[
    get("/", Role::Read, Endpoint::Page(Page::Dashboard)),
    get("/calls/{id}", Role::Read, Endpoint::Page(Page::Call)),
    get("/questions", Role::Read, Endpoint::Page(Page::Questions)),
    get("/approvals", Role::Read, Endpoint::Page(Page::Approvals)),
    get("/tools", Role::Read, Endpoint::Page(Page::Tools)),
    get("/tasks", Role::Read, Endpoint::Page(Page::Tasks)),
    get("/tasks/{id}", Role::Read, Endpoint::Page(Page::Task)),
    get("/upstreams", Role::Read, Endpoint::Page(Page::Upstreams)),
    get("/mail", Role::Content, Endpoint::Page(Page::Mail)),
    get("/play", Role::Act, Endpoint::Page(Page::Play)),
    get("/connect", Role::Read, Endpoint::Page(Page::Connect)),
    get("/topology", Role::Read, Endpoint::Page(Page::Topology)),
    get("/feed", Role::Read, Endpoint::Feed),
    get("/part/counts", Role::Read, Endpoint::Part(PagePart::Counts)),
    get("/part/agents", Role::Read, Endpoint::Part(PagePart::Agents)),
    get("/part/calls", Role::Read, Endpoint::Part(PagePart::Calls)),
    get(
        "/part/timeline",
        Role::Read,
        Endpoint::Part(PagePart::CallSteps),
    ),
    get(
        "/part/questions-list",
        Role::Read,
        Endpoint::Part(PagePart::QuestionList),
    ),
    get(
        "/part/question",
        Role::Read,
        Endpoint::Part(PagePart::QuestionForm),
    ),
    get("/part/tasks", Role::Read, Endpoint::Part(PagePart::Tasks)),
    get(
        "/part/upstreams",
        Role::Read,
        Endpoint::Part(PagePart::Upstreams),
    ),
    get(
        "/part/play-run",
        Role::Act,
        Endpoint::Part(PagePart::PlayRun),
    ),
    get(
        "/api/v1/overview",
        Role::Read,
        Endpoint::Json(JsonView::Overview),
    ),
    get(
        "/api/v1/agents",
        Role::Read,
        Endpoint::Json(JsonView::Agents),
    ),
    get("/api/v1/calls", Role::Read, Endpoint::Json(JsonView::Calls)),
    get(
        "/api/v1/calls/{id}",
        Role::Read,
        Endpoint::Json(JsonView::Call),
    ),
    get(
        "/api/v1/questions",
        Role::Read,
        Endpoint::Json(JsonView::Questions),
    ),
    get(
        "/api/v1/upstreams",
        Role::Read,
        Endpoint::Json(JsonView::Upstreams),
    ),
    get("/api/v1/tasks", Role::Read, Endpoint::Json(JsonView::Tasks)),
    get(
        "/api/v1/tasks/{id}",
        Role::Read,
        Endpoint::Json(JsonView::Task),
    ),
    get("/api/v1/tools", Role::Read, Endpoint::Json(JsonView::Tools)),
    get(
        "/api/v1/approvals",
        Role::Read,
        Endpoint::Json(JsonView::Approvals),
    ),
    get("/api/v1/view", Role::Read, Endpoint::Json(JsonView::Node)),
    // Whoever may answer for a person needs no other right; questions of calls need more.
    post("/do/answer", Role::Read, Endpoint::Action(Action::Answer)),
    post(
        "/do/approval",
        Role::Act,
        Endpoint::Action(Action::Approval),
    ),
    post("/do/tool", Role::Act, Endpoint::Action(Action::Tool)),
    post("/do/task", Role::Act, Endpoint::Action(Action::Task)),
    post(
        "/do/upstream",
        Role::Act,
        Endpoint::Action(Action::Upstream),
    ),
    post("/do/play", Role::Act, Endpoint::Action(Action::Play)),
    post(
        "/do/play-cancel",
        Role::Act,
        Endpoint::Action(Action::PlayCancel),
    ),
    post("/do/mail", Role::Act, Endpoint::Action(Action::Mail)),
    get("/metrics", Role::Read, Endpoint::Metrics),
    get("/healthz", Role::Open, Endpoint::Health),
    get("/readyz", Role::Open, Endpoint::Readiness),
    get("/assets/{file}", Role::Open, Endpoint::Asset),
    get("/login", Role::Open, Endpoint::SignInForm),
    post("/login", Role::Open, Endpoint::SignIn),
    post("/logout", Role::Open, Endpoint::SignOut),
];

/// Files that pages load: name, media type and content.
const ASSETS: &[(&str, &str, &[u8])] = &[
    (
        "style.css",
        "text/css; charset=utf-8",
        include_bytes!("assets/style.css"),
    ),
    (
        "console.js",
        "text/javascript; charset=utf-8",
        include_bytes!("assets/console.js"),
    ),
    (
        "htmx.min.js",
        "text/javascript; charset=utf-8",
        include_bytes!("assets/htmx.min.js"),
    ),
    (
        "htmx-sse.min.js",
        "text/javascript; charset=utf-8",
        include_bytes!("assets/htmx-sse.min.js"),
    ),
];

/// Adds all routes to an application.
pub(super) fn configure(config: &mut ServiceConfig, state: &Data<ConsoleState>) {
    let mut latest = "";
    for route in ROUTES {
        if route.path != latest {
            let resource = web::resource(route.path).app_data(state.clone());
            config.service(resource.to(handle));
        }
        latest = route.path;
    }
    let others = web::resource("/{path:.*}").app_data(state.clone());
    config.service(others.to(unknown_path));
}

/// Handles a request to a path of the table. One that changes something runs to its end, also if its client has gone:
/// what was done is in the audit.
async fn handle(
    request: HttpRequest,
    payload: Payload,
    console: Data<ConsoleState>,
) -> HttpResponse {
    let path = request.match_pattern().unwrap_or_default();
    let mut routes = ROUTES.iter().filter(|route| route.path == path);
    let Some(route) = routes.find(|route| route.has_method(request.method())) else {
        return wrong_method(&request, &path);
    };
    let handling = respond(route, request, payload, console);
    if route.method != "POST" {
        return handling.await;
    }
    let done = actix_web::rt::spawn(handling).await;
    done.unwrap_or_else(|_| HttpResponse::InternalServerError().finish())
}

async fn respond(
    route: &'static Route,
    request: HttpRequest,
    payload: Payload,
    console: Data<ConsoleState>,
) -> HttpResponse {
    let _busy = idle_timeout::track_request(&request);
    let done = handle_route(route, &request, payload, &console).await;
    with_security_headers(done.unwrap_or_else(|error| error.respond(&request)))
}

/// Returns the response to a request whose method its path doesn't have: 405, with those that it has.
fn wrong_method(request: &HttpRequest, path: &str) -> HttpResponse {
    let mut methods = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        methods.push(route.method);
        if route.has_method(&Method::HEAD) {
            methods.push("HEAD");
        }
    }
    let mut response = with_security_headers(ConsoleError::wrong_method().respond(request));
    if let Ok(allowed) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

async fn unknown_path(request: HttpRequest, console: Data<ConsoleState>) -> HttpResponse {
    let checked = console.access.check_source(&request);
    let error = match checked {
        Ok(()) => ConsoleError::not_found("there is no such page"),
        Err(rejection) => rejection.into(),
    };
    with_security_headers(error.respond(&request))
}

/// Checks the source, the client and its right, then runs the endpoint of a route.
///
/// # Errors
/// Those of the checks. Failures of an endpoint that needs a right are shown to its client.
async fn handle_route(
    route: &Route,
    request: &HttpRequest,
    payload: Payload,
    console: &ConsoleState,
) -> Result<HttpResponse, ConsoleError> {
    console.access.check_source(request)?;
    match route.endpoint {
        Endpoint::Health => return Ok(text(StatusCode::OK, "ok\n")),
        Endpoint::Readiness => return Ok(readiness(console).await),
        Endpoint::Asset => return asset(request),
        Endpoint::SignInForm => return Ok(sign_in_form(console)),
        Endpoint::SignIn => return sign_in(request, payload, console).await,
        _ => {}
    }
    let client = console.access.authenticate(request).await?;
    let mut checked = ConsoleRequest {
        request,
        console,
        client,
        query: Fields::of_query(request.query_string()),
        body: Fields::default(),
        inbox_questions: 0,
    };
    if let Err(error) = check_roles(&checked, route) {
        return Ok(checked.failed(error));
    }
    let shows_counts = matches!(
        route.endpoint,
        Endpoint::Page(_)
            | Endpoint::Part(PagePart::Counts)
            | Endpoint::Json(JsonView::Overview | JsonView::Node)
    );
    if shows_counts && checked.client.has(Role::Read) {
        checked.inbox_questions = views::inbox_count(console).await;
    }
    if *request.method() == Method::POST {
        checked.body = Fields::of_body(request, payload).await?;
        let sent = checked.body.get("csrf");
        console.access.check_csrf(request, &checked.client, sent)?;
    }
    if console.stop.is_cancelled() && route.endpoint != Endpoint::Metrics {
        return Err(ConsoleError::unavailable(STOPPING_MESSAGE));
    }
    let done = match route.endpoint {
        Endpoint::Page(page) => show_page(&checked, page).await,
        Endpoint::Part(part) => show_part(&checked, part).await,
        Endpoint::Json(view) => json_view(&checked, view).await,
        Endpoint::Action(action) => act(&checked, action).await,
        Endpoint::Feed => open_feed(&checked),
        Endpoint::Metrics => Ok(metrics(console)),
        Endpoint::SignOut => Ok(sign_out(&checked).await),
        // Answered above.
        _ => Err(ConsoleError::not_found("there is no such page")),
    };
    Ok(done.unwrap_or_else(|error| checked.failed(error)))
}

/// Checks that a client may use a route. Pages and their parts show the node, whatever else they show.
///
/// # Errors
/// 403 for the first role that it lacks.
fn check_roles(request: &ConsoleRequest<'_>, route: &Route) -> Result<(), ConsoleError> {
    request.require(route.role)?;
    match route.endpoint {
        Endpoint::Page(_) | Endpoint::Part(_) => request.require(Role::Read),
        _ => Ok(()),
    }
}

/// Returns whether agents run and the store answers: 200 or 503, without a reason.
async fn readiness(console: &ConsoleState) -> HttpResponse {
    let kv = &console.system().store().kv;
    let read = timeout(READY_TIMEOUT, kv.get(READY_SPACE, READY_SPACE)).await;
    match !console.stop.is_cancelled() && matches!(read, Ok(Ok(_))) {
        true => text(StatusCode::OK, "ready\n"),
        false => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

fn metrics(console: &ConsoleState) -> HttpResponse {
    let mut response = text(StatusCode::OK, &console.monitor.metrics_text());
    let kind = HeaderValue::from_static(METRICS_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn asset(request: &HttpRequest) -> Result<HttpResponse, ConsoleError> {
    let name = request.match_info().get("file").unwrap_or_default();
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, content) =
        found.ok_or_else(|| ConsoleError::not_found("there is no such file"))?;
    let known = request.headers().get(IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == ETAG_VALUE.as_bytes());
    let mut response = match is_known {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    };
    response
        .insert_header((ETAG, ETAG_VALUE))
        .insert_header((CACHE_CONTROL, ASSET_CACHING));
    if is_known {
        return Ok(response.finish());
    }
    response.insert_header((CONTENT_TYPE, *kind));
    Ok(response.body(web::Bytes::from_static(content)))
}

/// Returns the page to sign in at. Where no credentials are configured, it says so.
fn sign_in_form(console: &ConsoleState) -> HttpResponse {
    let is_open = matches!(console.access.access, AccessControl::Open(_));
    let hint = is_open.then_some(
        "No keys are configured: everybody on this machine may read, and nobody may act. Write `keys` in [console].",
    );
    html(StatusCode::OK, pages::login(hint))
}

/// Begins a session for the key or token of a form.
async fn sign_in(
    request: &HttpRequest,
    payload: Payload,
    console: &ConsoleState,
) -> Result<HttpResponse, ConsoleError> {
    check_same_page(request)?;
    let fields = Fields::of_body(request, payload).await?;
    let session = console
        .access
        .sign_in(request, fields.text("credential"))
        .await?;
    let entry = AuditEntry::new("console.signed_in").with_principal(&session.principal);
    console.system().audit().enqueue(entry).await;
    let mut response = redirect("/");
    set_cookie(&mut response, &console.access.set_cookie(Some(&session)));
    Ok(response)
}

async fn sign_out(request: &ConsoleRequest<'_>) -> HttpResponse {
    let access = &request.console.access;
    access.sign_out(request.request);
    let entry = AuditEntry::new("console.signed_out").with_principal(&request.client.principal);
    request.console.system().audit().enqueue(entry).await;
    let mut response = redirect("/login");
    set_cookie(&mut response, &access.set_cookie(None));
    response
}

fn set_cookie(response: &mut HttpResponse, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, value);
    }
}
