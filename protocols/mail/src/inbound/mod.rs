//! Agent mail for clients: HTTP and WebSocket on a listener of its own.
//!
//! Whoever asks shows a key, and says in `X-Agent-ID` who it is: the two must agree. The mailroom decides everything else.
//!
//! | sent | status |
//! |---|---|
//! | a good request | 200, also where nobody could be written to: `success` says so |
//! | no good key; no `X-Agent-ID`, an empty one, or two | 401 |
//! | an `X-Agent-ID` that isn't the key's; an agent that is terminated; an `Origin` or `Host` that isn't allowed | 403 |
//! | a message or agent that isn't there, or isn't the caller's to see | 404 |
//! | another method; another content type; a body over the limit; one that doesn't arrive in time | 405; 415; 413; 408 |
//! | a body or query that doesn't fit | 422, which names the member |
//! | too many messages | 429, with `Retry-After` |
//! | a store that failed, or a bug | 500 |
//! | no room just now; a mailroom that is late | 503; 504 |

mod admit;
mod events;
mod openapi;
mod operations;
mod options;
mod read;
mod reply;
mod routes;
mod server;

pub use callboard_rpc::serve::{ListenOptions, ServeError, Serving};
pub use options::MailServerOptions;
pub use server::{MailServer, serve};
