"""Results: a model's page, and the summary of an ended run."""
