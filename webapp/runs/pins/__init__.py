"""Charts of runs that a project's page shows: pinned by a member, seen by everybody in the project."""
