use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard_rpc::Egress;
use futures::future::BoxFuture;
use parking_lot::Mutex as Lock;
use reqwest::Url;
use secrecy::SecretString;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::authorizer::{Authorizer, BearerChallenge, Challenge};
use super::client::Registrations;
use super::consent::CONSENT_TIMEOUT_DEFAULT;
use super::discovery::{Resource, Scopes, Server};
use super::fetch::{Fetch, REQUEST_TIMEOUT_DEFAULT};
use super::token::{Grant, Session, Token};
use super::{AuthError, discovery};

/// How often one request is sent again because the upstream refused it.
const REFUSALS_MAX: u32 = 3;

/// How an [`OAuth`] client behaves.
#[derive(Debug, Clone)]
pub struct OAuthOptions {
    /// Where it connects to because others name the place; over https alone, but for this machine.
    pub egress: Egress,
    /// How long one request to an authorization server may take.
    pub request_timeout: Duration,
    /// How long somebody may take to consent.
    pub consent_timeout: Duration,
    /// Whether an upstream without protected-resource metadata is taken for its own authorization server, as revision
    /// 2025-03-26 has it. Later revisions don't, so not by default.
    pub fallback_2025_03_26: bool,
}

impl Default for OAuthOptions {
    fn default() -> Self {
        Self {
            egress: Egress::public(),
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
            consent_timeout: CONSENT_TIMEOUT_DEFAULT,
            fallback_2025_03_26: false,
        }
    }
}

/// An OAuth 2.1 client of one upstream, as the MCP specification wants it.
///
/// Knows nothing until the upstream refuses a request; then it finds out who authorises, gets a token for this
/// resource, renews it, and asks for more scopes where the upstream says so. Requests that are refused together wait
/// for one new token. A consent goes on when the request that it was for is given up: the next one profits. Tokens and
/// registrations last as long as this value.
#[derive(Debug)]
pub struct OAuth {
    inner: Arc<Inner>,
    /// Dropping this ends what is under way.
    _open: DropGuard,
}

struct Inner {
    upstream: Url,
    grant: Grant,
    options: OAuthOptions,
    fetch: Fetch,
    token: Lock<Option<Token>>,
    flow: Arc<Mutex<Flow>>,
    /// How many attempts to get a token have failed.
    failures: AtomicU64,
    closed: CancellationToken,
}

/// One at a time gets tokens.
#[derive(Default)]
struct Flow {
    session: Option<Session>,
    registrations: Registrations,
}

/// A [`Challenge`] that outlives its request.
struct Refused {
    lacks_scope: bool,
    bearer: BearerChallenge,
    sent: Option<SecretString>,
    before: u32,
}

impl OAuth {
    /// A client for the MCP endpoint `upstream`. Connects nowhere yet.
    ///
    /// # Errors
    /// [`AuthError::Upstream`], [`AuthError::ClientIdDocument`] or [`AuthError::Client`].
    pub fn new(upstream: &str, grant: Grant, options: OAuthOptions) -> Result<Self, AuthError> {
        let mut upstream = Url::parse(upstream).map_err(|_| AuthError::Upstream)?;
        let bare = upstream.username().is_empty() && upstream.password().is_none();
        if !bare || !upstream.has_host() || !matches!(upstream.scheme(), "http" | "https") {
            return Err(AuthError::Upstream);
        }
        upstream.set_fragment(None);
        grant.check()?;
        let fetch = Fetch::new(&options.egress, options.request_timeout)?;
        let closed = CancellationToken::new();
        let _open = closed.clone().drop_guard();
        let inner = Inner {
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

impl Authorizer for OAuth {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<SecretString>, AuthError>> {
        Box::pin(async {
            let token = self.inner.token.lock().clone();
            match token {
                Some(token) if token.wants_renewal() => {
                    let (inner, flow) = (
                        self.inner.clone(),
                        self.inner.flow.clone().lock_owned().await,
                    );
                    self.inner
                        .finish(async move { inner.renewed(flow).await })
                        .await
                }
                token => Ok(token.map(|token| token.value)),
            }
        })
    }

    fn challenged<'a>(
        &'a self,
        challenge: Challenge<'a>,
    ) -> BoxFuture<'a, Result<bool, AuthError>> {
        Box::pin(async move {
            let bearer = BearerChallenge::of(challenge.www_authenticate);
            let lacks_scope = challenge.status == 403;
            let for_us = if lacks_scope {
                bearer.error.as_deref() == Some("insufficient_scope")
            } else {
                challenge.status == 401
            };
            if !for_us {
                return Ok(false);
            }
            let sent = challenge.sent.cloned();
            let refused = Refused {
                lacks_scope,
                bearer,
                sent,
                before: challenge.refused_before,
            };
            let failures = self.inner.failures.load(Ordering::Acquire);
            let (inner, flow) = (
                self.inner.clone(),
                self.inner.flow.clone().lock_owned().await,
            );
            if inner.failures.load(Ordering::Acquire) != failures {
                // Or each of those who wait would ask the same person again.
                return Err(AuthError::FailedMeanwhile);
            }
            let answering = async move {
                let answer = inner.better_token(refused, flow).await;
                if answer.is_err() {
                    inner.failures.fetch_add(1, Ordering::Release);
                }
                answer
            };
            self.inner.finish(answering).await
        })
    }
}

impl Inner {
    /// Runs `work` to its end even if nobody waits for it any more: a code or a refresh token counts only once, and a
    /// person who has the page open should find us listening.
    async fn finish<T: Send + 'static>(
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

    /// The value to send, after an attempt to renew the token without anybody's help.
    async fn renewed(
        &self,
        mut flow: OwnedMutexGuard<Flow>,
    ) -> Result<Option<SecretString>, AuthError> {
        let Some(token) = self.token.lock().clone() else {
            return Ok(None);
        };
        let Some(session) = flow.session.clone().filter(|_| token.wants_renewal()) else {
            return Ok(Some(token.value));
        };
        let renewed = match (&token.refresh, &self.grant) {
            (Some(refresh), _) => session.refresh(&self.fetch, refresh).await,
            // The upstream will say that it ended, and then somebody is asked again.
            (None, Grant::Consent { .. }) => return Ok(Some(token.value)),
            (None, grant) => {
                grant
                    .token(&self.fetch, &session, self.options.consent_timeout)
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
                self.refresh_refused(&mut flow, code.as_str());
                Ok(None)
            }
            // It still counts: whoever is away may be back when it doesn't.
            Err(_) if !token.expired() => Ok(Some(token.value)),
            Err(error) => Err(error),
        }
    }

    fn refresh_refused(&self, flow: &mut Flow, code: &str) {
        *self.token.lock() = None;
        if let (Some(session), "invalid_client") = (&flow.session, code) {
            flow.registrations.forget(&session.server.issuer);
        }
    }

    /// Gets the token that a refused request lacks. `Ok(false)`: there is none better.
    async fn better_token(
        &self,
        refused: Refused,
        mut flow: OwnedMutexGuard<Flow>,
    ) -> Result<bool, AuthError> {
        let current = self.token.lock().clone();
        let outdated =
            |current: &Token| !refused.sent.as_ref().is_some_and(|sent| current.is(sent));
        if current.as_ref().is_some_and(outdated) {
            return Ok(true);
        }
        if refused.before >= REFUSALS_MAX {
            return Ok(false);
        }
        let challenged = Scopes::parse(refused.bearer.scope.as_deref().unwrap_or_default())?;
        let asked_before = |session: &Session| session.requested.contains_all(&challenged);
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
            // No token of another's may go to the upstream, nor its scopes and client to the new one.
            flow.session = None;
            *self.token.lock() = None;
        }
        let requested = match &flow.session {
            Some(session) => session.requested.clone().union(&challenged)?,
            None if challenged.is_empty() => resource.scopes.unwrap_or_default(),
            None => challenged,
        };
        if let (Some(session), false) = (&flow.session, refused.lacks_scope) {
            let same_scopes = session.requested == requested;
            let session = Session {
                server: server.clone(),
                resource: resource.identifier.clone(),
                ..session.clone()
            };
            let refresh = current
                .and_then(|token| token.refresh)
                .filter(|_| same_scopes && refused.before == 0);
            if let Some(refresh) = refresh {
                match session.refresh(&self.fetch, &refresh).await {
                    Ok(token) => {
                        *self.token.lock() = Some(token);
                        flow.session = Some(Session {
                            refreshed: true,
                            ..session
                        });
                        return Ok(true);
                    }
                    Err(AuthError::Refused { code, .. }) => {
                        self.refresh_refused(&mut flow, code.as_str())
                    }
                    Err(error) => return Err(error),
                }
            }
            // What was granted for this very request was refused: another grant would be, too.
            if refused.before > 0 && !session.refreshed {
                return Ok(false);
            }
        }
        let client = self
            .grant
            .client(&self.fetch, &server, &mut flow.registrations)
            .await?;
        let session = Session {
            server,
            client,
            resource: resource.identifier,
            requested,
            refreshed: false,
        };
        let granted = self
            .grant
            .token(&self.fetch, &session, self.options.consent_timeout)
            .await;
        if let Err(AuthError::Refused { code, .. }) = &granted
            && code.as_str() == "invalid_client"
        {
            flow.registrations.forget(&session.server.issuer);
        }
        *self.token.lock() = Some(granted?);
        flow.session = Some(session);
        Ok(true)
    }

    /// Who authorises now; asked anew each time, for it may have changed.
    async fn discover(
        &self,
        bearer: &BearerChallenge,
        session: Option<&Session>,
    ) -> Result<(Resource, Server), AuthError> {
        let named = bearer.resource_metadata.as_deref();
        let resource = match discovery::resource(&self.fetch, &self.upstream, named).await {
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
        let server = discovery::server(&self.fetch, issuer).await?;
        Ok((resource, server))
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("upstream", &self.upstream.host_str())
            .field("grant", &self.grant)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
