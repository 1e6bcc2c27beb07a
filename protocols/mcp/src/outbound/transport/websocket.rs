//! WebSocket transport: one message per text frame.

use std::sync::Arc;

use callboard_rpc::ReadPacer;
use callboard_rpc::http1::ConnectFailure;
use futures::{SinkExt, StreamExt};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::Response;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
};

use super::duplex::{
    CLIENT_ENDED, DuplexChannel, DuplexDriver, OutboxReceiver, droppable_bytes_max,
};
use super::{Transport, send_authorized};
use crate::outbound::exchange::TransportError;
use crate::outbound::options::McpClientOptions;
use crate::outbound::server_messages::NotificationHandler;

const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

/// Response of a server that rejects the handshake.
type HandshakeRejection = Box<Response<Option<Vec<u8>>>>;

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Opens a WebSocket connection to the MCP server at `url`, with subprotocol `mcp`. Repeats the
/// handshake after a rejection for which the authorizer has obtained a better token.
pub(crate) async fn open(
    url: &Url,
    options: &McpClientOptions,
    notifications: Arc<NotificationHandler>,
) -> Result<Transport, TransportError> {
    let connecting = timeout(options.connect_timeout, connect(url, options));
    let socket = connecting
        .await
        .map_err(|_| TransportError::TimedOut(options.connect_timeout))??;
    let (transport, driver, outbox) = DuplexChannel::open(
        notifications,
        options.limits,
        options
            .name
            .as_deref()
            .unwrap_or(url.host_str().unwrap_or_default()),
    );
    let bytes_max = options.limits.body_bytes_max;
    tokio::spawn(run_driver(driver, outbox, socket, bytes_max));
    Ok(transport)
}

async fn connect(url: &Url, options: &McpClientOptions) -> Result<Socket, TransportError> {
    let send = |authorization| try_handshake(url, options, authorization);
    let answer = send_authorized(options, send, |answer| {
        answer.as_ref().err().map(|no| (no.status(), no.headers()))
    });
    answer
        .await?
        .map_err(|refusal| TransportError::Status(refusal.status().as_u16()))
}

/// Attempts the WebSocket handshake once.
async fn try_handshake(
    url: &Url,
    options: &McpClientOptions,
    authorization: Option<HeaderValue>,
) -> Result<Result<Socket, HandshakeRejection>, TransportError> {
    let bytes_max = Some(droppable_bytes_max(&options.limits));
    let config = WebSocketConfig::default()
        .max_message_size(bytes_max)
        .max_frame_size(bytes_max);
    let mut request = url.as_str().into_client_request().map_err(|_| {
        TransportError::Unreachable("not a WebSocket URL: write it with ws:// or wss://".into())
    })?;
    let headers = request.headers_mut();
    for (name, value) in &options.headers {
        headers.append(name, value.clone());
    }
    headers.insert(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    if let Some(value) = authorization {
        headers.insert(AUTHORIZATION, value);
    }
    let tls = options.tls.config().map_err(|error| {
        TransportError::Unreachable(format!("can't set up TLS: {error}").into())
    })?;
    let connector = Some(Connector::Rustls(Arc::new(tls)));
    // TCP_NODELAY: small messages are sent at once.
    let is_undelayed = true;
    match connect_async_tls_with_config(request, Some(config), is_undelayed, connector).await {
        Ok((socket, _)) => Ok(Ok(socket)),
        Err(Error::Http(response)) => Ok(Err(response)),
        Err(error) => Err(TransportError::Unreachable(
            format!(
                "can't open the WebSocket: {}",
                ConnectFailure::from_error(&error)
            )
            .into(),
        )),
    }
}

/// Reads and writes the socket until it is closed. `bytes_max` is the limit of a message, which an
/// error names.
async fn run_driver(
    driver: DuplexDriver,
    mut outbox: OutboxReceiver,
    socket: Socket,
    bytes_max: usize,
) {
    let (mut sink, mut stream) = socket.split();
    let hear = async {
        let mut pacer = ReadPacer::default();
        loop {
            pacer.wait().await;
            let is_response = match stream.next().await {
                Some(Ok(Message::Text(text))) => driver.handle_message(text.as_bytes()),
                Some(Ok(Message::Binary(bytes))) => driver.handle_message(&bytes),
                Some(Ok(Message::Close(_))) | None => {
                    return TransportError::Broken("the server has closed the WebSocket".into());
                }
                // The socket answers pings itself.
                Some(Ok(_)) => false,
                Some(Err(Error::Capacity(_))) => {
                    return TransportError::TooLarge(bytes_max);
                }
                Some(Err(_)) => {
                    return TransportError::Broken(
                        "the WebSocket connection to the server broke".into(),
                    );
                }
            };
            // A server that only answers is as fast as its callers.
            if !is_response {
                pacer.count();
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            // Our messages are JSON, and therefore UTF-8.
            let Ok(text) = String::from_utf8(message) else {
                continue;
            };
            if sink.send(Message::text(text)).await.is_err() {
                return TransportError::Broken(
                    "the WebSocket connection to the server broke".into(),
                );
            }
        }
        CLIENT_ENDED
    };
    driver.run(hear, write).await;
    // The peer may have disconnected already.
    let _ = timeout(CLOSE_TIMEOUT, sink.close()).await;
}

/// Time limit of closing the WebSocket with a close frame.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
