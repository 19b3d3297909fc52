"""Rules that remove what old runs left."""
