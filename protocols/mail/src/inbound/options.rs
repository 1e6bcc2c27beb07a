//! What a mail listener is made with.
