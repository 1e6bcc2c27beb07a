//! Bodies, queries and headers, read strictly.
