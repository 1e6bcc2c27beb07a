//! WebSocket: a text message each.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::Response;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::duplex::{CLIENT_ENDED, Duplex, Engine, Outbox};
use super::{Transport, authorized};
use crate::outbound::exchange::TransportError;
use crate::outbound::options::ClientOptions;
use crate::outbound::server_messages::NotificationHandler;

/// The subprotocol that MCP goes under.
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

/// The answer of a server that opens none.
type Refusal = Box<Response<Option<Vec<u8>>>>;

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Opens the WebSocket at `url`.
pub(crate) async fn open(
    url: &Url,
    options: &ClientOptions,
    ear: Arc<NotificationHandler>,
) -> Result<Transport, TransportError> {
    let connecting = timeout(options.connect_timeout, connect(url, options));
    let socket = connecting
        .await
        .map_err(|_| TransportError::TimedOut(options.connect_timeout))??;
    let (link, engine, outbox) = Duplex::open(
        ear,
        options.limits,
        options
            .name
            .as_deref()
            .unwrap_or(url.host_str().unwrap_or_default()),
    );
    tokio::spawn(speak(engine, outbox, socket));
    Ok(link)
}

async fn connect(url: &Url, options: &ClientOptions) -> Result<Socket, TransportError> {
    let send = |authorization| ask(url, options, authorization);
    let answer = authorized(options, send, |answer| {
        answer.as_ref().err().map(|no| (no.status(), no.headers()))
    });
    answer
        .await?
        .map_err(|refusal| TransportError::Status(refusal.status().as_u16()))
}

/// Asks for the WebSocket once.
async fn ask(
    url: &Url,
    options: &ClientOptions,
    authorization: Option<HeaderValue>,
) -> Result<Result<Socket, Refusal>, TransportError> {
    let bytes_max = Some(options.limits.body_bytes_max);
    let config = WebSocketConfig::default()
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max);
    let mut request = url
        .as_str()
        .into_client_request()
        .map_err(|_| TransportError::Unreachable("not a WebSocket URL"))?;
    let headers = request.headers_mut();
    for (name, value) in &options.headers {
        headers.append(name, value.clone());
    }
    headers.insert(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    if let Some(value) = authorization {
        headers.insert(AUTHORIZATION, value);
    }
    // The last argument: small messages aren't held back (TCP_NODELAY).
    match connect_async_with_config(request, Some(config), true).await {
        Ok((socket, _)) => Ok(Ok(socket)),
        Err(Error::Http(response)) => Ok(Err(response)),
        Err(_) => Err(TransportError::Unreachable("can't open the WebSocket")),
    }
}

async fn speak(engine: Engine, mut outbox: Outbox, socket: Socket) {
    let (mut sink, mut stream) = socket.split();
    let hear = async {
        loop {
            match stream.next().await {
                Some(Ok(Message::Text(text))) => engine.take(text.as_bytes()),
                Some(Ok(Message::Binary(bytes))) => engine.take(&bytes),
                Some(Ok(Message::Close(_))) | None => {
                    return TransportError::Broken("the server has closed the WebSocket");
                }
                // Pings are answered by the socket itself.
                Some(Ok(_)) => {}
                Some(Err(Error::Capacity(_))) => return TransportError::TooLarge,
                Some(Err(_)) => return TransportError::Broken("the WebSocket is broken"),
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            // What is written here is JSON, and so UTF-8.
            let Ok(text) = String::from_utf8(message) else {
                continue;
            };
            if sink.send(Message::text(text)).await.is_err() {
                return TransportError::Broken("the WebSocket is broken");
            }
        }
        CLIENT_ENDED
    };
    engine.run(hear, write).await;
    // The peer may be gone already.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}

/// How long a server may take to hear that the WebSocket closes.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
