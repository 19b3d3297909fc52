"""The records of a run, and how they are read."""
