//! Rules for what is decided while a request is worked on: DP1, NP3, NP4, NP5. not built yet
