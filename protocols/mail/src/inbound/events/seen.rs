//! Who may see which event.
