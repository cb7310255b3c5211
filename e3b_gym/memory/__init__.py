"""Per-environment bonus memory: explicit state, cleared where an episode starts."""
