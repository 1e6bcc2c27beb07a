//! Mail for agents that converse: A2A's, and whoever else takes words.
