//! Letters as signed HTTP posts.
