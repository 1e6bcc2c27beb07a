//! Does what was decided: a tool of ours is used, another agent asked, and errors are recovered from. not built yet
