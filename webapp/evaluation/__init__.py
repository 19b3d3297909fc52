"""Which model is better: comparisons, suites, sharing, votes, rescoring."""
