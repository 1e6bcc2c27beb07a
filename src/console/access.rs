//! Identity and rights of whoever sends a request to the console.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use callboard_message::Principal;
use callboard_rpc::serve::guard::{self, HttpRejection, http_rejection};
use callboard_rpc::{AccessControl, AllowedHosts, AllowedOrigins};

use super::pages::Viewer;
use super::session::{Session, Sessions};

/// Scopes that open everything of the console.
const ALL_SCOPES: [&str; 2] = ["console.*", "*"];
/// Header with the token of a session, for requests of scripts that change something.
const CSRF_HEADER: &str = "x-csrf-token";
/// Beginning of the names of cookies that browsers take from this host alone, and over TLS alone.
const HOST_COOKIE_PREFIX: &str = "__Host-";
/// Beginning of the paths of the requests that a page makes by itself, which don't prolong a session.
const PART_PATHS: &str = "/part/";
/// Path of the event stream, which doesn't prolong a session either.
const FEED_PATH: &str = "/feed";
/// Header by which browsers tell from where a request comes.
const FETCH_SITE_HEADER: &str = "sec-fetch-site";
const FOREIGN_PAGE_MESSAGE: &str =
    "the request comes from another page: use the console's own, at the same host and port";
const CSRF_MESSAGE: &str =
    "the page is out of date, or isn't the console's: load it again, and repeat what you did";

/// Right that a route of the console needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// None: the route tells nothing about the node.
    Open,
    /// Reading agents, calls and states.
    Read,
    /// Reading texts of calls, questions and mail too.
    Content,
    /// Changing something.
    Act,
}

impl Role {
    /// Returns the scope that opens routes of this role; `None` if none is needed.
    pub(super) fn scope(self) -> Option<&'static str> {
        match self {
            Self::Open => None,
            Self::Read => Some("console.read"),
            Self::Content => Some("console.content"),
            Self::Act => Some("console.act"),
        }
    }
}

/// Access checks of the console, with its sessions.
pub(crate) struct ConsoleAccess {
    /// Authentication method. [`AccessControl::Open`] if no credentials are configured: then
    /// everybody may read, and nobody may do more.
    pub(crate) access: AccessControl,
    /// Host names that are allowed in addition to this machine's own.
    pub(crate) hosts: AllowedHosts,
    /// Web origins that are allowed in addition to this machine's own.
    pub(crate) origins: AllowedOrigins,
    /// Whether the console speaks TLS, so that cookies are for TLS only.
    pub(crate) is_tls: bool,
    /// Name of the session's cookie, which differs from those of other consoles of this machine.
    cookie: String,
    sessions: Sessions,
}

/// Authenticated sender of a request.
pub(super) struct ConsoleClient {
    pub(super) principal: Arc<Principal>,
    /// Session of a browser; `None` for a request with a credential of its own, or without any.
    pub(super) session: Option<Arc<Session>>,
    is_open: bool,
}

impl ConsoleClient {
    /// Returns whether the client may use routes of a role.
    pub(super) fn has(&self, role: Role) -> bool {
        let Some(scope) = role.scope() else {
            return true;
        };
        if self.is_open {
            return role == Role::Read;
        }
        let mut scopes = self.principal.scopes.iter();
        scopes.any(|granted| granted == scope || ALL_SCOPES.contains(&granted.as_str()))
    }

    /// Returns whether the console asks nobody for a credential.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns whether the client may answer questions to a person of the topology.
    pub(super) fn may_answer_for(&self, person: &str) -> bool {
        !self.is_open && callboard_person::may_answer(person, &self.principal)
    }

    /// Returns the client as pages show it.
    pub(super) fn viewer(&self) -> Viewer {
        Viewer {
            name: callboard_runtime::visible(&format!(
                "{}:{}",
                self.principal.kind, self.principal.id
            )),
            can_see_content: self.has(Role::Content),
            can_act: self.has(Role::Act),
            is_signed_in: self.session.is_some(),
        }
    }

    /// Returns the token of the session; empty without one.
    pub(super) fn csrf(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.csrf)
    }
}

impl ConsoleAccess {
    /// Creates the checks of a console that listens on `port`.
    pub(crate) fn new(
        access: AccessControl,
        hosts: AllowedHosts,
        origins: AllowedOrigins,
        is_tls: bool,
        port: u16,
    ) -> Self {
        Self {
            access,
            hosts,
            origins,
            is_tls,
            // Browsers send cookies to all ports of a host.
            cookie: format!(
                "{}callboard_console_{port}",
                if is_tls { HOST_COOKIE_PREFIX } else { "" }
            ),
            sessions: Sessions::default(),
        }
    }

    /// Checks that a request is for the console: its `Host`, and its `Origin` if it has one.
    ///
    /// # Errors
    /// 403 if one isn't allowed.
    pub(super) fn check_source(&self, request: &HttpRequest) -> Result<(), HttpRejection> {
        guard::check_source(request, &self.hosts, &self.origins)
    }

    /// Authenticates a request by its `Authorization`, else by its session, whose credential is
    /// verified again. A session ends with its credential.
    ///
    /// # Errors
    /// 400, 401, 403 and 503, as [`guard::authenticate`].
    pub(super) async fn authenticate(
        &self,
        request: &HttpRequest,
    ) -> Result<ConsoleClient, HttpRejection> {
        let session = match request.headers().contains_key(header::AUTHORIZATION) {
            true => None,
            false => self.session_of(request),
        };
        let shown = session.as_ref().map(|session| &*session.authorization);
        let verified = guard::authenticate(request, shown, &self.access).await;
        let ended = |rejection: &HttpRejection| rejection.status != StatusCode::SERVICE_UNAVAILABLE;
        if let (Err(rejection), Some(session)) = (&verified, &session)
            && ended(rejection)
        {
            self.sessions.end(&session.id);
        }
        let principal = Arc::new(verified?);
        if let Some(session) = &session
            && session.principal != principal
        {
            // The key has other scopes now, or is another's.
            self.sessions.end(&session.id);
            return Err(http_rejection(
                StatusCode::UNAUTHORIZED,
                "the session's credential has changed: sign in again",
            ));
        }
        Ok(ConsoleClient {
            principal,
            session,
            is_open: matches!(self.access, AccessControl::Open(_)),
        })
    }

    /// Begins a session for a key or token. `request` is the one that shows it.
    ///
    /// # Errors
    /// 401 for a wrong one, which counts as a guess; the others of [`guard::authenticate`].
    pub(super) async fn sign_in(
        &self,
        request: &HttpRequest,
        credential: &str,
    ) -> Result<Arc<Session>, HttpRejection> {
        let authorization = format!("Bearer {}", credential.trim()).into_bytes();
        let verified = guard::authenticate(request, Some(&authorization), &self.access).await;
        let principal = Arc::new(verified.map_err(as_unauthorized)?);
        Ok(self.sessions.begin(authorization, principal))
    }

    /// Ends the session of a request, if any.
    pub(super) fn sign_out(&self, request: &HttpRequest) {
        if let Some(session) = self.session_of(request) {
            self.sessions.end(&session.id);
        }
    }

    /// Returns the value of `Set-Cookie` for a session, or with `None` the one that removes it.
    pub(super) fn set_cookie(&self, session: Option<&Session>) -> String {
        let (id, end) = match session {
            Some(session) => (&*session.id, ""),
            None => ("", "; Max-Age=0"),
        };
        let secure = if self.is_tls { "; Secure" } else { "" };
        let name = &self.cookie;
        format!("{name}={id}; HttpOnly; SameSite=Strict; Path=/{secure}{end}")
    }

    /// Checks that a request that changes something comes from a page of the console. A request with a
    /// credential of its own needs no token: no foreign page can send one.
    ///
    /// # Errors
    /// 403 if it comes from another page, or lacks the token of its session. `sent` is the token in
    /// its body.
    pub(super) fn check_csrf(
        &self,
        request: &HttpRequest,
        client: &ConsoleClient,
        sent: Option<&str>,
    ) -> Result<(), HttpRejection> {
        let Some(session) = &client.session else {
            return Ok(());
        };
        check_same_page(request)?;
        let header = request.headers().get(CSRF_HEADER);
        let header = header.and_then(|value| value.to_str().ok());
        match header.or(sent) {
            Some(token) if session.is_csrf(token) => Ok(()),
            _ => Err(http_rejection(StatusCode::FORBIDDEN, CSRF_MESSAGE)),
        }
    }

    fn session_of(&self, request: &HttpRequest) -> Option<Arc<Session>> {
        let cookies = request.headers().get_all(header::COOKIE);
        let mut values = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.cookie);
        let (_, id) = values.next()?;
        let path = request.path();
        let is_use = !path.starts_with(PART_PATHS) && path != FEED_PATH;
        self.sessions.find(id, is_use)
    }
}

/// Checks by the headers that browsers set that a request comes from a page of its own host and port.
///
/// # Errors
/// 403 if it comes from another one.
pub(super) fn check_same_page(request: &HttpRequest) -> Result<(), HttpRejection> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_foreign_site = text(FETCH_SITE_HEADER).is_some_and(|site| site != "same-origin");
    let origin = headers.get(header::ORIGIN);
    let is_foreign_origin = origin.is_some_and(|origin| {
        let origin = origin.to_str().ok();
        let authority = origin.and_then(|origin| origin.split_once("://"));
        let host = text("host").or_else(|| request.uri().authority().map(|name| name.as_str()));
        authority
            .zip(host)
            .is_none_or(|((_, authority), host)| !authority.eq_ignore_ascii_case(host))
    });
    match is_foreign_site || is_foreign_origin {
        true => Err(http_rejection(StatusCode::FORBIDDEN, FOREIGN_PAGE_MESSAGE)),
        false => Ok(()),
    }
}

/// Changes the status 400 of a text that can't be a key to 401. Others are unchanged.
fn as_unauthorized(mut rejection: HttpRejection) -> HttpRejection {
    if rejection.status == StatusCode::BAD_REQUEST {
        rejection.status = StatusCode::UNAUTHORIZED;
    }
    rejection
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn client(scopes: &[&str], is_open: bool) -> ConsoleClient {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        ConsoleClient {
            principal: Arc::new(Principal {
                scopes,
                ..Principal::agent("a")
            }),
            session: None,
            is_open,
        }
    }

    /// Goal: a scope opens its own routes alone, and an open console is for reading. Method: rows.
    #[test]
    fn roles() {
        let all = [Role::Open, Role::Read, Role::Content, Role::Act];
        let rows: [(&[&str], bool, [bool; 4]); 8] = [
            (&[], false, [true, false, false, false]),
            (&["console.read"], false, [true, true, false, false]),
            (&["console.content"], false, [true, false, true, false]),
            (&["console.act"], false, [true, false, false, true]),
            (&["console.*"], false, [true; 4]),
            (&["*"], false, [true; 4]),
            (
                &["console", "Console.read", "console.rea*"],
                false,
                [true, false, false, false],
            ),
            (&["*"], true, [true, true, false, false]),
        ];
        for (scopes, is_open, opened) in rows {
            let client = client(scopes, is_open);
            assert_eq!(all.map(|role| client.has(role)), opened, "{scopes:?}");
        }
    }

    /// Goal: a cookie is for its own host alone where that can be had, and never for scripts. Method: with and without TLS.
    #[test]
    fn cookies() {
        for (is_tls, begin, end) in [
            (false, "callboard_console_9090=; HttpOnly", "Max-Age=0"),
            (
                true,
                "__Host-callboard_console_9090=; HttpOnly",
                "; Secure; Max-Age=0",
            ),
        ] {
            let access = ConsoleAccess::new(
                AccessControl::Anyone,
                AllowedHosts::default(),
                AllowedOrigins::default(),
                is_tls,
                9_090,
            );
            let cookie = access.set_cookie(None);
            assert!(
                cookie.starts_with(begin) && cookie.ends_with(end),
                "{cookie}"
            );
            assert_eq!(cookie.contains("Secure"), is_tls, "{cookie}");
        }
    }

    /// Goal: what browsers say about another page counts. Method: rows of headers.
    #[test]
    fn foreign_pages() {
        for (site, origin, is_own) in [
            (None, None, true),
            (Some("same-origin"), Some("http://localhost:9090"), true),
            (None, Some("https://LOCALHOST:9090"), true),
            (Some("same-site"), Some("http://localhost:9090"), false),
            (Some("cross-site"), None, false),
            (None, Some("http://localhost:8080"), false),
            (None, Some("null"), false),
        ] {
            let mut request = TestRequest::post().insert_header(("host", "localhost:9090"));
            if let Some(site) = site {
                request = request.insert_header((FETCH_SITE_HEADER, site));
            }
            if let Some(origin) = origin {
                request = request.insert_header(("origin", origin));
            }
            let checked = check_same_page(&request.to_http_request());
            assert_eq!(checked.is_ok(), is_own, "{site:?} {origin:?}");
        }
    }
}
