"""Who is better: comparisons, suites, sharing, votes, rescoring."""
