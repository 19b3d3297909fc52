"""The page of a model: where it comes from, how good it is, what the team says of it, how it is served."""
