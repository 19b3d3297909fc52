"""The check of an uploaded dataset, its report and its preview."""
