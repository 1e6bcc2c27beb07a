//! Handlers of the routes: each parses its request, calls the mailroom and builds the response.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::mail::{
    AgentLogs, AgentStatus, BroadcastMessage, DeliveryState, EndAgent, FetchMail, GetAgentStatus,
    MailView, MarkRead, MemberId, MessageHistory, ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::{Failure, Message, RawObject};
use callboard_rpc::serve::buffers::RequestBody;
use callboard_rpc::serve::guard;
use callboard_rpc::serve::idle_timeout::ActiveRequest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::http::{self, ProblemResponse, QueryParameters, json_response};
use super::routes::{self, BriefSendReceipt, Operation, ReplyBody, Route};
use super::{MailCaller, MailServerOptions, MailServerState, events};

/// Response header with the id of the sent message. `Location` contains it as a path.
static MESSAGE_ID_HEADER: HeaderName = HeaderName::from_static("x-message-id");
/// Request header with the idempotency key.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// Request body without members: `{}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

/// Runs the operation of a route.
pub(super) async fn handle_route(
    route: &'static Route,
    request: &HttpRequest,
    payload: Payload,
    server: &Data<MailServerState>,
    busy: ActiveRequest,
) -> Result<HttpResponse, ProblemResponse> {
    if route.operation == Operation::Description {
        guard::check_source(request, &server.options.hosts, &server.options.origins)?;
        return ok_response(routes::openapi_document());
    }
    let caller = super::authenticate(request, &server.options).await?;
    let query = QueryParameters::read(request.query_string(), |name| route.has_parameter(name))?;
    let asking = MailRequest {
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
            let MailRequest {
                request,
                server,
                caller,
                query,
            } = asking;
            events::open_socket(request, payload, server, caller, &query, busy).await
        }
        // Handled above.
        Operation::Description => Err(ProblemResponse::not_found()),
    }
}

fn ok_response(body: &impl Serialize) -> Result<HttpResponse, ProblemResponse> {
    Ok(json_response(StatusCode::OK, body))
}

/// Authenticated request, with its parsed query.
struct MailRequest<'a> {
    request: &'a HttpRequest,
    server: &'a Data<MailServerState>,
    caller: MailCaller,
    query: QueryParameters<'a>,
}

impl MailRequest<'_> {
    async fn broadcast(&self, payload: Payload) -> Result<HttpResponse, ProblemResponse> {
        let mut message: BroadcastMessage = self.read_body(payload).await?;
        message.idempotency_key = self.idempotency_key(message.idempotency_key)?;
        self.send_message(&message).await
    }

    async fn send(&self, payload: Payload) -> Result<HttpResponse, ProblemResponse> {
        let mut message: SendMessage = self.read_body(payload).await?;
        message.idempotency_key = self.idempotency_key(message.idempotency_key)?;
        self.send_message(&message).await
    }

    async fn reply(&self, payload: Payload) -> Result<HttpResponse, ProblemResponse> {
        let message_id = self.path_id("message_id")?;
        let body: ReplyBody = self.read_body(payload).await?;
        let ReplyBody {
            message,
            sender_agent_id,
            to_all,
            priority,
            idempotency_key,
        } = body;
        let idempotency_key = self.idempotency_key(idempotency_key)?;
        let reply = ReplyMessage {
            message_id,
            message,
            sender_agent_id,
            to_all,
            priority,
            idempotency_key,
        };
        self.send_message(&reply).await
    }

    async fn agents(&self) -> Result<HttpResponse, ProblemResponse> {
        let state = self.query.parse("state")?;
        let mut status: AgentStatus = self
            .server
            .ask(&self.caller, &GetAgentStatus::default())
            .await?;
        if let Some(state) = state {
            status.agents.retain(|agent| agent.state == state);
            status.count = status.agents.len() as u64;
        }
        ok_response(&status)
    }

    async fn agent(&self) -> Result<HttpResponse, ProblemResponse> {
        let agent_id = self.path_id("agent_id")?;
        let asked = GetAgentStatus {
            agent_id: Some(agent_id),
        };
        let status: AgentStatus = self.server.ask(&self.caller, &asked).await?;
        ok_response(
            status
                .agents
                .first()
                .ok_or_else(ProblemResponse::not_found)?,
        )
    }

    async fn end_agent(
        &self,
        payload: Payload,
        back: bool,
    ) -> Result<HttpResponse, ProblemResponse> {
        let agent_id = self.path_id("agent_id")?;
        self.read_empty_body(payload).await?;
        ok_response(
            &self
                .server
                .ask(&self.caller, &EndAgent { agent_id, back })
                .await?,
        )
    }

    async fn messages(&self) -> Result<HttpResponse, ProblemResponse> {
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
                    .parse("box")?
                    .unwrap_or(callboard_message::mail::MailDirection::In),
            ),
            state: query.parse("state")?,
            after: query.parse("after")?,
            limit: query.parse("limit")?,
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
            self.fetch_messages(message_ids, false).await?
        };
        let mut answer = RawObject::new().with("messages", messages);
        if let Some(next) = page.next {
            answer.set("next", next);
        }
        ok_response(&answer)
    }

    async fn message(&self) -> Result<HttpResponse, ProblemResponse> {
        let message_id = self.path_id("message_id")?;
        let receipts = self.query.parse("receipts")?.unwrap_or(false);
        ok_response(
            &self
                .fetch_messages(vec![message_id], receipts)
                .await?
                .pop()
                .ok_or_else(ProblemResponse::not_found)?,
        )
    }

    /// Fetches messages with their original text, which marks them as delivered to the caller.
    async fn fetch_messages(
        &self,
        message_ids: Vec<String>,
        receipts: bool,
    ) -> Result<Vec<MailView>, ProblemResponse> {
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

    async fn mark_read(&self, payload: Payload) -> Result<HttpResponse, ProblemResponse> {
        let message_id = self.path_id("message_id")?;
        self.read_empty_body(payload).await?;
        ok_response(
            &self
                .server
                .ask(
                    &self.caller,
                    &MarkRead {
                        message_id,
                        state: Some(DeliveryState::Read),
                    },
                )
                .await?,
        )
    }

    async fn agent_logs(&self) -> Result<HttpResponse, ProblemResponse> {
        let query = &self.query;
        let (after, limit) = (query.parse("after")?, query.parse("limit")?);
        let asked = AgentLogs {
            agent_id: query.owned("agent_id"),
            after,
            limit,
        };
        ok_response(&self.server.ask(&self.caller, &asked).await?)
    }

    /// Returns the id in the path parameter `part`.
    ///
    /// # Errors
    /// 404 if it is not a valid id, as for an unknown one.
    fn path_id(&self, part: &str) -> Result<String, ProblemResponse> {
        let text = self.request.match_info().get(part).unwrap_or_default();
        MemberId::parse(text)
            .map(|id| id.to_string())
            .map_err(|_| ProblemResponse::not_found())
    }

    async fn read_body<T: DeserializeOwned>(&self, payload: Payload) -> Result<T, ProblemResponse> {
        http::parse_body(
            &self.read_bytes(payload).await?,
            &self.server.options.limits,
        )
    }

    /// Checks that the request has no body, or `{}`.
    async fn read_empty_body(&self, payload: Payload) -> Result<(), ProblemResponse> {
        let bytes = self.read_bytes(payload).await?;
        if bytes.is_empty() {
            Ok(())
        } else {
            http::parse_body(&bytes, &self.server.options.limits).map(|EmptyBody {}| ())
        }
    }

    async fn read_bytes(&self, payload: Payload) -> Result<RequestBody, ProblemResponse> {
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

    /// Returns the idempotency key of a message, from the header `Idempotency-Key` or from the body
    /// (`in_body`).
    ///
    /// # Errors
    /// 422 if both are present and differ.
    fn idempotency_key(&self, in_body: Option<String>) -> Result<Option<String>, ProblemResponse> {
        match (http::header(self.request, IDEMPOTENCY_KEY_HEADER)?, in_body) {
            (Some(header), Some(member)) if header != member => {
                Err(ProblemResponse::unprocessable(
                    "`idempotency_key` and the header `Idempotency-Key` differ: send one of them",
                ))
            }
            (header, member) => Ok(header.or(member)),
        }
    }

    /// Sends a message to the mailroom and builds the response from its receipt: all of the receipt
    /// if the parameter `detail` is set, else a short form.
    async fn send_message<M: Message<Reply = Result<SendReceipt, Failure>>>(
        &self,
        message: &M,
    ) -> Result<HttpResponse, ProblemResponse> {
        let sent = self.server.ask(&self.caller, message).await?;
        let whole = self.query.parse("detail")?.unwrap_or(false);
        let SendReceipt {
            success,
            recipient_count,
            ref message,
            ..
        } = sent;
        let brief = BriefSendReceipt {
            success,
            recipient_count,
            message,
        };
        let mut response = if whole {
            ok_response(&sent)?
        } else {
            ok_response(&brief)?
        };
        if let Some(id) = &sent.message_id
            && let (Ok(value), Ok(place)) = (
                HeaderValue::from_str(id),
                HeaderValue::from_str(&format!("/api/messages/{id}")),
            )
        {
            response
                .headers_mut()
                .insert(MESSAGE_ID_HEADER.clone(), value);
            response.headers_mut().insert(LOCATION, place);
        }
        Ok(response)
    }
}
