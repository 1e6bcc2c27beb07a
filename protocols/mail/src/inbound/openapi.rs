//! The description of this listener, version 3.1.0 of OpenAPI.
