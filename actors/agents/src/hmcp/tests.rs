//! What the HMCP agents answer, in this process.
