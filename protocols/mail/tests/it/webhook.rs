//! Webhooks: what is sent, what is refused.
