//! What happens to the mail, as it happens: WebSocket `/api/events`.

mod frames;
mod seen;
mod socket;
