"""A run from claim to outcome: lease, supervisor, projection, reaper."""
