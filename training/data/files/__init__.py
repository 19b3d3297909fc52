"""How rows are stored in files: streaming readers and writers, by container."""
