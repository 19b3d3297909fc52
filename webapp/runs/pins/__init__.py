"""Charts of runs that a project's page shows: pinned by somebody, seen by everybody in the project."""
