//! Events as a stream that resumes by itself.
