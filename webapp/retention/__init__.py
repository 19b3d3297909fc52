"""Rules that remove what old runs left: transcripts, values of tokens, logs, checkpoints."""
