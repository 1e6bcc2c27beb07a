//! One `tmux` command: an argv, a bound, an end.
