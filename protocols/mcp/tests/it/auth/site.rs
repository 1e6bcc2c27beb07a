//! An upstream with its authorization server, on loopback, controlled by the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::dev::ServerHandle;
use actix_web::http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use callboard_mcp::outbound::auth::{
    AuthChallenge, AuthError, Authorizer, ClientIdentity, HeadlessConsent, OAuthAuthorizer,
    OAuthClient, OAuthGrant, OAuthOptions, PreregisteredClient,
};
use callboard_rpc::EgressPolicy;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

pub type Fields = BTreeMap<String, String>;

/// Redirect URI; no server listens there.
pub const CALLBACK: &str = "http://localhost:3000/callback";

/// One request that the site received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub path: String,
    pub fields: Fields,
    pub authorization: Option<String>,
}

/// Behaviour of the site, changed by tests as they go.
pub struct Script {
    pub resource_metadata: Value,
    pub server_metadata: Value,
    /// Content of `WWW-Authenticate` after the scheme.
    pub challenge: String,
    /// Scopes that a request requires.
    pub needs: Vec<String>,
    /// Parameters of authorization responses: set, or removed by `None`.
    pub response: BTreeMap<&'static str, Option<String>>,
    /// Lifetimes of tokens, in seconds.
    pub lifetimes: Vec<u64>,
    /// Error of the next token request.
    pub token_error: Option<&'static str>,
    /// False if the site rejects every token.
    pub takes_tokens: bool,
    seen: Vec<RecordedRequest>,
    tokens: BTreeMap<String, String>,
    issued: u32,
    scope: String,
}

pub struct Site {
    pub url: String,
    script: Arc<Mutex<Script>>,
    server: ServerHandle,
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.server.stop(false));
    }
}

impl Site {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let script = Arc::new(Mutex::new(Script::at(&url)));
        let data = web::Data::from(script.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/mcp", web::get().to(upstream))
                .route(
                    "/.well-known/oauth-protected-resource/mcp",
                    web::get().to(resource_metadata),
                )
                .route(
                    "/.well-known/oauth-authorization-server",
                    web::get().to(server_metadata),
                )
                .route("/authorize", web::get().to(authorize))
                .route("/register", web::post().to(register))
                .route("/token", web::post().to(token))
        })
        .workers(1)
        .listen(listener)
        .expect("the port is ours")
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        Self {
            url,
            script,
            server: handle,
        }
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panicked")
    }

    /// Returns the requests of `path`, in order.
    pub fn seen(&self, path: &str) -> Vec<RecordedRequest> {
        self.script()
            .seen
            .iter()
            .filter(|seen| seen.path == path)
            .cloned()
            .collect()
    }

    /// Revokes all issued tokens.
    pub fn revoke(&self) {
        self.script().tokens.clear();
    }

    pub fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// Returns a client whose user consents to everything.
    pub fn client(&self) -> OAuthAuthorizer {
        self.client_with(ClientIdentity::default())
    }

    pub fn client_with(&self, identity: ClientIdentity) -> OAuthAuthorizer {
        let consent =
            HeadlessConsent::new(CALLBACK, &EgressPolicy::public_internet().with_loopback())
                .expect("a client");
        self.client_by(OAuthGrant::Consent {
            consent: Arc::new(consent),
            identity,
        })
    }

    pub fn client_by(&self, grant: OAuthGrant) -> OAuthAuthorizer {
        OAuthAuthorizer::new(&self.mcp(), grant, on_this_machine()).expect("the options fit")
    }

    /// Sends one request as a transport does. Returns its status.
    pub async fn request(&self, authorizer: &dyn Authorizer) -> Result<u16, AuthError> {
        let http = reqwest::Client::new();
        let mut refused_before = 0;
        loop {
            let sent = authorizer.authorization().await?;
            let mut request = http.get(self.mcp());
            if let Some(value) = &sent {
                request = request.header(AUTHORIZATION.as_str(), value.expose_secret());
            }
            let answer = request.send().await.expect("the site answers");
            let status = answer.status().as_u16();
            if !AuthChallenge::is_challenge_status(status) {
                return Ok(status);
            }
            let lines = answer.headers().get_all(WWW_AUTHENTICATE.as_str());
            let www_authenticate: Vec<&str> = lines
                .iter()
                .map(|line| line.to_str().expect("text"))
                .collect();
            let challenge = AuthChallenge {
                status,
                www_authenticate: &www_authenticate,
                sent_authorization: sent.as_ref(),
                earlier_rejections: refused_before,
            };
            if !authorizer.handle_challenge(challenge).await? {
                return Ok(status);
            }
            refused_before += 1;
        }
    }
}

pub fn on_this_machine() -> OAuthOptions {
    OAuthOptions {
        egress: EgressPolicy::public_internet().with_loopback(),
        ..OAuthOptions::default()
    }
}

pub fn known(client: OAuthClient, issuer: Option<&str>) -> PreregisteredClient {
    PreregisteredClient {
        client,
        issuer: issuer.map(str::to_owned),
    }
}

/// Returns a new private key, in PEM.
pub fn fresh_key() -> SecretString {
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .expect("a key");
    let body = STANDARD.encode(der);
    SecretString::from(format!(
        "-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    ))
}

impl Script {
    fn at(url: &str) -> Self {
        Self {
            resource_metadata: json!({
                "resource": format!("{url}/mcp"),
                "authorization_servers": [url],
                "scopes_supported": ["read"],
            }),
            server_metadata: json!({
                "issuer": url,
                "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"),
                "registration_endpoint": format!("{url}/register"),
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
                "authorization_response_iss_parameter_supported": true,
            }),
            challenge: String::new(),
            needs: Vec::new(),
            response: BTreeMap::new(),
            lifetimes: Vec::new(),
            token_error: None,
            takes_tokens: true,
            seen: Vec::new(),
            tokens: BTreeMap::new(),
            issued: 0,
            scope: String::new(),
        }
    }

    fn see(&mut self, request: &HttpRequest, fields: Fields) {
        let authorization = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let authorization = authorization.map(str::to_owned);
        self.seen.push(RecordedRequest {
            path: request.path().to_owned(),
            fields,
            authorization,
        });
    }
}

type Data = web::Data<Mutex<Script>>;

async fn upstream(request: HttpRequest, data: Data) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    script.see(&request, Fields::new());
    let token = script
        .seen
        .last()
        .and_then(|seen| seen.authorization.clone());
    let token = token
        .as_deref()
        .and_then(|value| value.strip_prefix("Bearer "));
    let scopes = token
        .filter(|_| script.takes_tokens)
        .and_then(|token| script.tokens.get(token));
    match scopes {
        None => challenge(HttpResponse::Unauthorized(), &script.challenge),
        Some(scopes)
            if script
                .needs
                .iter()
                .all(|needed| scopes.split(' ').any(|scope| scope == needed)) =>
        {
            HttpResponse::Ok().finish()
        }
        Some(_) => {
            let lacks = format!(
                "error=\"insufficient_scope\", scope=\"{}\"",
                script.needs.join(" ")
            );
            challenge(HttpResponse::Forbidden(), &lacks)
        }
    }
}

fn challenge(mut answer: actix_web::HttpResponseBuilder, parameters: &str) -> HttpResponse {
    answer
        .insert_header((WWW_AUTHENTICATE, format!("Bearer {parameters}").trim_end()))
        .finish()
}

async fn resource_metadata(request: HttpRequest, data: Data) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    script.see(&request, Fields::new());
    published(&script.resource_metadata)
}

/// Metadata that are `null` count as missing.
fn published(metadata: &Value) -> HttpResponse {
    if metadata.is_null() {
        HttpResponse::NotFound().finish()
    } else {
        HttpResponse::Ok().json(metadata)
    }
}

async fn server_metadata(request: HttpRequest, data: Data) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    script.see(&request, Fields::new());
    published(&script.server_metadata)
}

async fn authorize(request: HttpRequest, data: Data, query: web::Query<Fields>) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    script.see(&request, query.0.clone());
    script.scope = query.get("scope").cloned().unwrap_or_default();
    let mut back: BTreeMap<&str, Option<String>> = BTreeMap::from([
        ("code", Some("c0de".to_owned())),
        ("state", query.get("state").cloned()),
        (
            "iss",
            script.server_metadata["issuer"].as_str().map(str::to_owned),
        ),
    ]);
    back.extend(script.response.clone());
    let redirect = query
        .get("redirect_uri")
        .map(String::as_str)
        .unwrap_or_default();
    let pairs = back
        .iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
    let url = reqwest::Url::parse_with_params(redirect, pairs).expect("a redirect URI");
    HttpResponse::Found()
        .insert_header((LOCATION, url.as_str()))
        .finish()
}

async fn register(request: HttpRequest, data: Data, body: web::Json<Value>) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    let fields = body
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    script.see(&request, fields);
    let issuer = &script.server_metadata["issuer"];
    HttpResponse::Created().json(json!({
        "client_id": format!("client of {}", issuer.as_str().unwrap_or_default()),
        "client_secret": "cl1ent-s3cret",
        "token_endpoint_auth_method": "client_secret_post",
    }))
}

async fn token(request: HttpRequest, data: Data, form: web::Form<Fields>) -> HttpResponse {
    let mut script = data.lock().expect("no handler panicked");
    script.see(&request, form.0.clone());
    if let Some(error) = script.token_error.take() {
        return HttpResponse::BadRequest()
            .json(json!({ "error": error, "error_description": "s3cret reasons" }));
    }
    if let (Some(kind), Some(audience)) = (form.get("requested_token_type"), form.get("audience")) {
        return HttpResponse::Ok().json(json!({
            "access_token": format!("ass3rtion for {audience}"),
            "issued_token_type": kind,
            "token_type": "N_A",
        }));
    }
    script.issued += 1;
    let number = script.issued;
    let access = format!("acc3ss-{number}");
    let scope = form
        .get("scope")
        .cloned()
        .unwrap_or_else(|| script.scope.clone());
    script.tokens.insert(access.clone(), scope);
    let lifetime = if script.lifetimes.is_empty() {
        3600
    } else {
        script.lifetimes.remove(0)
    };
    HttpResponse::Ok().json(json!({
        "access_token": access,
        "token_type": "bearer",
        "expires_in": lifetime,
        "refresh_token": format!("r3fresh-{number}"),
    }))
}
