"""Advisories: what the run doctor (``training.doctor``) finds in runs, kept as rows, announced and shown."""
