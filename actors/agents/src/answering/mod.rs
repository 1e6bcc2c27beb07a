//! Who answers what a server asks in mid-call: the client, a model of ours, another server, nobody.

mod options;

pub use options::{
    AnswerError, AnswerOptions, Answerer, Caps, DEPTH_MAX_DEFAULT, REQUESTS_PER_CALL_MAX_DEFAULT,
    REQUESTS_PER_MINUTE_MAX_DEFAULT, Routing, SAMPLE_TIMEOUT_S_DEFAULT, ServerGrants, Strategy,
    TOKENS_PER_ANSWER_DEFAULT, TOKENS_PER_ANSWER_MAX_DEFAULT, TOKENS_PER_CALL_MAX_DEFAULT,
    TOKENS_PER_MINUTE_MAX_DEFAULT, UnknownAnswerer,
};
