//! What each route does: it reads the request, asks the mailroom, and says what came of it.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::mail::{
    AgentLogs, AgentStatus, BroadcastMessage, EndAgent, EntryState, FetchMail, GetAgentStatus,
    MailId, MailView, MarkRead, MessageHistory, ReplyMessage, SendMessage, Sent,
};
use callboard_message::{Failure, Message, RawObject};
use callboard_rpc::serve::guard;
use callboard_rpc::serve::idle::Busy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::http::{self, Problem, Query, json};
use super::routes::{self, Brief, Operation, ReplyBody, Route};
use super::{Caller, MailServerOptions, Server, events};

/// The header of a message's id, beside `Location`.
static MESSAGE_ID: HeaderName = HeaderName::from_static("x-message-id");
/// The header of a key by which the same message is sent once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A body that says nothing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Does what a route is for.
pub(super) async fn perform(
    route: &'static Route,
    request: &HttpRequest,
    payload: Payload,
    server: &Data<Server>,
    busy: Busy,
) -> Result<HttpResponse, Problem> {
    if route.operation == Operation::Description {
        guard::check_source(request, &server.options.hosts, &server.options.origins)?;
        return done(routes::description());
    }
    let caller = super::caller(request, &server.options)?;
    let query = Query::read(request.query_string(), |name| route.knows(name))?;
    let asking = Asking {
        request,
        server,
        caller,
        query,
    };
    match route.operation {
        Operation::Broadcast => asking.broadcast(payload).await,
        Operation::Send => asking.send(payload).await,
        Operation::Agents => asking.agents().await,
        Operation::Agent => asking.agent().await,
        Operation::EndAgent => asking.end_agent(payload, false).await,
        Operation::AgentBack => asking.end_agent(payload, true).await,
        Operation::Messages => asking.messages().await,
        Operation::Message => asking.message().await,
        Operation::MarkRead => asking.mark_read(payload).await,
        Operation::Reply => asking.reply(payload).await,
        Operation::AgentLogs => asking.agent_logs().await,
        Operation::Events => {
            let Asking {
                request,
                server,
                caller,
                query,
            } = asking;
            events::open(request, payload, server, caller, &query, busy).await
        }
        // Answered above.
        Operation::Description => Err(Problem::not_found()),
    }
}

fn done(body: &impl Serialize) -> Result<HttpResponse, Problem> {
    Ok(json(StatusCode::OK, body))
}

/// A request whose sender is known.
struct Asking<'a> {
    request: &'a HttpRequest,
    server: &'a Data<Server>,
    caller: Caller,
    query: Query<'a>,
}

impl Asking<'_> {
    async fn broadcast(&self, payload: Payload) -> Result<HttpResponse, Problem> {
        let mut message: BroadcastMessage = self.body(payload).await?;
        message.idempotency_key = self.key(message.idempotency_key)?;
        self.say(&message).await
    }

    async fn send(&self, payload: Payload) -> Result<HttpResponse, Problem> {
        let mut message: SendMessage = self.body(payload).await?;
        message.idempotency_key = self.key(message.idempotency_key)?;
        self.say(&message).await
    }

    async fn reply(&self, payload: Payload) -> Result<HttpResponse, Problem> {
        let message_id = self.id("message_id")?;
        let body: ReplyBody = self.body(payload).await?;
        let ReplyBody {
            message,
            sender_agent_id,
            to_all,
            priority,
            idempotency_key,
        } = body;
        let idempotency_key = self.key(idempotency_key)?;
        let reply = ReplyMessage {
            message_id,
            message,
            sender_agent_id,
            to_all,
            priority,
            idempotency_key,
        };
        self.say(&reply).await
    }

    async fn agents(&self) -> Result<HttpResponse, Problem> {
        let state = self.query.word("state")?;
        let mut status: AgentStatus = self
            .server
            .ask(&self.caller, &GetAgentStatus::default())
            .await?;
        if let Some(state) = state {
            status.agents.retain(|agent| agent.state == state);
            status.count = status.agents.len() as u64;
        }
        done(&status)
    }

    async fn agent(&self) -> Result<HttpResponse, Problem> {
        let agent_id = self.id("agent_id")?;
        let asked = GetAgentStatus {
            agent_id: Some(agent_id),
        };
        let status: AgentStatus = self.server.ask(&self.caller, &asked).await?;
        done(status.agents.first().ok_or_else(Problem::not_found)?)
    }

    async fn end_agent(&self, payload: Payload, back: bool) -> Result<HttpResponse, Problem> {
        let agent_id = self.id("agent_id")?;
        self.body_may_be(payload).await?;
        done(
            &self
                .server
                .ask(&self.caller, &EndAgent { agent_id, back })
                .await?,
        )
    }

    async fn messages(&self) -> Result<HttpResponse, Problem> {
        let query = &self.query;
        let asked = MessageHistory {
            sender_agent_id: None,
            with: query.owned("with"),
            from: query.owned("from"),
            topic: query.owned("topic"),
            thread: query.owned("thread"),
            text: query.owned("text"),
            since: query.owned("since"),
            until: query.owned("until"),
            direction: Some(
                query
                    .word("box")?
                    .unwrap_or(callboard_message::mail::Direction::In),
            ),
            state: query.word("state")?,
            after: query.word("after")?,
            limit: query.word("limit")?,
        };
        let page = self.server.ask(&self.caller, &asked).await?;
        let message_ids: Vec<_> = page
            .messages
            .into_iter()
            .map(|message| message.message_id)
            .collect();
        let messages = if message_ids.is_empty() {
            Vec::new()
        } else {
            self.fetch(message_ids, false).await?
        };
        let mut answer = RawObject::new().with("messages", messages);
        if let Some(next) = page.next {
            answer.set("next", next);
        }
        done(&answer)
    }

    async fn message(&self) -> Result<HttpResponse, Problem> {
        let message_id = self.id("message_id")?;
        let receipts = self.query.word("receipts")?.unwrap_or(false);
        done(
            &self
                .fetch(vec![message_id], receipts)
                .await?
                .pop()
                .ok_or_else(Problem::not_found)?,
        )
    }

    /// Messages with what was sent, letter by letter. They count as delivered to the caller.
    async fn fetch(
        &self,
        message_ids: Vec<String>,
        receipts: bool,
    ) -> Result<Vec<MailView>, Problem> {
        Ok(self
            .server
            .ask(
                &self.caller,
                &FetchMail {
                    message_ids,
                    receipts,
                },
            )
            .await?
            .messages)
    }

    async fn mark_read(&self, payload: Payload) -> Result<HttpResponse, Problem> {
        let message_id = self.id("message_id")?;
        self.body_may_be(payload).await?;
        done(
            &self
                .server
                .ask(
                    &self.caller,
                    &MarkRead {
                        message_id,
                        state: Some(EntryState::Read),
                    },
                )
                .await?,
        )
    }

    async fn agent_logs(&self) -> Result<HttpResponse, Problem> {
        let query = &self.query;
        let (after, limit) = (query.word("after")?, query.word("limit")?);
        let asked = AgentLogs {
            agent_id: query.owned("agent_id"),
            after,
            limit,
        };
        done(&self.server.ask(&self.caller, &asked).await?)
    }

    /// A part of the path that must be an id: what can't be one names nothing.
    fn id(&self, part: &str) -> Result<String, Problem> {
        let text = self.request.match_info().get(part).unwrap_or_default();
        MailId::parse(text)
            .map(|id| id.to_string())
            .map_err(|_| Problem::not_found())
    }

    async fn body<T: DeserializeOwned>(&self, payload: Payload) -> Result<T, Problem> {
        http::body(&self.bytes(payload).await?, &self.server.options.limits)
    }

    /// A body that says nothing, if there is one.
    async fn body_may_be(&self, payload: Payload) -> Result<(), Problem> {
        let bytes = self.bytes(payload).await?;
        if bytes.is_empty() {
            Ok(())
        } else {
            http::body(&bytes, &self.server.options.limits).map(|Nothing {}| ())
        }
    }

    async fn bytes(&self, payload: Payload) -> Result<bytes::BytesMut, Problem> {
        let MailServerOptions {
            limits,
            body_timeout,
            ..
        } = &self.server.options;
        let body = guard::read_json(
            self.request,
            payload,
            &[guard::JSON],
            limits.body_bytes_max,
            *body_timeout,
        );
        Ok(body.await?)
    }

    /// The key of a message: in its header or in the body, or in both where they agree.
    fn key(&self, in_body: Option<String>) -> Result<Option<String>, Problem> {
        match (http::header(self.request, IDEMPOTENCY_KEY)?, in_body) {
            (Some(header), Some(member)) if header != member => Err(Problem::unfit(
                "`idempotency_key` and the header `Idempotency-Key` say different things",
            )),
            (header, member) => Ok(header.or(member)),
        }
    }

    /// Has something sent.
    async fn say<M: Message<Reply = Result<Sent, Failure>>>(
        &self,
        message: &M,
    ) -> Result<HttpResponse, Problem> {
        let sent = self.server.ask(&self.caller, message).await?;
        let whole = self.query.word("detail")?.unwrap_or(false);
        let Sent {
            success,
            recipient_count,
            ref message,
            ..
        } = sent;
        let brief = Brief {
            success,
            recipient_count,
            message,
        };
        let mut response = if whole { done(&sent)? } else { done(&brief)? };
        if let Some(id) = &sent.message_id
            && let (Ok(value), Ok(place)) = (
                HeaderValue::from_str(id),
                HeaderValue::from_str(&format!("/api/messages/{id}")),
            )
        {
            response.headers_mut().insert(MESSAGE_ID.clone(), value);
            response.headers_mut().insert(LOCATION, place);
        }
        Ok(response)
    }
}
