"""The page of a model: its lineage, its scores, the team's own words, and how to serve it."""
