//! Cards as documents: made when they are asked for, the same bytes as long as they say the same.

use std::sync::Arc;
use std::time::SystemTime;

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY,
};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use callboard_message::{Principal, PrincipalKind, hex};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use url::Url;

use super::build::card;
use super::sign::sign;
use crate::inbound::calls::{Calls, Who};
use crate::inbound::options::A2aOptions;
use crate::wire::{AgentCard, Wire};
use crate::{A2aError, Dialect, ErrorKind};

/// Where the key set stands under a listener's address.
const JWKS_PATH: &str = "/.well-known/jwks.json";

/// A document and what HTTP says of it.
#[derive(Debug, Clone)]
pub(crate) struct CardBody {
    pub(crate) bytes: Bytes,
    /// Strong, with its quotes.
    pub(crate) etag: String,
    /// When it came to say this.
    pub(crate) modified: SystemTime,
}

impl CardBody {
    pub(crate) fn new(text: &str) -> Self {
        Self { bytes: Bytes::copy_from_slice(text.as_bytes()), etag: etag(text), modified: SystemTime::now() }
    }

    /// The answer to a request for it: 304 where the client has it.
    pub(crate) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let mut response = match self.is_known_to(request) {
            true => HttpResponse::NotModified().finish(),
            false => HttpResponse::Ok().body(self.bytes.clone()),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        headers.insert(VARY, HeaderValue::from_static("A2A-Version, Authorization"));
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(ETAG, etag);
        }
        if let Ok(modified) = HeaderValue::from_str(&httpdate::fmt_http_date(self.modified)) {
            headers.insert(LAST_MODIFIED, modified);
        }
        response
    }

    /// Whether the client has it already (RFC 9110, section 13.2.2: a date counts only without tags).
    fn is_known_to(&self, request: &HttpRequest) -> bool {
        let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
        let tags: Vec<_> = request.headers().get_all(IF_NONE_MATCH).map(text).collect();
        if !tags.is_empty() {
            let all = tags.iter().flat_map(|tags| tags.split(',')).map(str::trim);
            return all.map(|tag| tag.strip_prefix("W/").unwrap_or(tag)).any(|tag| tag == "*" || tag == self.etag);
        }
        let since = request.headers().get(IF_MODIFIED_SINCE).map(text);
        let since = since.and_then(|date| httpdate::parse_http_date(&date).ok());
        // A date has whole seconds.
        let modified = httpdate::fmt_http_date(self.modified);
        since.is_some_and(|since| httpdate::parse_http_date(&modified).is_ok_and(|modified| modified <= since))
    }
}

fn etag(text: &str) -> String {
    format!("\"{}\"", hex(&Sha256::digest(text)))
}

/// The cards of one agent.
pub(crate) struct Cards {
    calls: Calls,
    options: Arc<A2aOptions>,
    /// What the agent is for; empty: what its skills say.
    description: RwLock<String>,
    /// The public ones as they were made last: a signature is another each time.
    made: Mutex<[Option<Made>; 2]>,
}

#[derive(Clone)]
struct Made {
    /// What was signed.
    unsigned: String,
    body: CardBody,
}

impl Cards {
    pub(crate) fn new(calls: Calls, options: Arc<A2aOptions>) -> Self {
        let description = RwLock::new(options.info.description.clone());
        Self { calls, options, description, made: Mutex::default() }
    }

    /// Says from now on what the agent is for.
    pub(crate) fn describe(&self, description: &str) {
        description.clone_into(&mut self.description.write());
    }

    /// What the agent is for, as it was said last; empty: what its skills say.
    pub(crate) fn description(&self) -> String {
        self.description.read().clone()
    }

    /// The card for everybody: that of 1.0 for who says that it reads that, else one for readers of all versions.
    ///
    /// # Errors
    /// `Overloaded` where the agent can't tell what it can do now.
    pub(crate) async fn public(&self, reads_1_0: bool) -> Result<CardBody, A2aError> {
        let made = |cards: &Self| cards.made.lock().clone();
        let nth = usize::from(reads_1_0);
        let [hybrid_before, before] = made(self);
        let before = if reads_1_0 { before } else { hybrid_before };
        let who = Who::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let card = match self.card(&who).await {
            Ok(card) => card,
            // It said what it can do before: that is better than nothing.
            Err(_) if before.is_some() => {
                return before.map(|made| made.body).ok_or_else(A2aError::internal);
            }
            Err(error) => return Err(error),
        };
        let unsigned = card.to_json();
        if let Some(before) = before.filter(|before| before.unsigned == unsigned) {
            return Ok(before.body);
        }
        let card = self.signed(card)?;
        let body = if reads_1_0 {
            CardBody::new(&card.to_json())
        } else {
            CardBody::new(Dialect::write_hybrid_card(&card).get())
        };
        let mut made = self.made.lock();
        if let Some(place) = made.get_mut(nth) {
            // Made twice at once, it is the first one.
            if let Some(other) = place.as_ref().filter(|other| other.unsigned == unsigned) {
                return Ok(other.body.clone());
            }
            *place = Some(Made { unsigned, body: body.clone() });
        }
        Ok(body)
    }

    /// The card for a principal, with what else it may use.
    ///
    /// # Errors
    /// Where there is none, `UnsupportedOperation` (1.0, section 3.1.11: the card doesn't announce one), which older versions
    /// call `ExtendedAgentCardNotConfigured`; `Denied` to nobody in particular; `Overloaded`.
    pub(crate) async fn extended(&self, who: &Who) -> Result<AgentCard, A2aError> {
        if !self.options.extended {
            let kind = match who.dialect {
                Dialect::V10 => ErrorKind::UnsupportedOperation,
                Dialect::V03 | Dialect::V03Rest | Dialect::V01 => ErrorKind::ExtendedAgentCardNotConfigured,
            };
            return Err(A2aError::new(kind, "there is no extended card: the public one is all"));
        }
        if who.principal.kind == PrincipalKind::Anonymous {
            return Err(A2aError::new(ErrorKind::Denied, "the extended card is for who shows a credential"));
        }
        self.signed(self.card(who).await?)
    }

    /// The keys that cards are signed with; `None` where they aren't.
    pub(crate) fn jwks(&self) -> Option<CardBody> {
        self.options.signer.as_ref().map(|key| CardBody::new(key.jwks().to_raw().get()))
    }

    async fn card(&self, who: &Who) -> Result<AgentCard, A2aError> {
        let skills = self.calls.skills(who.call()).await?;
        Ok(card(&self.options, &skills, &self.description.read()))
    }

    fn signed(&self, mut card: AgentCard) -> Result<AgentCard, A2aError> {
        if let Some(key) = &self.options.signer {
            sign(&mut card, key, jwks_url(&self.options.base_url).as_ref()).map_err(|error| {
                callboard_message::log::error!(%error, "a card can't be signed");
                A2aError::internal()
            })?;
        }
        Ok(card)
    }
}

/// Where a listener's key set is, by the address of one of its agents: of all of them, or `…/agents/NAME`.
fn jwks_url(base_url: &Url) -> Option<Url> {
    let base = base_url.as_str().trim_end_matches('/');
    let of_listener = match base.rsplit_once("/agents/") {
        Some((before, name)) if !name.contains('/') => before,
        _ => base,
    };
    Url::parse(&format!("{of_listener}{JWKS_PATH}")).ok()
}
