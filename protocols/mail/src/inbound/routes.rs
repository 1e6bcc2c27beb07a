//! One table of routes.
