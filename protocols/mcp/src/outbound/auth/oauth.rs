use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard_rpc::EgressPolicy;
use futures::future::BoxFuture;
use parking_lot::Mutex as Lock;
use reqwest::Url;
use secrecy::SecretString;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::authorizer::{AuthChallenge, Authorizer, BearerChallenge};
use super::client::ClientRegistrations;
use super::consent::CONSENT_TIMEOUT_DEFAULT;
use super::discovery::{AuthorizationServer, ProtectedResource, ScopeSet};
use super::fetch::{OAuthHttpClient, REQUEST_TIMEOUT_DEFAULT};
use super::token::{AuthorizationSession, OAuthGrant, UpstreamToken};
use super::{AuthError, discovery};

/// Maximum number of rejections by the upstream after which one request is sent again with a new
/// token.
const REJECTIONS_MAX: u32 = 3;

/// Options of an [`OAuthAuthorizer`].
#[derive(Debug, Clone)]
pub struct OAuthOptions {
    /// Addresses that the client may connect to. The upstream and its authorization servers name
    /// the URLs, so they can't be trusted. Only https is used, except on this machine.
    pub egress: EgressPolicy,
    /// Time limit of one request to an authorization server.
    pub request_timeout: Duration,
    /// Time limit of a user's consent.
    pub consent_timeout: Duration,
    /// Treats an upstream without protected-resource metadata as its own authorization server, as
    /// in revision 2025-03-26. Off by default, because later revisions don't.
    pub fallback_2025_03_26: bool,
}

impl Default for OAuthOptions {
    fn default() -> Self {
        Self {
            egress: EgressPolicy::public_internet(),
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            consent_timeout: CONSENT_TIMEOUT_DEFAULT,
            fallback_2025_03_26: false,
        }
    }
}

/// OAuth 2.1 client of one upstream, as the MCP specification requires.
///
/// It acts on the first rejection by the upstream: it discovers the authorization server, obtains a
/// token for the resource, renews it, and requests more scopes when the upstream demands them.
/// Requests rejected at the same time wait for one new token. A consent continues after the request
/// that needed it has been cancelled, and serves the next one. Tokens and registrations are kept in
/// memory, until the value is dropped.
#[derive(Debug)]
pub struct OAuthAuthorizer {
    inner: Arc<OAuthState>,
    /// Cancels running token requests when the authorizer is dropped.
    _open: DropGuard,
}

struct OAuthState {
    upstream: Url,
    grant: OAuthGrant,
    options: OAuthOptions,
    fetch: OAuthHttpClient,
    token: Lock<Option<UpstreamToken>>,
    flow: Arc<Mutex<AuthorizationFlow>>,
    /// Number of failed attempts to obtain a token. Waiting requests compare it to detect a failure
    /// meanwhile.
    failures: AtomicU64,
    closed: CancellationToken,
}

/// State of token requests. It is locked during a request, so that only one runs at a time.
#[derive(Default)]
struct AuthorizationFlow {
    session: Option<AuthorizationSession>,
    registrations: ClientRegistrations,
}

/// Parts of an [`AuthChallenge`], owned, so that they outlive the rejected request.
struct RejectedRequest {
    lacks_scope: bool,
    bearer: BearerChallenge,
    sent: Option<SecretString>,
    earlier_rejections: u32,
}

impl OAuthAuthorizer {
    /// Creates an authorizer for the MCP endpoint `upstream`. It doesn't connect yet.
    ///
    /// # Errors
    /// [`AuthError::Upstream`], [`AuthError::ClientIdDocument`] or [`AuthError::Client`].
    pub fn new(
        upstream: &str,
        grant: OAuthGrant,
        options: OAuthOptions,
    ) -> Result<Self, AuthError> {
        let mut upstream = Url::parse(upstream).map_err(|_| AuthError::Upstream)?;
        let bare = upstream.username().is_empty() && upstream.password().is_none();
        if !bare || !upstream.has_host() || !matches!(upstream.scheme(), "http" | "https") {
            return Err(AuthError::Upstream);
        }
        upstream.set_fragment(None);
        grant.validate()?;
        let fetch = OAuthHttpClient::new(&options.egress, options.request_timeout)?;
        let closed = CancellationToken::new();
        let _open = closed.clone().drop_guard();
        let inner = OAuthState {
            upstream,
            grant,
            options,
            fetch,
            token: Lock::default(),
            flow: Arc::default(),
            failures: AtomicU64::new(0),
            closed,
        };
        Ok(Self {
            inner: Arc::new(inner),
            _open,
        })
    }
}

impl Authorizer for OAuthAuthorizer {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
        Box::pin(async {
            let token = self.inner.token.lock().clone();
            match token {
                Some(token) if token.needs_renewal() => {
                    let (inner, flow) = (
                        self.inner.clone(),
                        self.inner.flow.clone().lock_owned().await,
                    );
                    self.inner
                        .run_to_completion(async move { inner.renew_token(flow).await })
                        .await
                }
                token => Ok(token.map(|token| token.value)),
            }
        })
    }

    fn handle_challenge<'a>(
        &'a self,
        challenge: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<bool, AuthError>> {
        Box::pin(async move {
            let bearer = BearerChallenge::parse(challenge.www_authenticate);
            let lacks_scope = challenge.status == 403;
            let for_us = if lacks_scope {
                bearer.error.as_deref() == Some("insufficient_scope")
            } else {
                challenge.status == 401
            };
            if !for_us {
                return Ok(false);
            }
            let sent = challenge.sent_authorization.cloned();
            let refused = RejectedRequest {
                lacks_scope,
                bearer,
                sent,
                earlier_rejections: challenge.earlier_rejections,
            };
            let failures = self.inner.failures.load(Ordering::Acquire);
            let (inner, flow) = (
                self.inner.clone(),
                self.inner.flow.clone().lock_owned().await,
            );
            if inner.failures.load(Ordering::Acquire) != failures {
                // Otherwise each waiting request would ask the same user again.
                return Err(AuthError::FailedMeanwhile);
            }
            let answering = async move {
                let answer = inner.acquire_token(refused, flow).await;
                if answer.is_err() {
                    inner.failures.fetch_add(1, Ordering::Release);
                }
                answer
            };
            self.inner.run_to_completion(answering).await
        })
    }
}

impl OAuthState {
    /// Runs `work` to its end even if its caller is cancelled, unless the authorizer is dropped. An
    /// authorization code or refresh token can be used only once, and a user with the consent page
    /// open should find this process listening.
    async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, AuthError>> + Send + 'static,
    ) -> Result<T, AuthError> {
        let closed = self.closed.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                done = work => done,
                () = closed.cancelled() => Err(AuthError::Interrupted),
            }
        });
        task.await.unwrap_or(Err(AuthError::Interrupted))
    }

    /// Renews the token if necessary, without asking a user. Returns the `Authorization` value to
    /// send: the old one if it can't be renewed yet. Returns `None` if the authorization server
    /// rejected the renewal, or there is no token.
    async fn renew_token(
        &self,
        mut flow: OwnedMutexGuard<AuthorizationFlow>,
    ) -> Result<Option<SecretString>, AuthError> {
        let Some(token) = self.token.lock().clone() else {
            return Ok(None);
        };
        let Some(session) = flow.session.clone().filter(|_| token.needs_renewal()) else {
            return Ok(Some(token.value));
        };
        let renewed = match (&token.refresh, &self.grant) {
            (Some(refresh), _) => session.refresh(&self.fetch, refresh).await,
            // The upstream will reject the expired token, and the user is asked then.
            (None, OAuthGrant::Consent { .. }) => return Ok(Some(token.value)),
            (None, grant) => {
                grant
                    .request_token(&self.fetch, &session, self.options.consent_timeout)
                    .await
            }
        };
        match renewed {
            Ok(new) => {
                let value = new.value.clone();
                *self.token.lock() = Some(new);
                Ok(Some(value))
            }
            Err(AuthError::Refused { code, .. }) => {
                self.discard_rejected_token(&mut flow, code.as_str());
                Ok(None)
            }
            // The token is still valid, and the server may be available again before it expires.
            Err(_) if !token.is_expired() => Ok(Some(token.value)),
            Err(error) => Err(error),
        }
    }

    fn discard_rejected_token(&self, flow: &mut AuthorizationFlow, code: &str) {
        *self.token.lock() = None;
        if let (Some(session), "invalid_client") = (&flow.session, code) {
            flow.registrations.forget(&session.server.issuer);
        }
    }

    /// Obtains a token that is better than that of the rejected request. Returns true if there is
    /// one, perhaps obtained by another request meanwhile. Returns false if the rejection is final.
    async fn acquire_token(
        &self,
        refused: RejectedRequest,
        mut flow: OwnedMutexGuard<AuthorizationFlow>,
    ) -> Result<bool, AuthError> {
        let current = self.token.lock().clone();
        let outdated = |current: &UpstreamToken| {
            !refused
                .sent
                .as_ref()
                .is_some_and(|sent| current.has_value(sent))
        };
        if current.as_ref().is_some_and(outdated) {
            return Ok(true);
        }
        if refused.earlier_rejections >= REJECTIONS_MAX {
            return Ok(false);
        }
        let challenged = ScopeSet::parse(refused.bearer.scope.as_deref().unwrap_or_default())?;
        let asked_before =
            |session: &AuthorizationSession| session.requested_scopes.contains_all(&challenged);
        if refused.lacks_scope && flow.session.as_ref().is_some_and(asked_before) {
            return Ok(false);
        }

        let (resource, server) = self
            .discover(&refused.bearer, flow.session.as_ref())
            .await?;
        if flow
            .session
            .as_ref()
            .is_some_and(|session| session.server.issuer != server.issuer)
        {
            // Token, scopes and client of one authorization server must never go to another.
            flow.session = None;
            *self.token.lock() = None;
        }
        let requested = match &flow.session {
            Some(session) => session.requested_scopes.clone().union(&challenged)?,
            None if challenged.is_empty() => resource.scopes.unwrap_or_default(),
            None => challenged,
        };
        if let (Some(session), false) = (&flow.session, refused.lacks_scope) {
            let same_scopes = session.requested_scopes == requested;
            let session = AuthorizationSession {
                server: server.clone(),
                resource: resource.identifier.clone(),
                ..session.clone()
            };
            let refresh = current
                .and_then(|token| token.refresh)
                .filter(|_| same_scopes && refused.earlier_rejections == 0);
            if let Some(refresh) = refresh
                && self.refresh_token(&mut flow, &session, &refresh).await?
            {
                return Ok(true);
            }
            // The token was granted for this very request and rejected: another grant would be
            // rejected, too.
            if refused.earlier_rejections > 0 && !session.is_refreshed {
                return Ok(false);
            }
        }
        self.request_grant(&mut flow, server, resource.identifier, requested)
            .await?;
        Ok(true)
    }

    /// Obtains a token with the refresh token `refresh`. Returns false if it was rejected.
    async fn refresh_token(
        &self,
        flow: &mut AuthorizationFlow,
        session: &AuthorizationSession,
        refresh: &SecretString,
    ) -> Result<bool, AuthError> {
        match session.refresh(&self.fetch, refresh).await {
            Ok(token) => {
                *self.token.lock() = Some(token);
                flow.session = Some(AuthorizationSession {
                    is_refreshed: true,
                    ..session.clone()
                });
                Ok(true)
            }
            Err(AuthError::Refused { code, .. }) => {
                self.discard_rejected_token(flow, code.as_str());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Obtains a token for `resource` by a new grant.
    async fn request_grant(
        &self,
        flow: &mut AuthorizationFlow,
        server: AuthorizationServer,
        resource: String,
        requested_scopes: ScopeSet,
    ) -> Result<(), AuthError> {
        let client = self
            .grant
            .client_for(&self.fetch, &server, &mut flow.registrations)
            .await?;
        let session = AuthorizationSession {
            server,
            client,
            resource,
            requested_scopes,
            is_refreshed: false,
        };
        let granted = self
            .grant
            .request_token(&self.fetch, &session, self.options.consent_timeout)
            .await;
        if let Err(AuthError::Refused { code, .. }) = &granted
            && code.as_str() == "invalid_client"
        {
            flow.registrations.forget(&session.server.issuer);
        }
        *self.token.lock() = Some(granted?);
        flow.session = Some(session);
        Ok(())
    }

    /// Discovers the upstream's metadata and its authorization server. It runs each time a token is
    /// obtained for a rejected request, because the server may change.
    async fn discover(
        &self,
        bearer: &BearerChallenge,
        session: Option<&AuthorizationSession>,
    ) -> Result<(ProtectedResource, AuthorizationServer), AuthError> {
        let named = bearer.resource_metadata.as_deref();
        let resource = match discovery::discover_resource(&self.fetch, &self.upstream, named).await
        {
            Err(AuthError::NoResourceMetadata)
                if self.options.fallback_2025_03_26 && named.is_none() =>
            {
                return discovery::discover_without_metadata(&self.fetch, &self.upstream).await;
            }
            found => found?,
        };
        let listed = |issuer: &str| resource.issuers.iter().find(|listed| *listed == issuer);
        let issuer = match self.grant.issuer() {
            Some(ours) => listed(ours).ok_or(AuthError::ForeignClient)?,
            None => session
                .and_then(|session| listed(&session.server.issuer))
                .or(resource.issuers.first())
                .ok_or(AuthError::NoServerMetadata)?,
        };
        let server = discovery::discover_server(&self.fetch, issuer).await?;
        Ok((resource, server))
    }
}

impl fmt::Debug for OAuthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthState")
            .field("upstream", &self.upstream.host_str())
            .field("grant", &self.grant)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
