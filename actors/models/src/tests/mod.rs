//! Tests of models, with recorded and shortened response bodies.

mod anthropic;
mod bounds;
mod chat;
mod choosing;
mod conversation;
mod embedding;
mod failing;
mod kit;
mod ollama;
mod places;
mod quotas;
mod responses;
mod secrecy;
mod slow;
mod spending;
mod standins;
